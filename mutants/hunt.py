"""One mutant: a copy of the library with one text replaced, and the tests that must notice."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from mutants.coverage_map import ROOT, Map

MOST_TESTS = 40  # that coverage picks for one mutant
SECONDS = 60.0  # for each run of tests; what is not heard of by then has not noticed
COMPILING = 240.0  # where kernels have to be compiled anew
LINKED = ("tests", "examples", "docs", "benchmarks", "fuzz", "mutants", "README.md", "CHANGELOG.md", "CONTRIBUTING.md")
LINKED += ("ARCHITECTURE.md", "LICENSE", "Makefile", "pyproject.toml", "constraints.txt", ".gitignore")

os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["torch", "numpy", "rich.console", "torch.utils.checkpoint"])


@dataclass(frozen=True)
class Mutant:
    """A promise, the text that keeps it, and the text that breaks it."""

    promise: str
    file: str  # within the repository
    find: str  # occurs in it once
    replace: str
    tests: tuple[str, ...] = ()  # arguments of pytest, which run first: "tests/test_view.py -k tile"

    def count(self) -> int:
        """How often the text is there: once, if all is well."""
        path = ROOT / self.file
        return path.read_text(encoding="utf-8").count(self.find) if path.exists() else 0

    @property
    def lines(self) -> range:
        """The lines that the text is on."""
        text = (ROOT / self.file).read_text(encoding="utf-8")
        first = text[: text.index(self.find)].count("\n") + 1
        return range(first, first + self.find.rstrip("\n").count("\n") + 1)


@dataclass(frozen=True)
class Verdict:
    """What became of a mutant."""

    mutant: Mutant
    outcome: str  # "killed", "survived" or "error"
    by: str  # the test that failed, or what went wrong
    seconds: float


def hunt(mutant: Mutant, reached: Map, patience: float = 1.0) -> Verdict:
    """Try the tests of a mutant, the likeliest first; `patience` times as long as on a machine that is not busy."""
    start = time.monotonic()
    count = mutant.count()
    if count != 1:
        text = f"the text is there {count} times: {mutant.file} has changed, so must the entry"
        return Verdict(mutant, "error", text, 0.0)
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        tree = Path(folder)
        _copy(mutant, tree)
        limit = patience * (COMPILING if mutant.file.startswith("regard/engines/cpu/") else SECONDS)
        runs = [each.split(" -k ") for each in mutant.tests]
        arguments = [[*paths.split(), *(["-k", words[0]] if words else [])] for paths, *words in runs]
        picked = reached.reaching(mutant.file, mutant.lines)[:MOST_TESTS]
        if picked:
            arguments.append(picked)
        if not arguments:
            return Verdict(mutant, "error", "no test is named, and no map says which reach it", 0.0)
        late = missing = ""
        for each in arguments:
            try:
                found = _failure(tree, each, limit)
            except TimeoutError:
                late = f"{' '.join(each)[:80]} did not end within {limit:.0f} s"
                continue
            except LookupError:
                missing = f"no test is called {' '.join(each)[:80]}: the entry must change"
                continue
            if found is not None:
                outcome = "error" if found.startswith("pytest") else "killed"
                return Verdict(mutant, outcome, found, time.monotonic() - start)
    return Verdict(mutant, "error" if missing else "survived", missing or late, time.monotonic() - start)


def _copy(mutant: Mutant, tree: Path) -> None:
    """The repository, with links for all but the library, and the one text replaced."""
    for name in LINKED:
        if (ROOT / name).exists():
            (tree / name).symlink_to(ROOT / name)
    shutil.copytree(ROOT / "regard", tree / "regard", copy_function=os.link)
    target = tree / mutant.file
    text = target.read_text(encoding="utf-8")
    target.unlink()  # a link: the original must stay as it is
    target.write_text(text.replace(mutant.find, mutant.replace), encoding="utf-8")


def _failure(tree: Path, arguments: list[str], limit: float) -> str | None:
    """The first test that fails; None if all pass. A LookupError if there is none."""
    said = tree / "said.txt"
    # A process that begins with torch and the like imported, and with nothing of the library.
    runner = _CONTEXT.Process(target=_run_tests, args=(tree, said, arguments), daemon=True)
    runner.start()
    runner.join(limit)
    if runner.exitcode is None:
        runner.kill()
        runner.join()
        raise TimeoutError
    if runner.exitcode == 5:
        raise LookupError  # no test of that name
    if runner.exitcode == 0:
        return None
    lines = said.read_text(encoding="utf-8", errors="replace").splitlines() if said.exists() else []
    failed = [line for line in lines if line.startswith(("FAILED", "ERROR"))]
    if failed:
        return failed[0].partition(" ")[2].partition(" - ")[0]
    if runner.exitcode > 0:
        return f"pytest says {' '.join(lines[-2:])}"
    return f"the process died, signal {-runner.exitcode}"


def _run_tests(tree: Path, said: Path, arguments: list[str]) -> None:
    """Run pytest here, in a process of its own, on the library in `tree`."""
    os.chdir(tree)
    os.environ |= {"PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
    sys.dont_write_bytecode = True
    sys.path[:] = [str(tree), *(each for each in sys.path if each and Path(each).resolve() != ROOT)]
    output = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(output, 1)
    os.dup2(output, 2)
    import pytest
    import torch

    torch.set_num_threads(1)
    options = ["-x", "-q", "-rfE", "--no-header", "--tb=no", "-p", "no:cacheprovider"]
    code = pytest.main([*options, *arguments])
    sys.stdout.flush()
    os._exit(int(code))  # whatever threads or handlers a mutant has left behind
