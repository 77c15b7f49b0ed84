"""How long the room of a sentence takes, as Chromium shows it: from the last key to what is drawn."""

from __future__ import annotations

from statistics import median
from typing import Any

# Twelve words each, so that none is there before it is typed; the last of each is in no other.
SENTENCES = tuple(
    f"When {who} came home, the old dog was so {how} it {did}"
    for who, how, did in [
        ("she", "happy", "danced"),
        ("he", "glad", "barked"),
        ("they", "tired", "slept"),
        ("we", "hungry", "begged"),
        ("Ida", "proud", "sang"),
        ("Hal", "shy", "hid"),
        ("Kim", "quick", "won"),
    ]
)

# When the last key was pressed, and when a drawing with some word in it was on the screen: a frame after it was there.
WATCH = """word => {
    window.keyed = 0;
    document.addEventListener("input", () => { window.keyed = performance.now(); }, true);
    window.drawn = new Promise(resolve => {
        const place = document.querySelector(".picture");
        const seen = () => [...place.querySelectorAll("svg text")].some(each => each.textContent === word);
        const watching = new MutationObserver(() => {
            if (!seen()) return;
            watching.disconnect();
            requestAnimationFrame(() => setTimeout(() => resolve(performance.now() - window.keyed), 0));
        });
        watching.observe(place, { childList: true, subtree: true });
    });
}"""


def typed_to_drawn(tab: Any, sentences: tuple[str, ...] = SENTENCES) -> float:
    """Seconds from the last key of a sentence of 12 words to its picture, warm: the median of some sentences."""
    tab.wait_for_selector(".picture svg")
    found = []
    for sentence in sentences:
        tab.fill("#sentence-text", "")
        tab.focus("#sentence-text")
        tab.evaluate(WATCH, sentence.split()[-1])
        tab.keyboard.type(sentence, delay=20)
        found.append(tab.evaluate("window.drawn") / 1000)
    return median(found[1:])
