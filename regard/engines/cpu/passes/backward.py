"""The backward pass on a CPU: pairs computed again, and gradients summed in an order that does not depend on timing."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.engines.cpu.kernels.tile_gradients import turn
from regard.engines.cpu.passes.batched_calls import differentiate_group, groups_of
from regard.engines.cpu.program import Entry, Program, pick
from regard.engines.cpu.runtime import thread_pool
from regard.engines.cpu.traversal.by_tiles import Tiles
from regard.engines.cpu.traversal.traversal import FLOATS, Facts, KeySums, WayBack, cut

# Numbers that are copied at once, so that Ctrl-C is heard.
COPIED_ELEMENTS = 1 << 24


@dataclass(frozen=True)
class _Shares:
    """How a backward pass is shared out: each part is some entries with some of their blocks of rows."""

    parts: list[list[tuple[Entry, list[range]]]]
    splits_rows: bool


@dataclass(frozen=True)
class _Buffer:
    """Where the gradient of a tensor is gathered."""

    tensor: Tensor
    once: bool  # whether every place of it is written once: then nobody clears it before

    def add(self, entry: Entry, gradient: Tensor) -> None:
        """Add the gradient of a batch entry."""
        view = pick(self.tensor, entry.index, 2)
        if not self.once:
            view += gradient.to(view.dtype).sum_to_size(view.shape)
            return
        for rows in cut(range(len(view)), max(COPIED_ELEMENTS // max(view.shape[1], 1), 1)):
            thread_pool.check_stopped()
            view[rows.start : rows.stop].copy_(gradient[rows.start : rows.stop])

    def add_sum(self, entry: Entry, total: Any, turned: bool) -> None:
        """Add what the kernels summed for a batch entry, perhaps transposed."""
        if not turned:
            self.add(entry, torch.from_numpy(total))
            return
        target = pick(self.tensor, entry.index, 2)
        upright = target.numpy() if self.once else thread_pool.scratch("upright", total.shape[1], total.shape[0])
        for rows in cut(range(len(upright)), max(COPIED_ELEMENTS // max(upright.shape[1], 1), 1)):
            thread_pool.check_stopped()
            turn(total, rows.start, upright[rows.start : rows.stop])
        if not self.once:
            self.add(entry, torch.from_numpy(upright))


def differentiate(program: Program, way: WayBack, facts: Facts, needed: Sequence[bool]) -> list[Tensor | None]:
    """The gradients of the form's tensors and, last, of the values; None where not needed."""
    tensors = (*program.problem.form.tensors(), program.problem.values)
    grouped = _differentiate_groups(program, way, facts, tensors, needed)
    if grouped is not None:
        return grouped
    shares = _share_out(program, way)
    # Where shares never write to one place they write to one buffer; elsewhere each has its own.
    common = [
        _common(program, shares, place, each) if need else None
        for place, (each, need) in enumerate(zip(tensors, needed, strict=True))
    ]

    def work(part: list[tuple[Entry, list[range]]]) -> list[Tensor | None]:
        own = [
            _Buffer(_zeros(each), once=False) if need and buffer is None else None
            for each, need, buffer in zip(tensors, needed, common, strict=True)
        ]
        buffers = [a if b is None else b for a, b in zip(own, common, strict=True)]
        for entry, blocks in part:
            _differentiate_entry(program, way, facts, entry, blocks, buffers)
        return [None if each is None else each.tensor for each in own]

    results = thread_pool.run([partial(work, part) for part in shares.parts], 2 * way.seconds(program))
    found: list[Tensor | None] = []
    for column, (buffer, each, need) in enumerate(zip(common, tensors, needed, strict=True)):
        total = None if buffer is None else buffer.tensor
        if need and total is None:
            total = _zeros(each)
            for part in (result[column] for result in results):
                assert part is not None
                total += part
        found.append(None if total is None else total.to(each.dtype))
    return found


def _differentiate_groups(
    program: Program, way: WayBack, facts: Facts, tensors: Sequence[Tensor], needed: Sequence[bool]
) -> list[Tensor | None] | None:
    """The gradients by groups of batch entries, one call for each; None where there are none, or entries share."""
    groups, batch = groups_of(program, way), program.problem.grid.batch_shape
    if not groups or not all(needed) or any(tuple(each.shape[:-2]) != batch for each in tensors):
        return None
    assert isinstance(way, Tiles)
    found = [torch.empty(program.n_entries, *each.shape[-2:], **FLOATS) for each in tensors]

    def work(group: range) -> None:
        differentiate_group(program, way, group, facts, *(each[group.start : group.stop].numpy() for each in found))

    thread_pool.run([partial(work, group) for group in groups], 2 * way.seconds(program))
    return [each.reshape(original.shape).to(original.dtype) for each, original in zip(found, tensors, strict=True)]


def _share_out(program: Program, way: WayBack) -> _Shares:
    entries, blocks, threads = program.entries, way.long_blocks(), thread_pool.count()
    if len(entries) % threads == 0 or len(entries) >= 4 * threads or len(blocks) < threads:
        count = max(min(len(entries), 4 * threads), 1)
        edges = [len(entries) * part // count for part in range(count + 1)]
        parts = [[(entry, blocks) for entry in entries[a:b]] for a, b in itertools.pairwise(edges)]
        return _Shares(parts, splits_rows=False)
    # Every nth block, so that a causal mask gives each the same work.
    return _Shares([[(entry, blocks[part::threads]) for entry in entries] for part in range(threads)], splits_rows=True)


def _common(program: Program, shares: _Shares, place: int, tensor: Tensor) -> _Buffer | None:
    """One buffer for all shares, if no two of them write to one place of it."""
    if tuple(tensor.shape[:-2]) != program.problem.grid.batch_shape:
        return None
    if place == 0:  # queries: every block writes its rows
        return _Buffer(torch.empty(tensor.shape, **FLOATS), once=True)
    if shares.splits_rows:
        return None
    if place in (1, len(program.roles) - 1):  # keys and values: every entry writes its own
        return _Buffer(torch.empty(tensor.shape, **FLOATS), once=True)
    return _Buffer(_zeros(tensor), once=False)


def _differentiate_entry(
    program: Program,
    way: WayBack,
    facts: Facts,
    entry: Entry,
    blocks: Sequence[range],
    buffers: Sequence[_Buffer | None],
) -> None:
    """Add what some blocks of an entry give to the gradients."""
    to_left, to_right, *to_steps, to_values = buffers
    n_queries, n_steps = program.problem.grid.n_queries, len(entry.codes)
    (n_keys, dim), value_dim = entry.right.shape, entry.values.shape[1]

    def by_key(name: str, width: int, wanted: bool, turned: bool) -> Any:
        shape = (width, n_keys) if turned else (n_keys, width)
        total = thread_pool.scratch(name, *(shape if wanted else (0, 0)))
        total.fill(0)
        return total

    # Channel kernels write the gradients of queries and keys, wanted or not, and those of keys as they lie.
    by_channels = program.channel is not None
    turned = way.transposed and not by_channels
    if to_left is None and not by_channels:
        left = np.empty((0, dim), np.float32)
    elif to_left is not None and to_left.once:
        left = pick(to_left.tensor, entry.index, 2).numpy()  # in place: it is as large as the queries
    else:
        left = thread_pool.scratch("left", n_queries, dim)
    sums = KeySums(
        left=left,
        right=by_key("right", dim, to_right is not None or by_channels, turned),
        values=by_key("values", value_dim, to_values is not None, way.transposed),
        by_row=np.zeros((n_steps, n_queries), np.float32),
        by_column=np.zeros((n_steps, n_keys), np.float32),
        numbers=np.zeros(n_steps),
        table=np.zeros(entry.table.shape),
        weight=np.zeros(dim),
    )
    for rows in blocks:
        way.differentiate(program, entry, rows, facts.of(entry, rows), sums)
        if to_left is not None and not to_left.once:
            block = slice(rows.start, rows.stop)
            pick(to_left.tensor, entry.index, 2)[block] += torch.from_numpy(left[block])
    if to_right is not None:
        to_right.add_sum(entry, sums.right, turned)
    if to_values is not None:
        to_values.add_sum(entry, sums.values, way.transposed)
    if program.channel is not None and program.channel.learned:
        to_weight, *to_steps = to_steps
        if to_weight is not None:
            to_weight.add(entry, torch.from_numpy(sums.weight[None]))
    _add_steps(program, entry, sums, to_steps)


def _add_steps(program: Program, entry: Entry, sums: KeySums, targets: Sequence[_Buffer | None]) -> None:
    """Add the gradients of the steps' own tensors."""
    waiting = iter(targets)
    for step, instruction in enumerate(program.instructions):
        by_column = sums.by_column[step]
        found = {
            "row": sums.by_row[step][:, None],
            "column": by_column[None] if instruction.along_pairs else by_column[:, None],
            "number": sums.numbers[step].reshape(1, 1),
            "table": sums.table[None],
        }
        for role in instruction.roles:
            target = next(waiting)
            if target is not None and role is not None:
                target.add(entry, torch.from_numpy(found[role]))


def _zeros(tensor: Tensor) -> Tensor:
    """A buffer for the gradient of a tensor: what every pair adds to is summed in float64."""
    dtype = torch.float64 if tensor.shape[-2] == 1 else torch.float32
    return torch.zeros(tensor.shape, dtype=dtype, device="cpu")
