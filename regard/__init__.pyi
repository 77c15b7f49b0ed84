from regard.attention import attend as attend
from regard.attention import partial as partial
from regard.attention import plan as plan
from regard.attention import weigh as weigh
from regard.database import Answer as Answer
from regard.database import Database as Database
from regard.engines import ENGINES as ENGINES
from regard.engines import Engine as Engine
from regard.masks import (
    Allowed as Allowed,
)
from regard.masks import (
    BlockLayout as BlockLayout,
)
from regard.masks import (
    Causal as Causal,
)
from regard.masks import (
    GlobalKeys as GlobalKeys,
)
from regard.masks import (
    KeyMask as KeyMask,
)
from regard.masks import (
    Mask as Mask,
)
from regard.masks import (
    NotSelf as NotSelf,
)
from regard.masks import (
    Padding as Padding,
)
from regard.masks import (
    PerHead as PerHead,
)
from regard.masks import (
    RandomKeys as RandomKeys,
)
from regard.masks import (
    SameDocument as SameDocument,
)
from regard.masks import (
    Selected as Selected,
)
from regard.masks import (
    Strided as Strided,
)
from regard.masks import (
    Where as Where,
)
from regard.masks import (
    Window as Window,
)
from regard.partials import Partial as Partial
from regard.planner import Plan as Plan
from regard.scores import (
    Additive as Additive,
)
from regard.scores import (
    Alibi as Alibi,
)
from regard.scores import (
    Bias as Bias,
)
from regard.scores import (
    Boxcar as Boxcar,
)
from regard.scores import (
    Cosine as Cosine,
)
from regard.scores import (
    Custom as Custom,
)
from regard.scores import (
    Dot as Dot,
)
from regard.scores import (
    Epanechnikov as Epanechnikov,
)
from regard.scores import (
    Equal as Equal,
)
from regard.scores import (
    Gated as Gated,
)
from regard.scores import (
    Gaussian as Gaussian,
)
from regard.scores import (
    Laplacian as Laplacian,
)
from regard.scores import (
    Multiplicative as Multiplicative,
)
from regard.scores import (
    RelativeBias as RelativeBias,
)
from regard.scores import (
    ScaledDot as ScaledDot,
)
from regard.scores import (
    Score as Score,
)
from regard.scores import (
    SoftCap as SoftCap,
)
from regard.scores import (
    Triangular as Triangular,
)
from regard.view.weights_view import WeightsView as WeightsView
from regard.weights import (
    Conic as Conic,
)
from regard.weights import (
    Entmax as Entmax,
)
from regard.weights import (
    OneHot as OneHot,
)
from regard.weights import (
    OnePass as OnePass,
)
from regard.weights import (
    Proportional as Proportional,
)
from regard.weights import (
    Raw as Raw,
)
from regard.weights import (
    Sigmoid as Sigmoid,
)
from regard.weights import (
    Softmax as Softmax,
)
from regard.weights import (
    Sparsemax as Sparsemax,
)
from regard.weights import (
    TopK as TopK,
)
from regard.weights import (
    Uniform as Uniform,
)
from regard.weights import (
    Weights as Weights,
)

__version__: str
