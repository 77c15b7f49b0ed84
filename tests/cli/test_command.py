"""Claims about the command `regard` as a whole: help, version, exit codes, and what it does not import."""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest
from typer.testing import CliRunner

import regard
from regard.cli import app, doctor
from regard.cli.console import print_json
from regard.errors import TableError


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False)


def raising(error: BaseException) -> Callable[[], NoReturn]:
    def examine() -> NoReturn:
        raise error

    return examine


def test_help_lists_the_commands_and_shows_examples() -> None:
    result = CliRunner().invoke(app, ["--help"])
    assert result.exit_code == 0
    for expected in (
        "tour",
        "ask",
        "see",
        "pronounce",
        "doctor",
        "Examples",
        "regard ask grades.csv --key gpa --value salary 3.5",
    ):
        assert expected in result.stdout


@pytest.mark.parametrize("command", ["tour", "ask", "see", "pronounce", "doctor"])
def test_every_command_has_examples_in_its_help(command: str) -> None:
    result = CliRunner().invoke(app, [command, "--help"])
    assert result.exit_code == 0
    assert "Examples" in result.stdout
    assert f"regard {command}" in result.stdout


def test_help_fits_in_eighty_columns() -> None:
    result = run("-m", "regard", "--help")
    assert max(map(len, result.stdout.splitlines())) <= 80


def test_version_is_the_package_s_own() -> None:
    result = run("-m", "regard", "--version")
    assert (result.returncode, result.stdout) == (0, f"regard {regard.__version__}\n")
    assert regard.__version__ == importlib.metadata.version("regard")


def test_shell_completion_is_offered() -> None:
    result = CliRunner().invoke(app, ["--help"])
    assert "--install-completion" in result.stdout


def test_an_unknown_command_is_a_usage_error() -> None:
    result = CliRunner().invoke(app, ["regrad"])
    assert result.exit_code == 2
    assert result.stdout == ""
    assert "No such command 'regrad'" in result.stderr


def test_an_unknown_option_is_a_usage_error() -> None:
    assert CliRunner().invoke(app, ["doctor", "--jsn"]).exit_code == 2


def test_a_user_s_mistake_is_one_line_on_stderr(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "examine", raising(TableError("`key` must be a column:\n  got [gpa].")))
    result = CliRunner().invoke(app, ["doctor"])
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == "error: `key` must be a column: got [gpa].\n"


def test_a_mistake_is_quoted_as_it_was_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "examine", raising(TableError("got ':smile:' and [bold].")))
    assert CliRunner().invoke(app, ["doctor"]).stderr == "error: got ':smile:' and [bold].\n"


def test_a_bug_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "examine", raising(ZeroDivisionError()))
    assert isinstance(CliRunner().invoke(app, ["doctor"]).exception, ZeroDivisionError)


def test_an_interrupt_ends_with_130(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "examine", raising(KeyboardInterrupt()))
    assert CliRunner().invoke(app, ["doctor"]).exit_code == 130


def test_a_reader_that_leaves_is_no_error() -> None:
    # `print_json` of more than a pipe holds, into a pipe whose other end is closed at once.
    script = "from regard.cli.console import print_json; print_json(['regard'] * 100_000)"
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 141


@pytest.mark.parametrize(
    "arguments", [["--help"], ["ask", "--help"], ["--version"], ["doctor"], ["doctor", "--json"]], ids=" ".join
)
def test_every_command_ends_alike_when_its_reader_has_left(arguments: list[str]) -> None:
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "regard", *arguments]
    try:
        result = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, text=True, check=False)
    finally:
        os.close(write)
    assert (result.returncode, result.stderr) == (141, "")


def test_an_exact_answer_ends_alike_when_its_reader_has_left(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    (tmp_path / "t.csv").write_text("a,b\n1,2\n")
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "regard", "ask", "t.csv", "-k", "a", "-v", "b", "--exact", "1"]
    try:
        result = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, text=True, check=False, cwd=tmp_path)
    finally:
        os.close(write)
    assert (result.returncode, result.stderr) == (141, "")


def test_json_has_no_word_for_what_is_not_a_number() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        print_json({"value": float("nan")})


def test_threads_do_not_spin_on_a_busy_machine() -> None:
    script = """
import os, sys
os.environ.pop("OMP_WAIT_POLICY", None)
sys.argv[1:] = ["--version"]
from regard.cli import main
try:
    main()
finally:
    print(os.environ["OMP_WAIT_POLICY"], "torch" in sys.modules)
"""
    assert run("-c", script).stdout.splitlines()[-1] == "PASSIVE False"


def test_help_imports_neither_torch_nor_any_optional_package() -> None:
    heavy = {"torch", "numpy", "pyarrow", "pandas", "polars"}
    result = run("-c", f"import sys, regard.cli; print(sorted({heavy} & sys.modules.keys()))")
    assert (result.stdout, result.stderr) == ("[]\n", "")
