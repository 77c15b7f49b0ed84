"""Claims about CSV files."""

from __future__ import annotations

from pathlib import Path

import pytest

from regard import Database
from regard.errors import TableError

pytest.importorskip("pyarrow")


def written(folder: Path, content: str | bytes, name: str = "table.csv") -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_the_delimiter_is_the_one_in_the_first_line(delimiter: str, tmp_path: Path) -> None:
    path = written(tmp_path, f"a{delimiter}b\n1{delimiter}2\n")
    assert Database.from_table(path, key="a", value="b")[1] == 2


def test_one_column_needs_no_delimiter(tmp_path: Path) -> None:
    assert Database.from_table(written(tmp_path, "a\n1\n2\n"), key="a", value="a")[2] == 2


def test_a_number_with_a_point_may_come_late(tmp_path: Path) -> None:
    rows = "".join(f"{row},{row}\n" for row in range(150_000))
    database = Database.from_table(written(tmp_path, f"a,b\n{rows}0.5,1\n"), key="a", value="b")
    assert len(database) == 150_001
    assert database[0.5] == 1


def test_words_may_come_late(tmp_path: Path) -> None:
    rows = "".join(f"{row},{row}\n" for row in range(150_000))
    database = Database.from_table(written(tmp_path, f"a,b\n{rows}none at all,1\n"), key="a", value="b")
    assert database["none at all"] == 1
    assert database["7"] == 7


def test_quotes_newlines_and_a_byte_order_mark_are_understood(tmp_path: Path) -> None:
    path = written(tmp_path, '\ufeffname,city\n"Doe, John","New\nYork"\n')
    assert Database.from_table(path, key="name", value="city")["Doe, John"] == "New\nYork"


def test_a_header_alone_is_an_empty_database(tmp_path: Path) -> None:
    database = Database.from_table(written(tmp_path, "a,b\n"), key="a", value="b")
    assert len(database) == 0
    assert database.attend("x").message == "No similar rows: the database is empty."


def test_an_empty_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TableError, match=r"table.csv must be a .csv table: it could not be read \(Empty CSV file\)"):
        Database.from_table(written(tmp_path, ""), key="a", value="b")


def test_another_encoding_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, "name,city\nJosé,Köln\n".encode("latin-1"))
    with pytest.raises(TableError, match="table.csv must be UTF-8: the column 'name' is not. Save it again"):
        Database.from_table(path, key="name", value="city")
