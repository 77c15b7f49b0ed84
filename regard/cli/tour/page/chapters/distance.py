"""Long-range dependencies: the trained head over ever longer texts."""

from __future__ import annotations

from regard.cli.tour.guide import Numbers
from regard.cli.tour.page.chapter import Chapter, Stops
from regard.cli.tour.page.chapters import learning
from regard.cli.tour.page.drawing import node, svg, write


def fill(_: Stops, own: Numbers) -> dict[str, str]:
    rows = "".join(
        f"<tr><th scope='row'>{length + 1:,}</th><td>{1 / (length + 1):.1%}</td><td>{new:.0%}</td><td>{known:.0%}</td>"
        "</tr>"
        for length, new, known in zip(learning.LENGTHS, own["found"]["new"], own["found"]["known"], strict=True)
    )
    return {
        "rows": rows,
        "paths": paths(),
        "longest": f"{learning.LENGTHS[-1] + 1:,}",
        "diluted": f"{own['found']['new'][-1]:.0%}",
        "kept": f"{own['found']['known'][-1]:.0%}",
        "taught": str(learning.LENGTH + 1),
    }


def paths() -> str:
    """From the first word to the last: through every state of a recurrent network, or in one step of attention."""
    words = ["the", "dog", "that", "he", "saw", "was", "happy"]
    step, parts = 400 / len(words), []
    for place, word in enumerate(words):
        x = step * (place + 0.5)
        for y in (34.0, 134.0):
            parts.append(node("circle", cx=x, cy=y, r=7, class_="key" if y < 100 else "value"))
            parts.append(write(x, y + 24, word, "ink", "middle"))
        if place:
            parts.append(node("path", d=f"M{x - step + 9:.1f} 34 H{x - 9:.1f}", class_="edge"))
    start, end = step * 1.5, step * 6.5
    arc = f"M{end:.1f} 125 C{end - 20:.1f} 88 {start + 20:.1f} 88 {start:.1f} 125"
    parts.append(node("path", d=arc, class_="thread-path"))
    parts.append(write(200, 14, "recurrent network: dog → happy in 5 steps", "quiet", "middle"))
    parts.append(write(200, 86, "attention: happy → dog in 1 step", "quiet", "middle"))
    return svg(166, parts, "From dog to happy a recurrent network takes five steps, attention one.")


CHAPTER = Chapter("distance", "Long-range dependencies", (), learning.measure, fill)
