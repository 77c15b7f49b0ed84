"""What the documents say of the page is what was measured, and who measures it notices what goes wrong."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import AsyncIterator, Iterator
from itertools import islice

import pytest

from benchmarks import page, page_load, results


def test_the_table_of_figures_is_that_of_the_results() -> None:
    rows, text = results.read(page.NAME)["rows"], page.DOCUMENT.read_text(encoding="utf-8")
    assert page.with_figures(text, rows) == text, "run: python -m benchmarks.page --figures"
    slower = {**rows, "load": {"demands": [page.demand("readers", 7.25, 2, " s")]}}
    assert "| readers | at most 2 s | 7.25 s |" in page.with_figures(text, slower)
    assert page.with_figures(page.with_figures(text, slower), rows) == text


@pytest.mark.parametrize(("got", "is_enough"), [(49.9, False), (50, True), (math.nan, False)])
def test_a_figure_that_is_short_is_not_reached(got: float, is_enough: bool) -> None:
    assert page.demand("frames", got, 50, "", least=True)["reached"] is is_enough
    assert page.demand("time", 100 - got, 50, "")["reached"] is is_enough


def test_a_measurement_that_fails_stops_no_other_and_leaves_the_figures_of_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail() -> page.Row:
        raise RuntimeError("broken on purpose")

    kept: list[str] = []
    monkeypatch.setattr(page, "MEASUREMENTS", {"tour": fail, "load": lambda: {"demands": []}})
    monkeypatch.setattr(page, "busy_with_others", lambda: None)
    monkeypatch.setattr(page.report, "keep", lambda found, name: kept.extend(found))
    found = page.measure(["tour", "load"])
    assert found["tour"]["error"] == "RuntimeError: broken on purpose"
    assert kept == ["load"]


def test_sentences_are_new_and_of_twelve_words() -> None:
    found = [each for seed in range(50) for each in islice(page_load.sentences(seed), 15)]
    assert len(set(found)) == len(found)
    assert {len(each.split()) for each in found} == {12}
    assert len(page_load.long_words().split()) == page_load.LONG


def test_readers_count_what_fails_and_how_long_all_of_it_took() -> None:
    answers = iter([(200, {"telling": [0, 0]}), (200, {}), (200, {}), (503, {"error": "too much"}), (200, {})])

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async for status, body in requests(reader, answers):
            content = json.dumps(body).encode()
            head = f"HTTP/1.1 {status} OK\r\ncontent-type: text/plain\r\ncontent-length: {len(content)}\r\n\r\n"
            writer.write(head.encode() + content)
        writer.close()

    async def meet() -> page_load.Seen:
        seen = page_load.Seen()
        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            reader = page_load.Reader(f"http://127.0.0.1:{port}/?token=a", 0, seen, "text")
            await reader.type(page_load.perf_counter() - 1)
            for act in (reader.slide, reader.zoom, reader.slide):  # the last meets a connection that ends
                await act(page_load.perf_counter())
            reader.close()
        return seen

    seen = asyncio.run(meet())
    kinds = [kind for kind, _ in seen.took]
    assert kinds == ["sentence look", "sentence map", "sentence heads", "table answer", "part of a map"]
    assert [each.partition(":")[0] for each in seen.errors] == ["table answer", "table answer"]
    assert "503" in seen.errors[0]
    assert seen.seconds("sentence look")[0] > 1
    assert page_load.told(seen)["all"]["n"] == 5


async def requests(
    reader: asyncio.StreamReader, answers: Iterator[tuple[int, object]]
) -> AsyncIterator[tuple[int, object]]:
    """What is to be answered to each request that comes, until there is no more of it."""
    for answer in answers:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        await reader.readexactly(int(head.partition("content-length: ")[2].split()[0]))
        yield answer
    await reader.readuntil(b"\r\n\r\n")


def test_a_share_of_the_numbers_is_counted_from_the_smallest() -> None:
    ordered = [float(each) for each in range(1, 101)]
    assert [page_load.quantile(ordered, share) for share in (0.0, 0.5, 0.99, 1.0)] == [1, 50, 99, 100]
