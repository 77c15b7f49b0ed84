"""Kernel regression as a curve, and the weights behind it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from regard.errors import OptionError
from regard.plots.bounded import AXES, read
from regard.plots.canvas import add_legend, label, new_figure, paint, scale, write_around
from regard.view.drawing import BAR_COLOUR

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from regard.database import Answer, Database
    from regard.scores import Score
    from regard.weights import Weights

MOST_QUERIES = 64  # rows of the map of weights
MOST_LISTED = 2000  # pairs that an answer lists


def curve(
    database: Database | Any,
    values: Any = None,
    *,
    score: Score | None = None,
    weights: Weights | None = None,
    queries: Sequence[float] | None = None,
    title: str = "",
    note: str = "",
) -> Figure:
    """A figure of what a database answers along a line of queries, and of the weights that each answer was made with.

    Args:
        database: A `Database` with one column of numbers as key and one as value; or the keys, `(n,)`.
        values: The values, `(n,)`, where keys were given.
        score: How similar a query and a key are; as the database chooses, if left out.
        weights: How scores become weights; likewise.
        queries: Where to ask; 200 places from the smallest key to the largest, if left out.
        title: Above the figure; the names of the columns, if left out.
        note: Below it.

    Example:
        >>> from regard import Database, plots
        >>> gpas = Database([3.0, 3.4, 3.5, 3.6, 4.0], [61_000, 69_000, 70_000, 72_000, 80_000])
        >>> figure = plots.curve(gpas)
    """
    import torch

    from regard.database import Database

    pairs = database if isinstance(database, Database) else Database(database, values)
    known = sorted(_numbers(pairs), key=lambda pair: pair[1])
    low, high = known[0][1], known[-1][1]
    line = torch.linspace(low, high, 200 if high > low else 1).tolist()
    asked = [float(each) for each in (line if queries is None else queries)]
    if not asked:
        raise OptionError("`queries` must have at least one place to ask at: got none.")
    answers = _asked(pairs, asked, score, weights, 1)
    rows = asked[:: -(-len(asked) // MOST_QUERIES)]
    behind = _asked(pairs, rows, score, weights, min(len(known), MOST_LISTED))
    columns = {index: column for column, (index, _, _) in enumerate(known)}
    table = torch.zeros(len(rows), len(known))
    for row, answer in enumerate(behind):
        for found in answer.rows:
            table[row, columns[found.index]] = found.weight

    key, value = pairs.key_names[0], pairs.value_names[0]
    figure = new_figure(7.5, 7.0)
    above, below = figure.subplots(2, 1, height_ratios=[3, 2])
    keys, targets = [pair[1] for pair in known], [pair[2] for pair in known]
    above.plot(keys, targets, "o", color="0.45", markersize=4, label="pairs (k, v)")
    heights = [float(answer.value) if answer.found else math.nan for answer in answers]
    above.plot(
        asked, heights, color=BAR_COLOUR, linewidth=2, label="Σ α(q, k)·v", marker="." if len(asked) == 1 else ""
    )
    above.set_xlabel(f"{key} (of a query, or a key)", parse_math=False)
    above.set_ylabel(value, parse_math=False)
    above.legend(frameon=False)
    reading = read(table, [f"{each:.3g}" for each in rows], [f"{each:.3g}" for each in keys], most=(MOST_QUERIES, 256))
    colours = scale(reading.picture)
    paint(below, reading.picture, colours)
    label(below, reading.rows, reading.columns, most=16)
    below.set_ylabel("queries")
    below.set_xlabel("keys, in order")
    add_legend(figure, colours, below, table)
    missing = sum(not answer.found for answer in answers)
    gaps = f"; no similar rows at {missing} of {len(asked)} queries" if missing else ""
    caption = "; ".join((f"below, {AXES}", *reading.notes, answers[0].similarity)) + gaps
    write_around(figure, title or f"{value} by {key}", caption, note)
    return figure


def _asked(
    pairs: Database, queries: list[float], score: Score | None, weights: Weights | None, top: int
) -> Sequence[Answer]:
    answers: Any = pairs.attend(queries, score=score, weights=weights, top=top)
    return list(answers)


def _numbers(pairs: Database) -> list[tuple[Any, float, float]]:
    """Label, key and value of every pair that has both, or an error where they are no numbers."""
    if len(pairs.key_names) != 1 or len(pairs.value_names) != 1:
        raise OptionError(
            f"A curve must have one key column and one value column: got {pairs.key_names} and {pairs.value_names}."
        )
    everything = pairs.average(top=max(len(pairs), 1)).rows
    try:
        found = [(row.index, float(row.key), float(row.value)) for row in everything if row.key is not None]
    except (TypeError, ValueError):
        raise OptionError(
            "A curve must have keys and values that are numbers: got others. Ask the database itself."
        ) from None
    if not found:
        raise OptionError("A curve must have at least one pair with a key and a value: got none.")
    return found
