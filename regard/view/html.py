"""Pictures of views and recordings for notebooks: static SVG, light and dark, pooled to a bounded size."""

from __future__ import annotations

import html
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

from regard.view.colours import GREY, colour_at, legend
from regard.view.drawing import largest_of, place_of, ratio, three_digits
from regard.view.theme import by_theme

if TYPE_CHECKING:
    from torch import Tensor

    from regard.view.weights_view import WeightsView

# A notebook must not wait for a picture, nor keep a large one.
MOST_PAIRS = 1 << 24  # weights that are read
MOST_CELLS = 30_000  # in all maps together
SIDES = (8, 64)  # the fewest and the most cells that a side of a map may have
MOST_ROWS, MOST_COLUMNS = 24, 16  # maps
LEVELS = 16  # colours of the scale

SMALL, LARGE, GAP = 54, 320, 6  # pixels of a map among others, of one alone, and between maps
ROOM = 34  # pixels for the numbers of layers and heads


@dataclass(frozen=True)
class MapRow:
    """Maps that stand side by side: the heads of one view."""

    pictures: Tensor  # (heads, height, width)
    size: tuple[int, int]  # of the weights: queries, keys
    name: str
    label: str = ""


def picture_of_view(view: WeightsView, title: str) -> str:
    """A view as HTML: its heads side by side, of the first entry of the batch."""
    if _is_empty(view) or math.prod(view.shape) > MOST_PAIRS:
        return _page(title, "", _unread(view))
    row = _read(view, "", "", _side(1, _heads(view)))
    return _drawn([row], title, _of_entry(view), view.kind)


def picture_of_recording(calls: Sequence[tuple[str, int, WeightsView]], title: str) -> str:
    """Recorded calls as HTML: a row for each, its heads side by side, of the first entry of the batch.

    Args:
        calls: The name of each layer, its number, and a view.
        title: What is recorded.
    """
    chosen, pairs = [], 0
    for name, number, view in calls[:MOST_ROWS]:
        pairs += math.prod(view.shape)
        if pairs > MOST_PAIRS:
            break
        if not _is_empty(view):
            chosen.append((name, number, view))
    if not chosen:
        return _page(title, "", _unread(calls[0][2]) if calls else "no layer was called inside the with")
    side = _side(len(chosen), max(_heads(view) for _, _, view in chosen))
    rows = [_read(view, name, str(number), side) for name, number, view in chosen]
    notes = [_of_entry(chosen[0][2])]
    if len(chosen) < len(calls):
        notes.append(f"the first {len(chosen)} of {len(calls)} calls: plots.heads draws those that are recorded alone")
    kinds = {view.kind for _, _, view in chosen}
    return _drawn(rows, title, "; ".join(filter(None, notes)), "linear" if "linear" in kinds else "convex")


def _heads(view: WeightsView) -> int:
    return min(int(view.shape[-3]), MOST_COLUMNS) if len(view.shape) > 2 else 1


def _side(rows: int, columns: int) -> int:
    """How many cells a side of a map has."""
    return min(max(math.isqrt(MOST_CELLS // (rows * columns)), SIDES[0]), SIDES[1])


def _is_empty(view: WeightsView) -> bool:
    return 0 in view.shape


def _unread(view: WeightsView) -> str:
    if _is_empty(view):
        return "(empty)"
    return f"(more than {MOST_PAIRS:,} weights: draw them with .map(height, width))"


def _read(view: WeightsView, name: str, label: str, side: int) -> MapRow:
    import torch

    with torch.no_grad():
        pictures = view.map(side, side, pool="max").cpu().double()
    pictures = pictures[(0,) * max(pictures.ndim - 3, 0)]
    pictures = pictures if pictures.ndim == 3 else pictures[None]
    return MapRow(pictures[:MOST_COLUMNS], (view.shape[-2], view.shape[-1]), name, label)


def _of_entry(view: WeightsView) -> str:
    """Which part of a view is drawn, where that is not all of it."""
    notes = []
    if any(size > 1 for size in view.shape[:-3]):
        notes.append(f"of batch entry {', '.join('0' for _ in view.shape[:-3])}")
    if len(view.shape) > 2 and view.shape[-3] > MOST_COLUMNS:
        notes.append(f"the first {MOST_COLUMNS} of {view.shape[-3]} heads")
    return "; ".join(notes)


def _drawn(rows: Sequence[MapRow], title: str, note: str, kind: str) -> str:
    """The maps on one scale, their legend, and what has to be said of them."""
    count = max(len(row.pictures) for row in rows)
    alone = len(rows) == count == 1
    left, top = (0, 0) if alone else (ROOM if any(row.label for row in rows) else 0, 16)
    largest = largest_of(weight for row in rows for weight in row.pictures.flatten().tolist())
    size = LARGE if alone else SMALL
    parts, y = [], top
    for place, row in enumerate(rows):
        height, width = _box(row, size)
        if row.label:
            parts.append(f'<text x="{left - 8}" y="{y + height / 2 + 4:g}" text-anchor="end">{row.label}</text>')
        for head, picture in enumerate(row.pictures.tolist()):
            x = left + head * (SMALL + GAP)
            if place == 0 and not alone:
                parts.append(f'<text x="{x + width / 2:g}" y="11" text-anchor="middle">{head}</text>')
            hover = ", ".join(filter(None, (row.name, "" if alone else f"head {head}")))
            which = "" if alone else f' data-layer="{place}" data-head="{head}"'
            parts.append(f"<g{which} {_map(picture, x, y, width, height, largest, hover)}</g>")
        y += math.ceil(height) + GAP
    width = left + (math.ceil(_box(rows[0], size)[1]) if alone else count * (SMALL + GAP) - GAP)
    caption = _caption(rows, note, alone)
    svg = (
        f'<svg viewBox="-1 -1 {width + 2} {y + 2}" width="{width + 2}" height="{y + 2}" role="img" '
        f'aria-label="{html.escape(f"{title}; {caption}")}">{"".join(parts)}</svg>'
    )
    return _page(title, svg + _legend(largest, kind), caption)


def _box(row: MapRow, size: int) -> tuple[float, float]:
    """Height and width of a map in pixels: its longer side is `size`, the other in proportion, but for slivers."""
    n_queries, n_keys = row.size
    longest = max(n_queries, n_keys)
    return (max(size * n_queries / longest, size / 8), max(size * n_keys / longest, size / 8))


def _map(table: list[list[float]], x: float, y: float, width: float, height: float, largest: float, hover: str) -> str:
    """Where a map stands, and what is in it: a path for each level of the scale, a run of equal cells as one box."""
    paths: dict[str, list[str]] = {}
    for row, cells in enumerate(table):
        for level, start, count in _runs(cells, largest):
            paths.setdefault(level, []).append(f"M{start} {row}h{count}v1h-{count}z")
    across, down = width / len(table[0]), height / len(table)
    drawn = "".join(f'<path {_coloured(level)} d="{"".join(runs)}"/>' for level, runs in paths.items())
    told = f"<title>{html.escape(hover)}</title>" if hover else ""
    below, frame = (
        f'<rect {kind} width="{len(table[0])}" height="{len(table)}"/>'
        for kind in (_coloured("0"), 'class="frame" fill="none"')
    )
    return f'transform="translate({x:g} {y:g}) scale({across:.5g} {down:.5g})">{told}{below}{drawn}{frame}'


def _coloured(level: str) -> str:
    """Attributes for the colour of a level; the one of light pages is there where a notebook leaves styles out."""
    return f'class="w{level}" fill="{GREY if level == "x" else colour_at(int(level) / LEVELS)}"'


def _runs(cells: list[float], largest: float) -> Iterator[tuple[str, int, int]]:
    """(level, first, how many) of cells of one colour, but for those that have the colour of 0."""
    start = 0
    for level, run in groupby(_level(weight, largest) for weight in cells):
        count = len(list(run))
        if level != "0":
            yield level, start, count
        start += count


def _level(weight: float, largest: float) -> str:
    return str(round(place_of(weight, largest) * LEVELS)) if math.isfinite(weight) else "x"


def _legend(largest: float, kind: str) -> str:
    entries = []
    for place, weight in legend(largest):
        told = f"{weight:.3g}" if kind == "linear" else three_digits(weight)  # linear weights are no shares of anything
        swatch = (
            f'<svg width="12" height="12"><path {_coloured(str(round(place * LEVELS)))} d="M0 0h12v12h-12z"/></svg>'
        )
        entries.append(f"<span>{swatch} {told}</span>")
    return f'<p class="legend">{"".join(entries)}</p>'


def _caption(rows: Sequence[MapRow], note: str, alone: bool) -> str:
    notes = ["rows are queries, columns are keys"]
    if not alone:
        across = "a map for each head" if not any(row.label for row in rows) else "layers downwards, heads across"
        notes.insert(0, across)
    if note:
        notes.append(note)
    pooled = {_pooled(row) for row in rows} - {""}
    if len(pooled) == 1:
        notes.append(pooled.pop())
    elif pooled:
        notes.append("each cell is the largest of those that it stands for")
    flat = [weight for row in rows for weight in row.pictures.flatten().tolist()]
    if any(weight < 0 for weight in flat):
        notes.append("weights below 0 are drawn as 0")
    if not all(map(math.isfinite, flat)):
        notes.append("grey is no finite number")
    return "; ".join(notes)


def _pooled(row: MapRow) -> str:
    (n_queries, n_keys), (height, width) = row.size, row.pictures.shape[-2:]
    if (n_queries, n_keys) == (height, width):
        return ""
    return f"each cell is the largest of about {ratio(n_queries, height)} × {ratio(n_keys, width)} weights"


def _page(title: str, picture: str, caption: str) -> str:
    return (
        f'<div class="regard-weights"><style>{STYLE}</style><p><b>{html.escape(title)}</b></p>{picture}'
        f"<p>{html.escape(caption)}</p></div>"
    )


def _colours(dark: bool) -> str:
    levels = "".join(f"--w{level}:{colour_at(level / LEVELS, dark)};" for level in range(LEVELS + 1))
    return levels + ("--ink:#d5d9de;--line:#55606b;" if dark else "--ink:#24292f;--line:#b8bfc6;")


def _style() -> str:
    """Colours by the reader's preference, unless the notebook says which of its themes is on."""
    own = ".regard-weights"
    levels = "".join(f"{own} .w{level}{{fill:var(--w{level})}}" for level in range(LEVELS + 1))
    return (
        f"{by_theme(own, _colours(False), _colours(True))}"
        f"{own}{{color:var(--ink);font:13px/1.4 system-ui,sans-serif;max-width:64em}}{own} p{{margin:.3em 0}}"
        f"{own}>svg{{max-width:100%;height:auto;display:block;margin:.4em 0;shape-rendering:crispEdges}}"
        f"{own} text{{font-size:11px;fill:var(--ink)}}{own} .legend span{{margin-right:1em;white-space:nowrap}}"
        f"{own} .frame{{fill:none;stroke:var(--line);stroke-width:1px;vector-effect:non-scaling-stroke}}"
        f"{own} .legend svg{{vertical-align:-1px;outline:1px solid var(--line)}}{own} .wx{{fill:{GREY}}}{levels}"
    )


STYLE = _style()
