"""The backward pass on a CPU: tiles computed again, and gradients summed in an order that does not depend on timing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor

from regard.engines.cpu import spans, workers
from regard.engines.cpu.blas import sgemm_address
from regard.engines.cpu.forward import dropout_arguments, pairs_of, place
from regard.engines.cpu.layout import Block, Layout, mask_arguments
from regard.engines.cpu.programs import Entry, Program, Role, pick


@dataclass(frozen=True)
class RowFacts:
    """What a backward pass knows of each row, `(n_entries, n_queries)` each: see `rows.weigh_row`."""

    offsets: Tensor
    scales: Tensor
    deltas: Tensor  # dO·u


def differentiate(
    program: Program, layout: Layout, facts: RowFacts, gradient: Tensor, needed: Sequence[bool]
) -> list[Tensor | None]:
    """The gradients of the form's tensors and, last, of the values; None where not needed.

    Args:
        program: What was computed.
        layout: Its live tiles.
        facts: What is known of the rows.
        gradient: dO, `(n_entries, n_queries, value_dim)`, a row after the other.
        needed: Which of the tensors need a gradient.
    """
    tensors = (*program.problem.form.tensors(), program.problem.values)
    shares = _shares(program, layout)
    # Where shares never write to one place, they write to one buffer; elsewhere each has its own.
    common: list[Tensor | None] = [
        torch.zeros(each.shape, dtype=_wide(each)) if need and _apart(program, shares, role, each) else None
        for each, need, role in zip(tensors, needed, program.roles, strict=True)
    ]
    tasks = [
        partial(_differentiate_share, program, layout, facts, gradient, needed, share, tensors, common)
        for share in shares.parts
    ]
    results = workers.run(tasks)
    for place_, buffer in enumerate(common):
        if buffer is None and needed[place_]:
            common[place_] = (
                sum((result[place_] for result in results[1:]), start=results[0][place_]) if results else None
            )
            if common[place_] is None:
                common[place_] = torch.zeros(tensors[place_].shape)
    return [None if each is None else each.to(original.dtype) for each, original in zip(common, tensors, strict=True)]


@dataclass(frozen=True)
class _Shares:
    """How a backward pass is shared out: each part is some entries with some of their blocks of rows."""

    parts: list[list[tuple[Entry, list[Block]]]]
    splits_rows: bool


def _shares(program: Program, layout: Layout) -> _Shares:
    entries, blocks, threads = program.entries(), list(layout.blocks), workers.count()
    if len(entries) % threads == 0 or len(entries) >= 4 * threads or len(blocks) < threads:
        count = min(len(entries), 4 * threads)
        edges = [len(entries) * part // max(count, 1) for part in range(count + 1)]
        parts = [[(entry, blocks) for entry in entries[a:b]] for a, b in zip(edges, edges[1:], strict=False)]
        return _Shares(parts, splits_rows=False)
    # Every nth block, so that a causal mask gives each the same work.
    return _Shares([[(entry, blocks[part::threads]) for entry in entries] for part in range(threads)], splits_rows=True)


def _apart(program: Program, shares: _Shares, role: Role | None, tensor: Tensor) -> bool:
    """Whether no two shares write to one place of a tensor's gradient."""
    batch = tuple(tensor.shape[:-2])
    whole = batch == program.problem.grid.batch_shape
    return whole and (not shares.splits_rows or (role == "row" and tensor.shape[-2] == program.problem.grid.n_queries))


def _differentiate_share(
    program: Program,
    layout: Layout,
    facts: RowFacts,
    gradient: Tensor,
    needed: Sequence[bool],
    share: list[tuple[Entry, list[Block]]],
    tensors: Sequence[Tensor],
    common: Sequence[Tensor | None],
) -> list[Tensor | None]:
    """What one share adds to the gradients: to the common ones in place, to those of its own as a result."""
    own = [
        torch.zeros(each.shape, dtype=_wide(each)) if need and shared is None else None
        for each, need, shared in zip(tensors, needed, common, strict=True)
    ]
    buffers = [a if a is not None else b for a, b in zip(common, own, strict=True)]
    for entry, blocks in share:
        _differentiate_entry(program, layout, facts, gradient[entry.place], entry, blocks, buffers)
    return own


def _differentiate_entry(
    program: Program,
    layout: Layout,
    facts: RowFacts,
    gradient: Tensor,
    entry: Entry,
    blocks: Sequence[Block],
    buffers: Sequence[Tensor | None],
) -> None:
    (n_keys, dim), value_dim, n_steps = entry.right.shape, entry.values.shape[1], len(entry.codes)
    to_left, to_right, *to_steps, to_values = buffers
    right_sum = np.zeros((dim, n_keys) if to_right is not None else (0, 0), np.float32)
    values_sum = np.zeros((value_dim, n_keys) if to_values is not None else (0, 0), np.float32)
    by_column = np.zeros((n_steps, n_keys), np.float32)
    numbers, table = np.zeros(n_steps), np.zeros(entry.table.shape)
    by_rows = np.zeros((n_steps, program.problem.grid.n_queries), np.float32)
    for block in blocks:
        rows = slice(block.rows.start, block.rows.stop)
        height = len(block.rows)
        left = entry.left[rows]
        left_sum = np.zeros((height, dim) if to_left is not None else (0, 0), np.float32)
        by_row = np.zeros((n_steps, height), np.float32)
        row_facts = [each[entry.place, rows].numpy() for each in (facts.offsets, facts.scales, facts.deltas)]
        for span in block.spans:
            workers.check_stopped()
            spans.differentiate_span(
                sgemm_address(),
                *place(left),
                *place(entry.right),
                dim,
                *place(entry.values),
                *place(gradient[rows]),
                value_dim,
                workers.scratch("tile", height, layout.width),
                workers.scratch("second", height, layout.width),
                span.columns.start,
                len(span.columns),
                entry.codes,
                np.ascontiguousarray(entry.by_row[:, rows]),
                entry.by_column,
                entry.numbers,
                pairs_of(entry, block.rows, span.columns),
                entry.table,
                *mask_arguments(program.problem, entry.index, block.rows, span),
                program.rule,
                np.float32(program.rate),
                *row_facts,
                *dropout_arguments(program, entry, block.rows),
                workers.scratch("kept", n_steps, layout.width),
                left_sum,
                right_sum,
                values_sum,
                by_row,
                by_column,
                numbers,
                table,
            )
        if to_left is not None:
            pick(to_left, entry.index, 2)[rows].add_(torch.from_numpy(left_sum), alpha=program.scale)
        by_rows[:, rows] = by_row
    if to_right is not None:
        pick(to_right, entry.index, 2).add_(torch.from_numpy(right_sum).t())
    if to_values is not None:
        pick(to_values, entry.index, 2).add_(torch.from_numpy(values_sum).t())
    targets = iter(to_steps)
    for step, instruction in enumerate(program.instructions):
        sums = {
            "row": by_rows[step][:, None],
            "column": by_column[step][None] if instruction.along_pairs else by_column[step][:, None],
            "number": numbers[step].reshape(1, 1),
            "table": table[None],
        }
        for role, target in zip(instruction.roles, targets, strict=False):
            if target is not None and role is not None:
                view = pick(target, entry.index, 2)
                view += torch.from_numpy(sums[role]).to(view.dtype).sum_to_size(view.shape)


def _wide(tensor: Tensor) -> torch.dtype:
    """The dtype in which the gradient of a tensor is summed: what every tile adds to, in float64."""
    return torch.float64 if tensor.shape[-2] == 1 else torch.float32
