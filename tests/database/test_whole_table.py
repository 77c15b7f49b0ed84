"""Claims about reading all columns of a file: what cannot be read is said, and the rest is there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("pyarrow", reason="needs regard[tables]")

from regard.database.whole_table import WholeTable, read_whole
from regard.errors import TableError

Read = Callable[..., WholeTable]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    def written(text: str, most: int = 1000) -> WholeTable:
        path = tmp_path / "a.csv"
        path.write_text(text, encoding="utf-8")
        return read_whole(path, most)

    return written


def test_every_column_is_read_in_the_files_order(read: Read) -> None:
    whole = read("b,a,c\n1,x,2024-01-01\n2,y,2024-01-02\n")
    assert [column.name for column in whole.columns] == ["b", "a", "c"]
    assert len(whole) == 2
    assert [column.label for column in whole.columns] == ["number", "text", "date"]


def test_columns_of_one_name_are_left_out_and_said(read: Read) -> None:
    whole = read("a,b,a\n1,2,3\n")
    assert [column.name for column in whole.columns] == ["b"]
    assert whole.unread == ("2 columns are called 'a': rename them",)


def test_a_table_without_a_name_of_its_own_is_refused(read: Read) -> None:
    with pytest.raises(TableError, match="must have columns with names that differ"):
        read("a,a\n1,2\n")


def test_more_columns_than_may_be_are_refused(read: Read) -> None:
    with pytest.raises(TableError, match="columns"):
        read("a,b,c\n1,2,3\n", most=2)


def test_what_is_said_of_a_column_is_said_where_it_is_chosen(read: Read) -> None:
    whole = read("a,b,c\n1,n/a,1\n2,5,1\n")
    chosen = whole.pairs([1], 2)
    assert any("b" in note for note in chosen.notes)
    assert not any("'b'" in note for note in whole.pairs([0], 2).notes)


def test_a_column_that_cannot_be_read_does_not_take_the_others_with_it(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b"a,b,c\n\xff,1,x\n\xfe,2,y\n")
    whole = read_whole(path, 1000)
    assert [column.name for column in whole.columns] == ["b", "c"]
    assert len(whole.unread) == 1
    assert "column 'a'" in whole.unread[0]


def test_a_table_of_which_nothing_can_be_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b"a,b\n\xff,\xff\n")
    with pytest.raises(TableError, match="UTF-8"):
        read_whole(path, 1000)
