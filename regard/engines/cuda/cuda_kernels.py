"""The kernels for CUDA devices, as the protocol has them. Triton is imported when they are first used."""

from __future__ import annotations

import importlib.util
import math
from functools import cache, reduce
from operator import and_
from typing import TYPE_CHECKING, ClassVar

import torch

from regard.engines.kernels.protocol import Compiled, Guard, Kernels
from regard.engines.kernels.support import inner_rule
from regard.masks import Allowed
from regard.modes import is_capturing
from regard.problem import AttentionProblem
from regard.scores import steps
from regard.weights import Entmax, OnePass

if TYPE_CHECKING:
    from regard.engines.work import Work

MOST_DIM = 256  # of keys and of values: a block of rows stays in registers, a block of keys in shared memory
OLDEST = (8, 0)
MOST_MASK_BYTES = 1 << 28  # of the rows that are taken at a time
EVEN = 128
MOST_CHOSEN = 128  # keys of a row, which are kept in registers


class CudaKernels(Kernels):
    """Loops over tiles that Triton compiles, around the matrix units of the device."""

    dtypes: ClassVar[frozenset[torch.dtype]] = frozenset({torch.float32})
    worthwhile: ClassVar[int] = 1
    looks_for_itself: ClassVar[bool] = True

    def missing(self) -> str | None:
        return _missing()

    def unusable(self, device: torch.device) -> str | None:
        # While a graph is captured nothing can be tried: whoever captures has run the same before.
        return _missing() or (None if is_capturing(device) else _unusable(device))

    def unready(self, problem: AttentionProblem, *, reads: bool) -> str | None:
        return None

    def lacks(self, problem: AttentionProblem) -> str | None:
        form, (rule, chosen) = problem.form, inner_rule(problem.rule)
        if not isinstance(rule, OnePass | Entmax):
            return f"the kernels of this device do not have {type(problem.rule).__name__}"
        if chosen > MOST_CHOSEN:
            return f"the kernels of this device choose up to {MOST_CHOSEN} keys of a row, not {chosen}"
        from regard.engines.cuda.masks import longest_list
        from regard.engines.cuda.program import can_join, is_small

        dim, value_dim = form.tensors()[0].shape[-1], problem.values.shape[-1]
        if max(dim, value_dim) > MOST_DIM:
            return f"the kernels of this device take vectors of up to {MOST_DIM}, not {max(dim, value_dim)}"
        if _at_a_time(problem)[0] == 0:
            return f"the kernels of this device would need more than {MOST_MASK_BYTES >> 20} MiB for a row of this mask"
        learns = any(isinstance(step, steps.AddRelative) and step.table.requires_grad for step in form.steps)
        mask = problem.mask
        listed = chosen > 0 or (mask is not None and longest_list(mask, problem.grid) is not None)
        if learns and listed and not is_small(problem.grid):
            return "the kernels of this device differentiate no table of relative positions along lists of keys"
        return None if can_join(problem) else "the kernels of this device take three batch axes that cannot be joined"

    def bytes(self, problem: AttentionProblem) -> int:
        grid = problem.grid
        n_rows, mask_bytes = _at_a_time(problem)
        # A block of rows has an output of its own before it is put to the others.
        row_bytes = problem.values.shape[-1] * problem.dtype.itemsize + 12
        _, chosen = inner_rule(problem.rule)
        apart = n_rows * 8 * chosen if chosen else n_rows * row_bytes
        apart = 0 if n_rows == grid.n_queries else apart
        # The values averaged by slope and their sums, where somebody trains.
        slopes = isinstance(problem.rule, Entmax) and problem.needs_gradient
        of_slopes = 4 * problem.values.shape[-1] + 16 if slopes else 0
        return math.prod(grid.batch_shape) * ((12 + 8 * chosen + of_slopes) * grid.n_queries + apart) + mask_bytes

    def seconds(self, work: Work) -> float:
        from regard.engines.cuda.program import SMALL
        from regard.engines.work import MICRO, PICO, READ_BY_GPU

        # Measured on an H200: a pair's exponentials, its products, and those again for three gradients.
        per_pair = (0.3 + 0.5 * work.depth) if work.half else (1.0 + 5.5 * work.depth)
        if work.width > 1:
            per_pair += 0.25 * work.width
        # Thresholds take a pass or three first, and chosen keys are found in two and gathered.
        passes = {"sums": 1.0, "threshold": 3.0, "choice": 4.5}[work.rule]
        seconds = work.pairs * work.live * per_pair * PICO * (passes + 3.3 * work.training)
        small = not work.training and work.pairs <= SMALL  # one launch, which is soon known by heart
        calls = 100 if small else (970 if work.training else 210) + (110 if work.masked else 0)
        return calls * MICRO + max(seconds, work.bytes / READ_BY_GPU)

    def guard(self, problem: AttentionProblem) -> Guard:
        from regard.engines.cuda.mending import CudaGuard

        return CudaGuard(problem)

    def compile(self, problem: AttentionProblem) -> Compiled:
        from regard.engines.cuda.packing import PackedProblem, packed
        from regard.engines.cuda.row_chunks import ChunkedProblem
        from regard.engines.cuda.value_errors import raise_told

        raise_told(problem.grid.device)
        by_rows, grid = packed(problem), problem.grid
        if by_rows is not None:
            return PackedProblem(problem, _compiled(by_rows, by_rows.grid.n_queries))
        n_rows = grid.n_queries
        # A byte for each pair is the most that a mask takes: most are not asked.
        if problem.mask is not None and math.prod(grid.batch_shape) * grid.n_queries * grid.n_keys > MOST_MASK_BYTES:
            n_rows, _ = _at_a_time(problem)
            if n_rows < grid.n_queries and not inner_rule(problem.rule)[1]:
                return ChunkedProblem(problem, n_rows)
        return _compiled(problem, n_rows)


def _compiled(problem: AttentionProblem, n_rows: int) -> Compiled:
    """A problem whose mask there is room for; or whose rule chooses keys, of so many rows at a time."""
    from regard.engines.cuda.choosing import ChoosingProblem
    from regard.engines.cuda.cuda_problem import CudaProblem
    from regard.engines.cuda.program import translate

    _, chosen = inner_rule(problem.rule)
    return ChoosingProblem(problem, chosen, n_rows) if chosen else CudaProblem(translate(problem))


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


def rows_to_read(problem: AttentionProblem) -> int:
    """How many rows of weights are read at a time: what lists keys is a mask of pairs then."""
    return max(_at_a_time(problem, lists=False)[0], 1)


def _at_a_time(problem: AttentionProblem, *, lists: bool = True) -> tuple[int, int]:
    """How many rows the kernels take at a time, 0 where one is too many, and the bytes of the mask of those."""
    n_rows, row_bytes = _mask_rows(problem, lists=lists)
    most = MOST_MASK_BYTES // max(row_bytes, 1)
    if n_rows <= most:
        return problem.grid.n_queries, n_rows * row_bytes
    # Blocks that begin at even places are computed by one kernel.
    most = most - most % EVEN if most > EVEN else most
    return most, most * row_bytes


def _mask_rows(problem: AttentionProblem, *, lists: bool = True) -> tuple[int, int]:
    """How many rows of the mask of a problem lie on the device, but for a few numbers of each, and their bytes."""
    from regard.engines.cuda.masks import line_of, longest_list, split

    mask, grid = problem.mask, problem.grid
    first = range(min(grid.n_queries, 1))
    # A line is known without a kernel on the device.
    if mask is None or line_of(mask, grid) is not None or mask.bounds(first, grid) is not None:
        return 0, 0
    listed = longest_list(mask, grid) if lists else None
    if listed is not None:
        return grid.n_queries, math.prod(mask.batch_axes().batch_shape) * 8 * listed
    others = split(mask, first, grid)[2]
    # By type, not isinstance: a tensor that was given is read where it lies.
    if not others or (len(others) == 1 and type(others[0]) is Allowed):
        return 0, 0
    # Some say the same of all queries or all keys, and only their tiles show for how many batch entries they speak.
    corner = reduce(and_, others).tile(range(min(grid.n_queries, 2)), range(min(grid.n_keys, 2)), grid)
    *batch, height, width = corner.shape
    return (1 if height == 1 else grid.n_queries), math.prod(batch) * (1 if width == 1 else grid.n_keys)
