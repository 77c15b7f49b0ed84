"""Claims about what cells of text say: missing marks, numbers, dates, times, and what is said about them."""

from __future__ import annotations

from datetime import date, datetime, time
from pathlib import Path
from typing import Any

import pytest

from regard import Database
from regard.errors import OptionError

pytest.importorskip("pyarrow")


def read(folder: Path, cells: list[str], delimiter: str = ",") -> Database:
    """A database of a column, which is the value, with the number of the row as key."""
    path = folder / "table.csv"
    path.write_text(f"row{delimiter}x\n" + "".join(f"{row}{delimiter}{cell}\n" for row, cell in enumerate(cells)))
    return Database.from_table(path, key="row", value="x")


def values(database: Database) -> list[Any]:
    return [value for _, value in database]


@pytest.mark.parametrize("mark", ["NA", "N/A", "NaN", "null", "None", "-", "?", "", " ", "–", "."])
@pytest.mark.parametrize(
    ("cells", "read_as"),
    [
        (["1", "2"], [1, 2]),
        (["1.5", "2"], [1.5, 2.0]),
        (["2020-01-01", "2020-01-02"], [date(2020, 1, 1), date(2020, 1, 2)]),
        (["9:30", "13:00"], [time(9, 30), time(13)]),
        (["true", "false"], [True, False]),
        (["$5", "$6"], [5, 6]),
    ],
)
def test_a_mark_among_quantities_is_missing_and_said(
    tmp_path: Path, cells: list[str], read_as: list[Any], mark: str
) -> None:
    database = read(tmp_path, [*cells, mark])
    assert values(database) == [*read_as, None]
    said = [note for note in database.notes if "taken as missing" in note]
    assert len(said) == bool(mark.strip())
    assert all(note.startswith("x: 1 cell says ") for note in said)
    assert database.attend(0).n_left_out == 1
    assert database.attend(0).notes == database.notes


def test_what_marks_say_is_counted_and_named(tmp_path: Path) -> None:
    assert read(tmp_path, ["1", "NA", "-", "?", "-", ""]).notes == (
        "x: 4 cells say NA or the like or - or ?, taken as missing",
    )


def test_na_among_text_is_missing_and_said_once(tmp_path: Path) -> None:
    database = read(tmp_path, ["law", "NA", "art", "null", "None", "-", "?"])
    assert values(database) == ["law", None, "art", None, "None", "-", "?"]
    assert database.notes == ('x: 2 cells say NA or the like, taken as missing; in quotes, "NA", it is text',)
    assert repr(database.attend(0)).count("taken as missing") == 1
    assert repr(database.attend([0, 2])).count("taken as missing") == 1
    assert repr(database).count("taken as missing") == 1
    assert database.attend(0).as_dict()["notes"] == list(database.notes)


def test_na_in_quotes_is_text(tmp_path: Path) -> None:
    database = read(tmp_path, ['"law"', '"NA"', "NA"])
    assert values(database) == ["law", "NA", None]


def test_numbers_with_zeros_before_them_are_text_and_said(tmp_path: Path) -> None:
    database = read(tmp_path, ["01234", "90210", "00501"])
    assert values(database) == ["01234", "90210", "00501"]
    assert database.notes == ("x is text, not numbers: some begin with 0, such as '01234'",)
    assert values(read(tmp_path, ["0", "0.5", "-0.25"])) == [0.0, 0.5, -0.25]


def test_integers_with_more_digits_than_numbers_hold_are_text_and_said(tmp_path: Path) -> None:
    long = ["12345678901234567890", "12345678901234567891", "5"]
    database = read(tmp_path, long)
    assert values(database) == long
    assert database.notes == ("x is text, not numbers: some have too many digits, such as '12345678901234567890'",)
    assert database.swap().attend(long[1]).value == database.swap().lookup(long[1]) == 1
    assert values(read(tmp_path, [str(2**60 + 1), "1"])) == [2**60 + 1, 1]
    assert values(read(tmp_path, ["12345678901234567890", "1.5"])) == [12345678901234567890.0, 1.5]


@pytest.mark.parametrize(
    ("cells", "read_as", "note"),
    [
        (["$1,200", "$950", "-$3"], None, ""),
        (['"$1,200"', "$950", '"$1,000,000.50"'], [1200.0, 950.0, 1_000_000.5], "read as numbers, '$1,200' as 1200"),
        (["-$3", "$4"], [-3, 4], "read as numbers, '-$3' as -3"),
        (["10%", "12.5 %"], [10.0, 12.5], "read as numbers, '10%' as 10"),
        (['"1,200"', "950"], [1200, 950], "read as numbers, '1,200' as 1200"),
        (['"1.200,50 €"', "3 €"], [1200.5, 3.0], "read as numbers, '1.200,50 €' as 1200.5"),
        (["$5", "€5"], ["$5", "€5"], "a mix, such as '$5' and '€5'"),
        (["$5", "5"], ["$5", "5"], "a mix, such as '$5' and '5'"),
        (['"$1,200.00"', "($300.00)"], [1200.0, -300.0], "read as numbers, '($300.00)' as -300"),
        (["5", "(500)", "7"], [5, -500, 7], "read as numbers, '(500)' as -500"),
        (["(5)", "(6)"], ["(5)", "(6)"], "cells such as '(5)' are not understood"),
        (["(6)", "05"], ["(6)", "05"], "some begin with 0, such as '05'"),
        (['"1,200"', "05"], ["1,200", "05"], "some begin with 0, such as '05'"),
        (["7", "(5", "6"], ["7", "(5", "6"], "1 of 3 cells are none, such as '(5'"),
        (['"0,125"', '"1,200"'], ["0,125", "1,200"], "'0,125'"),
        (['"1,234,567"', "5"], [1_234_567, 5], "read as numbers, '1,234,567' as 1234567"),
        (['"1,20"', '"1,2,3"'], ["1,20", "1,2,3"], "1 of 2 cells are none, such as '1,2,3'"),
        (["€1.200", "€3.000"], ["€1.200", "€3.000"], "can be read in two ways"),
    ],
)
def test_written_numbers_are_numbers_where_the_column_agrees(
    tmp_path: Path, cells: list[str], read_as: list[Any] | None, note: str | None
) -> None:
    if read_as is None:
        with pytest.raises(ValueError, match="Row #2: Expected 2 columns, got 3"):
            read(tmp_path, cells)
        return
    database = read(tmp_path, cells)
    assert values(database) == read_as
    assert [note in said for said in database.notes] == [True] if note else not database.notes


def test_groups_of_digits_stay_text_where_they_may_be_decimals(tmp_path: Path) -> None:
    database = read(tmp_path, ["950", "70,000", "81,500"], delimiter=";")
    assert values(database) == ["950", "70,000", "81,500"]
    assert "'70,000' can be read in two ways" in database.notes[0]
    assert values(read(tmp_path, ["$70,000", "$81,500"], delimiter=";")) == [70_000, 81_500]


@pytest.mark.parametrize(
    ("cells", "read_as", "notes"),
    [
        (["950", "1.200", "12.800"], [950, 1200, 12_800], ["x: read as numbers, '1.200' as 1200"]),
        (["1.200.000", "1.200"], [1_200_000, 1200], ["x: read as numbers, '1.200.000' as 1200000"]),
        (["1.200,50", "3"], [1200.5, 3.0], ["x: read as numbers, '1.200,50' as 1200.5"]),
        (["1,200", "3"], [1.2, 3.0], ["x: read as numbers, '1,200' as 1.2"]),
        (["$1.200", "$3"], [1200, 3], ["x: read as numbers, '$1.200' as 1200"]),
        (["$3.50", "$3"], [3.5, 3.0], ["x: read as numbers, '$3.50' as 3.5"]),
        (["1,200.50", "3"], [1200.5, 3.0], ["x: read as numbers, '1,200.50' as 1200.5"]),
        (["0,125", "3"], [0.125, 3.0], []),
        (["1.200", "0.125"], None, ["'0.125' has a decimal point, where other columns have commas"]),
        (["1.200", "1.25"], None, ["'1.25' has a decimal point, where other columns have commas"]),
        (["1.200", "3,5", "1.25"], None, ["a mix, such as '3,5' and '1.25'"]),
        (["04.07.2023", "31.07.2023"], [date(2023, 7, 4), date(2023, 7, 31)], ["x: read as dates"]),
    ],
)
def test_points_beside_decimal_commas_are_groups_of_digits(
    tmp_path: Path, cells: list[str], read_as: list[Any] | None, notes: list[str]
) -> None:
    path = tmp_path / "table.csv"
    path.write_text("price;x\n" + "".join(f"{place},5;{cell}\n" for place, cell in enumerate(cells)))
    database = Database.from_table(path, key="price", value="x")
    assert values(database) == (read_as or cells)
    assert len(database.notes) == len(notes)
    assert all(note in said for note, said in zip(notes, database.notes, strict=True))


def test_millions_with_points_are_numbers_without_other_evidence(tmp_path: Path) -> None:
    assert values(read(tmp_path, ["1.200.000", "1.200", "7"], ";")) == [1_200_000, 1200, 7]
    assert values(read(tmp_path, ["1.200", "1.300"], ";")) == [1.2, 1.3]


@pytest.mark.parametrize("third", ["1.5", "1e3"])
def test_numbers_that_are_one_float_are_counted(tmp_path: Path, third: str) -> None:
    large = ["9007199254740992", "9007199254740993", "9007199254740992.0", third]
    said = "x: beyond 2⁵³ 1 number is taken for another nearby"
    assert read(tmp_path, large).notes == (said,)
    assert said in read(tmp_path, [*large, "-"]).notes
    assert said in read(tmp_path, ["$9007199254740992", "$9007199254740993", "$1.5"]).notes
    assert read(tmp_path, ["9007199254740992", "9007199254740994", third]).notes == ()


@pytest.mark.parametrize(
    ("cells", "first"),
    [
        (["7/4/2023", "12/25/2023"], date(2023, 7, 4)),
        (["7/4/2023", "25/12/2023"], date(2023, 4, 7)),
        (["04.07.2023", "05.07.2023"], date(2023, 7, 4)),
        (["4-7-2023", "25-7-2023"], date(2023, 7, 4)),
        (["2023/07/04", "2023/12/25"], date(2023, 7, 4)),
        (["7/14/2023 9:05", "7/15/2023 13:00:30"], datetime(2023, 7, 14, 9, 5)),
    ],
)
def test_written_dates_are_dates_in_the_order_that_the_column_shows(
    tmp_path: Path, cells: list[str], first: date
) -> None:
    database = read(tmp_path, [*cells, "NA"])
    assert values(database)[0] == first
    assert f"x: read as dates, '{cells[0]}' as {first}" in database.notes


@pytest.mark.parametrize("cells", [["7/4/2023", "8/5/2023"], ["7-4-2023", "12-12-2023"]])
def test_dates_of_no_certain_order_stay_text_and_it_is_said(tmp_path: Path, cells: list[str]) -> None:
    database = read(tmp_path, cells)
    assert values(database) == cells
    assert f"nothing in it says whether '{cells[0]}' begins with the day or the month" in database.notes[0]
    assert "Write dates as 2023-12-31" in database.notes[0]


@pytest.mark.parametrize("cells", [["13/13/2023", "1/2/2023"], ["31/2/2023", "1/1/2023"], ["1/25/2023", "25/1/2023"]])
def test_dates_that_are_none_stay_text(tmp_path: Path, cells: list[str]) -> None:
    assert values(read(tmp_path, cells)) == cells


@pytest.mark.parametrize(
    ("cells", "note"),
    [
        (["2024-01-01", "2024-02-30", "2024-03-01"], "'2024-02-30' is none"),
        (["2024-01-01 9:00", "2024-01-01 9:00", "", "2024-03-01 29:00"], "'2024-03-01 29:00' is none"),
        (["1/1/2023", "13/1/2023", "31/2/2023"], "'31/2/2023' is none"),
        (["1/1/2023", "14/1/2023", "13/13/2023"], "'13/13/2023' is none"),
        (["1/1/2024", "13/04/2024", "05/16/2024"], "'13/04/2024' begins with the day, '05/16/2024' with the month"),
    ],
)
def test_the_date_to_blame_is_named(tmp_path: Path, cells: list[str], note: str) -> None:
    assert read(tmp_path, cells).notes == (f"x is text, not dates: {note}",)


@pytest.mark.parametrize(
    ("cells", "times"),
    [
        (["9:30", "23:59"], [time(9, 30), time(23, 59)]),
        (["09:30:15", "23:59:00.5"], [time(9, 30, 15), time(23, 59, 0, 500_000)]),
        (["12:00 AM", "1:30 pm", "12:15PM"], [time(0), time(13, 30), time(12, 15)]),
    ],
)
def test_clock_times_are_quantities(tmp_path: Path, cells: list[str], times: list[time]) -> None:
    database = read(tmp_path, cells)
    assert values(database) == times
    assert "x (clock)" in repr(database)
    asked = database.swap()
    assert asked.attend(times[0]).rows[0].value == 0
    assert asked[times[1]] == 1
    assert asked.attend(asked.parse(times[1].isoformat())).rows[0].value == 1


@pytest.mark.parametrize("cells", [["25:00", "1:00"], ["9:30", "1:30 pm"], ["13:30 pm", "1:00 am"]])
def test_what_no_clock_shows_stays_text(tmp_path: Path, cells: list[str]) -> None:
    assert values(read(tmp_path, cells)) == cells


def test_the_mean_of_clock_times_is_one(tmp_path: Path) -> None:
    answer = read(tmp_path, ["9:00", "10:00"]).average()
    assert answer.value == time(9, 30)
    assert repr(answer).startswith("every row → 09:30:00 ± 0.5 hours")
    assert answer.as_dict()["value"] == "09:30:00"


def test_a_column_that_is_mostly_numbers_says_why_it_is_text(tmp_path: Path) -> None:
    database = read(tmp_path, ["1", "2", "3", "four"])
    assert values(database) == ["1", "2", "3", "four"]
    assert database.notes == ("x is text, not numbers: 1 of 4 cells are none, such as 'four'",)
    assert read(tmp_path, ["one", "two", "3"]).notes == ()


@pytest.mark.parametrize(
    ("cells", "note"),
    [
        (["$1,200.00", "$900.50", "300.00-"], "numbers: 1 of 3 cells are none, such as '300.00-'"),
        (["10%", "0.2", "0.3"], "numbers: a mix, such as '10%' and '0.2'"),
        (["$5", "€6", "$7"], "numbers: a mix, such as '$5' and '€6'"),
        (["1.200,50", "3.5", "1.300,25"], "numbers: a mix, such as '1.200,50' and '3.5'"),
        (["$5", "free", "$7"], "numbers: 1 of 3 cells are none, such as 'free'"),
        (["Jan 5, 2023", "Feb 6, 2023"], "dates: cells such as 'Jan 5, 2023' and 'Feb 6, 2023' are not understood"),
        (["5-Jan-23", "6-Jan-23"], "dates: cells such as '5-Jan-23' are not understood"),
        (
            ["2023-01-05T10:00Z", "2023-01-05T10:00:00Z", "2023-02-30T10:00Z"],
            "dates: cells such as '2023-01-05T10:00Z' and '2023-02-30T10:00Z' are not understood",
        ),
        (["2023-01-05", "unknown", "2023-01-06"], "dates: 1 of 3 cells are none, such as 'unknown'"),
    ],
)
def test_a_column_that_looks_like_numbers_or_dates_says_why_it_is_text(
    tmp_path: Path, cells: list[str], note: str
) -> None:
    database = read(tmp_path, cells, ";")
    assert values(database) == cells
    assert database.notes == (f"x is text, not {note}",)


@pytest.mark.parametrize(
    "cells", [["10.0.0.1", "10.0.0.2"], ["1.2.10", "1.3.11"], ["KLM 12", "KLM 13"], ["5-10", "7-9"]]
)
def test_names_with_digits_are_text_without_a_note(tmp_path: Path, cells: list[str]) -> None:
    assert read(tmp_path, cells).notes == ()


def test_a_column_of_which_nothing_is_to_be_said_has_no_notes(tmp_path: Path) -> None:
    for cells in (["1", "2", ""], ["a", "b", ""], ["2020-01-01", ""], ["true", ""]):
        assert read(tmp_path, cells).notes == ()


@pytest.mark.parametrize(
    ("text", "number"), [("$1,200", 1200), ("10%", 10), ("1,200", 1200), ("-3.5", -3.5), ("NA", None)]
)
def test_a_query_may_be_written_as_cells_are(text: str, number: float | None) -> None:
    assert Database([1.0, 2.0], [1, 2]).parse(text) == number


@pytest.mark.parametrize(
    ("cells", "delimiter", "text", "read_as"),
    [
        (["04.07.2023", "31.07.2023"], ",", "05.07.2023", date(2023, 7, 5)),
        (["4/7/2023", "31/7/2023"], ",", "5/7/2023", date(2023, 7, 5)),
        (["7/4/2023", "7/31/2023"], ",", "7/5/2023", date(2023, 7, 5)),
        (["7/4/2023 9:30", "7/31/2023 10:00"], ",", "7/5/2023 9:05", datetime(2023, 7, 5, 9, 5)),
        (["2023/7/4", "2023/7/31"], ",", "2023/7/5", date(2023, 7, 5)),
        (["04.07.2023", "31.07.2023"], ",", "2023-07-05", date(2023, 7, 5)),
        (["1:30 pm", "9:05 am"], ",", "12:15 PM", time(12, 15)),
        (["1:30 pm", "9:05 am"], ",", "12:15am", time(0, 15)),
        (["9:05:30", "13:00:00"], ",", "9:05:31", time(9, 5, 31)),
        (["1,5", "2,5"], ";", "3,25", 3.25),
        (["1,5", "2,5"], ";", "1,200", 1.2),
        (["1,5", "2,5"], ";", "1.200", 1.2),
        (["1.200,50 €", "700,00 €"], ";", "1.300", 1300),
        (["1.200,50 €", "700,00 €"], ";", "-1.300,25 €", -1300.25),
        (["$1,200.50", "$700.00"], ";", "$1,300.25", 1300.25),
    ],
)
def test_a_query_is_read_as_the_column_is_written(
    tmp_path: Path, cells: list[str], delimiter: str, text: str, read_as: Any
) -> None:
    assert read(tmp_path, cells, delimiter).swap().parse(text) == read_as


@pytest.mark.parametrize(
    ("cells", "text"),
    [
        (["2023-07-04", "2023-07-31"], "04.07.2023"),
        (["2023/07/04", "2023/07/31"], "04/07/2023"),
        (["4/7/2023", "31/7/2023"], "7/31/2023"),
        (["1:30 pm", "9:05 am"], "13:30 pm"),
        (["1:30 pm", "9:05 am"], "1:30|"),
    ],
)
def test_a_query_that_the_column_does_not_say_how_to_read_is_refused(
    tmp_path: Path, cells: list[str], text: str
) -> None:
    with pytest.raises(OptionError, match="`x` must be a "):
        read(tmp_path, cells).swap().parse(text)


def test_spaces_around_a_query_are_no_part_of_it_unless_they_are_in_the_table(tmp_path: Path) -> None:
    assert read(tmp_path, ["Paris", "Lyon"]).swap().parse("Paris ") == "Paris"


def test_a_group_of_digits_in_a_query_begins_with_no_zero(tmp_path: Path) -> None:
    assert read(tmp_path, ["1.200,50 €", "3.000,00 €"], ";").swap().parse("0.125") == 0.125
