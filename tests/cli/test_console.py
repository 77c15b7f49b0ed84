"""Claims about where commands write: no text steers the terminal, and a stdout that takes no more is one line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from regard.cli import app
from regard.cli.console import PrintableConsole, ends_with_its_reader
from regard.printable import printable

HOSTILE = "\x1b[2J\x9b31m\x1b]0;owned\x07\u202e\u2066\r\n\x7f"


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """A table whose cells, column names and own name would steer a terminal."""
    pytest.importorskip("pyarrow")
    path = tmp_path / f"{HOSTILE}.csv".replace("/", "")
    rows = "".join(f'{row},"{HOSTILE}{row % 2}",{row}\n' for row in range(6))
    path.write_text(f'x,"na{HOSTILE}me",y\n{rows}', encoding="utf-8", newline="")
    return path


NAME = f"na{HOSTILE}me"


@pytest.mark.parametrize(
    "arguments",
    [
        ["-k", "x", "-v", NAME, "3"],
        ["-k", "x", "-v", NAME, "3", "4"],
        ["-k", "x", "-v", NAME, "3", "--json"],
        ["-k", "x", "-v", NAME, "3", "--exact"],
        ["-k", "x", "-v", NAME, "3", "--exact", "--json"],
        ["-k", "x", "-v", "y", "--index", NAME, "3"],
        ["-k", NAME, "-v", "y", HOSTILE],
        ["-k", NAME, "-v", "y", f"{HOSTILE}0", "--exact"],
        ["-k", NAME, "-v", "y", f"{HOSTILE}7", "--exact"],
        ["-k", NAME, "-k", "x", "-v", "y", "1"],
        ["-k", f"{HOSTILE}?", "-v", "y", "1"],
        ["-k", "x", "-v", "y", f"{HOSTILE}?"],
        ["-k", "x", "-v", "y", "1", "--score", f"{HOSTILE}?"],
        ["-k", "x", "-v", "y", "1", f"--{HOSTILE}?"],
        ["-k", "x", "-v", "y", "1", "--top", HOSTILE],
    ],
    ids=lambda arguments: ascii(" ".join(arguments).replace(HOSTILE, "%")),
)
def test_no_cell_column_file_or_query_steers_the_terminal(hostile: Path, arguments: list[str]) -> None:
    result = CliRunner().invoke(app, ["ask", str(hostile), *arguments])
    assert not isinstance(result.exception, Exception), result.exception
    said = result.stdout + result.stderr
    assert said.strip()
    assert printable(said) == said


def test_a_file_that_is_not_there_does_not_steer_the_terminal(tmp_path: Path) -> None:
    (tmp_path / "\x1b[2Ja.csv").write_text("x\n1\n")
    result = CliRunner().invoke(app, ["ask", str(tmp_path / "\x1b[2Jb.csv"), "-k", "x", "-v", "x", "1"])
    assert result.exit_code == 1
    assert printable(result.stderr) == result.stderr


def test_json_keeps_every_character(hostile: Path) -> None:
    result = CliRunner().invoke(app, ["ask", str(hostile), "-k", "x", "-v", NAME, "3", "--exact", "--json"])
    read = json.loads(result.stdout)
    assert (read["answers"][0]["value"], read["value"], read["table"]) == (f"{HOSTILE}1", [NAME], str(hostile))


def test_colours_of_our_own_still_reach_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    PrintableConsole(force_terminal=True, color_system="standard").print("[red]a[/red]\x1b[2J")
    printed = capsys.readouterr().out
    assert printed.startswith("\x1b[31ma\x1b[0m")
    assert "\x1b[2J" not in printed


def test_a_console_without_this_would_be_steered(capsys: pytest.CaptureFixture[str]) -> None:
    Console().print("\x1b[2J")
    assert "\x1b[2J" in capsys.readouterr().out


def run(arguments: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "regard", *arguments]
    return subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False, **options)


@pytest.fixture
def table(tmp_path: Path) -> str:
    pytest.importorskip("pyarrow")
    (tmp_path / "t.csv").write_text("a,b\n1,2\n2,3\n")
    return str(tmp_path / "t.csv")


@pytest.mark.parametrize("columns", ["0", "wide"])
def test_a_width_that_cannot_be_meant_is_eighty(table: str, columns: str) -> None:
    environment = {**os.environ, "COLUMNS": columns}
    result = run(["ask", table, "-k", "a", "-v", "b", "1"], env=environment, stdout=subprocess.PIPE)
    assert result.stdout.startswith("a = 1 →")
    assert "Usage" in run(["--help"], env=environment, stdout=subprocess.PIPE).stdout


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("arguments", [[], ["--exact"], ["--json"], ["--help"]], ids=" ".join)
def test_a_full_disk_is_one_line(table: str, arguments: list[str]) -> None:
    asked = ["ask", table, "-k", "a", "-v", "b", "1", *arguments]
    with Path("/dev/full").open("w") as full:
        result = run(asked, stdout=full)
    assert result.returncode == 1
    assert result.stderr == "error: standard output could not be written (No space left on device).\n"


def test_what_else_fails_is_not_blamed_on_stdout() -> None:
    with pytest.raises(OSError, match="Cannot allocate memory"), ends_with_its_reader():
        raise OSError(12, "Cannot allocate memory")


def test_a_closed_stdin_is_one_line(table: str) -> None:
    command = f'exec "{sys.executable}" -m regard ask "{table}" -k a -v b - <&-'
    result = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr.startswith("error: Standard input must have a query on each line: got nothing.")
    assert result.stderr.count("\n") == 1


def test_a_stdin_that_cannot_be_read_is_one_line(table: str, tmp_path: Path) -> None:
    command = f'exec "{sys.executable}" -m regard ask "{table}" -k a -v b - 0>"{tmp_path}/written"'
    result = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr.startswith("error: Standard input must be readable")
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("arguments", [["--exact"], []], ids=" ".join)
def test_a_closed_stdout_is_an_error(table: str, arguments: list[str]) -> None:
    command = f'exec "{sys.executable}" -m regard ask "{table}" -k a -v b 1 {" ".join(arguments)} >&-'
    result = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
    assert result.returncode == 1
    assert result.stderr == "error: standard output could not be written (it is closed).\n"
