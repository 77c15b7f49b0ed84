"""Dot and scaled dot: a(q, k) = qᵀk, and qᵀk / √d."""

from __future__ import annotations

import math

from torch import Tensor, nn

from regard.errors import OptionError
from regard.learned import as_text, keep
from regard.scores.form import DotForm, Form
from regard.scores.score import Score, same_dim, scaled_by


class Dot(Score):
    """a(q, k) = qᵀk.

    Example:
        >>> import torch
        >>> from regard import Dot
        >>> Dot()(torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0, 4.0], [0.0, 1.0]]))
        tensor([[11.,  2.]])
    """

    def form(self, queries: Tensor, keys: Tensor) -> Form:
        same_dim(queries, keys, "Dot()")
        return DotForm(queries, keys)


class ScaledDot(Score):
    """a(q, k) = qᵀk · scale, with scale = 1/√d unless given.

    It is a number, or an `nn.Parameter` (one, or one for each head) to learn it.

    The scores of random vectors grow like √d, and softmax's gradient vanishes in floats when one score dominates:
    that is what the scale prevents.

    Example:
        >>> import torch
        >>> from regard import ScaledDot
        >>> ScaledDot()(torch.ones(1, 4), torch.ones(2, 4))
        tensor([[2., 2.]])
    """

    scale: float | Tensor | None

    def __init__(self, scale: float | nn.Parameter | None = None) -> None:
        super().__init__()
        if scale is not None and not isinstance(scale, Tensor) and not math.isfinite(scale):
            raise OptionError(f"`scale` of ScaledDot must be a finite number: got {scale}. Leave it out for 1/√d.")
        keep(self, "scale", scale)

    def form(self, queries: Tensor, keys: Tensor) -> Form:
        same_dim(queries, keys, "ScaledDot()")
        if self.scale is None:
            return DotForm(queries, keys, 1 / math.sqrt(max(queries.shape[-1], 1)))
        return scaled_by(DotForm(queries, keys), self.scale)

    def extra_repr(self) -> str:
        return "" if self.scale is None else f"scale={as_text(self.scale)}"
