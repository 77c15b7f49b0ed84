"""Claims about what counts as one query and what as many."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import pytest
import torch

from regard import Database
from regard.database.python_columns import columns_from
from regard.database.queries import UNKNOWN, read_queries
from regard.errors import OptionError, ShapeError, TableError

NUMBER = columns_from({"gpa": [3.5]}, "key")
TEXT = columns_from({"name": ["a"]}, "key")
VECTOR = columns_from(torch.ones(2, 3), "key")
MIXED = columns_from({"gpa": [3.5], "major": ["law"]}, "key")


@pytest.mark.parametrize("query", [3.5, 3, torch.tensor(3.5), {"gpa": 3.5}])
def test_a_number_is_one_query(query: object) -> None:
    queries, many = read_queries(query, NUMBER)
    assert (len(queries), many) == (1, False)


@pytest.mark.parametrize("query", [[3.5], (3.5,), range(2), torch.tensor([3.5, 3.6]), {"gpa": [3.5, 3.6]}, []])
def test_a_sequence_of_numbers_is_many(query: object) -> None:
    assert read_queries(query, NUMBER)[1]


def test_a_text_is_one_query_and_a_tuple_may_be_a_key() -> None:
    assert read_queries("abc", TEXT) == ([("abc",)], False)
    assert read_queries(("a", 1), TEXT) == ([(("a", 1),)], False)
    assert read_queries(["a", "b"], TEXT) == ([("a",), ("b",)], True)


@pytest.mark.parametrize("query", [[1.0, 2.0, 3.0], torch.ones(3), (1, 2, 3)])
def test_a_vector_is_one_query_where_keys_are_vectors(query: object) -> None:
    assert not read_queries(query, VECTOR)[1]


@pytest.mark.parametrize("query", [[[1.0, 2.0, 3.0]], torch.ones(2, 3), [torch.ones(3)]])
def test_a_matrix_is_many_where_keys_are_vectors(query: object) -> None:
    assert read_queries(query, VECTOR)[1]


@pytest.mark.parametrize("query", [(3.5, "law"), [3.5, "law"], {"gpa": 3.5, "major": "law"}])
def test_a_row_is_one_query_where_keys_have_several_columns(query: object) -> None:
    assert read_queries(query, MIXED) == ([(3.5, "law")], False)


@pytest.mark.parametrize(
    "query",
    [
        [(3.5, "law"), (3.6, "art")],
        [{"gpa": 3.5, "major": "law"}, {"major": "art", "gpa": 3.6}],
        {"gpa": [3.5, 3.6], "major": ["law", "art"]},
    ],
)
def test_rows_are_many(query: object) -> None:
    assert read_queries(query, MIXED) == ([(3.5, "law"), (3.6, "art")], True)


def test_one_entry_serves_every_query_of_a_list() -> None:
    assert read_queries({"gpa": [3.5, 3.6], "major": "law"}, MIXED)[0] == [(3.5, "law"), (3.6, "law")]


def test_what_is_left_out_or_none_is_unknown() -> None:
    assert read_queries({"gpa": 3.5}, MIXED)[0] == [(3.5, UNKNOWN)]
    assert read_queries((float("nan"), "law"), MIXED)[0] == [(UNKNOWN, "law")]


def test_numpy_and_pandas_are_many() -> None:
    numpy, pandas = pytest.importorskip("numpy"), pytest.importorskip("pandas")
    assert read_queries(numpy.array([3.5, 3.6]), NUMBER)[1]
    assert read_queries(pandas.Series([3.5, 3.6]), NUMBER)[1]
    assert not read_queries(numpy.float64(3.5), NUMBER)[1]


def test_a_query_with_too_few_entries_is_refused() -> None:
    with pytest.raises(
        ShapeError, match=r"one entry for each key column \(gpa, major\): got 1 \(3.5\). Pass a tuple of 2"
    ):
        read_queries(3.5, MIXED)


def test_a_query_that_says_nothing_is_refused() -> None:
    with pytest.raises(OptionError, match=r"at least one key column \(gpa\): got nothing. Use .average\(\)"):
        read_queries(None, NUMBER)


def test_a_query_for_a_column_that_is_not_there_is_refused() -> None:
    with pytest.raises(TableError, match="A query must name key columns: got 'gap'. Did you mean 'gpa'?"):
        read_queries({"gap": 3.5}, MIXED)


def test_lists_of_different_lengths_are_refused() -> None:
    with pytest.raises(ShapeError, match="same number of entries: got {'gpa': 1, 'major': 2}"):
        read_queries({"gpa": [3.5], "major": ["law", "art"]}, MIXED)


@pytest.mark.parametrize("package", ["pandas", "polars", "pyarrow"])
def test_a_frame_is_a_query_for_each_row(package: str) -> None:
    module = pytest.importorskip(package)
    made = module.table if package == "pyarrow" else module.DataFrame
    columns = {"major": ["law", "art", None], "gpa": [3.5, 3.6, 3.7]}
    assert read_queries(made(columns), MIXED) == ([(3.5, "law"), (3.6, "art"), (3.7, UNKNOWN)], True)
    assert read_queries(made({"major": ["law"]}), MIXED) == ([(UNKNOWN, "law")], True)
    assert read_queries(made({"gpa": [3.5, 3.6]}), NUMBER) == ([(3.5,), (3.6,)], True)
    assert read_queries(made({"gpa": []}), NUMBER) == ([], True)
    assert read_queries(made({"key": [[1.0, 2.0, 3.0]]}), VECTOR) == ([([1.0, 2.0, 3.0],)], True)
    with pytest.raises(TableError, match="A query must name key columns: got 'salary'"):
        read_queries(made({"gpa": [3.5], "salary": [1]}), MIXED)
    if package == "polars":
        assert read_queries(made({"gpa": [3.5]}).lazy(), NUMBER) == ([(3.5,)], True)


def test_rows_by_name_are_many_where_there_is_one_column_too() -> None:
    assert read_queries([{"gpa": 3.5}, {"gpa": 3.6}], NUMBER) == ([(3.5,), (3.6,)], True)


@pytest.mark.parametrize("infinite", [math.inf, -math.inf, torch.tensor(math.inf), Decimal("inf"), 10**400])
def test_an_infinite_query_among_many_is_missing_as_nan_is(infinite: Any) -> None:
    answers = Database([1.0, 2.0, 3.0], [10.0, 20.0, 30.0]).attend([2.0, infinite, math.nan])
    assert [answer.found for answer in answers] == [True, False, False]
    assert answers[1].message == answers[2].message == "The query is missing: it says nothing about key."
    both = Database({"x": [1.0, 2.0, 3.0], "word": ["a", "a", "b"]}, [10.0, 20.0, 30.0])
    assert both.attend([(infinite, "a")])[0].query == {"word": "a"}
    with pytest.raises(OptionError, match="`key` must be a finite number: got"):
        Database([1.0, 2.0], [1.0, 2.0]).attend(infinite)
