"""Claims about mistakes in what `regard ask` is asked: one line, and a status that says whose they are."""

from __future__ import annotations

from typing import Any

import pytest
from typer.testing import CliRunner

from regard.cli import app

pytest.importorskip("pyarrow")


def ask(*arguments: str, text: str | bytes | None = None) -> Any:
    return CliRunner().invoke(app, ["ask", *arguments], input=text)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["-k", "gap", "-v", "salary", "3.5"], "got 'gap'. Did you mean 'gpa'? The columns are: name, gpa, major"),
        (["-k", "gpa", "-v", "salary", "abc"], "`gpa` must be a number: got 'abc'. Ask with numbers."),
        (["-k", "gpa", "-v", "salary", "--exact", "3.55"], "got 3.55. The nearest keys are 3.5, 3.6, 3.4."),
        (["-k", "gpa", "-k", "major", "-v", "salary", "3.5"], "with commas between them (gpa,major): got '3.5'."),
        (["-k", "gpa", "-v", "salary", "3.5", "--weights", "proportional"], "Use --weights softmax,"),
    ],
)
def test_a_mistake_is_one_line_on_stderr_and_status_1(grades: str, arguments: list[str], text: str) -> None:
    result = ask(grades, *arguments)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
    assert text in result.stderr


def test_a_table_that_is_not_there_is_a_mistake() -> None:
    result = ask("nowhere.csv", "-k", "gpa", "-v", "salary", "3.5")
    assert result.exit_code == 1
    assert "A table must be a file that exists: got 'nowhere.csv'." in result.stderr


def test_standard_input_without_queries_is_a_mistake(grades: str) -> None:
    result = ask(grades, "-k", "gpa", "-v", "salary", "-", text="\n")
    assert result.exit_code == 1
    assert result.stderr == (
        "error: Standard input must have a query on each line: got nothing. Write one, or leave out the -.\n"
    )


def test_standard_input_that_is_not_utf_8_is_a_mistake(grades: str) -> None:
    result = ask(grades, "-k", "name", "-v", "salary", "-", text="J\xf6rg\n".encode("latin-1"))
    assert result.exit_code == 1
    assert result.stderr == "error: Standard input must be UTF-8: got 0xf6. Convert it first.\n"


def test_a_name_that_is_misspelt_is_found_before_the_table_is_read() -> None:
    result = ask("nowhere.csv", "-k", "gpa", "-v", "salary", "3.5", "--weights", "sofmax")
    assert result.exit_code == 2
    assert "Did you mean 'softmax'?" in " ".join(result.stderr.replace("│", " ").split())


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["-v", "salary", "3.5"], "add --key COLUMN"),
        (["-k", "gpa", "3.5"], "add --value COLUMN"),
        (["-k", "gpa", "-v", "salary"], "there is nothing to ask"),
        (["-k", "gpa", "-v", "salary", "--average", "3.5"], "--average takes every row alike"),
        (["-k", "gpa", "-v", "salary", "--exact", "--score", "equal", "3.5"], "--exact compares keys for equality"),
        (["-k", "gpa", "-v", "salary", "3.5", "--top", "0"], "--top"),
        (["-k", "gpa", "-v", "salary", "-3", "--tpo", "1"], "No such option: --tpo"),
        (
            ["-k", "gpa", "-v", "salary", "3.5", "--score", "gausian:1"],
            "--score must be one of gaussian, laplacian, boxcar, epanechnikov, triangular, equal, dot, scaled-dot, "
            "cosine: got 'gausian'. Did you mean 'gaussian'?",
        ),
        (["-k", "gpa", "-v", "salary", "3.5", "--weights", "best"], "sigmoid: got 'best'. Choose one of those."),
        (
            ["-k", "gpa", "-v", "salary", "3.5", "--score", "gaussian"],
            "must have a number: got 'gaussian'. Write it as gaussian:0.5.",
        ),
        (
            ["-k", "gpa", "-v", "salary", "3.5", "--weights", "top-k"],
            "must have a number: got 'top-k'. Write it as top-k:5.",
        ),
        (
            ["-k", "gpa", "-v", "salary", "3.5", "--weights", "top-k:1.5"],
            "must have a whole number after the colon: got '1.5'. Write it as top-k:5.",
        ),
        (
            ["-k", "gpa", "-v", "salary", "3.5", "--score", "gaussian:x"],
            "must have a number after the colon: got 'x'. Write it as gaussian:0.5.",
        ),
        (
            ["-k", "gpa", "-v", "salary", "3.5", "--score", "equal:1"],
            "equal must stand without a number: got 'equal:1'. Write equal.",
        ),
        (
            ["-k", "gpa", "-v", "salary", "3.5", "--score", "equal", "--score", "gpa=equal"],
            "several --score must each name their column: got 'equal'. Write it as COLUMN=equal.",
        ),
        (
            ["-k", "gpa", "-v", "salary", "3.5", "--score", "gpa=gaussian:.1", "--score", "gpa=boxcar:1"],
            "a column must have one --score: got two for 'gpa'. Leave out one of them.",
        ),
        (["-k", "gpa", "-v", "salary", "3.5", "--score", "gaussian:-1"], "must be positive: got -1.0"),
    ],
)
def test_a_misspelt_command_is_status_2(grades: str, arguments: list[str], text: str) -> None:
    result = ask(grades, *arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert text in " ".join(result.stderr.replace("│", " ").split())
