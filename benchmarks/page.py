"""The figures of the page that `regard explore` serves, and of the tour's.

    python -m benchmarks.page                     # every figure; writes benchmarks/results/page.json as it goes
    python -m benchmarks.page --only load tour    # some of them; those of before stay
    python -m benchmarks.page --figures           # the table of docs/explore.md, from the results

Chromium is that of the system, without a window. What others take of the cores just before a measurement stands beside
its figures: those of a busy machine say little.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rich.console import Console

from benchmarks import page_formula, page_load, page_sentence, page_table, report, results
from benchmarks.load import Load

NAME = "page"
CHROMIUM = "/usr/bin/chromium"
DOCUMENT = Path(__file__).parent.parent / "docs" / "explore.md"
MARKS = ("<!-- figures, by python -m benchmarks.page --figures -->", "<!-- end of figures -->")
PAINTS = 5  # times that the tour's page is opened

Row = dict[str, Any]


@contextmanager
def explore(*arguments: str | Path) -> Iterator[tuple[str, int]]:
    """`regard explore` in a process of its own: its address and its number."""
    command = [sys.executable, "-m", "regard", "explore", "--no-browser", "--port", "0", *map(str, arguments)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip(), process.pid
        finally:
            process.terminate()


@contextmanager
def opened(address: str, said: list[str] | None = None) -> Iterator[Any]:
    """A page in a browser of its own; `said` gets what it says on the console."""
    from playwright.sync_api import sync_playwright

    told = [] if said is None else said
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        tab = browser.new_page(viewport={"width": 1280, "height": 900})
        tab.on("console", lambda message: told.append(message.text))
        tab.on("pageerror", lambda error: told.append(str(error)))
        tab.goto(address)
        yield tab
        browser.close()


def demand(what: str, got: float, bound: float, unit: str, *, least: bool = False) -> Row:
    """The verdict on a figure, which must be at most, or at least, so much."""
    return {
        "what": what,
        "asked": f"{'at least' if least else 'at most'} {bound:,g}{unit}",
        "shown": f"{got:,.3g}{unit}",
        "got": got,
        "reached": got >= bound if least else got <= bound,
    }


def formula() -> Row:
    """How smoothly the query and a key among 200 follow a hand."""
    what = "formula room, 200 keys, computed in the page"
    demands, drags = [], {}
    with explore() as (address, _), opened(address) as tab:
        for name, handle in (("the query", page_formula.QUERY), ("a key", page_formula.KEY)):
            tab.reload()  # all is where it was: a key under the query would not be what is taken
            found = page_formula.drag(tab, handle=handle)
            drags[name] = asdict(found)
            demands.append(demand(f"drag {name}, {what}", found.frames_a_second, 50, " frames a second", least=True))
    return {"demands": demands, **drags}


def table() -> Row:
    """How soon a query that slides over a million rows is answered."""
    with TemporaryDirectory() as folder:
        rows = page_table.save_rows(Path(folder))
        with explore(rows) as (address, _), opened(address) as tab:
            found = page_table.table(tab, address)
    what = f"table of {page_table.ROWS:,} rows: slide the query, answer on screen, the slowest of {len(found.slides)}"
    return {"demands": [demand(what, max(found.slides), 150, " ms")], **asdict(found)}


def sentence() -> Row:
    """How soon a sentence is drawn."""
    with explore() as (address, _), opened(f"{address}#sentence") as tab:
        seconds = page_sentence.typed_to_drawn(tab)
    return {"demands": [demand("a sentence of 12 words in MiniLM, typed to drawn, warm", 1000 * seconds, 300, " ms")]}


def long_text() -> Row:
    """How soon a head of 16,384 tokens is drawn, and a part of it."""
    with TemporaryDirectory() as folder:
        model = page_sentence.save_long(Path(folder))
        text = page_sentence.text_of(model)
        with explore("--model", model) as (address, server), opened(f"{address}#sentence") as tab:
            found = page_sentence.long_head(tab, text, server)
    what = f"one head of {page_sentence.LENGTH:,} tokens from recorded queries and keys"
    return {
        "demands": [
            demand(f"{what}: first picture", found.first, 2, " s"),
            demand(f"{what}: zoom, the slowest of {len(found.zooms)}", 1000 * max(found.zooms), 300, " ms"),
            demand(f"{what}: memory that zooming adds", (found.after - found.before) / 1e6, 50, " MB"),
        ],
        "zooms": found.zooms,
        "bytes": [found.before, found.after],
    }


def tour() -> Row:
    """What the tour's page weighs, how soon it is painted, and whether the browser complains."""
    said: list[str] = []
    paints: list[float] = []
    with TemporaryDirectory() as folder:
        file = Path(folder) / "tour.html"
        subprocess.run(
            [sys.executable, "-m", "regard", "tour", "--json", "-o", str(file)], check=True, stdout=subprocess.DEVNULL
        )
        for _ in range(PAINTS):
            with opened(file.as_uri(), said) as tab:
                paints.append(first_paint(tab))
        size = file.stat().st_size
    return {
        "demands": [
            demand("tour.html: size", size / 1e6, 1.5, " MB"),
            demand(f"tour.html: first paint, the slowest of {PAINTS}", max(paints), 1000, " ms"),
            demand("tour.html: console messages", len(said), 0, ""),
        ],
        "paints": paints,
        "bytes": size,
        "said": said,
    }


def first_paint(tab: Any) -> float:
    """Milliseconds until a page had its first paint."""
    for _ in range(100):  # not within the page, which allows no script of others to wait there
        paints = tab.evaluate("performance.getEntriesByName('first-paint').map(each => each.startTime)")
        if paints:
            return float(paints[0])
        tab.wait_for_timeout(50)
    raise RuntimeError("nothing was painted within 5 seconds")


def load() -> Row:
    """What 50 readers meet."""
    with TemporaryDirectory() as folder:
        table = page_load.save_table(Path(folder) / "diamonds.csv")
        with explore(table) as (address, server):
            asyncio.run(page_load.warm(address))
            before = page_sentence.memory_of(server)
            seen = asyncio.run(page_load.crowd(address))
            after = page_sentence.memory_of(server)
    readers, seconds = page_load.READERS, page_load.SECONDS
    what = f"{readers} readers, one request a second each (70% table, 25% sentence, 5% map), {seconds} s"
    return {
        "demands": [
            demand(f"{what}: errors", len(seen.errors), 0, ""),
            demand(f"{what}: 99th percentile", page_load.quantile(seen.seconds(), 0.99), 2, " s"),
        ],
        "asked": page_load.told(seen),
        "errors": seen.errors[:20],
        "bytes": [before, after],
    }


MEASUREMENTS: Mapping[str, Callable[[], Row]] = {
    "formula": formula,
    "table": table,
    "sentence": sentence,
    "long text": long_text,
    "tour": tour,
    "load": load,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what was asked for; 1 if something failed."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.page", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=MEASUREMENTS, metavar="NAME", help="these alone")
    parser.add_argument("--figures", action="store_true", help="write the table from the results, measure nothing")
    options = parser.parse_args(arguments)
    if not options.figures:
        found = measure(options.only or list(MEASUREMENTS))
        report.print_table(found, Console(highlight=False))
        if any("error" in row for row in found.values()):
            return 1
    rows = results.read(NAME).get("rows", {})
    DOCUMENT.write_text(with_figures(DOCUMENT.read_text(encoding="utf-8"), rows), encoding="utf-8")
    return 0


def measure(names: Sequence[str]) -> dict[str, Row]:
    """What was measured, each kept as soon as it is there."""
    found: dict[str, Row] = {}
    for name in names:
        row: Row = {"work": name, "taken by others": busy_with_others()}
        try:
            row |= MEASUREMENTS[name]()
        except Exception as error:  # the others go on
            row["error"] = f"{type(error).__name__}: {error}"
        else:
            report.keep({name: row}, NAME)
        print(f"{name}, with {row['taken by others'] or 0:.0%} of the cores taken by others", flush=True)
        found[name] = row
    return found


def busy_with_others(seconds: float = 3.0) -> float | None:
    """The share of the cores that others take while we rest."""
    watched = Load()
    time.sleep(seconds)
    return watched.taken_by_others()


def with_figures(text: str, rows: Mapping[str, Row]) -> str:
    """The text with the figures of these results between its marks."""
    head, start, rest = text.partition(MARKS[0])
    _, end, tail = rest.partition(MARKS[1])
    demands = [each for name in MEASUREMENTS if name in rows for each in rows[name]["demands"]]
    lines = ["| what | asked | measured |", "|---|---|---|"]
    lines += [f"| {each['what']} | {each['asked']} | {each['shown']} |" for each in demands]
    return f"{head}{start}\n\n" + "\n".join(lines) + f"\n\n{end}{tail}"


if __name__ == "__main__":
    os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")
    raise SystemExit(main())
