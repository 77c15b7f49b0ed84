"""The kernels for CUDA devices, as the protocol has them. Triton is imported when they are first used."""

from __future__ import annotations

import importlib.util
import math
from functools import cache, reduce
from operator import and_
from typing import TYPE_CHECKING, ClassVar

import torch

from regard.engines.kernels.protocol import Compiled, Kernels
from regard.masks import GlobalKeys, KeyMask
from regard.modes import is_capturing
from regard.problem import AttentionProblem
from regard.scores import steps
from regard.scores.form import ChannelForm
from regard.weights import OnePass

if TYPE_CHECKING:
    from regard.engines.work import Work

MOST_DIM = 256  # of keys and of values: a block of rows stays in registers, a block of keys in shared memory
OLDEST = (8, 0)
MOST_MASK_BYTES = 1 << 28


class CudaKernels(Kernels):
    """Loops over tiles that Triton compiles, around the matrix units of the device."""

    dtypes: ClassVar[frozenset[torch.dtype]] = frozenset({torch.float32})
    worthwhile: ClassVar[int] = 1
    reads: ClassVar[bool] = False
    looks_for_itself: ClassVar[bool] = True

    def missing(self) -> str | None:
        return _missing()

    def unusable(self, device: torch.device) -> str | None:
        # While a graph is captured nothing can be tried: whoever captures has run the same before.
        return _missing() or (None if is_capturing(device) else _unusable(device))

    def unready(self, problem: AttentionProblem, *, reads: bool) -> str | None:
        return None

    def lacks(self, problem: AttentionProblem) -> str | None:
        form, rule = problem.form, problem.rule
        if not isinstance(rule, OnePass):
            return f"the kernels of this device do not have {type(rule).__name__}"
        if isinstance(form, ChannelForm) and form.function != "square":
            return f"the kernels of this device do not have {type(problem.score).__name__}"
        dim, value_dim = form.tensors()[0].shape[-1], problem.values.shape[-1]
        if max(dim, value_dim) > MOST_DIM:
            return f"the kernels of this device take vectors of up to {MOST_DIM}, not {max(dim, value_dim)}"
        if _mask_bytes(problem) > MOST_MASK_BYTES:
            return f"the kernels of this device would need more than {MOST_MASK_BYTES >> 20} MiB for this mask"
        for step in form.steps:
            if isinstance(step, steps.AddRelative) and step.table.requires_grad:
                return "the kernels of this device do not differentiate tables of relative positions"
        from regard.engines.cuda.program import can_join

        return None if can_join(problem) else "the kernels of this device take three batch axes that cannot be joined"

    def bytes(self, problem: AttentionProblem) -> int:
        grid = problem.grid
        return 12 * math.prod(grid.batch_shape) * grid.n_queries + _mask_bytes(problem)

    def seconds(self, work: Work) -> float:
        return 40e-6 + work.pairs * work.live * work.depth * 512 / 3e14 * (4.5 if work.training else 1)

    def compile(self, problem: AttentionProblem) -> Compiled:
        from regard.engines.cuda.cuda_problem import CudaProblem
        from regard.engines.cuda.packing import PackedProblem, packed
        from regard.engines.cuda.program import translate

        by_rows = packed(problem)
        return CudaProblem(translate(problem)) if by_rows is None else PackedProblem(problem, by_rows)


@cache
def _missing() -> str | None:
    return None if importlib.util.find_spec("triton") else "Triton is not installed"


@cache
def _unusable(device: torch.device) -> str | None:
    if torch.version.hip is not None:
        return "the kernels are for GPUs of NVIDIA"
    if device.type == "cuda" and torch.cuda.get_device_capability(device) < OLDEST:
        return f"the kernels need a GPU of compute capability {OLDEST[0]}.{OLDEST[1]}, with bfloat16 and TF32"
    try:
        from regard.engines.cuda.trial import try_launch

        try_launch(device)
    except Exception as error:  # whatever is wrong with Triton, its compiler or the driver
        return f"Triton does not work here: {type(error).__name__}: {error}"
    return None


def _mask_bytes(problem: AttentionProblem) -> int:
    """What the mask of a problem takes on the device, but for a few numbers of each row."""
    from regard.engines.cuda.masks import longest_list, split

    mask, grid = problem.mask, problem.grid
    first = range(min(grid.n_queries, 1))
    if mask is None or mask.bounds(first, grid) is not None:
        return 0
    listed = longest_list(mask, grid)
    if listed is not None:
        return math.prod(mask.batch_axes().batch_shape) * grid.n_queries * 8 * listed
    others = split(mask, first, grid)[2]
    if not others:
        return 0
    # Some are one row of bytes for all queries.
    n_rows = 1 if all(type(each) in (KeyMask, GlobalKeys) for each in others) else grid.n_queries
    return math.prod(reduce(and_, others).batch_axes().batch_shape) * n_rows * grid.n_keys
