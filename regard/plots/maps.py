"""Weights as maps: one matrix, all heads of a model, an alignment of two sequences, one row ranked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from regard.errors import ShapeError
from regard.plots.bounded import AXES, Reading, as_tensor, read, unless_finite
from regard.plots.canvas import MOST_LABELS, add_legend, label, new_figure, paint, scale, write_around, write_numbers
from regard.plots.every_head import every_head
from regard.printable import short_name
from regard.view.drawing import BAR_COLOUR, largest_of, percent

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_NUMBERED = 24  # rows and columns of a map that has its numbers written in


def matrix(
    weights: Any,
    rows: Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
    *,
    title: str = "",
    note: str = "",
    entry: tuple[int, ...] | None = None,
    most: tuple[int, int] = (256, 256),
) -> Figure:
    """A figure of weights: a row for each query, a column for each key.

    Long inputs are pooled to at most `most` cells, each the largest weight that it stands for; the figure says so.

    Args:
        weights: What `weigh` gives, or a tensor `(..., n_queries, n_keys)`.
        rows: A name for each query.
        columns: A name for each key; those of the rows if left out and there are as many.
        title: Above the figure.
        note: Below it.
        entry: Which entry of the leading axes (batch, heads); their average if left out.
        most: The height and width of the largest picture, in cells.

    Example:
        >>> import torch
        >>> from regard import plots, weigh
        >>> x = torch.rand(4, 8)
        >>> figure = plots.matrix(weigh(x, x, x), ["the", "dog", "was", "happy"])
        >>> figure.savefig("weights.png")  # doctest: +SKIP
    """
    shape = tuple(weights.shape if hasattr(weights, "shape") else as_tensor(weights).shape)
    if columns is None and rows is not None and len(shape) > 1 and shape[-1] == shape[-2]:
        columns = rows
    reading = read(weights, rows, columns, most=most, entry=entry)
    return _one_map(reading, title, note, "queries", "keys")


def alignment(
    weights: Any,
    rows: Sequence[str],
    columns: Sequence[str],
    *,
    title: str = "",
    note: str = "",
    row_name: str = "written (queries)",
    column_name: str = "read (keys)",
) -> Figure:
    """A figure of what each generated token attends to in the source: a rectangle, `(n_written, n_read)`.

    Example:
        >>> from regard import plots
        >>> figure = plots.alignment([[0.9, 0.1, 0.0], [0.1, 0.2, 0.7]], ["le", "chien"], ["the", "happy", "dog"])
    """
    return _one_map(read(weights, rows, columns), title, note, row_name, column_name)


def _one_map(reading: Reading, title: str, note: str, row_name: str, column_name: str) -> Figure:
    height, width = reading.picture.shape
    size = 0.42 if max(height, width) <= MOST_NUMBERED else max(6.0 / max(height, width), _room(reading))
    figure = new_figure(max(width * size, 2.5) + 2.8, max(height * size, 1.2) + 2.0)
    axes = figure.subplots()
    unnamed = reading.rows is None and reading.columns is None
    colours = scale(reading.picture)
    paint(axes, reading.picture, colours, reading.size if unnamed else None)
    label(axes, reading.rows, reading.columns)
    is_numbered = max(height, width) <= MOST_NUMBERED
    if is_numbered:
        write_numbers(axes, reading.picture, colours)
        note = "; ".join(part for part in ("numbers are percents", note) if part)
    axes.set_ylabel(row_name)
    axes.set_xlabel(column_name)
    add_legend(figure, colours, axes, reading.picture)
    strange = unless_finite(reading.picture, "?" if is_numbered else "a grey cell")
    write_around(figure, title, reading.caption + strange, note)
    return figure


def _room(reading: Reading) -> float:
    """Inches that a row needs for its name; 0 where none is named, or not all are."""
    longest = max(len(names) if names else 0 for names in (reading.rows, reading.columns))
    return 0.17 if 0 < longest <= MOST_LABELS else 0.0


def heads(weights: Any, *, title: str = "", note: str = "", most: int = 48) -> Figure:
    """A figure of every head of every layer, small: layers from top to bottom, heads from left to right.

    Args:
        weights: A tensor `(layers, heads, n_queries, n_keys)`, or a list with the weights of each layer
            `(heads, n_queries, n_keys)`: tensors or what `weigh` gives; or what `nn.record` kept of one sequence, whose
            layers were called once each.
        title: Above the figure.
        note: Below it.
        most: The largest side of one head's map, in cells.

    Example:
        >>> import torch
        >>> from regard import plots
        >>> figure = plots.heads(torch.rand(2, 4, 9, 9).softmax(-1))
    """
    found = every_head(weights)
    numbers = found.numbers
    pictures, notes = found.pictures(most, most)
    n_layers, n_heads = len(pictures), max(map(len, pictures))
    figure = new_figure(0.85 * n_heads + 1.8, 0.85 * n_layers + 1.3)
    grid = figure.subplots(n_layers, n_heads, squeeze=False)
    every = [each for of_layer in pictures for each in of_layer]
    colours = scale(*every)
    for layer, of_layer in enumerate(grid):
        for head, axes in enumerate(of_layer):
            axes.set_xticks([])
            axes.set_yticks([])
            if head >= len(pictures[layer]):
                axes.set_axis_off()
                continue
            paint(axes, pictures[layer][head], colours)
            if layer == 0:
                axes.set_title(f"head {head}" if head == 0 else f"{head}", fontsize=8)
            if head == 0:
                axes.set_ylabel(f"layer {numbers[layer]}" if layer == 0 else f"{numbers[layer]}", fontsize=8)
    add_legend(figure, colours, grid, *every)
    strange = max(unless_finite(each, "a grey cell") for each in every)
    write_around(figure, title, "; ".join(("in each map " + AXES, *notes)) + strange, note)
    return figure


def ranked(
    weights: Any, columns: Sequence[str], query: str, *, title: str = "", note: str = "", most: int = 20
) -> Figure:
    """A figure of one row of weights, heaviest first; the largest has a bar of the full width.

    Args:
        weights: `(n_keys,)`.
        columns: A name for each key.
        query: Whose row it is.
        title: Above the figure; whose row it is, if left out.
        note: Below it.
        most: How many keys to show.

    Example:
        >>> from regard import plots
        >>> figure = plots.ranked([0.2, 0.7, 0.1], ["the", "dog", "was"], "happy")
    """
    row = as_tensor(weights)
    if row.ndim != 1 or row.numel() != len(columns) or not len(columns):
        raise ShapeError(f"`columns` must have a name for each weight: got {len(columns)} for {tuple(row.shape)}.")
    order = sorted(range(len(columns)), key=lambda place: (not bool(row[place].isfinite()), -float(row[place])))[:most]
    found = [float(row[place]) if bool(row[place].isfinite()) else 0.0 for place in order]
    said = [percent(each) if bool(row[place].isfinite()) else "?" for place, each in zip(order, found, strict=True)]
    figure = new_figure(6.4, 0.28 * len(order) + 1.6)
    axes = figure.subplots()
    bars = axes.barh(range(len(order)), found, color=BAR_COLOUR)
    axes.bar_label(bars, said, padding=3, fontsize=8)
    axes.set_yticks(range(len(order)), [short_name(columns[place]) for place in order], parse_math=False)
    axes.invert_yaxis()
    axes.set_xlim(min(0.0, *found), largest_of(found))
    axes.set_xticks([])
    axes.set_xlabel("weight, up to the largest")
    axes.spines[["top", "right", "bottom"]].set_visible(False)
    rest = len(columns) - len(order)
    left_out = f"; {rest} lighter {'key is' if rest == 1 else 'keys are'} not shown" if rest else ""
    write_around(
        figure,
        title or f"what “{short_name(query)}” attends to",
        f"{AXES}: this is one row, its keys from top to bottom{left_out}" + unless_finite(row[order], "?"),
        note,
    )
    return figure
