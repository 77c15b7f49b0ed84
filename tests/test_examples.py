"""Every example runs, as a user would run it."""

import runpy
import subprocess
import sys
from pathlib import Path

import pytest
import torch

EXAMPLES = sorted((Path(__file__).parent.parent / "examples").glob("*.py"))


def test_there_are_examples():
    assert EXAMPLES


@pytest.mark.parametrize("script", EXAMPLES, ids=lambda path: path.stem)
def test_example_runs_and_says_something(script, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", [str(script)])
    threads = torch.get_num_threads()
    try:
        runpy.run_path(str(script), run_name="__main__")
    finally:
        torch.set_num_threads(threads)
    said, complaints = capsys.readouterr()
    assert said
    assert complaints == ""


def test_an_example_is_a_script():
    run = subprocess.run([sys.executable, "-W", "error", str(EXAMPLES[0])], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert run.stdout
