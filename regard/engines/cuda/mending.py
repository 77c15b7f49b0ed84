"""Behind PyTorch's kernels under a mask: where NaN or infinity came through, ours compute it again, in place.

Whether it did, flags on the device say, and nobody waits for them: the launches below end at once where none is set.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from regard.engines.cuda.backward_pass import FLAGGED, differentiate_by_columns, differentiate_by_rows, facts_of
from regard.engines.cuda.batch import MOST_AXES
from regard.engines.cuda.forward_pass import pool_flagged
from regard.engines.cuda.kernels.flags import flag_broken
from regard.engines.cuda.launch import Launch
from regard.engines.cuda.launch_settings import block_of, blocks_of
from regard.engines.cuda.launcher import on_device
from regard.engines.cuda.program import translate
from regard.engines.kernels.protocol import Guard
from regard.problem import AttentionProblem

ROWS, WARPS = 64, 8  # vectors that are looked at together, and by how many warps


class CudaGuard(Guard):
    """Kernels behind PyTorch's, which compute again what is not finite."""

    def __init__(self, problem: AttentionProblem) -> None:
        self._problem = problem

    def mend_output(self, output: Tensor) -> None:
        with on_device(output.device):
            mend_output(Launch(translate(self._problem, (output,))), output)

    def mend_gradients(self, output: Tensor, gradient: Tensor, found: Sequence[Tensor | None]) -> list[Tensor | None]:
        batch_shape = self._problem.grid.batch_shape
        # More than three batch axes may not be joined as these tensors lie.
        found = [None if each is None else _walkable(each) for each in found]
        if all(each is None or each.shape[:-2] == batch_shape for each in found):
            with on_device(output.device):
                gradient = _walkable(gradient.to(output.dtype).expand(output.shape))
                output = _walkable(output)
                given = [each for each in (*found, output, gradient) if each is not None]
                mend_gradients(Launch(translate(self._problem, given)), output, gradient, found)
            return list(found)
        # Batch entries share something: what each gives it is summed.
        by_entry = [None if each is None else each.expand(*batch_shape, -1, -1).clone() for each in found]
        self.mend_gradients(output, gradient, by_entry)
        return [
            None if each is None or entries is None else _chosen(each, entries)
            for each, entries in zip(found, by_entry, strict=True)
        ]


def _walkable(tensor: Tensor) -> Tensor:
    """A tensor with the numbers of a vector together, no two vectors in one place, and axes that can be joined."""
    is_so = tensor.stride(-1) == 1 and 0 not in tensor.stride() and tensor.ndim <= MOST_AXES + 2
    return tensor if is_so else tensor.contiguous()


def _chosen(found: Tensor, by_entry: Tensor) -> Tensor:
    """What was found, where it is finite; else the sum of what batch entries give."""
    return torch.where(found.isfinite(), found, by_entry.sum_to_size(found.shape))


def mend_output(launch: Launch, output: Tensor) -> None:
    """Write the output again where something in it is not finite.

    Args:
        launch: The problem, laid out beside the output.
        output: As PyTorch's kernels left it.
    """
    (strides,) = launch.program.beside
    flags = _flags(launch, output, strides)
    pool_flagged(launch, output, strides, flags, FLAGGED)


def mend_gradients(launch: Launch, output: Tensor, gradient: Tensor, found: Sequence[Tensor | None]) -> None:
    """Write the gradients of queries, keys and values again where something in them is not finite.

    Args:
        launch: The problem, laid out beside the gradients that are there, the output and dO.
        output: As mended.
        gradient: dO.
        found: The gradients, None where one is not needed; each with every batch axis of the problem.
    """
    whole = launch.empty(1, dtype=torch.int32).zero_()
    strides = iter(launch.program.beside)
    given = [None if each is None else (each, next(strides)) for each in found]
    to_left, to_right, to_values = given
    of_rows = None if to_left is None else _flags(launch, *to_left, whole=whole)
    of_columns = None
    for each in (to_right, to_values):
        if each is not None:
            of_columns = _flags(launch, *each, whole=whole, known=of_columns)
    of_output, to_output = (output, next(strides)), (gradient, next(strides))
    # Nobody writes or reads it where nothing leaked.
    scratch = torch.empty(output.shape, dtype=output.dtype, device=output.device)
    statistics = pool_flagged(launch, scratch, launch.strides_of(scratch), whole, 0)
    facts = facts_of(launch, statistics, to_output, of_output, flag=whole)
    if to_left is not None and of_rows is not None:
        differentiate_by_rows(launch, to_output, facts, learns=(), learns_weight=False, into=to_left, flags=of_rows)
    if of_columns is not None:
        differentiate_by_columns(launch, to_output, facts, learns=(), into=(to_right, to_values), flags=of_columns)


def _flags(
    launch: Launch,
    vectors: Tensor,
    strides: tuple[int, ...],
    *,
    whole: Tensor | None = None,
    known: Tensor | None = None,
) -> Tensor:
    """A flag for each block of vectors of a batch entry, set where something is not finite.

    Args:
        launch: The problem.
        vectors: `(*batch_shape, n, dim)`.
        strides: Of them, as kernels take them.
        whole: One flag for all, to be set as well.
        known: Flags that stay set.
    """
    length, width = vectors.shape[-2:]
    n_flags = launch.n_entries * blocks_of(length, FLAGGED)
    flags = launch.flags(n_flags) if known is None else known
    launch.run(
        flag_broken,
        n_flags,
        (vectors, strides, (flags,) if whole is None else (flags, whole), length, *launch.batch_sizes),
        {
            "ADDS": known is not None,
            "ANY": whole is not None,
            "WIDTH": width,
            "BLOCK_WIDTH": block_of(width),
            "ROWS": ROWS,
            "FLAGGED": FLAGGED,
        },
        {"num_warps": WARPS},
        variant=(known is None, whole is None, width, vectors.dtype, strides),
        fresh=(vectors,),
    )
    return flags
