"""Claims about quotes in CSV files: none of them swallows a row in silence."""

from __future__ import annotations

from pathlib import Path

import pytest

from regard import Database
from regard.errors import TableError

check_quotes = pytest.importorskip("regard.database.delimited").check_quotes  # with pyarrow


def table(folder: Path, text: str) -> Path:
    path = folder / "table.csv"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('a,b,c\n1,2,x\n2,4,"y\n3,6,z\n4,8,w\n', 3),
        ("a,b,c\n" + '2,4,"y\n' * 5, 2),
        ('a,b,c\n"1,2,x\n2,4,y\n', 2),
        ('a,b,c\n1,2,x\n2,"4,y\n3,6,"z\n', 3),
        ('\ufeff"a,b,c\n1,2,x\n', 1),
    ],
)
def test_a_stray_quote_is_an_error_that_names_the_line(tmp_path: Path, text: str, line: int) -> None:
    with pytest.raises(TableError, match=rf"^table.csv, line {line}: a quote must be closed"):
        Database.from_table(table(tmp_path, text), key="a", value="b")


def test_a_cell_in_quotes_that_looks_like_rows_is_said(tmp_path: Path) -> None:
    database = Database.from_table(table(tmp_path, 'a,b,c\n1,2,"x\n2,4,y"\n3,6,z\n'), key="a", value="b")
    assert len(database) == 2
    assert database.attend(1).notes == (
        "table.csv, line 2: a cell in quotes goes on for 2 lines and holds what looks like rows; if its quote is a "
        "slip, take it out",
    )


@pytest.mark.parametrize(
    "text",
    [
        'a,b\n"Doe, John","New\nYork"\n',
        'a,b\n5" pipe,6"\n7,8" and 9"\n',
        'a,b\n"he said ""no""",x\n"""",""\n',
        'a,b\n"x" ,y\n',
        '"a","b"\r\n"1","2"\r\n',
        '\ufeff"a","b"\n"1","2"\n',
        "a,b\n1,2",
        'a,b\n1,"2"',
    ],
)
def test_quotes_that_are_closed_are_no_mistake(tmp_path: Path, text: str) -> None:
    path = table(tmp_path, text)
    assert not [note for note in Database.from_table(path, key="a", value="b").notes if "quote" in note]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_where_the_bytes_are_cut_makes_no_difference(size: int) -> None:
    good = b'a,b\n"x\ny",5"\n"""",1\n""",""\n,z",\n' * 3
    chunks = [good[start : start + size] for start in range(0, len(good), size)]
    assert check_quotes(chunks, ",", 5, "t.csv") == []
    bad = good + b'1,"2\n3,4\n'
    chunks = [bad[start : start + size] for start in range(0, len(bad), size)]
    with pytest.raises(TableError, match=f"t.csv, line {bad[: bad.index(b'1,' + bytes([34]) + b'2')].count(10) + 1}: "):
        check_quotes(chunks, ",", 5, "t.csv")
