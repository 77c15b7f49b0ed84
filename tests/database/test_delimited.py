"""Claims about CSV files."""

from __future__ import annotations

import gzip
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


@pytest.mark.parametrize("delimiter", [";", "\t", "|"])
def test_a_delimiter_within_quotes_does_not_count(delimiter: str, tmp_path: Path) -> None:
    path = written(tmp_path, f'"name, full, long"{delimiter}"gpa"\n"Doe, John"{delimiter}3\n')
    assert Database.from_table(path, key="name, full, long", value="gpa")["Doe, John"] == 3


def test_the_records_below_a_header_say_which_delimiter_it_has(tmp_path: Path) -> None:
    path = written(tmp_path, "name;gpa, last, of all\nAnn;3\nBob;4\n")
    assert Database.from_table(path, key="name", value="gpa, last, of all")["Bob"] == 4


def test_words_for_nothing_are_text_among_codes_of_two_letters(tmp_path: Path) -> None:
    path = written(tmp_path, "code,name\nNA,Namibia\nUS,America\nNaN,Null Island\n,nowhere\nXX,\n")
    database = Database.from_table(path, key="code", value="name")
    assert (database["NA"], database["US"], database["NaN"]) == ("Namibia", "America", "Null Island")
    answer = database.attend("NA")
    assert answer.n_left_out == 2
    assert answer.notes == (
        "code: NA or the like is taken as text, as in Namibia's code; leave cells empty to mean missing",
    )


def test_words_for_nothing_are_text_where_nothing_else_is_written(tmp_path: Path) -> None:
    path = written(tmp_path, "code,name,empty\nNA,Namibia,\n,nowhere,\n")
    assert Database.from_table(path, key="code", value="name")["NA"] == "Namibia"
    assert Database.from_table(path, key="name", value="empty").attend("Namibia").n_left_out == 2


def test_words_for_nothing_are_missing_among_numbers_and_dates(tmp_path: Path) -> None:
    path = written(tmp_path, "a,b\n1,2020-01-01\nNA,2020-01-02\nnull,2020-01-03\n4,NaN\n5,2020-01-05\n")
    answer = Database.from_table(path, key="a", value="b").attend(1)
    assert (answer.n_rows, answer.n_left_out) == (2, 3)


def test_two_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    path = written(tmp_path, "a,b,a\n1,2,3\n")
    with pytest.raises(TableError, match=r"must be one column: table.csv has 2 called 'a'\. Rename them\."):
        Database.from_table(path, key="a", value="b")
    assert Database.from_table(path, key="b", value="b")[2] == 2


@pytest.mark.parametrize("delimiter", [";", "\t"])
def test_decimal_commas_are_numbers_where_another_delimiter_stands(delimiter: str, tmp_path: Path) -> None:
    rows = [("gpa", "salary"), ("3,5", "70000"), ("4", "81000,25"), ("-0,125", "1")]
    path = written(tmp_path, "".join(f"{a}{delimiter}{b}\n" for a, b in rows))
    database = Database.from_table(path, key="gpa", value="salary")
    assert list(database) == [(3.5, 70_000), (4.0, 81_000.25), (-0.125, 1)]


def test_thousands_are_not_taken_for_decimals(tmp_path: Path) -> None:
    path = written(tmp_path, "name;salary\nAnn;70,000\nBob;81,500\n")
    assert Database.from_table(path, key="name", value="salary")["Ann"] == "70,000"


def test_points_are_groups_of_digits_where_the_file_has_decimal_commas_whatever_is_asked_for(tmp_path: Path) -> None:
    path = written(
        tmp_path, "Ort;Umsatz;Preis;Version\nUlm;950;3,5;1.25\nBonn;1.200;4;1.200\nKiel;-12.800;1.000,25;2\n"
    )
    for key in ("Ort", "Preis"):
        database = Database.from_table(path, key=key, value="Umsatz")
        assert [value for _, value in database] == [950, 1200, -12_800]
        assert "Umsatz: read as numbers, '1.200' as 1200" in database.notes
    assert Database.from_table(path, key="Umsatz", value="Ort").parse("1.200") == 1200
    versions = Database.from_table(path, key="Version", value="Ort")
    assert versions["1.200"] == "Bonn"
    assert versions.notes == (
        "Version is text, not numbers: '1.25' has a decimal point, where other columns have commas",
    )


def test_one_cell_below_the_first_hundred_records_says_that_a_file_has_decimal_commas(tmp_path: Path) -> None:
    rows = "".join(f"{row}\t1.200\t7\n" for row in range(500))
    path = written(tmp_path, f"row\tsum\tprice\n{rows}500\t1.300\t7,25 €\n")
    assert Database.from_table(path, key="row", value="sum")[0] == 1200
    path = written(tmp_path, f"row\tsum\tprice\n{rows}500\t1.300\t7,250\n")
    assert Database.from_table(path, key="row", value="sum")[0] == 1.2


def test_a_column_whose_decimal_commas_come_late_is_read_by_its_own_cells(tmp_path: Path) -> None:
    rows = "".join(f"{row};{row}\n" for row in range(20_000))
    database = Database.from_table(written(tmp_path, f"a;b\n{rows}20000;0,5\n"), key="a", value="b")
    assert database[20_000] == 0.5


def test_the_last_line_counts_without_an_end_too(tmp_path: Path) -> None:
    path = written(tmp_path, "sum;price\n1.200;3,5")
    assert Database.from_table(path, key="sum", value="price")[1200] == 3.5


def test_a_text_among_prices_does_not_hide_their_commas(tmp_path: Path) -> None:
    path = written(tmp_path, "sum;price\n1.200;7,25\n1.300;7,50\n1.400;free\n")
    assert [key for key, _ in Database.from_table(path, key="sum", value="sum")] == [1200, 1300, 1400]


@pytest.mark.parametrize("blank", ["\n", "\r\n\n"])
def test_a_blank_first_line_is_no_header(blank: str, tmp_path: Path) -> None:
    path = written(tmp_path, f"{blank}gpa;salary\n3,5;1.200\n\n4;2.000\n")
    assert Database.from_table(path, key="gpa", value="salary")[3.5] == 1200


def test_spaces_around_text_are_no_part_of_it(tmp_path: Path) -> None:
    path = written(tmp_path, 'city,n\nParis ,1\n Paris,2\n"Paris ",3\n NA,4\n ,5\nNew York,6\n')
    database = Database.from_table(path, key="city", value="n")
    assert [key for key, _ in database] == ["Paris", "Paris", "Paris", None, None, "New York"]
    assert database.attend("Paris").value == 2
    assert database.notes == (
        "city: spaces around cells are left out",
        'city: 1 cell says NA or the like, taken as missing; in quotes, "NA", it is text',
    )
    path = written(tmp_path, "city,n\nParis ,1\n Rome,2\n")
    assert Database.from_table(path, key="city", value="n").notes == ()
    path = written(tmp_path, "code,n\n US,1\nNA,2\n NA ,3\n")
    assert [key for key, _ in Database.from_table(path, key="code", value="n")] == ["US", "NA", "NA"]


@pytest.mark.parametrize("name", ["table.csv", "table.csv.gz"])
def test_a_long_record_is_read_with_no_more_memory_than_the_file_takes(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pyarrow.csv

    rows = "".join(f"{row},{row}\n" for row in range(150_000))
    content = f"a,b\n{rows}{'long' * 500_000},1\n".encode()
    path = written(tmp_path, gzip.compress(content) if name.endswith("gz") else content, name)
    asked = []
    options = pyarrow.csv.ReadOptions

    def noted(block_size: int) -> object:
        asked.append(block_size)
        return options(block_size=block_size)

    monkeypatch.setattr(pyarrow.csv, "ReadOptions", noted)
    assert Database.from_table(path, key="a", value="b")["long" * 500_000] == 1
    assert asked == [len(content)]


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


@pytest.mark.parametrize("content", ["", "\n\n", "\ufeff"])
def test_an_empty_file_is_refused(content: str, tmp_path: Path) -> None:
    wanted = (
        r"table.csv must be a .csv table: it could not be read \(.*Empty CSV file.*\)\. Name the columns in its first"
    )
    with pytest.raises(TableError, match=wanted):
        Database.from_table(written(tmp_path, content), key="a", value="b")


@pytest.mark.parametrize(
    ("content", "what"), [("name,city\nJosé,Köln\n", "the column 'name'"), ("né,city\n", "its header")]
)
def test_another_encoding_is_refused(content: str, what: str, tmp_path: Path) -> None:
    path = written(tmp_path, content.encode("latin-1"))
    with pytest.raises(TableError, match=rf"table.csv must be UTF-8: {what} is not. Save it again .* iconv -f cp1252"):
        Database.from_table(path, key="name", value="city")


@pytest.mark.parametrize("header", [" a , b ", '" a ",b', "a,b ", " a, b"])
def test_spaces_around_a_name_are_no_part_of_it(header: str, tmp_path: Path) -> None:
    path = written(tmp_path, f"{header}\n1,2\n3,NA\n")
    assert Database.from_table(path, key="a", value="b")[1] == 2


def test_spaces_around_a_name_may_be_asked_for(tmp_path: Path) -> None:
    path = written(tmp_path, " a,a,b, c , c\n1,2,3,4,5\n")
    assert Database.from_table(path, key=" a", value="b")[1] == 3
    assert Database.from_table(path, key="a", value="b")[2] == 3
    with pytest.raises(TableError, match="table.csv has 2 called 'c'"):
        Database.from_table(path, key="c", value="b")


def test_decimal_commas_are_found_below_a_name_with_spaces(tmp_path: Path) -> None:
    path = written(tmp_path, " gpa ; salary\n3,5;1\n")
    assert Database.from_table(path, key="gpa", value="salary")[3.5] == 1
