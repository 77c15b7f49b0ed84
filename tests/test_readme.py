"""Everything that the README shows is what happens."""

import doctest
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from regard.testing.support_table import with_tables

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
CONSOLE = re.findall(r"```console\n\$ regard (.*?)\n(.*?)```", README, flags=re.DOTALL)


def test_every_python_example_runs(monkeypatch):
    monkeypatch.chdir(ROOT)
    results = doctest.testfile(
        str(ROOT / "README.md"), module_relative=False, encoding="utf-8", optionflags=doctest.ELLIPSIS
    )
    assert results.attempted > 30
    assert results.failed == 0


def test_there_is_a_console_example():
    assert CONSOLE


@pytest.mark.parametrize(("arguments", "shown"), CONSOLE)
def test_every_command_prints_what_is_shown(arguments, shown):
    run = subprocess.run(
        [sys.executable, "-m", "regard", *shlex.split(arguments)], cwd=ROOT, capture_output=True, text=True
    )
    printed = "\n".join(line.rstrip() for line in run.stdout.splitlines())
    assert printed.strip() == shown.strip()


def test_the_tables_are_those_of_the_code():
    assert with_tables(README) == README, "run: python -m regard.testing.support_table"


def test_every_link_leads_somewhere():
    for target in re.findall(r"\]\((?!http)([^)#]+)\)", README):
        assert (ROOT / target).exists(), target


def test_every_example_of_the_contributing_guide_runs():
    results = doctest.testfile(str(ROOT / "CONTRIBUTING.md"), module_relative=False, encoding="utf-8")
    assert results.attempted > 5
    assert results.failed == 0
