"""Claims about what an Arrow array takes once every entry is written out."""

from __future__ import annotations

from typing import Any

import pytest

arrow = pytest.importorskip("pyarrow")

from regard.database.expanded_size import column_size, written_out  # noqa: E402

TEXT = arrow.array(["a" * 92, "b", None, "c"])
ENDS = arrow.array([3, 4], arrow.int32())


@pytest.mark.parametrize(
    ("array", "size"),
    [
        (arrow.array([1, None, 3]), 24),
        (arrow.array([True, False]), 2 * 8),
        (arrow.nulls(5), 40),
        (TEXT, 4 * 8 + 94),
        (TEXT.dictionary_encode(), 4 * 8 + 94),
        (arrow.DictionaryArray.from_arrays(arrow.array([0, 0, 1, None]), TEXT), 4 * 8 + 2 * 92 + 1),
        (arrow.DictionaryArray.from_arrays(arrow.array([0, 0, 1, None]), arrow.array([1, 2])), 4 * 8),
        (arrow.RunEndEncodedArray.from_arrays(ENDS, arrow.array([1.5, 2.5])), 4 * 8),
        (arrow.RunEndEncodedArray.from_arrays(ENDS, TEXT[:2]), 4 * 100),
        (arrow.array(["a" * 92, None, "b"], arrow.string_view()).slice(1), 2 * 8 + 1),
        (arrow.array([], arrow.string_view()), 0),
        (arrow.DictionaryArray.from_arrays(arrow.array([0, 0]), TEXT[:1].cast(arrow.binary_view())), 2 * 100),
        (arrow.array([["a", "bc"], None, []]), 3 * 8 + 2 * 8 + 3),
        (arrow.array([[1, 2], [3], [4]]).slice(1), 2 * 8 + 2 * 8),
        (arrow.array([[1.0, 2.0]], arrow.list_(arrow.float32(), 2)), 8 + 2 * 8),
        (arrow.array([{"x": 1, "y": "abc"}]), 8 + 8 + 8 + 3),
        (arrow.array([[("a", 1)]], arrow.map_(arrow.string(), arrow.int64())), 8 + 8 + 9 + 8),
        (arrow.UnionArray.from_sparse(arrow.array([0, 0], arrow.int8()), [TEXT[:2]]), 2 * 8 + 2 * 8 + 93),
        (
            arrow.UnionArray.from_dense(
                arrow.array([0] * 3, arrow.int8()), arrow.array([0] * 3, arrow.int32()), [TEXT]
            ),
            3 * 8 + 3 * 100,
        ),
    ],
    ids=lambda value: str(value.type) if isinstance(value, arrow.Array) else None,
)
def test_every_entry_counts_as_often_as_it_stands_there(array: Any, size: int) -> None:
    assert written_out(array) == size


def test_a_column_takes_more_than_its_entries_where_they_are_narrow() -> None:
    assert column_size(arrow.array([True] * 10)) == column_size(arrow.array([1] * 10, arrow.int8())) == 320
    assert column_size(TEXT[:2]) == written_out(TEXT[:2])
    assert column_size(arrow.array([[1] * 100] * 2, arrow.list_(arrow.int8()))) == 2 * 8 + 200 * 8
