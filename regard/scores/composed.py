"""Scores made of scores: sums, multiples, biased scores, and scores on some coordinates."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from regard.errors import ShapeError
from regard.grid import Grid
from regard.scores.form import Form, SumForm
from regard.scores.score import Score, ScoreTerm, scaled_by


class WithBias(Score):
    """`score + term`: a score and something added by position."""

    def __init__(self, score: Score, term: ScoreTerm) -> None:
        super().__init__()
        self.score, self.term = score, term

    def form(self, queries: Tensor, keys: Tensor) -> Form:
        form = self.score.form(queries, keys)
        grid = Grid(tuple(form.batch_shape), queries.shape[-2], keys.shape[-2], queries.device)
        return form.then(self.term.step(grid))


class Sum(Score):
    """`score + score`: the similarities add."""

    def __init__(self, *scores: Score) -> None:
        super().__init__()
        self.scores: nn.ModuleList = nn.ModuleList()
        for score in scores:
            self.scores.extend(score.scores if isinstance(score, Sum) else [score])
        flat = [each for each in self.scores if isinstance(each, Score)]
        self.is_log_kernel = all(score.is_log_kernel for score in flat)

    def form(self, queries: Tensor, keys: Tensor) -> Form:
        return SumForm(terms=tuple(score.form(queries, keys) for score in self.scores if isinstance(score, Score)))


class Scaled(Score):
    """`factor * score`."""

    def __init__(self, score: Score, factor: float) -> None:
        super().__init__()
        self.score, self.factor = score, factor
        self.is_log_kernel = score.is_log_kernel and factor > 0

    def form(self, queries: Tensor, keys: Tensor) -> Form:
        return scaled_by(self.score.form(queries, keys), self.factor)

    def extra_repr(self) -> str:
        return f"factor={self.factor:g}"


class OnColumns(Score):
    """`score.on(columns)`: a score that sees some coordinates of queries and keys alone."""

    def __init__(self, score: Score, columns: Sequence[int] | slice) -> None:
        super().__init__()
        self.score = score
        self.columns = columns if isinstance(columns, slice) else tuple(columns)
        self.is_log_kernel = score.is_log_kernel

    def form(self, queries: Tensor, keys: Tensor) -> Form:
        return self.score.form(self._pick(queries), self._pick(keys))

    def _pick(self, vectors: Tensor) -> Tensor:
        if isinstance(self.columns, slice):
            return vectors[..., self.columns]
        if not all(0 <= column < vectors.shape[-1] for column in self.columns):
            raise ShapeError(
                f"The columns of .on({list(self.columns)}) must be in [0, dim): got vectors {tuple(vectors.shape)}. "
                f"Columns count from 0."
            )
        return vectors.index_select(-1, torch.tensor(self.columns, device=vectors.device, dtype=torch.long))

    def extra_repr(self) -> str:
        return f"columns={self.columns}"
