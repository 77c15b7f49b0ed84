"""The six scores of the documents on one query and six keys."""

from __future__ import annotations

from regard.cli.tour.guide import Numbers
from regard.cli.tour.page.chapter import Chapter, Stops
from regard.cli.tour.page.drawing import WIDE, level_class, svg, write
from regard.cli.tour.page.drawing import box as cell
from regard.view.drawing import three_digits


def fill(stops: Stops, _: Numbers) -> dict[str, str]:
    told = stops["scores"]
    return {
        "picture": picture(told),
        "dim": str(told["dim"]),
        "selected": ", ".join(f"k{'₀₁₂₃₄₅₆'[place + 1]}" for place in told["selected"]),
    }


def picture(told: Numbers) -> str:
    """For each score a row of cells: the score as a number, its weight as the colour."""
    largest = max(max(row["weights"]) for row in told["scores"])
    room, size, step = 96.0, 50.0, 40.0
    parts = [write(room + (i + 0.5) * size, 14, f"k{'₁₂₃₄₅₆'[i]}", "ink", "middle") for i in range(6)]
    for down, row in enumerate(told["scores"]):
        y = 24 + down * step
        parts.append(write(room - 8, y + 22, row["name"], "ink", "end"))
        for across, (score, weight) in enumerate(zip(row["scores"], row["weights"], strict=True)):
            class_ = level_class(weight, largest)
            x = room + across * size
            box = cell(x, y, size - 2, step - 2, class_)
            said = "–" if score is None else f"{score:.2f}".replace("-", "−")
            tip = "not computed" if score is None else f"score {said}"
            title = write(0, 0, f"{row['name']}, k{across + 1}: {tip}, weight {three_digits(weight)}")
            title.tag, title.attrib = "title", {}
            box.append(title)
            parts += [box, write(x + size / 2 - 1, y + 23, said, f"{class_} number", "middle")]
    end = 24 + len(told["scores"]) * step
    parts.append(write(WIDE - 4, end + 14, "numbers are scores; colours are weights, darkest 0", "quiet small", "end"))
    parts[-1].text = f"numbers: scores · colours: weights, up to {three_digits(largest)}"
    return svg(end + 20, parts, "Six scores of one query and six keys, and the weights that softmax makes of them.")


CHAPTER = Chapter("scores", "Six ways to compare", ("scores",), fill=fill)
