"""What the documents say of GPUs is what was measured."""

from __future__ import annotations

import importlib.util
import re

import pytest

from benchmarks import cuda_report, results

needs_matplotlib = pytest.mark.skipif(importlib.util.find_spec("matplotlib") is None, reason="extra `bench`")


def test_the_table_of_times_is_that_of_the_results():
    text = cuda_report.PAGE.read_text(encoding="utf-8")
    assert cuda_report.with_table(text) == text, "run: python -m benchmarks.cuda_report"


def test_a_table_takes_the_place_of_the_one_before():
    text = f"before\n{cuda_report.BEGIN}| old |\n{cuda_report.END}\nafter\n"
    written = cuda_report.with_table(text)
    assert written == f"before\n{cuda_report.BEGIN}{cuda_report.table()}\n{cuda_report.END}\nafter\n"
    assert cuda_report.with_table(written) == written


def test_a_row_that_failed_is_in_no_table(monkeypatch):
    found = results.read("cuda")
    rows = {**found["rows"], "dot": {"error": "OutOfMemoryError"}}
    del rows["causal"]
    monkeypatch.setattr(results, "read", lambda name: {**found, "rows": rows})
    shown = cuda_report.table()
    assert "| gated |" in shown
    assert "| dot |" not in shown
    assert "| causal |" not in shown


def words(svg):
    """What is written in a picture of matplotlib, which draws letters as paths, and says in comments which."""
    return re.findall(r"<!-- (.*?) -->", svg, flags=re.DOTALL)


@needs_matplotlib
@pytest.mark.filterwarnings("error")
def test_the_picture_is_that_of_the_results(tmp_path):
    import matplotlib

    from benchmarks import figures

    (drawn,) = (each.read_text(encoding="utf-8") for each in figures.draw_gpu(tmp_path))
    kept = (figures.FOLDER / "speed-gpu.svg").read_text(encoding="utf-8")
    assert words(drawn) == words(kept), "run: python -m benchmarks.cuda_report"
    if f"Matplotlib v{matplotlib.__version__}," in kept:  # another one puts the same words elsewhere
        assert drawn == kept, "run: python -m benchmarks.cuda_report"


@needs_matplotlib
def test_the_picture_has_the_rows_that_there_are_beside_who_computes_the_same(tmp_path, monkeypatch):
    from benchmarks import figures

    def times(**seconds):
        return {"seconds": {"regard": 1.0, **{name.replace("_", " "): each for name, each in seconds.items()}}}

    rows = {
        "dot": {"forward": times(SDPA=0.8), "training": times(SDPA=1.054)},
        "new work": {"forward": times(a_sum=0.5, two_products=6.04, eager=7.0)},
        "decoding": {"forward": times(a_sum=0.5)},
        "causal": {"error": "OutOfMemoryError"},
        "host": {"attend, n = 16": {"regard": 1.0, "SDPA": 2.0}},
        "memory": {"gated": {"bytes": 1, "at most": 2}},
    }
    monkeypatch.setattr(results, "read", lambda name: {"gpu": "NVIDIA H200", "rows": rows})
    (path,) = figures.draw_gpu(tmp_path)
    written = words(path.read_text(encoding="utf-8"))
    assert [each for each in written if " × " in each] == ["0.80 × SDPA", "1.05 × SDPA", "6.0 × two products in torch"]
    assert "new work" in written
    assert not [each for each in written if "decoding" in each or "causal" in each]
    assert any("one H200" in each for each in written)
    monkeypatch.setattr(results, "read", lambda name: {})
    assert figures.draw_gpu(tmp_path) == []


def test_memory_is_bounded():
    for found in results.read("cuda")["rows"]["memory"].values():
        assert found["bytes"] < found["at most"]
