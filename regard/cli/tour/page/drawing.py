"""Figures of the page as SVG: their colours are classes, so that one drawing serves light, dark and print."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from xml.etree.ElementTree import Element, tostring

from regard.plots.palette import in_cell, legend
from regard.view.drawing import POWER, largest_of, percent, three_digits

WIDE = 400  # of every figure, in the units that its numbers are in
LEVELS = 32  # colours that the scale is drawn in
LETTER = 6.4  # how wide a letter is, about


def node(name: str, text: str = "", /, *children: Element, **attributes: object) -> Element:
    """An element; `class_` is its class, and `text_anchor` the attribute text-anchor.

    Example:
        >>> tostring(node("text", "a < b", x=1.25, class_="quiet"))
        b'<text x="1.25" class="quiet">a &lt; b</text>'
    """
    told = {key.rstrip("_").replace("_", "-"): _written(value) for key, value in attributes.items()}
    element = Element(name, told)
    element.text = text or None
    element.extend(children)
    return element


def svg(height: float, parts: Sequence[Element], label: str, wide: float = WIDE) -> str:
    """A figure of `wide` × `height` units; `label` is what a reader hears who does not see it."""
    root = node("svg", viewBox=f"0 0 {_written(wide)} {_written(height)}", role="img", aria_label=label)
    root.extend(parts)
    return tostring(root, encoding="unicode")


def write(x: float, y: float, text: str, class_: str = "ink", anchor: str = "start") -> Element:
    return node("text", text, x=x, y=y, class_=class_, text_anchor=anchor)


def box(x: float, y: float, width: float, height: float, class_: str, **more: object) -> Element:
    return node("rect", "", x=x, y=y, width=max(width, 0.0), height=height, class_=class_, **more)


def line(x: float, y: float, to_x: float, to_y: float, class_: str = "line", **more: object) -> Element:
    return node("line", "", x1=x, y1=y, x2=to_x, y2=to_y, class_=class_, **more)


def arrow(x: float, y: float, to_x: float, to_y: float, class_: str = "line", **more: object) -> list[Element]:
    """A line with a head at its end."""
    length = ((to_x - x) ** 2 + (to_y - y) ** 2) ** 0.5 or 1.0
    ahead = ((to_x - x) / length, (to_y - y) / length)
    left = (to_x - 7 * ahead[0] - 3.5 * ahead[1], to_y - 7 * ahead[1] + 3.5 * ahead[0])
    right = (to_x - 7 * ahead[0] + 3.5 * ahead[1], to_y - 7 * ahead[1] - 3.5 * ahead[0])
    points = " ".join(f"{a:.1f},{b:.1f}" for a, b in ((to_x, to_y), left, right))
    shaft = line(x, y, to_x - 5 * ahead[0], to_y - 5 * ahead[1], class_, **more)
    return [shaft, node("polygon", points=points, class_="head")]


def level_class(weight: float, largest: float) -> str:
    """The class that has a weight's colour."""
    return f"w{round(min(max(weight / largest, 0.0), 1.0) ** POWER * LEVELS)}"


def bars(
    names: Sequence[str],
    weights: Sequence[float],
    label: str,
    *,
    notes: Sequence[str] = (),
    headings: Sequence[str] = (),
    largest: float | None = None,
    tell: Callable[[float], str] = percent,
) -> str:
    """A bar for each weight, with its percents; `notes` stand at the right end."""
    largest = largest or largest_of(weights)
    room = 14 + LETTER * max(map(len, names))
    end = 70 if notes else 0
    length = WIDE - room - 52 - end
    parts, y = [], 16.0
    if headings:
        places = (room - 8, room, WIDE)
        anchors = ("end", "start", "end")
        for heading, x, anchor in zip(headings, places, anchors, strict=False):
            parts.append(write(x, y - 4, heading, "quiet small", anchor))
        y += 20
    for place, (name, weight) in enumerate(zip(names, weights, strict=True)):
        width = length * max(weight, 0.0) / largest
        parts.append(write(room - 8, y, name, "ink", "end"))
        parts.append(box(room, y - 11, max(width, 1.0 if weight > 0 else 0.0), 14, "bar", rx=2))
        parts.append(write(room + width + 6, y, tell(weight), "ink number"))
        if notes:
            parts.append(write(WIDE, y, notes[place], "quiet number", "end"))
        y += 23
    return svg(y - 8, parts, label)


def matrix(
    weights: Sequence[Sequence[float]],
    rows: Sequence[str],
    columns: Sequence[str],
    label: str,
    *,
    room: float = 62,
    selected: int | None = None,
    most: float = 40,
    name: str = "",
) -> str:
    """Weights as tinted cells with their percents, and the legend; a cell's tooltip has three digits."""
    largest = largest_of(each for row in weights for each in row) or 1.0
    size = min((WIDE - room - 2) / len(columns), most)
    top = 12 + LETTER * max(map(len, columns))
    parts: list[Element] = []
    for place, column in enumerate(columns):
        x = room + (place + 0.5) * size + 3.5
        turned = f"rotate(-90 {x:.1f} {top - 6:.1f})"
        parts.append(node("text", column, x=x, y=top - 6, transform=turned, class_="ink"))
    for down, (row, line_of) in enumerate(zip(rows, weights, strict=True)):
        y = top + down * size
        chosen = "ink strong" if down == selected else "ink"
        name_of = write(room - 6, y + size / 2 + 4, row, chosen, "end")
        name_of.set("data-row", str(down))
        parts.append(name_of)
        for across, weight in enumerate(line_of):
            class_ = level_class(weight, largest)
            x = room + across * size
            cell = box(x, y, size - 1, size - 1, class_, data_cell=f"{down},{across}")
            cell.append(node("title", f"{row} → {columns[across]}: {three_digits(weight)}"))
            parts += [cell, write(x + (size - 1) / 2, y + size / 2 + 3.2, in_cell(weight), f"{class_} cell", "middle")]
    if selected is not None:
        edge = box(room - 1.5, top + selected * size - 1.5, size * len(columns) + 2, size + 2, "chosen", rx=3)
        parts.append(edge)
    end = top + len(rows) * size
    parts += scale_below(end + 12, largest, room, size * len(columns))
    figure = svg(end + 44, parts, label)
    return figure.replace("<svg ", f'<svg id="{name}" ', 1) if name else figure


def scale_below(y: float, largest: float, x: float, width: float) -> list[Element]:
    """The legend of five entries: none, and up to the largest weight."""
    parts = []
    width = max(width, 200.0)
    x = min(x, WIDE - width - 2)
    for level in range(LEVELS):
        parts.append(box(x + level * width / LEVELS, y, width / LEVELS + 0.4, 9, f"w{level + 1}"))
    for place, weight in legend(largest):
        anchor = "start" if place == 0 else "end" if place == 1 else "middle"
        tick = node("text", three_digits(weight), x=x + place * width, y=y + 22, class_="quiet small")
        tick.set("text-anchor", anchor)
        tick.set("data-tick", _written(place))
        parts.append(tick)
    return parts


def power(number: float) -> str:
    """A number as people write it, small ones by their power of ten, all on one line.

    Example:
        >>> power(0.25), power(0.00012)
        ('0.25', '1.2\xa0·\xa010⁻⁴')
    """
    if number == 0 or number >= 0.01:
        return f"{number:.2g}"
    digits, exponent = f"{number:.1e}".split("e")
    return f"{digits}\u00a0·\u00a010⁻" + str(-int(exponent)).translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹"))


def _written(value: object) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
