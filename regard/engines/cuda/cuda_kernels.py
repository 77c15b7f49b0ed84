"""The kernels for CUDA devices, as the protocol has them. Triton is imported when they are first used."""

from __future__ import annotations

import importlib.util
import math
from functools import cache
from typing import TYPE_CHECKING, ClassVar

import torch

from regard.engines.kernels.protocol import Compiled, Kernels
from regard.problem import AttentionProblem
from regard.scores import steps
from regard.scores.form import ChannelForm
from regard.weights import OnePass

if TYPE_CHECKING:
    from regard.engines.work import Work

MOST_DIM = 256  # of keys and of values: a block of rows stays in registers, a block of keys in shared memory
OLDEST = (8, 0)
MOST_PAIRS = 1 << 28  # of a mask that is a byte for each


class CudaKernels(Kernels):
    """Loops over tiles that Triton compiles, around the matrix units of the device."""

    dtypes: ClassVar[frozenset[torch.dtype]] = frozenset({torch.float32})
    worthwhile: ClassVar[int] = 1

    def missing(self) -> str | None:
        return _missing()

    def unusable(self) -> str | None:
        return _missing() or _unusable()

    def unready(self, problem: AttentionProblem, *, reads: bool) -> str | None:
        return "the kernels of this device read no weights" if reads else None

    def lacks(self, problem: AttentionProblem) -> str | None:
        form, rule, grid = problem.form, problem.rule, problem.grid
        if not isinstance(rule, OnePass):
            return f"the kernels of this device do not have {type(rule).__name__}"
        if isinstance(form, ChannelForm) and form.function != "square":
            return f"the kernels of this device do not have {type(problem.score).__name__}"
        dim, value_dim = form.tensors()[0].shape[-1], problem.values.shape[-1]
        if max(dim, value_dim) > MOST_DIM:
            return f"the kernels of this device take vectors of up to {MOST_DIM}, not {max(dim, value_dim)}"
        if problem.mask is not None and grid.n_queries * grid.n_keys > MOST_PAIRS and not _has_bounds(problem):
            return "the kernels of this device would read a byte for each pair of this mask"
        for step in form.steps:
            if isinstance(step, steps.AddRelative) and step.table.requires_grad:
                return "the kernels of this device do not differentiate tables of relative positions"
        from regard.engines.cuda.program import can_join

        return None if can_join(problem) else "the kernels of this device take three batch axes that cannot be joined"

    def bytes(self, problem: AttentionProblem) -> int:
        grid = problem.grid
        return 12 * math.prod(grid.batch_shape) * grid.n_queries

    def seconds(self, work: Work) -> float:
        return 40e-6 + work.pairs * work.live * work.depth * 512 / 3e14 * (4.5 if work.training else 1)

    def compile(self, problem: AttentionProblem) -> Compiled:
        from regard.engines.cuda.cuda_problem import CudaProblem
        from regard.engines.cuda.program import translate

        return CudaProblem(translate(problem))


@cache
def _missing() -> str | None:
    return None if importlib.util.find_spec("triton") else "Triton is not installed"


@cache
def _unusable() -> str | None:
    try:
        import triton  # noqa: F401
    except Exception as error:  # whatever is wrong with it
        return f"Triton cannot be imported: {error}"
    if torch.cuda.is_available() and torch.cuda.get_device_capability() < OLDEST:
        return f"the kernels need a GPU of compute capability {OLDEST[0]}.{OLDEST[1]}, with bfloat16 and TF32"
    return None


def _has_bounds(problem: AttentionProblem) -> bool:
    """Whether the mask of a problem says from where to where each row sees."""
    assert problem.mask is not None
    return problem.mask.bounds(range(min(problem.grid.n_queries, 1)), problem.grid) is not None
