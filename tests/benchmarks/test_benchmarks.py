"""The benchmarks run, and everybody in them computes the same. Nothing here looks at a clock."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from benchmarks import growth, measure, memory, nonfinite, report, results, sweep
from benchmarks.__main__ import ABOUT, WORK, main
from benchmarks.cases import ROWS, Demand, find_row
from benchmarks.contests import OURS, Size
from benchmarks.judge import bound, judge, measure_row
from benchmarks.load import Load
from benchmarks.peers import Call

# These take a C++ compiler many seconds; `make bench` checks them before it times them.
COMPILED = ("compiled", "FlexAttention", "KeOps")
needs_matplotlib = pytest.mark.skipif(importlib.util.find_spec("matplotlib") is None, reason="extra `bench`")


def tiny(row):
    return row.build(row.size.shrunk(1 << 20, least=64))


def installed(name):
    return name != "entmax package" or importlib.util.find_spec("entmax") is not None


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_peers_compute_what_we_compute(row):
    calls = {name: call for name, call in tiny(row).items() if name not in COMPILED and installed(name)}
    for quantity in row.quantities or ("training",):
        measure.agree(calls, quantity)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_demands_name_those_who_run(row):
    calls = tiny(row)
    assert next(iter(calls)) == OURS
    for demand in row.demands:
        assert demand.ours in calls
        assert demand.peer is None or demand.peer in calls
        assert demand.quantity == "memory" or demand.quantity in row.quantities
        if demand.quantity == "memory":
            assert {demand.ours, demand.peer} - {None} <= set(row.weighed)


def test_who_disagrees_is_not_timed():
    right, wrong = torch.ones(3), torch.full((3,), 2.0)
    calls = {OURS: Call(lambda: right), "liar": Call(lambda: wrong), "other work": Call(lambda: wrong, same=False)}
    timings = measure.race_calls(calls, "forward", seconds=0.01, rounds=2)
    assert "disagrees" in timings["liar"].failure
    assert timings[OURS].best is not None
    assert timings["other work"].best is not None
    with pytest.raises(AssertionError, match="liar against regard: disagrees"):
        measure.agree(calls, "forward")


def test_who_fails_or_does_not_fit_says_why():
    def fail():
        raise ValueError("no such kernel")

    calls = {OURS: Call(lambda: torch.ones(3)), "broken": Call(fail), "large": Call(fail, needs=1 << 36)}
    timings = measure.race_calls(calls, "forward", seconds=0.01, rounds=2)
    assert timings["broken"].failure == "ValueError: no such kernel"
    assert timings["large"].failure == "cannot: needs 64 GiB"
    assert timings["large"].best is None


def test_slow_ones_run_fewer_rounds(monkeypatch):
    clock = [0.0]

    def lasting(seconds):
        def call():
            clock[0] += seconds

        return call

    monkeypatch.setattr(measure, "time", SimpleNamespace(perf_counter=lambda: clock[0]))
    timings = measure.race({"fast": lasting(1.0), "slow": lasting(30.0)}, seconds=40, rounds=8)
    assert timings["fast"].seconds == [1.0] * 8
    assert timings["slow"].seconds == [30.0]  # its share is over, but everybody runs once


@pytest.mark.parametrize(
    ("demand", "got", "reached", "shown"),
    [
        (Demand("forward", 1.03, "SDPA"), 1.0, True, "1 ×"),
        (Demand("forward", 1 / 40, "eager"), 0.05, False, "20 ×"),
        (Demand("forward", 15e-6, "SDPA", difference=True), 0.0, True, "0.0 µs"),
        (Demand("memory", 300e6), 2e8, True, "200 MB"),
        (Demand("forward", 1.0, "nobody"), None, False, "none"),
    ],
)
def test_demands_are_judged(demand, got, reached, shown):
    figures = {"forward": {OURS: 1.0, "SDPA": 1.0, "eager": 20.0}, "memory": {OURS: 2e8}}
    verdict = judge(demand, figures)
    assert verdict["got"] == (None if got is None else pytest.approx(got))
    assert (verdict["reached"], verdict["shown"]) == (reached, shown)


def test_memory_sees_what_a_call_takes():
    row = find_row("dot")
    size = Size((1, 1), 2048, 2048)
    dense = memory.growth(row, "eager", size, "forward")
    # Scores and weights: at least one matrix of 16 MiB more than tiles take.
    assert dense >= memory.growth(row, "SDPA", size, "forward") + (16 << 20)


def test_the_sweep_times_every_engine_that_can():
    point = sweep.measure_point(Size((), 16, 16, 8), "dot softmax", "none", "training", quick=True)
    assert set(point["seconds"]) == {"sdpa", "tiled", "reference", "attend"}
    assert point["chosen"] in point["seconds"]
    assert point["regret"] >= 0


@pytest.mark.parametrize("mask", nonfinite.MASKS)
def test_what_is_not_finite_shows_in_all_calls_but_the_finite_one(mask):
    work = nonfinite.Work(Size((1, 1), 16, 16))
    for name, call in nonfinite.calls(work, mask).items():
        for quantity in nonfinite.QUANTITIES:
            finite = all(bool(each.isfinite().all()) for each in measure.runner(call, quantity)())
            assert finite == (name == nonfinite.FINITE)


def test_memory_that_is_linear_has_exponent_one():
    points = [growth.Point("gated", OURS, side, 100 * side, computed=False) for side in (1024, 2048, 4096)]
    assert growth.exponent(points, "gated") == pytest.approx(1)


def test_every_row_is_listed(capsys):
    assert main(["--list"]) == 0
    listed = capsys.readouterr().out
    assert all(name in listed for name in WORK)
    assert WORK.keys() == ABOUT.keys()


def test_a_row_that_fails_does_not_stop_the_others(monkeypatch, capsys, tmp_path):
    def fail(**options):
        raise RuntimeError("broken on purpose")

    monkeypatch.setattr(results, "FOLDER", tmp_path)
    monkeypatch.setitem(WORK, "dot", fail)
    monkeypatch.setitem(WORK, "growth", lambda **options: {"demands": [bound("exponent", 1.0, 1.1)]})
    assert main(["--only", "dot", "growth"]) == 1
    printed = capsys.readouterr().out
    assert "broken on purpose" in printed
    assert "1 of 1 reached, 1 rows failed" in printed
    kept = json.loads((tmp_path / "attention.json").read_text())
    assert kept["rows"]["growth"]["demands"][0]["reached"]
    assert kept["machine"]["versions"]["torch"] == torch.__version__


def test_results_of_another_machine_do_not_stay(monkeypatch, tmp_path):
    monkeypatch.setattr(results, "FOLDER", tmp_path)
    report.keep({"dot": {}})
    report.keep({"gated": {}})
    assert results.read("attention")["rows"] == {"dot": {}, "gated": {}}
    monkeypatch.setattr(results, "machine", lambda: {"machine": "another"})
    report.keep({"view": {}})
    assert results.read("attention")["rows"] == {"view": {}}


def test_a_quick_row_has_all_its_figures():
    said: list[str] = []
    found = measure_row(find_row("small"), quick=True, say=said.append)
    assert set(found["figures"]["forward"]) == {OURS, "SDPA"}
    assert found["same"] == [OURS, "SDPA"]
    assert len(said) == 1


def test_load_is_a_share_of_the_cores():
    load = Load()
    torch.ones(200, 200) @ torch.ones(200, 200)
    share = load.taken_by_others()
    assert share is None or share >= 0


@needs_matplotlib
def test_figures_are_the_same_bytes_each_time(tmp_path: Path):
    from benchmarks import figures

    row = {
        "work": "gated",
        "size": "(1, 8, 4096, 64)",
        "same": [OURS, "eager"],
        "figures": {quantity: {OURS: 1.0, "SDPA": 0.5, "eager": 4.0} for quantity in ("forward", "training")},
    }
    assert figures.best_peer(row, "forward") == ("eager", 4.0)
    points = [
        {"row": name, "call": call, "side": side, "bytes": side << 10, "computed": side > 1024 and call == "eager"}
        for name, call, _ in growth.WEIGHED
        for side in (1024, 2048)
    ]
    texts = []
    for turn in ("first", "second"):
        folder = tmp_path / turn
        folder.mkdir()
        with figures.plt.rc_context(figures.STYLE):
            drawn = {
                "speed": figures.draw_speed({"gated": row}, "a CPU"),
                "memory": figures.draw_memory({"memory": points, "machine bytes": 1 << 34}),
                "view": figures.draw_view(512),
            }
            texts.append([figures.save(figure, name, folder).read_bytes() for name, figure in drawn.items()])
    assert texts[0] == texts[1]


@needs_matplotlib
def test_each_line_of_memory_has_its_name_at_its_end():
    from benchmarks import figures

    points = [
        {"row": name, "call": call, "side": 1024 << turn, "bytes": (place + 1) << (30 + turn), "computed": False}
        for place, (name, call, _) in enumerate(growth.WEIGHED)
        for turn in range(place + 1)
    ]
    axes = figures.draw_memory({"memory": points, "machine bytes": 1 << 34}).axes[0]
    drawn = {
        line.get_color(): (line.get_xdata()[-1], line.get_ydata()[-1])
        for line in axes.lines
        if line.get_marker() != "None"
    }
    named = {each.get_color(): each.xy for each in axes.texts if each.get_color() in drawn}
    assert len(named) == 5
    assert named == drawn


@needs_matplotlib
def test_the_readme_has_the_ratios_of_the_results():
    from benchmarks import tables

    text = tables.README.read_text(encoding="utf-8")
    assert tables.with_both(text) == text, "run: python -m benchmarks --figures"
    assert text.count(tables.BEGIN) == text.count(tables.END) == 1


@needs_matplotlib
def test_the_page_has_the_times_of_the_results():
    from benchmarks import results, tables

    rows, text = results.read(report.NAME)["rows"], tables.PAGE.read_text(encoding="utf-8")
    assert tables.with_times(text, rows) == text, "run: python -m benchmarks --figures"
    slower = {**rows, "dot": {**rows["dot"], "figures": {"forward": {OURS: 0.05, "SDPA": 0.6}}}}
    assert "| dot-product softmax | 50.0 ms · SDPA 600 ms, 12 × |  |" in tables.with_times(text, slower)
    weighed, times = rows["multi-head-weights"]["figures"], {}
    for quantity in ("forward", "memory"):
        times[quantity] = weighed[quantity]["PyTorch"] / weighed[quantity][OURS]
    assert f"PyTorch takes {times['forward']:.2f} times as long" in text
    assert f"and {times['memory']:.0f} times the memory" in text
