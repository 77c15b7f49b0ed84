"""The diagram of one query: keys → scores → weights → values → sum, with the numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from regard.errors import ShapeError
from regard.plots.canvas import add_legend, is_dark, new_figure, scale, write_around
from regard.plots.palette import ink_on
from regard.printable import short_name
from regard.view.drawing import percent

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from torch import Tensor

    from regard.scores import Score
    from regard.weights import Weights

MOST_NUMBERS = 4  # of a vector; of a longer one the first three and a sign that there are more
HEADINGS = ("query q  →", "keys k  →", "a(q, k)  →", "α  →", "values v  →", "Σ α·v")
# In inches: a letter, the rim of a box, what is left free before each column, and the least that all take together.
LETTER, RIM, FREE, LEAST = 0.074, 0.2, (0.1, 1.0, 0.3, 0.3, 0.3, 1.0), 8.6


def flow(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    *,
    score: Score | None = None,
    weights: Weights | None = None,
    key_names: Sequence[str] | None = None,
    query_name: str = "query",
    title: str = "",
    note: str = "",
    most: int = 12,
) -> Figure:
    """A figure of how one query is answered: each key's score, its weight, its value, and the sum Σ α · v.

    Args:
        query: `(dim,)`.
        keys: `(n_keys, key_dim)`.
        values: `(n_keys, value_dim)`.
        score: a(q, k); qᵀk/√d if left out.
        weights: How scores become weights; softmax if left out.
        key_names: A name for each key.
        query_name: What the query is called.
        title: Above the figure; what is computed, if left out.
        note: Below it.
        most: How many keys to draw: the heaviest, in their order. The others are in the sum, and the figure says so.

    Example:
        >>> import torch
        >>> from regard import Gaussian, plots
        >>> gpas, salaries = torch.tensor([[3.0], [3.4], [4.0]]), torch.tensor([[61.0], [69.0], [80.0]])
        >>> figure = plots.flow(torch.tensor([3.5]), gpas, salaries, score=Gaussian(0.2))
    """
    import torch

    from regard.attention import weigh
    from regard.scores import ScaledDot
    from regard.weights import Softmax

    if query.ndim != 1 or keys.ndim != 2 or values.ndim != 2:
        raise ShapeError(
            f"flow() must have one query (dim,), keys (n_keys, dim) and values (n_keys, dim): got "
            f"{tuple(query.shape)}, {tuple(keys.shape)} and {tuple(values.shape)}."
        )
    if key_names is not None and len(key_names) != len(keys):
        raise ShapeError(f"`key_names` must have a name for each key: got {len(key_names)} for {len(keys)}.")
    if len(keys) == 0:
        raise ShapeError("flow() must have at least one key: got none.")
    score = ScaledDot() if score is None else score
    weights = Softmax() if weights is None else weights
    with torch.no_grad():
        view = weigh(query[None], keys, values, score=score, weights=weights)
        alpha, scores, output = view.rows(0)[0], score(query[None], keys)[0], view.output[0]
    drawn = sorted(alpha.argsort(descending=True, stable=True)[:most].tolist())

    columns = [
        [f"{short_name(query_name)}\n{_numbers(query)}"],
        [
            f"{short_name(key_names[place], 12)} {_numbers(keys[place])}" if key_names else _numbers(keys[place])
            for place in drawn
        ],
        [_number(float(scores[place])) for place in drawn],
        [percent(float(alpha[place])) for place in drawn],
        [_numbers(values[place]) for place in drawn],
        [_numbers(output)],
    ]
    spans, width = _spans(columns)
    figure = new_figure(width + 1.4, 0.55 * len(drawn) + 2.2)
    from matplotlib.colors import to_hex

    axes = figure.subplots()
    axes.set_axis_off()
    axes.set_xlim(0, width)
    axes.set_ylim(len(drawn) - 0.4, -1.2)
    middle = (len(drawn) - 1) / 2
    colours, plain = scale(alpha), "#2b2f36" if is_dark() else "#f2f2f2"
    fills = [to_hex(colours.to_rgba(float(alpha[place]))) for place in drawn]
    for column, ((left, right), heading, texts) in enumerate(zip(spans, HEADINGS, columns, strict=True)):
        axes.text((left + right) / 2, -0.9, heading, ha="center", va="center", fontsize=10, weight="bold")
        for line, text in enumerate(texts):
            height = line if len(texts) == len(drawn) else middle
            _box(axes, (left + right) / 2, height, text, fills[line] if column == 3 else plain)
    query_at, _, _, weight_at, _, sum_at = [(left + right) / 2 for left, right in spans]
    for line, place in enumerate(drawn):
        thick = 0.4 + 5 * min(abs(float(alpha[place])) / colours.norm.vmax, 1.0)  # what weighs more is a thicker line
        _line(axes, [(query_at, middle), (spans[0][1], middle), (spans[1][0], line), (weight_at, line)], 0.8)
        _line(axes, [(weight_at, line), (spans[4][1], line), (spans[5][0], middle), (sum_at, middle)], thick)
    add_legend(figure, colours, axes, alpha)
    left_out = ""
    if len(drawn) < len(keys):
        rest = float(alpha.sum() - alpha[drawn].sum())
        left_out = f"; {len(keys) - len(drawn):,} lighter keys, of {percent(rest)} together, are in the sum"
    caption = f"rows are queries, columns are keys: this is one row, its keys from top to bottom{left_out}"
    default = f"Attention(q, D) = Σ α(q, k)·v: {type(score).__name__} under {type(weights).__name__}"
    write_around(figure, title or default, caption, note)
    return figure


def _spans(columns: Sequence[Sequence[str]]) -> tuple[list[tuple[float, float]], float]:
    """Where each column of boxes begins and ends, so that none touches another; and the width of all, in inches."""
    widths = []
    for heading, texts in zip(HEADINGS, columns, strict=True):
        letters = max(len(line) for text in (heading, *texts) for line in text.split("\n"))
        widths.append(letters * LETTER + RIM)
    total = sum(widths) + sum(FREE) + FREE[0]
    stretch = max(LEAST - total, 0.0) / (len(FREE) - 1)
    spans, place = [], -stretch
    for width, free in zip(widths, FREE, strict=True):
        place += free + stretch
        spans.append((place, place + width))
        place += width
    return spans, max(total, LEAST)


def _numbers(vector: Tensor) -> str:
    numbers = [_number(each) for each in vector.tolist()]
    if len(numbers) > MOST_NUMBERS:
        numbers = [*numbers[: MOST_NUMBERS - 1], "…"]
    return numbers[0] if len(numbers) == 1 else f"({', '.join(numbers)})"


def _number(value: float) -> str:
    return f"{value:,.0f}" if 1e4 <= abs(value) < 1e9 else f"{value + 0.0:.3g}"  # + 0.0: not "-0"


def _box(axes: Axes, x: float, y: float, text: str, fill: str) -> None:
    outline = {"boxstyle": "round,pad=0.3", "facecolor": fill, "edgecolor": "0.6", "linewidth": 0.8}
    style: Any = {"ha": "center", "va": "center", "fontsize": 9, "color": ink_on(fill), "bbox": outline, "zorder": 3}
    axes.text(x, y, text, parse_math=False, **style)


def _line(axes: Axes, places: Sequence[tuple[float, float]], width: float) -> None:
    """A line through places; the boxes on its way cover it."""
    across, down = zip(*places, strict=True)
    axes.plot(across, down, color="0.6", linewidth=width, solid_capstyle="butt", solid_joinstyle="round", zorder=1)
