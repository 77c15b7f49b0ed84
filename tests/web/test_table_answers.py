"""Claims about what the room of a table is told: the library's own answers, curves and errors, for any table."""

from __future__ import annotations

import contextlib
import io
import math
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="needs regard[tables]")

from regard import Database
from regard.database.render import answer_report
from regard.web.rooms.table_kept import BUDGET, DATABASES, Tables
from regard.web.settings import Limits


@dataclass(frozen=True)
class Case:
    """A table with a query, as the page asks it and as Python does."""

    text: str
    keys: tuple[int, ...]
    value: int
    query: tuple[Any, ...]
    asked: Any
    label: int | None = None
    counts: tuple[bool, ...] = ()
    names: list[str] = field(default_factory=list)

    def question(self, table: str, **more: Any) -> dict[str, Any]:
        known = {"counts": self.counts} if self.counts else {}
        return {"table": table, "keys": self.keys, "value": self.value, "query": self.query, **known, **more}

    def database(self, path: Path) -> Database:
        path.write_text(self.text, encoding="utf-8")
        names = self.names or self.text.splitlines()[0].split(",")
        keys = [names[key] for key in self.keys]
        index = None if self.label is None else names[self.label]
        return Database.from_table(path, key=keys if len(keys) > 1 else keys[0], value=names[self.value], index=index)


def lines(header: str, rows: Sequence[Sequence[Any]]) -> str:
    return "\n".join([header, *(",".join(map(str, row)) for row in rows)]) + "\n"


def wave(place: int) -> float:
    return round(math.sin(place / 3) * 40 + 100 + 7 * ((place * 37) % 11), 3)


KINDS = ("red", "green", "blue")
NUMBERS = lines("name,x,y", [(f"n{i}", (i * 29) % 60, wave((i * 29) % 60)) for i in range(60)])
MIXED = lines(
    "x,kind,day,y",
    [(i % 20, KINDS[i % 3], date(2024, 1 + i % 12, 1 + i % 28), wave(i % 20) + 30 * (i % 3)) for i in range(60)],
)
CLOCKS = lines("at,moment,y", [(time(6 + i // 5, 10 * (i % 5)), datetime(2024, 5, 1, i), wave(i)) for i in range(24)])
VALUES = lines("x,kind", [(i, KINDS[min(i // 13 + (i % 7 == 0), 2)]) for i in range(39)])
PAIRS = lines("a,b", [(KINDS[i % 3], KINDS[i % 2]) for i in range(12)])
HOLES = "x,y\n1,10\n,20\n3,\n4,40\nn/a,50\n6,60\n7,70\n"
CASES = {
    "numbers": Case(NUMBERS, (1,), 2, (31.5,), 31.5, label=0),
    "a category as key": Case(MIXED, (1,), 3, (1,), "green"),
    "a category by its name": Case(MIXED, (1,), 3, ("green",), "green"),
    "a category as value": Case(VALUES, (0,), 1, (25.5,), 25.5),
    "categories alone": Case(MIXED, (1, 0), 3, (2, 5), {"kind": "blue", "x": 5}),
    "a category that answers a category": Case(PAIRS, (0,), 1, (0,), "red"),
    "a date as key": Case(MIXED, (2,), 3, (19800.0,), date(2024, 3, 18)),
    "a date as it is written": Case(MIXED, (2,), 3, ("2024-03-18",), date(2024, 3, 18)),
    "a date as value": Case(MIXED, (0,), 2, (7.0,), 7),
    "a moment": Case(CLOCKS, (1,), 2, (19844.25,), datetime(2024, 5, 1, 6)),
    "a time of day": Case(CLOCKS, (0,), 2, (8.5,), time(8, 30)),
    "several keys": Case(MIXED, (0, 1, 2), 3, (7.5, 0, 19800.0), {"x": 7.5, "kind": "red", "day": date(2024, 3, 18)}),
    "keys that are not known": Case(MIXED, (0, 1, 2), 3, (7.5, 1, 19800.0), {"x": 7.5}, counts=(True, False, False)),
    "no quantity is known": Case(MIXED, (0, 1), 3, (None, 2), {"kind": "blue"}, counts=(False, True)),
    "missing cells": Case(HOLES, (0,), 1, (5.0,), 5),
    "one row": Case("a,b\n1,2\n", (0,), 1, (1.0,), 1),
    "constants": Case("a,b\n" + "3,5\n" * 9, (0,), 1, (3.0,), 3),
    "nothing near": Case(NUMBERS, (1,), 2, (1e6,), 1e6),
}  # fmt: skip


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> Case:
    return CASES[request.param]


def test_an_answer_is_the_librarys(served: Any, tmp_path: Path, case: Case) -> None:
    found = served.answer("table", "answer", case.question(served.drop("a.csv", case.text), label=case.label, top=400))
    answer = case.database(tmp_path / "a.csv").attend(case.asked, top=400)
    said = answer.as_dict()
    assert found["found"] == answer.found
    assert found["weights"] == pytest.approx([row.weight for row in answer.rows], rel=1e-9)
    assert found["rest"] == pytest.approx(answer.rest, abs=1e-9)
    assert found["effective"] == pytest.approx(answer.effective_rows, rel=1e-9)
    assert (found["n"], found["left_out"]) == (answer.n_rows, answer.n_left_out)
    if said["probabilities"]:
        assert dict(found["output"]["shares"]) == pytest.approx(said["probabilities"], rel=1e-9)
    elif isinstance(said["value"], float):
        assert found["output"]["number"] == pytest.approx(said["value"], rel=1e-12)
        assert found["output"]["spread"] == pytest.approx(said["std"], rel=1e-9)
    report, told = answer_report(answer), found["report"]
    assert told["headline"] == report.headline
    wider = "Choose a wider bandwidth."
    assert told["warning"] == report.warning.replace("To reach it, pass a wider `score`.", wider)
    assert told["header"] == report.header
    assert told["lines"] == report.lines[:10]
    assert [each[0] for each in told["raw"]] == [row["index"] for row in said["rows"][:10]]
    assert told["notes"][-1] == report.notes[-1]


def test_the_lines_of_python_print_the_same_answer(served: Any, tmp_path: Path, case: Case) -> None:
    path = tmp_path / "a.csv"
    answer = case.database(path).attend(case.asked)
    asked = case.question(served.drop("a.csv", case.text), label=case.label, name=str(path))
    assert printed(served.answer("table", "python", asked)["python"]) == str(answer) + "\n"
    # Also by widths that are given: of each key its own, in the units of the answer that the page shows.
    asked["widths"] = [0.5] * len(case.keys)
    found = served.answer("table", "answer", {name: each for name, each in asked.items() if name != "name"})
    told = printed(served.answer("table", "python", asked)["python"])
    assert told.splitlines()[0] == found["report"]["headline"][:80].rstrip()
    shown = [line.split() for line in told.splitlines()]
    assert all(any(each[-1] in words for words in shown) for each in found["report"]["lines"])


def printed(python: str) -> str:
    """What lines of Python print."""
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        exec(python, {})
    return output.getvalue()


def test_a_curve_has_the_answer_to_each_of_its_queries(served: Any, case: Case) -> None:
    table = served.drop("a.csv", case.text)
    along = case.counts.index(True) if case.counts else 0
    given = case.query[along]
    places = [0.0 if isinstance(given, str) else given, 1.0]
    curve = served.answer("table", "curve", case.question(table, at=places, along=along))
    for nth, at in enumerate(places):
        query = [at if place == along else each for place, each in enumerate(case.query)]
        one = served.answer("table", "answer", case.question(table) | {"query": query})
        for name, found in (("number", curve["values"][nth]), ("spread", curve["spreads"][nth])):
            expected = one["output"][name]
            assert found == (None if expected is None else pytest.approx(expected, rel=1e-9))
        if one["output"]["shares"]:
            assert sorted(each[nth] for each in curve["shares"]) == pytest.approx(
                sorted(dict(one["output"]["shares"]).get(name, 0.0) for name in KINDS[: len(curve["shares"])])
            )


@pytest.mark.parametrize(
    "name", ["numbers", "several keys", "a category as value", "a date as value", "a category as key"]
)
def test_the_best_widths_are_those_of_the_answer_and_the_least_in_error(served: Any, name: str) -> None:
    case = CASES[name]
    table = served.drop("a.csv", case.text)
    columns = {"table": table, "keys": case.keys, "value": case.value}
    best = served.answer("table", "best", columns)
    assert best["method"] == ("equality" if name == "a category as key" else "leave-one-out")
    chosen = served.answer("table", "answer", case.question(table))
    if best["method"] == "equality":
        assert best["widths"] == [0.0]
        assert all(line[1] == "green" for line in chosen["report"]["lines"])
        return
    given = [1e9 if width is None else width for width in best["widths"]]
    same = served.answer("table", "answer", case.question(table, widths=given))
    assert same["weights"] == pytest.approx(chosen["weights"], rel=1e-5)
    tried = [given[0] * 1.5**step for step in range(-6, 7)]
    errors = served.answer("table", "errors", {**columns, "along": 0, "tried": tried})
    assert min(errors["errors"]) >= 0.985 * errors["errors"][6]
    assert served.answer("table", "best", {**columns, "aside": True}) == best


def weight_of(one: Sequence[Any], other: Sequence[Any], widths: Sequence[float]) -> float:
    """The definition: a Gaussian of numbers, a mismatch of all else."""
    product = 1.0
    for mine, yours, width in zip(one, other, widths, strict=True):
        if isinstance(mine, float):
            product *= math.exp(-((mine - yours) ** 2) / (2 * width**2))
        else:
            product *= 1.0 if mine == yours else width
    return product


ROWS = [(float(i % 20), KINDS[i % 3], wave(i % 20) + 30 * (i % 3)) for i in range(60)]


@pytest.mark.parametrize("widths", [[2.0, 0.25], [0.7, 1.0], [40.0, 1e-3]])
def test_widths_that_are_given_are_the_definition(served: Any, widths: list[float]) -> None:
    asked = CASES["several keys"].question(
        served.drop("a.csv", MIXED), keys=[0, 1], query=[7.5, 0], widths=widths, top=400
    )
    weights = [weight_of((7.5, "red"), row[:2], widths) for row in ROWS]
    mean = sum(weight * row[2] for weight, row in zip(weights, ROWS, strict=True)) / sum(weights)
    spread = sum(weight * (row[2] - mean) ** 2 for weight, row in zip(weights, ROWS, strict=True)) / sum(weights)
    found = served.answer("table", "answer", asked)
    assert found["output"]["number"] == pytest.approx(mean, rel=1e-9)
    assert found["output"]["spread"] == pytest.approx(spread**0.5, rel=1e-6)
    for row, weight in zip(found["rows"], found["weights"], strict=True):
        assert weight == pytest.approx(weights[row] / sum(weights), rel=1e-9)
    assert found["heights"] == pytest.approx([ROWS[row][2] for row in found["rows"]])
    assert found["across"] == pytest.approx([ROWS[row][0] for row in found["rows"]])


def missed(keys: list[tuple[Any, ...]], values: list[Any], widths: Sequence[float]) -> float:
    """Leave-one-out by its definition: the root mean square of numbers, the Brier score of categories."""
    total = 0.0
    for hidden in range(len(keys)):
        weights = [weight_of(keys[hidden], key, widths) * (place != hidden) for place, key in enumerate(keys)]
        shares = [weight / sum(weights) for weight in weights]
        if isinstance(values[hidden], float):
            total += (sum(map(float.__mul__, shares, values)) - values[hidden]) ** 2
        else:
            for kind in set(values):
                share = sum(each for each, value in zip(shares, values, strict=True) if value == kind)
                total += (share - (values[hidden] == kind)) ** 2
    return (total / len(keys)) ** 0.5 if isinstance(values[0], float) else total / len(keys)


@pytest.mark.parametrize(
    ("keys", "value", "along", "widths"),
    [([0, 1], 3, 0, [None, 0.3]), ([0, 1], 3, 1, [1.5, None]), ([1], 3, 0, [None]), ([1, 0], 2, 1, [0.3, None])],
    ids=["a bandwidth", "a mismatch", "a category alone", "dates"],
)
def test_errors_are_what_hidden_rows_are_missed_by(
    served: Any, keys: list[int], value: int, along: int, widths: list[Any]
) -> None:
    cells = [line.split(",") for line in MIXED.splitlines()[1:]]
    entries = [tuple(float(row[key]) if key == 0 else row[key] for key in keys) for row in cells]
    values = [float(row[3]) if value == 3 else float(date.fromisoformat(row[2]).toordinal()) for row in cells]
    tried = [0.8, 2.0, 9.0] if keys[along] == 0 else [0.2, 0.5, 0.9]
    asked = {"table": served.drop("a.csv", MIXED), "keys": keys, "value": value, "widths": widths, "along": along}
    found = served.answer("table", "errors", {**asked, "tried": tried})
    assert (found["measure"], found["hidden"]) == ("root mean square", len(cells))
    others = [(sum(values) - each) / (len(values) - 1) - each for each in values]
    assert found["baseline"] == pytest.approx((sum(each**2 for each in others) / len(others)) ** 0.5, rel=1e-5)
    for width, error in zip(tried, found["errors"], strict=True):
        by = [width if place == along else each for place, each in enumerate(widths)]
        assert error == pytest.approx(missed(entries, values, by), rel=1e-5)


def test_errors_of_categories_are_brier_scores(served: Any) -> None:
    cells = [line.split(",") for line in VALUES.splitlines()[1:]]
    asked = {"table": served.drop("a.csv", VALUES), "keys": [0], "value": 1, "widths": [None], "tried": [0.8, 2.0, 9.0]}
    found = served.answer("table", "errors", asked)
    assert found["measure"] == "Brier score"
    for width, error in zip(asked["tried"], found["errors"], strict=True):
        expected = missed([(float(row[0]),) for row in cells], [row[1] for row in cells], [width])
        assert error == pytest.approx(expected, rel=1e-5)


def test_what_cannot_be_predicted_has_no_error(served: Any) -> None:
    names = served.drop("a.csv", lines("x,name", [(i, f"n{i}") for i in range(9)]))
    found = served.answer("table", "errors", {"table": names, "keys": [0], "value": 1, "widths": [1.0], "tried": [1.0]})
    assert (found["errors"], found["hidden"]) == ([None], 0)
    best = served.answer("table", "best", {"table": names, "keys": [0], "value": 1})
    assert best["method"] == "Scott's rule"


def test_points_are_the_rows_that_the_picture_holds(served: Any) -> None:
    far = served.drop("a.csv", lines("x,y", [*((i, i % 7) for i in range(300)), (10**9, 3)]))
    found = served.answer("table", "points", {"table": far, "keys": [0], "value": 1})
    assert (found["n"], found["outside"], found["cells"]) == (301, 1, None)
    assert found["points"][0] == [float(i) for i in range(300)]
    assert found["points"][1] == [float(i % 7) for i in range(300)]
    many = served.drop("a.csv", lines("x,y", [(i, (i * 31) % 97) for i in range(4000)]))
    found = served.answer("table", "points", {"table": many, "keys": [0], "value": 1})
    assert found["points"] is None
    assert sum(found["cells"]["counts"]) == 4000


def test_the_most_frequent_categories_stand_side_by_side_and_the_others_outside(served: Any) -> None:
    text = lines("code,y", [(f"c{i % 40}", i) for i in range(200)])
    found = served.answer("table", "points", {"table": served.drop("a.csv", text), "keys": [0], "value": 1})
    assert len(found["columns"]) == 16
    assert found["outside"] == 200 - 16 * 5
    assert min(found["points"][0]) == 0
    text = lines("code,kind", [(f"c{i % 4}", KINDS[i % 3]) for i in range(24)])
    found = served.answer("table", "points", {"table": served.drop("a.csv", text), "keys": [0], "value": 1})
    assert (found["columns"], found["lanes"]) == ([0, 1, 2, 3], list(KINDS))


def test_of_a_value_s_categories_the_six_most_frequent_have_a_line(served: Any) -> None:
    text = lines("x,kind", [(i, f"k{i % each}") for each in range(1, 10) for i in range(each)])
    asked = {"table": served.drop("a.csv", text), "keys": [0], "value": 1}
    assert served.answer("table", "points", asked)["lanes"] == [f"k{i}" for i in range(6)]
    curve = served.answer("table", "curve", asked | {"query": [0.0], "at": [0.0, 3.0], "widths": [1e6]})
    assert [each[0] for each in curve["shares"]] == pytest.approx([(9 - i) / 45 for i in range(6)])
    answer = served.answer("table", "answer", asked | {"query": [8.0], "widths": [0.5]})["output"]
    assert answer["shares"][0][0] == "k8"  # which has no line
    exact = served.answer("table", "curve", asked | {"query": [0.0], "at": [8.0], "widths": [0.5]})
    assert answer["lanes"] == pytest.approx([each[0] for each in exact["shares"]])


def test_the_next_key_is_the_one_that_says_most_of_what_is_left_open(served: Any) -> None:
    rows = [
        (i % 20, 3 * (i % 20) + i % 2, KINDS[i % 3], (i * 37) % 89, f"n{i}", (i % 20) ** 2 + 200 * (i % 3))
        for i in range(90)
    ]
    table = served.drop("a.csv", lines("x,like_x,kind,noise,name,y", rows))
    for keys, expected in (([0], 2), ([2], 0), ([2, 3], 0), ([0, 1, 2, 3], 4), ([0, 1, 2, 3, 4], None)):
        assert served.answer("table", "another", {"table": table, "keys": keys, "value": 5})["key"] == expected
    of_kind = served.answer("table", "another", {"table": table, "keys": [3], "value": 2})
    assert of_kind["key"] == 5


def test_what_a_mismatch_weighs_is_told_in_what_python_has(served: Any) -> None:
    table = served.drop("a.csv", MIXED)
    asked = {"table": table, "keys": [0, 1], "value": 3, "query": [7.5, 0], "widths": [2.0, 0.5]}
    told = served.answer("table", "answer", asked)["report"]["notes"][-1]
    assert "x: Gaussian(bandwidth=2) · kind: 0.6931 * Equal() · Softmax()" in told


def test_a_worker_keeps_tables_within_its_budget_the_last_one_in_any_case(tmp_path: Path) -> None:
    files = [tmp_path / f"{name}.csv" for name in "ab"]
    for file in files:
        file.write_text(NUMBERS, encoding="utf-8")
    roomy, narrow = Tables(), Tables(budget=1)
    for tables, keeps in ((roomy, True), (narrow, False)):
        first = tables.get("a", files[0])
        assert tables.get("a", files[0]) is first
        last = tables.get("b", files[1])
        assert tables.get("b", files[1]) is last
        assert (tables.get("a", files[0]) is first) == keeps
    size = roomy.get("a", files[0]).bytes
    roomy.get("a", files[0]).database([1], 2)
    assert roomy.get("a", files[0]).bytes > size > 60 * 8 * 2
    assert Limits().memory // 4 >= BUDGET  # the rest is what answers are computed in


def test_a_table_keeps_the_databases_that_were_asked_last(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(MIXED, encoding="utf-8")
    kept = Tables().get("a", tmp_path / "a.csv")
    choices = [([key], value) for key in range(4) for value in range(4) if key != value]
    first, *others = (kept.database(*each) for each in choices[:DATABASES])
    assert kept.database(*choices[0]) is first
    kept.database(*choices[DATABASES])
    assert kept.database(*choices[0]) is first  # asked again meanwhile
    assert kept.database(*choices[1]) is not others[0]
    assert DATABASES < 8


def test_a_worker_s_rooms_bring_no_server_along() -> None:
    """What a worker imports is paid for by each of them."""
    told = "import sys, regard.web.bench, regard.web.rooms; print({'starlette', 'uvicorn'} & {*sys.modules})"
    found = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "set()"


def test_a_table_is_described_with_columns_to_begin_with(served: Any) -> None:
    found = served.answer("table", "open", {"table": served.drop("a.csv", NUMBERS)})
    assert found["rows"] == 60
    assert found["suggested"] == {"key": 1, "value": 2, "label": 0}
    assert [each["role"] for each in found["columns"]] == ["category", "line", "line"]
    assert (found["columns"][1]["low"], found["columns"][1]["high"], found["columns"][1]["whole"]) == (0, 59, True)
    found = served.answer("table", "open", {"table": served.drop("a.csv", MIXED)})
    assert [each["kind"] for each in found["columns"]] == ["number", "text", "date", "number"]
    assert [name for _, name in found["columns"][1]["categories"]] == list(KINDS)


@pytest.mark.parametrize(
    ("text", "rows", "suggested"),
    [
        ("a,b\n", 0, {"key": None, "value": None, "label": None}),
        ("a\n1\n2\n", 2, {"key": None, "value": 0, "label": None}),
        ("a,b\n,\n,\n", 2, {"key": None, "value": None, "label": None}),
        ("a,b\nx,1\ny,2\n", 2, {"key": 0, "value": 1, "label": None}),
        ("id,name,b\n1,u,2\n2,v,4\n3,w,6.5\n", 3, {"key": 0, "value": 2, "label": 1}),
        ("id,a,b\n1,7,2\n2,3,4\n3,9,6\n", 3, {"key": 1, "value": 2, "label": None}),
        ("a,b\n1,2\n2,3\n3,4\n", 3, {"key": 0, "value": 1, "label": None}),
    ],
)
def test_a_table_that_says_little_is_opened_all_the_same(
    served: Any, text: str, rows: int, suggested: dict[str, Any]
) -> None:
    found = served.answer("table", "open", {"table": served.drop("a.csv", text)})
    assert (found["rows"], found["suggested"]) == (rows, suggested)


HOSTILE = ["<script>alert(1)</script>", "\x1b[31mred", "\u202eabc", "=1+1", "wide " * 60 + "w", '"quoted"', "a,b"]


def test_names_that_would_run_or_steer_are_names(served: Any, tmp_path: Path) -> None:
    header = ",".join('"' + name.replace('"', '""') + '"' for name in HOSTILE)
    text = lines(header, [[i + place for place in range(len(HOSTILE))] for i in range(9)])
    table = served.drop("a.csv", text)
    found = served.answer("table", "open", {"table": table})
    assert len(found["columns"]) == len(HOSTILE)
    assert all(each["name"].isprintable() and len(each["name"]) <= 80 for each in found["columns"])
    keys = tuple(range(1, len(HOSTILE)))
    case = Case(text, keys, 0, tuple(float(key) for key in keys), {HOSTILE[key]: key for key in keys}, names=HOSTILE)
    answer = case.database(tmp_path / "a.csv").attend(case.asked)
    asked = case.question(table, name=str(tmp_path / "a.csv"))
    assert printed(served.answer("table", "python", asked)["python"]) == str(answer) + "\n"
    told = served.answer("table", "answer", case.question(table))["report"]
    assert all(each.isprintable() for each in (told["headline"], *told["header"], *told["notes"]))
