"""A plugin of pytest that notes which test reaches which line, and how long each takes: `-p mutants.tracer`."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import coverage
import pytest

from mutants.coverage_map import ROOT
from mutants.promises import PROMISES

FOLDER = Path(os.environ.get("MUTANTS_TRACES", ".mutants/traces"))
MOST_TESTS = 200  # that are kept of a line: the quickest
_seconds: dict[str, float] = {}
_trace = coverage.Coverage(data_file=None, source_pkgs=["regard"], check_preimported=False)
# Of several processes, the one that hands out the tests runs none of the library.
_trace.set_option("run:disable_warnings", ["module-not-measured", "module-not-imported", "no-data-collected"])


def pytest_configure(config: pytest.Config) -> None:
    """Begin before the library is imported."""
    _trace.start()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Lines that run from here on are this test's."""
    _trace.switch_context(item.nodeid)
    yield
    _trace.switch_context("")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _seconds[report.nodeid] = _seconds.get(report.nodeid, 0.0) + report.duration


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write what this process saw."""
    _trace.stop()
    data = _trace.get_data()
    wanted: dict[str, set[int]] = {}
    for mutant in PROMISES:
        if mutant.count() == 1:
            wanted.setdefault(str(ROOT / mutant.file), set()).update(mutant.lines)
    lines: dict[str, dict[int, list[str]]] = {}
    for file in wanted.keys() & data.measured_files():
        reached = data.contexts_by_lineno(file)
        lines[file] = {
            line: sorted(filter(None, reached[line]), key=lambda test: _seconds.get(test, 0.0))[:MOST_TESTS]
            for line in wanted[file] & reached.keys()
        }
    FOLDER.mkdir(parents=True, exist_ok=True)
    worker: Any = os.environ.get("PYTEST_XDIST_WORKER", "main")
    (FOLDER / f"{worker}.json").write_text(json.dumps({"lines": lines, "seconds": _seconds}), encoding="utf-8")
