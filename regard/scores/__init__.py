"""Scores a(q, k), one per file; `form.py` has what engines see of them."""

from regard.scores.additive import Additive
from regard.scores.bias import Alibi, Bias, RelativeBias
from regard.scores.compact import Boxcar, Epanechnikov, Triangular
from regard.scores.composed import OnColumns, Scaled, Sum, WithBias
from regard.scores.cosine import Cosine
from regard.scores.custom import Custom
from regard.scores.dot import Dot, ScaledDot
from regard.scores.equal import Equal
from regard.scores.form import ChannelForm, CustomForm, DotForm, Form, Step, SumForm
from regard.scores.gated import Gated
from regard.scores.gaussian import Gaussian
from regard.scores.laplacian import Laplacian
from regard.scores.multiplicative import Multiplicative
from regard.scores.score import Score, ScoreTerm
from regard.scores.softcap import SoftCap

__all__ = [
    "Additive",
    "Alibi",
    "Bias",
    "Boxcar",
    "ChannelForm",
    "Cosine",
    "Custom",
    "CustomForm",
    "Dot",
    "DotForm",
    "Epanechnikov",
    "Equal",
    "Form",
    "Gated",
    "Gaussian",
    "Laplacian",
    "Multiplicative",
    "OnColumns",
    "RelativeBias",
    "Scaled",
    "ScaledDot",
    "Score",
    "ScoreTerm",
    "SoftCap",
    "Step",
    "Sum",
    "SumForm",
    "Triangular",
    "WithBias",
]
