"""Engine: how is the sum computed? Every engine computes the same definition."""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from torch import Tensor

from regard.engines.work import Work
from regard.modes import is_forward_mode
from regard.problem import AttentionProblem
from regard.validation import DTYPES


class Engine:
    """A way to compute attention, and what it cannot do.

    Limits are class data, so that the planner, the documentation's table and the tests read the same line.
    """

    name: ClassVar[str]
    letter: ClassVar[str] = "?"  # stands for it in tables
    summary: ClassVar[str]  # for people: why it was chosen, as in "because it …"
    dtypes: ClassVar[frozenset[torch.dtype]] = DTYPES
    has_tangents: ClassVar[bool] = False  # whether it can be differentiated in forward mode
    pools_by_tiles: ClassVar[bool] = False  # whether its output is that of passes over tiles, which a view shares
    # How passes over tiles cut them, where a view reads weights: as suits the device, if None; and whether compiled
    # kernels run: where they pay and are compiled, if None.
    tile_elements: int | None = None
    kernels: bool | None = None

    def unavailable(self) -> str | None:
        """Why this engine cannot run on this machine at all; None if it can."""
        return None

    def refusals(self, problem: AttentionProblem) -> list[str]:
        """Every reason why this engine cannot compute that problem; none if it can."""
        reasons = []
        missing = self.unavailable()
        if missing is not None:
            reasons.append(missing)
        if is_forward_mode() and not self.has_tangents:
            reasons.append("forward-mode differentiation: it has no tangents")
        if problem.dtype not in self.dtypes:
            reasons.append(f"{problem.dtype} inputs: it takes {', '.join(sorted(map(str, self.dtypes)))}")
        return reasons

    def accepts(self, problem: AttentionProblem) -> bool:
        """Whether there is no reason to refuse: what the planner asks on every call.

        An engine may answer faster than by writing all its reasons down, and always as `refusals` would.
        """
        return not self.refusals(problem)

    def bytes(self, problem: AttentionProblem) -> int:
        """The memory that it needs beside inputs and output, in bytes; an estimate."""
        raise NotImplementedError  # pragma: no cover

    def seconds(self, work: Work) -> float:
        """How long it takes, about: the planner takes the engine that says least. Without an answer, never."""
        return math.inf

    def without_kernels(self) -> Engine:
        """The engine that computes in plain torch alone."""
        return self

    def run(self, problem: AttentionProblem) -> Tensor:
        """The pooled output, `(*batch_shape, n_queries, value_dim)`."""
        raise NotImplementedError  # pragma: no cover

    def __repr__(self) -> str:
        return f"<engine {self.name}>"
