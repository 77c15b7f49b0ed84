"""Launches that keep the best of rows: from lists, from scores that are there, from shares of the keys.

They write to `outputs`: columns `(*batch_shape, n_queries, k)`, int64, best first, then −1; and, if wanted, scores.
"""

from __future__ import annotations

from torch import Tensor

from regard.engines.cuda.kernels.choosing import choose_listed, choose_scored, merge_choices
from regard.engines.cuda.launch import Launch
from regard.engines.cuda.launch_settings import block_of, blocks_of

LEAST_KEPT = 8  # places for the best of a row, at least
SCORED_ROWS, SCORED_COLUMNS = 4, 64  # of a block of scores that are there
LISTED = 64  # keys that are gathered at once


def kept(k: int) -> int:
    """Places for the best of a row: a power of two."""
    return max(1 << (k - 1).bit_length(), LEAST_KEPT)


def best_of_shares(launch: Launch, shares: tuple[Tensor, Tensor], outputs: tuple[Tensor, ...]) -> None:
    """Write the best of all keys.

    Args:
        launch: The problem.
        shares: Scores and columns of the best of each share of the keys, (entries, splits, n_queries, places).
        outputs: Where to.
    """
    *_, n_splits, n_queries, places = shares[0].shape
    launch.run(
        merge_choices,
        launch.n_entries * n_queries,
        (shares, outputs, n_queries, n_splits, outputs[0].shape[-1]),
        {"K": places},
        {"num_warps": 1},
        variant=(places, len(outputs)),
    )


def best_listed(launch: Launch, outputs: tuple[Tensor, ...]) -> None:
    """Write the best of the keys that each row lists."""
    lists, k = launch.program.mask.lists[0], outputs[0].shape[-1]
    launch.run(
        choose_listed,
        launch.n_entries * launch.n_queries,
        (
            launch.inputs,
            outputs,
            launch.program.terms,
            launch.mask,
            launch.n_queries,
            launch.n_keys,
            lists.shape[-1],
            *launch.batch_sizes,
            launch.program.scale,
            k,
        ),
        {
            "LISTED": min(block_of(lists.shape[-1]), LISTED),
            "K": kept(k),
            **{name: launch.codes[name] for name in ("FORM", "STEPS", "DIM", "BLOCK_DIM")},
        },
        {"num_warps": 1},
        variant=(kept(k), len(outputs)),
    )


def best_scored(launch: Launch, scores: Tensor, outputs: tuple[Tensor, ...]) -> None:
    """Write the best of scores (entries, n_queries, n_keys), −∞ for pairs that are not allowed."""
    n_rows, k = launch.n_entries * launch.n_queries, outputs[0].shape[-1]
    launch.run(
        choose_scored,
        blocks_of(n_rows, SCORED_ROWS),
        (scores, outputs, n_rows, launch.n_keys, k),
        {"K": kept(k), "ROWS": SCORED_ROWS, "COLUMNS": SCORED_COLUMNS},
        {"num_warps": 1},
        variant=(kept(k), len(outputs)),
    )
