"""Claims about `regard ask` with queries on standard input: a line each, or records of CSV."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from regard.cli import app

pytest.importorskip("pyarrow")


def ask(*arguments: str, text: str | bytes | None = None) -> Any:
    return CliRunner().invoke(app, ["ask", *arguments], input=text)


def answers(*arguments: str, text: str | None = None) -> list[dict[str, Any]]:
    result = ask(*arguments, "--json", text=text)
    assert result.exit_code == 0, result.stderr
    found: list[dict[str, Any]] = json.loads(result.stdout)["answers"]
    return found


def test_queries_come_from_standard_input(grades: str) -> None:
    found = answers(grades, "-k", "gpa", "-v", "salary", "-", text="3.5\n3.0\n")
    assert [answer["query"] for answer in found] == [3.5, 3.0]


@pytest.mark.parametrize("blank", ["\n", "  \n", "\n\n", '""\n'])
@pytest.mark.parametrize("keys", [["gpa"], ["gpa", "major"]])
def test_blank_lines_at_the_end_of_standard_input_are_no_queries(grades: str, keys: list[str], blank: str) -> None:
    options = [word for key in keys for word in ("-k", key)]
    found = answers(
        grades, *options, "-v", "salary", "-", text=",".join(["3.5", "physics"][: len(keys)]) + "\n" + blank
    )
    assert [answer["found"] for answer in found] == [True]


@pytest.mark.parametrize("blank", ["", "  ", "NA", "-", "nan"])
def test_a_line_without_a_query_keeps_its_place(grades: str, blank: str) -> None:
    text = f"3.5\n{blank}\n3.0\nNA\n"
    found = answers(grades, "-k", "gpa", "-v", "salary", "-", text=text)
    assert [answer["query"] for answer in found] == [3.5, None, 3.0, None]
    assert found[1]["message"] == "The query is missing: it says nothing about gpa."
    lines = ask(grades, "-k", "gpa", "-v", "salary", "-", text=text).stdout.splitlines()
    assert "missing" in lines[3]
    assert lines[0] == "4 answers: salary"
    assert ask(grades, "-k", "gpa", "-v", "salary", "--exact", "-", text=text).stdout == "70000\n\n61000\n\n"


@pytest.mark.parametrize("text", ["3.5,physics\n\n3.0,law\n", "\nmajor,gpa\nphysics,3.5\n\nlaw,3.0\n"])
def test_a_blank_line_between_records_keeps_its_place(grades: str, text: str) -> None:
    found = answers(grades, "-k", "gpa", "-k", "major", "-v", "salary", "-", text=text)
    assert [answer["query"] for answer in found] == [
        {"gpa": 3.5, "major": "physics"},
        None,
        {"gpa": 3.0, "major": "law"},
    ]


@pytest.mark.parametrize(
    ("text", "line", "options"),
    [
        ("3.5\n\nabc\n", 3, []),
        ('"3.5\n"\n3.0\nabc\n', 4, []),
        ("3.5\n9.9\n", 2, ["--exact"]),
        ("3.5\n1,2\n", 2, []),
    ],
)
def test_a_mistake_in_a_query_names_its_line(grades: str, text: str, line: int, options: list[str]) -> None:
    result = ask(grades, "-k", "gpa", "-v", "salary", "-", *options, text=text)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith(f"error: Line {line} of standard input: ")


@pytest.mark.parametrize("text", ["", "1.234,50 €;north\n2.000 €;south\n"])
def test_queries_may_be_written_as_the_table_is(tmp_path: Path, text: str) -> None:
    path = tmp_path / "sales.csv"
    path.write_text("amount;region;v\n1.234,50 €;north;1\n2.000,00 €;south;2\n3.100,25 €;north;3\n", encoding="utf-8")
    asked = ["-"] if text else ["1.234,50 €;north", "2.000 €;south"]
    found = answers(str(path), "-k", "amount", "-k", "region", "-v", "v", *asked, text=text)
    assert [answer["query"] for answer in found] == [
        {"amount": 1234.5, "region": "north"},
        {"amount": 2000, "region": "south"},
    ]


def test_an_infinite_query_is_missing_as_it_is_in_a_table(grades: str) -> None:
    found = answers(grades, "-k", "gpa", "-v", "salary", "-", text="gpa\n3.5\ninf\n-inf\n1e999\n")
    assert [answer["query"] for answer in found] == [3.5, None, None, None]
    assert ask(grades, "-k", "gpa", "-v", "salary", "--exact", "inf").stdout == "\n"


def test_a_quote_on_standard_input_that_is_not_closed_swallows_no_query(grades: str) -> None:
    result = ask(grades, "-k", "name", "-v", "salary", "-", text='John Doe\n"Jane Roe\nAnn Poe\n')
    assert (result.exit_code, result.stdout) == (1, "")
    assert "line 2 has none" in result.stderr


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le", "utf-16-be"])
def test_standard_input_may_be_utf_16_with_a_mark(grades: str, encoding: str) -> None:
    text = ("\ufeff" if encoding[-2:] in ("le", "be") else "") + "John Doe\n"
    assert ask(grades, "-k", "name", "-v", "major", "--exact", "-", text=text.encode(encoding)).stdout == "psychology\n"


@pytest.mark.parametrize("options", [[], ["--top", "2"]])
def test_a_header_without_queries_has_no_answers_and_says_so(grades: str, options: list[str]) -> None:
    result = ask(grades, "-k", "gpa", "-v", "salary", "-", *options, text="gpa\n")
    assert (result.exit_code, result.stdout) == (0, "no queries, no answers\n")


def test_rows_of_csv_come_from_standard_input(grades: str) -> None:
    found = answers(grades, "-k", "gpa", "-k", "major", "-v", "salary", "-", text="3.5,physics\n3.0,law\n")
    assert [answer["query"] for answer in found] == [{"gpa": 3.5, "major": "physics"}, {"gpa": 3.0, "major": "law"}]


def test_a_header_on_standard_input_says_the_order(grades: str) -> None:
    text = 'major,name,gpa\nphysics,"Moe, Di",3.5\nlaw,Zed,3.0\n'
    found = answers(grades, "-k", "gpa", "-k", "major", "-v", "salary", "-", text=text)
    assert [answer["query"] for answer in found] == [{"gpa": 3.5, "major": "physics"}, {"gpa": 3.0, "major": "law"}]
    alone = answers(grades, "-k", "gpa", "-v", "salary", "-", text="gpa\n3.5\n")
    assert [answer["query"] for answer in alone] == [3.5]


def test_a_byte_order_mark_on_standard_input_is_no_part_of_the_header(grades: str) -> None:
    found = answers(grades, "-k", "gpa", "-v", "salary", "-", text="\ufeffgpa,name\r\n3.5,x\r\n")
    assert [answer["query"] for answer in found] == [3.5]


@pytest.mark.parametrize("delimiter", [";", "\t", "|"])
def test_standard_input_may_have_another_delimiter(grades: str, delimiter: str) -> None:
    wanted = [{"gpa": 3.5, "major": "physics"}, {"gpa": 3.0, "major": "law"}]
    header, rows = "major,gpa\n".replace(",", delimiter), "physics,3.5\nlaw,3.0\n".replace(",", delimiter)
    found = answers(grades, "-k", "gpa", "-k", "major", "-v", "salary", "-", text=header + rows)
    assert [answer["query"] for answer in found] == wanted
    rows = "3.5,physics\n3.0,law\n".replace(",", delimiter)
    found = answers(grades, "-k", "gpa", "-k", "major", "-v", "salary", "-", text=rows)
    assert [answer["query"] for answer in found] == wanted


def test_a_line_break_within_quotes_on_standard_input_is_part_of_the_query(tmp_path: Path) -> None:
    path = tmp_path / "places.csv"
    path.write_text('name,city,size\n"Doe, John","New\nYork",3\nAnn,Oslo,1\n')
    options = ("-v", "size", "--exact")
    assert ask(str(path), "-k", "city", *options, "-", text='"New\nYork"\nOslo\n').stdout == "3\n1\n"
    text = 'city,name\n"New\nYork","Doe, John"\n'
    assert ask(str(path), "-k", "name", "-k", "city", *options, "-", text=text).stdout == "3\n"
    # One key column needs no quotes around a comma.
    assert ask(str(path), "-k", "name", *options, "-", text="Doe, John\nAnn\n").stdout == "3\n1\n"
