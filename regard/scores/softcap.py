"""SoftCap: cap · tanh(a / cap)."""

from __future__ import annotations

from torch import Tensor

from regard.errors import OptionError
from regard.scores.form import Form
from regard.scores.score import Score, check_is_score
from regard.scores.steps import Cap


class SoftCap(Score):
    """cap · tanh(a / cap): a score kept within (−cap, cap).

    Example:
        >>> import torch
        >>> from regard import Dot, SoftCap
        >>> SoftCap(Dot(), cap=5.0)(torch.tensor([[100.0]]), torch.tensor([[100.0]]))
        tensor([[5.]])
    """

    def __init__(self, score: Score, cap: float) -> None:
        super().__init__()
        check_is_score(score, "SoftCap")
        if isinstance(cap, Tensor) or not cap > 0:
            raise OptionError(f"`cap` of SoftCap must be a positive number: got {cap}. It is not learned.")
        self.score, self.cap = score, float(cap)
        self.is_log_kernel = score.is_log_kernel

    def form(self, queries: Tensor, keys: Tensor) -> Form:
        return self.score.form(queries, keys).then(Cap(self.cap))

    def extra_repr(self) -> str:
        return f"cap={self.cap:g}"
