"""Both passes where each row attends to few keys, which are gathered: a program for each row, or for each key."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from regard.engines.cuda.kernels.listed import differentiate_listed_columns, differentiate_listed_rows, pool_listed
from regard.engines.cuda.launch import Facts, Launch, Strided
from regard.engines.cuda.launch_settings import block_of
from regard.engines.cuda.masks import listing_of
from regard.engines.cuda.threshold_pass import Slopes

MOST_LISTED = 64  # keys that are gathered at once

# What these kernels are not specialised by: they have no products of matrices, and one kind of mask; and they are safe.
NEEDLESS = frozenset({"EXACT", "EXCLUDES", "FOLDS", "MASK", "PRECISION", "ROUGH"})


def pool_lists(
    launch: Launch, output: Tensor, peaks: Tensor, totals: Tensor, *, finish: bool, slopes: Slopes | None = None
) -> None:
    """Write the output and the statistics of every row, or their sums where they are not to be finished."""
    lists = launch.program.mask.lists[0]
    launch.run(
        pool_listed,
        launch.n_entries * launch.n_queries,
        (
            launch.inputs,
            (output, peaks, totals, launch.errors, launch.units, *(slopes or ())),
            launch.program.terms,
            launch.mask,
            launch.sink,
            launch.dropout,
            launch.n_queries,
            launch.n_keys,
            lists.shape[-1],
            *launch.batch_sizes,
            launch.program.scale,
        ),
        {"SINK": bool(launch.sink), "FINISH": finish, "LISTED": _listed(lists), **_codes(launch)},
        _options(launch),
        variant=(finish, output.dtype, slopes is None),
    )


def differentiate_lists_by_rows(
    launch: Launch, gradient: Strided, facts: Facts, outputs: tuple[Any, ...], **learns: object
) -> None:
    """Write the gradients of queries, and of what steps and channels have learned."""
    lists = launch.program.mask.lists[0]
    launch.run(
        differentiate_listed_rows,
        launch.n_entries * launch.n_queries,
        (
            *_given(launch, gradient, facts, outputs),
            launch.mask,
            launch.dropout,
            launch.n_queries,
            launch.n_keys,
            lists.shape[-1],
            *launch.batch_sizes,
            launch.program.scale,
        ),
        {"LISTED": _listed(lists), **learns, **_backward_codes(launch)},
        _options(launch),
        **_variant(launch, gradient, facts, outputs, *learns.values()),
    )


def differentiate_lists_by_columns(
    launch: Launch,
    gradient: Strided,
    facts: Facts,
    outputs: tuple[Any, ...],
    *,
    learns: tuple[bool, ...],
) -> None:
    """Write the gradients of keys and values, and of what steps have learned for each key."""
    batch, lists = launch.program.batch, launch.program.mask.lists[0]
    rows, begins = listing_of(lists, launch.n_keys)
    launch.run(
        differentiate_listed_columns,
        launch.n_entries * launch.n_keys,
        (
            *_given(launch, gradient, facts, outputs),
            (rows, batch.strides(rows, 1), begins, batch.strides(begins, 1)),
            launch.dropout,
            launch.n_queries,
            launch.n_keys,
            *launch.batch_sizes,
            launch.program.scale,
        ),
        {"LEARNS": learns, "LISTED": _listed(lists), **_backward_codes(launch)},
        _options(launch),
        **_variant(launch, gradient, facts, outputs, learns),
    )


def _variant(
    launch: Launch, gradient: Strided, facts: Facts, outputs: tuple[Any, ...], *learns: object
) -> dict[str, Any]:
    """What a kernel is compiled for beside the layout."""
    variant = (
        gradient[0].dtype,
        gradient[1],
        *learns,
        *launch.backward_codes.values(),
        *[each.dtype for each in outputs if isinstance(each, Tensor)],
    )
    return {"variant": variant, "fresh": (gradient[0], facts.levels)}


def _given(launch: Launch, gradient: Strided, facts: Facts, outputs: tuple[Any, ...]) -> tuple[Any, ...]:
    return launch.inputs, gradient, tuple(facts), outputs, launch.program.terms


def _codes(launch: Launch) -> dict[str, Any]:
    """What these kernels are specialised by."""
    return {name: code for name, code in launch.codes.items() if name not in NEEDLESS}


def _backward_codes(launch: Launch) -> dict[str, Any]:
    return {**_codes(launch), **launch.backward_codes}


def _listed(lists: Tensor) -> int:
    return min(block_of(lists.shape[-1]), MOST_LISTED)


def _options(launch: Launch) -> dict[str, int]:
    """One warp for each 4 KiB of keys that are gathered at once."""
    size = MOST_LISTED * max(block_of(launch.dim), block_of(launch.value_dim)) * launch.program.left.dtype.itemsize
    return {"num_warps": min(max(size // 4096, 1), 8)}
