"""How smoothly the page follows a hand: frames a second while the query is dragged among 200 keys.

    python -m benchmarks.page --only formula

The page computes the weights, the output and the picture of every query's output itself. Headless Chromium draws
without a graphics card, so this is the slowest that a reader will see on the same processor.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

SECONDS = 4.0
MANY = "#formula?preset=many"
QUERY, KEY = ".query-handle .inside", ".key-handle .dot"

# Moves the pointer once a frame along a curve that visits the whole plane, and notes when each frame begins.
DRAG = """async ([seconds, handle]) => {
    const svg = document.querySelector(".plane-drawing"), { left, top, width, height } = svg.getBoundingClientRect();
    const { x, y, width: wide, height: high } = svg.querySelector(handle).getBoundingClientRect();
    const mouse = { bubbles: true, cancelable: true, isPrimary: true, pointerId: 1, pointerType: "mouse" };
    const tell = (kind, clientX, clientY, buttons) => {
        const button = kind === "pointermove" ? -1 : 0;
        svg.dispatchEvent(new PointerEvent(kind, { ...mouse, button, buttons, clientX, clientY }));
    };
    const next = () => new Promise(requestAnimationFrame), frames = [];
    const read = () => svg.querySelector(handle).parentNode.getAttribute("transform");
    tell("pointerdown", x + wide / 2, y + high / 2, 1);
    const start = await next(), places = new Set();
    for (let now = start; now - start < 1000 * seconds; now = await next()) {
        frames.push(now);
        const turn = (now - start) / 1000;
        const across = 0.5 + 0.4 * Math.cos(2.1 * turn), down = 0.5 + 0.4 * Math.sin(3.3 * turn);
        tell("pointermove", left + width * across, top + height * down, 1);
        places.add(read());
    }
    tell("pointerup", left + width / 2, top + height / 2, 0);
    return { frames, places: places.size };
}"""


@dataclass(frozen=True)
class Drag:
    """What a drag was like: frames a second, the longest time between two, and milliseconds a frame of each work."""

    frames_a_second: float
    longest: float
    script: float
    style_and_layout: float
    all_work: float


def drag(tab: Any, seconds: float = SECONDS, fragment: str = MANY, handle: str = QUERY) -> Drag:
    """Drag the query, or a key, in a page that `regard explore` serves; `tab` is a page of Playwright that shows it."""
    tab.evaluate("fragment => { location.hash = fragment; }", fragment)
    tab.locator(".key-handle").nth(199).wait_for(state="attached")
    tab.evaluate(DRAG, [0.5, handle])  # compiled, and what was dragged before lies still
    tab.wait_for_timeout(500)
    session = tab.context.new_cdp_session(tab)
    session.send("Performance.enable")
    before = _metrics(session)
    found = tab.evaluate(DRAG, [seconds, handle])
    after = _metrics(session)
    session.detach()
    frames = found["frames"]
    count = len(frames) - 1
    if found["places"] < count / 2:
        raise RuntimeError(f"{handle} was drawn in {found['places']} places over {count} frames: it does not follow")
    spent = {name: 1000 * (after[name] - before[name]) / count for name in after}
    return Drag(
        frames_a_second=1000 * count / (frames[-1] - frames[0]),
        longest=max(later - earlier for earlier, later in pairwise(frames)),
        script=spent["ScriptDuration"],
        style_and_layout=spent["LayoutDuration"] + spent["RecalcStyleDuration"],
        all_work=spent["TaskDuration"],
    )


def _metrics(session: Any) -> dict[str, float]:
    names = {"ScriptDuration", "LayoutDuration", "RecalcStyleDuration", "TaskDuration"}
    found = session.send("Performance.getMetrics")["metrics"]
    return {each["name"]: each["value"] for each in found if each["name"] in names}
