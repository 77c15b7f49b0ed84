"""Compact kernels: Boxcar, Epanechnikov and Triangular, zero beyond a radius."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from regard.errors import OptionError
from regard.grid import per_head
from regard.learned import as_text, keep_positive
from regard.scores.distance import rescaled
from regard.scores.form import ChannelForm, Form, Step
from regard.scores.score import Score, same_dim
from regard.scores.steps import Indicator, Parabola, Tent


class _Compact(Score):
    """A function of u = ‖q − k‖ / radius that is 0 for u > 1."""

    is_kernel = True
    radius: float | Tensor

    def __init__(self, radius: float | nn.Parameter) -> None:
        super().__init__()
        keep_positive(self, "radius", radius)

    def form(self, queries: Tensor, keys: Tensor) -> Form:
        same_dim(queries, keys, type(self).__name__)
        radius = self.radius
        if isinstance(radius, Tensor) and radius.ndim:
            # One power of two for all heads, or each would have keys of its own.
            largest = radius.detach().amax()
            queries, keys, scaled = rescaled(queries, keys, largest)
            radius = radius * (scaled / largest)
        else:
            queries, keys, radius = rescaled(queries, keys, radius)
        # Squares are compared: a root would round points on the edge to one side or the other.
        return ChannelForm(queries, keys, "square").then(self._step(radius, queries))

    def _step(self, radius: float | Tensor, like: Tensor) -> Step:
        """What turns a squared distance into a score."""
        raise NotImplementedError  # pragma: no cover

    def extra_repr(self) -> str:
        return f"radius={as_text(self.radius)}"


class Boxcar(_Compact):
    """a(q, k) = 1 where ‖q − k‖ ≤ radius, else 0. It has no gradient: its steps are flat.

    Example:
        >>> import torch
        >>> from regard import Boxcar
        >>> Boxcar(1.0)(torch.tensor([[0.0]]), torch.tensor([[-1.0], [0.5], [2.0]]))
        tensor([[1., 1., 0.]])
    """

    def __init__(self, radius: float) -> None:
        if isinstance(radius, Tensor):
            raise OptionError(
                "`radius` of Boxcar must be a number: it has no gradient. Learn Epanechnikov's or Triangular's."
            )
        super().__init__(radius)

    def _step(self, radius: float | Tensor, like: Tensor) -> Step:
        return Indicator(float(radius) ** 2)


class Epanechnikov(_Compact):
    """a(q, k) = max(0, 1 − u²), with u = ‖q − k‖ / radius.

    Example:
        >>> import torch
        >>> from regard import Epanechnikov
        >>> Epanechnikov(2.0)(torch.tensor([[0.0]]), torch.tensor([[0.0], [1.0], [3.0]]))
        tensor([[1.0000, 0.7500, 0.0000]])
    """

    def _step(self, radius: float | Tensor, like: Tensor) -> Step:
        return Parabola(per_head(torch.as_tensor(radius, dtype=like.dtype, device=like.device)))


class Triangular(_Compact):
    """a(q, k) = max(0, 1 − u), with u = ‖q − k‖ / radius.

    Example:
        >>> import torch
        >>> from regard import Triangular
        >>> Triangular(2.0)(torch.tensor([[0.0]]), torch.tensor([[0.0], [1.0], [3.0]]))
        tensor([[1.0000, 0.5000, 0.0000]])
    """

    def _step(self, radius: float | Tensor, like: Tensor) -> Step:
        return Tent(per_head(torch.as_tensor(radius, dtype=like.dtype, device=like.device)))
