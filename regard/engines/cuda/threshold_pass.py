"""The launch that finds thresholds, and room for what a rule with a threshold averages by slope."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from regard.engines.cuda.kernels.find_thresholds import find_thresholds
from regard.engines.cuda.launch import Launch
from regard.engines.cuda.launch_settings import Settings, blocks_of

# What the kernel is not specialised by.
NEEDLESS = frozenset({"DROPOUT", "VALUE_DIM", "BLOCK_VALUE_DIM"})


class Slopes(NamedTuple):
    """What the backward pass needs of rows beside their thresholds."""

    mean: Tensor  # the values averaged by slope, as the output lies; u in dS = slope · (dP − dO·u)
    sums: Tensor  # (..., n_queries, 2): Σ slope, and the entropy


def room_for_slopes(launch: Launch) -> Slopes:
    """To be written to."""
    shape = launch.program.problem.output_shape
    return Slopes(launch.empty(*shape), launch.empty(*shape[:-1], 2))


def find(launch: Launch, settings: Settings, peaks: Tensor, thresholds: Tensor) -> None:
    """Write the largest score and the threshold of every row."""
    launch.run(
        find_thresholds,
        launch.n_entries * blocks_of(launch.n_queries, settings.rows),
        (
            launch.walked,
            (peaks, thresholds),
            launch.program.terms,
            launch.mask,
            launch.units,
            launch.n_queries,
            launch.n_keys,
            *launch.line,
            *launch.batch_sizes,
            launch.program.scale,
        ),
        {
            **{name: code for name, code in launch.codes.items() if name not in NEEDLESS},
            "ROWS": settings.rows,
            "COLUMNS": settings.columns,
        },
        settings.options,
        variant=settings,
        fresh=(peaks, thresholds),
    )
