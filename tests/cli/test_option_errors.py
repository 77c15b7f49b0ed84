"""Claims about messages: the command speaks of its options, never of Python."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from regard.cli import app

pytest.importorskip("pyarrow")

PYTHON = re.compile(r"\w\(\)|\.\w+\(|`(score|weights|key|value|top|index)`|=\w+\(|timedelta|\bframe\b|in memory")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["-k", "x", "-v", "y", "99"], "add a wider --score, as in --score gaussian:NUMBER."),
        (["-k", "x", "-v", "y", "9", "--score", "boxcar:1"], "Add a wider --score, or other --weights."),
        (["-k", "x", "-v", "y", "--exact", "9"], "To weigh similar keys, leave out --exact."),
        (["-k", "x", "-v", "y", "--exact", "20"], "To ask by values, swap --key and --value."),
        (["-k", "x", "-k", "word", "-v", "y", "--exact", "1,b"], "To weigh similar keys, leave out --exact."),
        (["-k", "x", "-v", "word", "1", "--weights", "raw"], "Use --weights softmax or --weights proportional."),
        (["-k", "x", "-v", "y", "1", "--weights", "proportional"], "add a kernel such as --score boxcar:NUMBER."),
        (["-k", "word", "-v", "y", "a", "--score", "gaussian:1"], "Leave --score out to ask by equality."),
        (["-k", "x", "-v", "y", "1", "--score", "z=gaussian:1"], "--score must name key columns: got 'z'."),
        (["-k", "x", "-k", "x", "-v", "y", "1"], "--key must name each column once"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_a_message_names_options(tmp_path: Path, arguments: list[str], said: str) -> None:
    path = tmp_path / "t.csv"
    path.write_text("x,word,y\n1,a,20\n2,b,30\n3,a,40\n")
    result = CliRunner().invoke(app, ["ask", str(path), *arguments])
    message = " ".join((result.stderr or result.stdout).split())
    assert said in message
    # What was computed is named as the library names it: Softmax(), Gaussian(bandwidth=1.0).
    advice = message.split(" · ")[0].split(": got ")[-1] if "→" in message else message[message.index(said) :]
    assert not PYTHON.search(advice), advice


def test_a_file_of_another_kind_names_no_frames() -> None:
    message = CliRunner().invoke(app, ["ask", "t.xlsx", "-k", "x", "-v", "y", "1"]).stderr
    assert message.endswith("got 't.xlsx'. Convert it.\n")
