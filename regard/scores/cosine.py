"""Cosine: a(q, k) = q·k / (‖q‖‖k‖) / temperature."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from regard.learned import as_text, keep_positive
from regard.scores.form import DotForm, Form
from regard.scores.score import Score, same_dim, scaled_by


class Cosine(Score):
    """a(q, k) = q·k / (‖q‖‖k‖) / temperature; 0 for a zero vector.

    Args:
        temperature: A positive number, or an `nn.Parameter` to learn it.

    Example:
        >>> import torch
        >>> from regard import Cosine
        >>> Cosine()(torch.tensor([[3.0, 4.0]]), torch.tensor([[3.0, 4.0], [0.0, 0.0]]))
        tensor([[1., 0.]])
    """

    temperature: float | Tensor

    def __init__(self, temperature: float | nn.Parameter = 1.0) -> None:
        super().__init__()
        keep_positive(self, "temperature", temperature)

    def form(self, queries: Tensor, keys: Tensor) -> Form:
        same_dim(queries, keys, "Cosine")
        form = DotForm(unit(queries), unit(keys))
        return scaled_by(form, 1 / self.temperature)

    def extra_repr(self) -> str:
        return f"temperature={as_text(self.temperature)}"


def unit(vectors: Tensor) -> Tensor:
    """The vectors at length 1, `(..., n, dim)`; a zero vector stays zero, and gets no gradient."""
    if vectors.shape[-1] == 0:
        return vectors
    # Divide by the largest entry first, or squares of large entries overflow. It cancels, so it needs no gradient.
    largest = vectors.detach().abs().amax(-1, keepdim=True)
    is_zero = largest == 0
    reduced = vectors / torch.where(is_zero, 1, largest)
    length = torch.where(is_zero, 1, reduced.square().sum(-1, keepdim=True)).sqrt()
    return torch.where(is_zero, 0, reduced / length)
