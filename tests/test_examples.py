"""Every example runs, as a user would run it."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parent.parent / "examples").glob("*.py"))


def test_there_are_examples():
    assert EXAMPLES


@pytest.mark.parametrize("script", EXAMPLES, ids=lambda path: path.stem)
def test_example_runs_and_says_something(script):
    run = subprocess.run([sys.executable, "-W", "error", str(script)], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert run.stdout
