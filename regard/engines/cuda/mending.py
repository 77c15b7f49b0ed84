"""Behind PyTorch's kernels under a mask: where NaN or infinity came through, ours compute it again.

Whether it did, a flag on the device says, and nobody waits for it: the launches below end at once where it is not set.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from regard.engines.cuda.backward_pass import differentiate_by_columns, differentiate_by_rows, facts_of
from regard.engines.cuda.forward_pass import pool_flagged
from regard.engines.cuda.launch import Launch


def flag_of(*tensors: Tensor) -> Tensor:
    """1 where a number of some tensors is not finite, else 0: int32, on the device."""
    total = torch.stack([each.sum(dtype=torch.float32) for each in tensors]).sum()
    return (total - total != 0).to(torch.int32)  # of finite numbers 0; a sum that overflows only costs time


def mend_output(launch: Launch, output: Tensor) -> None:
    """Write the output of every row again, in place, where something in it is not finite."""
    pool_flagged(launch, output, flag_of(output))


def mend_gradients(
    launch: Launch, output: Tensor, gradient: Tensor, found: Sequence[Tensor | None]
) -> list[Tensor | None]:
    """The gradients of queries, keys and values, computed again where something in them is not finite.

    Args:
        launch: The problem.
        output: As mended.
        gradient: dO.
        found: The gradients, None where one is not needed; of one shape with what they are of.
    """
    flag = flag_of(*(each for each in found if each is not None))
    statistics = pool_flagged(launch, torch.empty_like(output), flag)  # the output is somebody's by now
    gradient = gradient.to(output.dtype).expand(output.shape).contiguous()
    facts = facts_of(launch, statistics, gradient, output)
    results = list(found)
    to_left, to_right, to_values = found
    if to_left is not None:
        own = differentiate_by_rows(launch, gradient, facts, learns=(), learns_weight=False, flag=flag)
        results[0] = _chosen(launch, flag, own.to_left, to_left)
    if to_right is not None or to_values is not None:
        both = differentiate_by_columns(launch, gradient, facts, learns=(), flag=flag)
        results[1] = None if to_right is None else _chosen(launch, flag, both.to_right, to_right)
        results[2] = None if to_values is None else _chosen(launch, flag, both.to_values, to_values)
    return results


def _chosen(launch: Launch, flag: Tensor, mended: Tensor, found: Tensor) -> Tensor:
    """What was found, unless the flag is set; `mended` is by batch entry."""
    batch_shape = launch.program.problem.grid.batch_shape
    mended = mended.reshape(*batch_shape, *mended.shape[-2:]).sum_to_size(found.shape).to(found.dtype)
    return torch.where(flag != 0, mended, found)
