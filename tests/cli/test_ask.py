"""Claims about `regard ask`: answers, and how they are printed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from regard import Database, Entmax, Gaussian, OneHot, Sigmoid, Softmax, Sparsemax, TopK, Uniform
from regard.cli import app
from regard.weights.rule import Weights

pytest.importorskip("pyarrow")


def ask(*arguments: str, text: str | bytes | None = None) -> Any:
    return CliRunner().invoke(app, ["ask", *arguments], input=text)


def answers(*arguments: str, text: str | None = None) -> list[dict[str, Any]]:
    result = ask(*arguments, "--json", text=text)
    assert result.exit_code == 0, result.stderr
    found: list[dict[str, Any]] = json.loads(result.stdout)["answers"]
    return found


def test_a_gpa_of_3_5_suggests_a_salary_and_the_rows_that_say_so(grades: str) -> None:
    result = ask(grades, "--key", "gpa", "--value", "salary", "3.5")
    assert result.exit_code == 0
    assert result.stderr == ""
    lines = [line.rstrip() for line in result.stdout.splitlines()]
    assert lines[0].startswith("gpa = 3.5 → 70,")
    assert lines[1] == "row  gpa  salary  weight"
    assert lines[2].split()[:3] == ["0", "3.5", "70,000"]
    assert lines[2].endswith("████████████████")
    assert {line.split()[1] for line in lines[2:5]} == {"3.4", "3.5", "3.6"}
    assert "6 rows, 1 left out (missing key or value)" in result.stdout


def test_output_fits_in_eighty_columns_and_has_no_colour_in_a_pipe(grades: str) -> None:
    command = [
        sys.executable,
        "-m",
        "regard",
        "ask",
        grades,
        "-k",
        "gpa",
        "-k",
        "name",
        "-v",
        "salary",
        "-v",
        "major",
        "3.5,",
    ]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert max(map(len, result.stdout.splitlines())) <= 80
    assert "\x1b" not in result.stdout
    assert result.stderr == ""


def test_json_holds_the_question_and_every_answer(grades: str) -> None:
    result = ask(grades, "-k", "gpa", "-v", "salary", "3.5", "--json")
    read = json.loads(result.stdout)
    assert (read["table"], read["key"], read["value"]) == (grades, ["gpa"], ["salary"])
    (answer,) = read["answers"]
    assert answer["query"] == 3.5
    assert 69_000 < answer["value"] < 72_500
    assert answer["rows"][0] == {"index": 0, "key": 3.5, "value": 70_000, "weight": answer["rows"][0]["weight"]}


def test_several_keys_have_commas_between_them(grades: str) -> None:
    (answer,) = answers(grades, "-k", "gpa", "-k", "major", "-v", "salary", "3.5,physics")
    assert answer["query"] == {"gpa": 3.5, "major": "physics"}
    (answer,) = answers(grades, "-k", "gpa", "-k", "major", "-v", "salary", ",physics")
    assert answer["query"] == {"major": "physics"}
    assert answer["value"] == 70_750


def test_several_queries_have_a_line_each(grades: str) -> None:
    result = ask(grades, "-k", "gpa", "-v", "salary", "3.5", "3.0", "99")
    lines = result.stdout.splitlines()
    assert lines[0] == "3 answers: salary"
    assert [line.split()[0] for line in lines[2:5]] == ["3.5", "3.0", "99"]
    assert "no similar rows" in lines[4]


def test_top_says_how_many_rows_and_shows_them_for_each_query(grades: str) -> None:
    result = ask(grades, "-k", "gpa", "-v", "salary", "3.5", "3.0", "--top", "2")
    assert [line for line in result.stdout.splitlines() if "→" in line][1].startswith("gpa = 3.0 →")
    assert result.stdout.count("█") > 0
    assert [len(answer["rows"]) for answer in answers(grades, "-k", "gpa", "-v", "salary", "3.5", "--top", "2")] == [2]


def test_the_rows_can_have_names(grades: str) -> None:
    (answer,) = answers(grades, "-k", "gpa", "-v", "salary", "--index", "name", "3.5")
    assert answer["rows"][0]["index"] == "John Doe"


@pytest.mark.parametrize(
    ("score", "keys"),
    [
        ("boxcar:0.15", {3.4, 3.5, 3.6}),
        ("Epanechnikov:0.15", {3.4, 3.5, 3.6}),
        ("triangular:0.05", {3.5}),
        ("equal", {3.5}),
        ("gpa=boxcar:0.15", {3.4, 3.5, 3.6}),
        ("gaussian:9", {3.0, 3.2, 3.4, 3.5, 3.6, 4.0}),
        ("laplacian:9", {3.0, 3.2, 3.4, 3.5, 3.6, 4.0}),
        ("dot", {3.0, 3.2, 3.4, 3.5, 3.6, 4.0}),
        ("scaled_dot:0.1", {3.0, 3.2, 3.4, 3.5, 3.6, 4.0}),
        ("cosine", {3.0, 3.2, 3.4, 3.5, 3.6, 4.0}),
    ],
)
def test_a_score_is_named(grades: str, score: str, keys: set[float]) -> None:
    (answer,) = answers(grades, "-k", "gpa", "-v", "salary", "3.5", "--score", score)
    assert {row["key"] for row in answer["rows"]} == keys


@pytest.mark.parametrize(
    ("weights", "rule", "count"),
    [
        ("one-hot", OneHot(), 1),
        ("onehot", OneHot(), 1),
        ("top-k:2", TopK(2), 2),
        ("softmax:2", Softmax(2.0), 6),
        ("uniform", Uniform(), 6),
        ("sparsemax", Sparsemax(), 3),
        ("entmax:1.5", Entmax(1.5), 4),
        ("entmax:3", Entmax(3.0), 3),
        ("sigmoid", Sigmoid(), 6),
    ],
)
def test_a_rule_is_named(grades: str, weights: str, rule: Weights, count: int) -> None:
    options = ("-k", "gpa", "-v", "salary", "3.5", "--score", "gaussian:0.25")
    (answer,) = answers(grades, *options, "--weights", weights)
    database = Database.from_table(grades, key="gpa", value="salary")
    assert answer == database.attend(3.5, score=Gaussian(0.25), weights=rule, top=10).as_dict()
    assert len(answer["rows"]) == count


def test_a_score_for_each_column(grades: str) -> None:
    options = ("--score", "gpa=gaussian:0.2", "--score", "major=equal")
    (answer,) = answers(grades, "-k", "gpa", "-k", "major", "-v", "salary", "3.5,physics", *options)
    assert {row["key"][1] for row in answer["rows"]} == {"physics"}


def test_average_weighs_every_row_alike(grades: str) -> None:
    (answer,) = answers(grades, "-k", "gpa", "-v", "salary", "--average")
    assert answer["value"] == pytest.approx((70_000 + 69_000 + 72_500 + 61_000 + 80_000 + 80_000 + 66_000) / 7)


def test_exact_prints_the_value_and_nothing_else(grades: str) -> None:
    result = ask(grades, "-k", "name", "-v", "major", "--exact", "John Doe")
    assert (result.stdout, result.stderr) == ("psychology\n", "")
    several = ask(grades, "-k", "name", "-v", "major", "-v", "salary", "--exact", "John Doe", "Ann Poe")
    assert several.stdout == "psychology\t70000\nphysics\t72500\n"


def test_a_query_of_nothing_in_quotes_is_a_blank_one(grades: str) -> None:
    blank, quoted = (
        ask(grades, "-k", "gpa", "-v", "salary", "-", text=text) for text in ("3.5\n\n3.0\n", '3.5\n""\n3.0\n')
    )
    assert quoted.stdout == blank.stdout
    alone = ask(grades, "-k", "gpa", "-v", "salary", "-", text='""\n')
    assert alone.exception is None or isinstance(alone.exception, SystemExit)


def test_exact_keeps_the_blanks_of_a_cell(tmp_path: Path) -> None:
    (path := tmp_path / "t.csv").write_text('k,v,w\na,"two  blanks","a\nline\tbreak"\nb,x,y\n')
    result = ask(str(path), "-k", "k", "-v", "v", "-v", "w", "--exact", "a")
    assert result.stdout == "two  blanks\ta line break\n"


def test_exact_says_on_stderr_that_there_are_more(grades: str) -> None:
    result = ask(grades, "-k", "major", "-v", "name", "--exact", "physics")
    assert result.stdout == "Jane Roe\n"
    assert result.stderr == "2 pairs have that key: this is the first.\n"
    (answer,) = answers(grades, "-k", "major", "-v", "name", "--exact", "physics")
    assert answer == {"query": "physics", "value": "Jane Roe", "values": ["Jane Roe", "Ann Poe"]}


def test_exact_json_holds_the_question_too(grades: str) -> None:
    read = json.loads(ask(grades, "-k", "name", "-v", "major", "--exact", "John Doe", "--json").stdout)
    assert (read["table"], read["key"], read["value"]) == (grades, ["name"], ["major"])


def test_dates_are_written_as_dates(grades: str) -> None:
    assert ask(grades, "-k", "name", "-v", "joined", "--exact", "John Doe").stdout == "2020-01-01\n"
    (answer,) = answers(grades, "-k", "joined", "-v", "salary", "2020-01-20", "--score", "boxcar:20")
    assert (answer["query"], answer["value"]) == ("2020-01-20", 69_500)


@pytest.mark.parametrize(
    "arguments",
    [
        ["-k", "degrees", "-v", "rain", "--exact", "--", "-5"],
        ["-k", "degrees", "-v", "rain", "--exact", "-5"],
        ["-5", "-k", "degrees", "--exact", "-v", "rain"],
        ["-5", "-kdegrees", "--value=rain", "--exact"],
    ],
    ids=" ".join,
)
def test_a_negative_number_is_a_query(tmp_path: Path, arguments: list[str]) -> None:
    path = tmp_path / "weather.csv"
    path.write_text("degrees,rain\n-5,1\n0,2\n5,3\n")
    result = ask(str(path), *arguments)
    assert (result.stdout, result.stderr) == ("1\n", "")


def test_negative_numbers_and_others_keep_their_order(tmp_path: Path) -> None:
    path = tmp_path / "weather.csv"
    path.write_text("degrees,wind,rain\n-5,-1,1\n0,2,2\n-.5,3,3\n")
    several = ask(str(path), "0", "-.5", "-k", "degrees", "-v", "rain", "-5", "--exact")
    assert several.stdout == "2\n3\n1\n"
    (answer,) = answers(str(path), "-k", "degrees", "-k", "wind", "-v", "rain", "-5,-1")
    assert answer["query"] == {"degrees": -5, "wind": -1}


def test_text_is_printed_as_it_stands_in_the_table(tmp_path: Path) -> None:
    path = tmp_path / "odd.csv"
    path.write_text("name,mood\n[bold]Ann,:smile: é\n:bug:,x\n")
    (answer,) = answers(str(path), "-k", "name", "-v", "mood", "--exact", "[bold]Ann")
    assert answer["value"] == ":smile: é"
    assert ask(str(path), "-k", "name", "-v", "mood", "[bold]Ann").stdout.startswith("name = [bold]Ann → :smile: é")
    assert "The nearest key is ':bug:'." in ask(str(path), "-k", "name", "-v", "mood", "--exact", ":bugs:").stderr


@pytest.mark.parametrize("name", ["[red]a.csv", "[-b].csv", ":smile:.csv"])
def test_a_table_may_have_any_name(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("a,b\n1,2\n")
    result = ask(str(tmp_path / name), "-k", "a", "-v", "b", "--exact", "1", "--json")
    assert json.loads(result.stdout)["table"] == str(tmp_path / name)


@pytest.mark.parametrize("columns", [50, 60])
def test_numbers_are_whole_in_a_narrow_terminal(grades: str, columns: int) -> None:
    command = [sys.executable, "-m", "regard", "ask", grades, "-k", "gpa", "-v", "salary", "3.5"]
    environment = {**os.environ, "COLUMNS": str(columns)}
    printed = subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout
    assert max(map(len, printed.splitlines())) <= columns
    assert {"70,000", "69,000", "72,500"} <= set(printed.split())
    assert "…" not in printed


@pytest.mark.parametrize(
    "options",
    [
        ("--score", "gaussian:1e-200"),
        ("--score", "laplacian:1e-300"),
        ("--score", "boxcar:1e155"),
        ("--score", "epanechnikov:1e200"),
        ("--score", "triangular:1e-310"),
        ("--score", "cosine:1e-300"),
        ("--weights", "softmax:1e-300"),
        ("--weights", "top-k:99999999999"),
        ("--top", "99999999999"),
    ],
)
def test_numbers_at_the_limits_of_floats_have_an_answer(grades: str, options: tuple[str, str]) -> None:
    (answer,) = answers(grades, "--key", "gpa", "--value", "salary", "3.5", *options)
    assert 61_000 <= answer["value"] <= 80_000
    assert answer["effective_rows"] >= 1


def test_a_score_that_overflows_is_an_error_and_no_answer(grades: str) -> None:
    result = ask(grades, "--key", "gpa", "--value", "salary", "3.5", "--score", "scaled-dot:1e308")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "ScaledDot(scale=1e+308)" in result.stderr
    assert "gives one that is not finite" in result.stderr


def test_nor_are_dates_that_cannot_be_averaged(tmp_path: Path) -> None:
    table = tmp_path / "days.csv"
    table.write_text("day,value\n2024-01-01,1\n2024-01-11,2\n2024-02-01,3\n")
    result = ask(str(table), "--key", "day", "--value", "day", "2024-01-11", "--score", "scaled-dot:1e308")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "gives one that is not finite" in result.stderr
