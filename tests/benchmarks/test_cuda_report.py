"""What the documents say of GPUs is what was measured."""

from __future__ import annotations

from pathlib import Path

from benchmarks import results
from benchmarks.cuda_report import table

ROOT = Path(__file__).parents[2]


def test_the_table_of_times_is_that_of_the_results():
    assert table() in (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")


def test_the_readme_has_the_figures_of_that_table():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    faster = {name: line for line in table().splitlines()[2:] for name in [line.split(" | ")[0].strip("| ")]}
    names = (
        "soft-capped",
        "gated",
        "causal and gated",
        "ALiBi",
        "window",
        "Gaussian",
        "conic",
        "selected",
        "dot",
        "causal",
    )
    figures = " | ".join(faster[name].split(" | ")[3] for name in names)
    assert f"| {figures} |" in readme


def test_memory_is_bounded():
    memory = results.read("cuda")["rows"]["memory"]
    assert memory["bytes"] < memory["at most"]
