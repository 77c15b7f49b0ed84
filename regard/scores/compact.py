"""Compact kernels: Boxcar, Epanechnikov and Triangular, zero beyond a radius."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from regard.errors import OptionError
from regard.learned import keep_positive, shown
from regard.positions import per_head
from regard.scores.base import Score, same_dim
from regard.scores.form import ChannelForm, Form
from regard.scores.steps import Indicator, Parabola, Tent


class _Compact(Score):
    """A function of u = ‖q − k‖ / radius that is 0 for u > 1."""

    is_kernel = True
    radius: float | Tensor

    def __init__(self, radius: float | nn.Parameter) -> None:
        super().__init__()
        keep_positive(self, "radius", radius)

    def _squared_distance(self, queries: Tensor, keys: Tensor) -> Form:
        same_dim(queries, keys, type(self).__name__)
        return ChannelForm(queries, keys, "square")

    def _radius(self, like: Tensor) -> Tensor:
        return per_head(torch.as_tensor(self.radius, dtype=like.dtype, device=like.device))

    def extra_repr(self) -> str:
        return f"radius={shown(self.radius)}"


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

    def form(self, queries: Tensor, keys: Tensor) -> Form:
        # Compare squares: a root would round points on the edge to one side or the other.
        return self._squared_distance(queries, keys).then(Indicator(float(self.radius) ** 2))


class Epanechnikov(_Compact):
    """a(q, k) = max(0, 1 − u²), with u = ‖q − k‖ / radius.

    Example:
        >>> import torch
        >>> from regard import Epanechnikov
        >>> Epanechnikov(2.0)(torch.tensor([[0.0]]), torch.tensor([[0.0], [1.0], [3.0]]))
        tensor([[1.0000, 0.7500, 0.0000]])
    """

    def form(self, queries: Tensor, keys: Tensor) -> Form:
        return self._squared_distance(queries, keys).then(Parabola(self._radius(queries)))


class Triangular(_Compact):
    """a(q, k) = max(0, 1 − u), with u = ‖q − k‖ / radius.

    Example:
        >>> import torch
        >>> from regard import Triangular
        >>> Triangular(2.0)(torch.tensor([[0.0]]), torch.tensor([[0.0], [1.0], [3.0]]))
        tensor([[1.0000, 0.5000, 0.0000]])
    """

    def form(self, queries: Tensor, keys: Tensor) -> Form:
        return self._squared_distance(queries, keys).then(Tent(self._radius(queries)))
