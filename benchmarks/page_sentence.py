"""How long the room of a sentence takes, as Chromium shows it: from a key to what is on the screen.

with TemporaryDirectory() as folder:
    model = save_long(Path(folder))           # regard explore --model FOLDER
    text = text_of(model, LENGTH)
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.tiny_checkpoints import TEXT, save_tiny

LENGTH = 16_384  # tokens

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

# When the last key was pressed, and when both pictures were on the screen: a frame after the drawing has the last word,
# and all heads were painted anew.
TYPED = """word => {
    window.keyed = 0;
    document.addEventListener("input", () => { window.keyed = performance.now(); }, true);
    window.drawn = new Promise(resolve => {
        const room = document.querySelector(".room");
        let isLarge = false;
        const watching = new MutationObserver(records => {
            const large = records.some(each => each.target.closest?.(".picture"));
            const small = records.some(each => each.target.matches?.(".heads"));
            const words = large ? [...room.querySelectorAll(".picture svg text")] : [];
            if (large) isLarge = words.some(each => each.textContent === word);
            if (!isLarge || !small) return;
            watching.disconnect();
            requestAnimationFrame(() => setTimeout(() => resolve(performance.now() - window.keyed), 0));
        });
        watching.observe(room, { childList: true, subtree: true });
    });
}"""

# From an action on to the frame after the next part of a map is on the screen, whose legend is then drawn anew.
ACTED = """() => {
    const legend = document.querySelector(".large .legend");
    const begin = kind => new Promise(resolve => {
        document.addEventListener(kind, () => resolve(performance.now()), { capture: true, once: true });
    });
    const began = Promise.race([begin("click"), begin("keydown")]);
    const drawn = new Promise(resolve => {
        const watching = new MutationObserver(() => {
            watching.disconnect();
            requestAnimationFrame(() => setTimeout(() => resolve(performance.now()), 0));
        });
        watching.observe(legend, { childList: true });
    });
    window.seconds = Promise.all([began, drawn]).then(([from, to]) => (to - from) / 1000);
}"""


def typed_to_drawn(tab: Any, sentences: tuple[str, ...] = SENTENCES) -> float:
    """Seconds from the last key of a sentence of 12 words to the large picture and all heads, warm: the median.

    Args:
        tab: A page of Playwright's at the room.
        sentences: What is typed, key by key; the first is not counted.
    """
    tab.wait_for_selector(".picture svg")
    found = []
    for sentence in sentences:
        tab.fill("#sentence-text", "")
        tab.focus("#sentence-text")
        tab.evaluate(TYPED, sentence.split()[-1])
        tab.keyboard.type(sentence, delay=20)
        found.append(tab.evaluate("window.drawn") / 1000)
    return median(found[1:])


@dataclass(frozen=True)
class Long:
    """Figures of one head of a long text.

    Args:
        first: Seconds from choosing a head that nobody has looked at to its picture; the text has been recorded.
        zooms: Seconds from a key to the part that it leads to, each.
        before, after: Bytes of the server and its workers, before the first zoom and after the last.
    """

    first: float
    zooms: list[float]
    before: int
    after: int


def long_head(tab: Any, text: str, server: int) -> Long:
    """The figures of a text in a model that reads so much.

    Args:
        tab: A page of Playwright's at the room of a server that was started with that model, of two heads or more.
        text: Which is put into the field at once.
        server: The number of the server's process.
    """
    tab.fill("#sentence-text", text)
    tab.wait_for_selector("canvas.zoom", timeout=120_000)
    tab.wait_for_selector(".zoomed:not(.busy)", timeout=120_000)
    tab.wait_for_load_state("networkidle")
    other = tab.locator(".heads [role=radio][aria-checked=false]").first
    first = _seconds(tab, other.click)
    tab.focus("canvas.zoom")
    keys = ["+"] * 9 + ["ArrowDown", "ArrowRight", "-", "-", "ArrowLeft", "-", "-", "ArrowUp", "0"]
    before = memory_of(server)
    zooms = [_seconds(tab, lambda key=key: tab.keyboard.press(key)) for key in keys * 2]
    return Long(first, zooms, before, memory_of(server))


def _seconds(tab: Any, act: Callable[[], None]) -> float:
    tab.evaluate(ACTED)
    act()
    return float(tab.evaluate("window.seconds"))


def memory_of(process: int) -> int:
    """Bytes that a process and those that it started have in memory; on Linux."""
    pages = int(Path(f"/proc/{process}/statm").read_text(encoding="ascii").split()[1])
    children = Path(f"/proc/{process}/task/{process}/children").read_text(encoding="ascii").split()
    threads = [each for each in Path(f"/proc/{process}/task").iterdir() if each.name != str(process)]
    for thread in threads:
        children += (thread / "children").read_text(encoding="ascii").split()
    return pages * os.sysconf("SC_PAGE_SIZE") + sum(memory_of(int(child)) for child in children)


def save_long(folder: Path, length: int = LENGTH) -> Path:
    """An encoder with random weights and heads of 64 that reads so many tokens, with its tokenizer."""
    import torch
    import transformers

    save_tiny("bert", folder)
    config = transformers.BertConfig.from_pretrained(
        folder, max_position_embeddings=length, hidden_size=128, num_hidden_layers=2, num_attention_heads=2
    )
    torch.manual_seed(0)
    model = transformers.BertForMaskedLM(config)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.ndim == 2 and "embed" not in name:
                weight.mul_(6)  # attention far from uniform
    model.save_pretrained(folder)
    return folder


def text_of(folder: Path, length: int = LENGTH) -> str:
    """A text of so many tokens for the model in a folder."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)

    def count(text: str) -> int:
        return len(tokenizer(text, verbose=False)["input_ids"])

    sentence = TEXT.replace("🐶", "cat") + ". "
    times = length // max(count(sentence * 2) - count(sentence), 1)
    while count(sentence * times) > length:
        times -= 1
    text = sentence * times
    for word in (" dog", " a"):
        while count(text + word) <= length:
            text += word
    assert count(text) == length, f"{count(text):,} tokens, and not {length:,}"
    return text
