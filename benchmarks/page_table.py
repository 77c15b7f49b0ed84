"""How long the room of a table takes over a million rows, as Chromium shows it: from a move of the query to its answer.

    python -m benchmarks.page --only table

Headless Chromium draws without a graphics card, and shares the processor with the server.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from time import perf_counter
from typing import Any

ROWS = 1_000_000
SLIDES = 60
SECONDS = 4.0

# From an input event of the query's slider to the frame after its answer has been written.
SLIDE = """async share => {
    const slider = document.querySelector("input[name=slide-0]"), line = document.querySelector(".answer-line");
    slider.value = Math.round(share * Number(slider.max));
    const began = performance.now();
    const answered = new Promise(resolve => {
        const watching = new MutationObserver(() => {
            watching.disconnect();
            requestAnimationFrame(() => setTimeout(() => resolve(performance.now() - began), 0));
        });
        watching.observe(line, { childList: true });
    });
    slider.dispatchEvent(new Event("input", { bubbles: true }));
    return answered;
}"""

# Drags the query over the picture, a step a frame, and notes when each frame begins.
DRAG = """async seconds => {
    const plot = document.querySelector(".plot"), { left, top, width, height } = plot.getBoundingClientRect();
    const mouse = { bubbles: true, cancelable: true, isPrimary: true, pointerId: 1, pointerType: "mouse" };
    const tell = (kind, share, buttons) => plot.dispatchEvent(new PointerEvent(kind, {
        ...mouse, button: kind === "pointermove" ? -1 : 0, buttons,
        clientX: left + share * width, clientY: top + height / 2,
    }));
    plot.setPointerCapture = () => {}; // no real pointer is there to be captured
    const next = () => new Promise(requestAnimationFrame), frames = [], told = new Set();
    tell("pointerdown", 0.5, 1);
    const start = await next();
    for (let now = start; now - start < 1000 * seconds; now = await next()) {
        frames.push(now);
        tell("pointermove", 0.5 + 0.4 * Math.sin((now - start) / 700), 1);
        told.add(document.querySelector(".answer-line").textContent);
    }
    tell("pointerup", 0.5, 0);
    return { frames, answers: told.size };
}"""


@dataclass(frozen=True)
class Table:
    """What a table of so many rows was like.

    Args:
        first: Seconds from the address to the rows' picture; from there to the curve, and until all is still.
        slides: Milliseconds from an input event to its answer on the screen, each.
        early: The same, where the page was opened only just: it still searches the best width.
        longest: Milliseconds, the longest time between two frames of a drag.
        answers: How many answers a second were shown meanwhile.
    """

    first: float
    curve: float
    still: float
    early: list[float]
    slides: list[float]
    longest: float
    answers: float


def save_rows(folder: Path, rows: int = ROWS) -> Path:
    """A Parquet file of three columns of numbers."""
    import numpy as np
    import pyarrow as pa
    from pyarrow import parquet

    generator = np.random.default_rng(0)
    x, y = generator.uniform(0, 100, rows), generator.normal(0, 1, rows)
    value = 10 * np.sin(x / 10) + 2 * y + generator.normal(0, 2, rows)
    path = folder / "rows.parquet"
    parquet.write_table(pa.table({"x": x, "y": y, "value": value}), path)
    return path


def table(tab: Any, address: str, slides: int = SLIDES) -> Table:
    """The figures of a page that `regard explore` serves, whose first table is large.

    Args:
        tab: A page of Playwright's.
        address: Of the server, with its token.
        slides: How many there are; the places are spread over the whole line.
    """
    began = perf_counter()
    tab.goto(f"{address}#table?keys=0&value=2")
    tab.wait_for_selector(".drawn svg")
    first = perf_counter() - began
    places = [(0.11 + 0.618034 * place) % 1 for place in range(slides)]  # none is where the query begins
    tab.wait_for_selector(".answer-line:has-text('→')")
    early = [float(tab.evaluate(SLIDE, share)) for share in places[:10]]
    tab.wait_for_selector(".drawn path.curve", state="attached", timeout=120_000)
    curve = perf_counter() - began
    tab.wait_for_load_state("networkidle", timeout=300_000)
    still = perf_counter() - began
    found = [float(tab.evaluate(SLIDE, share)) for share in places]
    tab.wait_for_load_state("networkidle")
    drag = tab.evaluate(DRAG, SECONDS)
    frames = drag["frames"]
    longest = max(later - earlier for earlier, later in pairwise(frames))
    return Table(first, curve, still, early, found, longest, drag["answers"] / SECONDS)
