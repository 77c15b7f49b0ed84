"""Which tests reach a line of the library, from one run of the suite."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / ".mutants"


@dataclass
class Map:
    """For each file and line of a mutant the tests that reach it, and how long each takes."""

    lines: dict[str, dict[int, list[str]]] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    sources: str = ""  # the fingerprint of what it was made from

    def reaching(self, file: str, lines: range) -> list[str]:
        """The tests that reach any of some lines, those with a name like the file's first, then the quickest."""
        known = self.lines.get(file, {})
        tests = {test for line in lines for test in known.get(line, [])}
        own = f"test_{Path(file).stem}.py"
        return sorted(tests, key=lambda test: (own not in test, self.seconds.get(test, 1.0), test))


def fingerprint() -> str:
    """What the map depends on: every source and test, and which lines are asked for."""
    digest = hashlib.sha256()
    for folder in ("regard", "tests", "mutants/promises"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            digest.update(path.relative_to(ROOT).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def load() -> Map:
    """The map that is there; an empty one, if none is."""
    path = FOLDER / "map.json"
    if not path.exists():
        return Map()
    kept = json.loads(path.read_text(encoding="utf-8"))
    lines = {file: {int(line): tests for line, tests in found.items()} for file, found in kept["lines"].items()}
    return Map(lines, kept["seconds"], kept["sources"])


def build(processes: int, tests: list[str]) -> Map:
    """Run the suite, or some tests of it, under the tracer."""
    traces = FOLDER / "traces"
    shutil.rmtree(traces, ignore_errors=True)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "mutants.tracer", "-n", str(processes), *tests]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "MUTANTS_TRACES": str(traces)}
    subprocess.run(command, cwd=ROOT, env=environment, check=False)
    lines: dict[str, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
    seconds: dict[str, float] = {}
    for path in sorted(traces.glob("*.json")):
        trace = json.loads(path.read_text(encoding="utf-8"))
        seconds |= trace["seconds"]
        for file, found in trace["lines"].items():
            name = Path(file).relative_to(ROOT).as_posix()
            for line, reached in found.items():
                lines[name][int(line)].update(reached)
    made = Map({f: {n: sorted(t) for n, t in each.items()} for f, each in lines.items()}, seconds, fingerprint())
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / "map.json").write_text(json.dumps(vars(made)), encoding="utf-8")
    return made
