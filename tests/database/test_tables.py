"""Claims about reading tables: paths, frames, Arrow, dicts of columns."""

from __future__ import annotations

import builtins
import datetime
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from regard import Database, Gaussian
from regard.errors import MissingDependency, ShapeError, TableError

arrow = pytest.importorskip("pyarrow")
for part in ("csv", "feather", "parquet"):
    pytest.importorskip(f"pyarrow.{part}")
pandas = pytest.importorskip("pandas")
polars = pytest.importorskip("polars")

COLUMNS: dict[str, list[Any]] = {
    "name": ["John Doe", "Jane Roe", "Ann Poe", None],
    "gpa": [3.5, 3.4, None, 3.9],
    "age": [21, 22, 23, 24],
    "major": ["psychology", "physics", "physics", "law"],
    "honours": [True, False, None, True],
    "joined": [datetime.date(2020, 1, 1), datetime.date(2020, 2, 1), datetime.date(2021, 2, 1), None],
    "salary": [70_000, 69_000, 72_500, 79_000],
}


def csv(folder: Path) -> Any:
    path = folder / "grades.csv"
    arrow.csv.write_csv(arrow.table(COLUMNS), path)
    return path


def tsv(folder: Path) -> Any:
    path = folder / "grades.tsv"
    arrow.csv.write_csv(arrow.table(COLUMNS), path, arrow.csv.WriteOptions(delimiter="\t"))
    return str(path)


def zipped_csv(folder: Path) -> Any:
    path = folder / "grades.csv.gz"
    with arrow.CompressedOutputStream(str(path), "gzip") as stream:
        arrow.csv.write_csv(arrow.table(COLUMNS), stream)
    return path


def parquet(folder: Path) -> Any:
    path = folder / "grades.parquet"
    arrow.parquet.write_table(arrow.table(COLUMNS), path)
    return path


def feather(folder: Path) -> Any:
    path = folder / "grades.feather"
    arrow.feather.write_feather(arrow.table(COLUMNS), path)
    return path


def chunked(folder: Path) -> Any:
    table = arrow.table(COLUMNS)
    return arrow.concat_tables([table.slice(0, 1), table.slice(1, 0), table.slice(1)])


SOURCES: dict[str, Callable[[Path], Any]] = {
    "csv": csv,
    "tsv": tsv,
    "csv.gz": zipped_csv,
    "parquet": parquet,
    "feather": feather,
    "arrow table": lambda folder: arrow.table(COLUMNS),
    "arrow table in chunks": chunked,
    "arrow batch": lambda folder: arrow.RecordBatch.from_pydict(COLUMNS),
    "pandas": lambda folder: pandas.DataFrame(COLUMNS),
    "pandas with arrow types": lambda folder: pandas.DataFrame(COLUMNS).convert_dtypes(dtype_backend="pyarrow"),
    "polars": lambda folder: polars.DataFrame(COLUMNS),
    "polars, lazy": lambda folder: polars.LazyFrame(COLUMNS),
    "dict": lambda folder: COLUMNS,
}


@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES)
def test_the_same_table_gives_the_same_answers_from_anywhere(source: Callable[[Path], Any], tmp_path: Path) -> None:
    table = source(tmp_path)
    database = Database.from_table(table, key=["gpa", "major"], value=["salary", "honours"])
    assert len(database) == 4
    assert database.key_names == ["gpa", "major"]
    assert database[3.4, "physics"] == {"salary": 69_000, "honours": False}
    answer = database.attend((3.5, "psychology"))
    assert (answer.n_rows, answer.n_left_out) == (3, 1)
    assert answer.rows[0].value == {"salary": 70_000, "honours": True}
    joined = Database.from_table(table, key="name", value="joined")
    assert joined["Jane Roe"] == datetime.date(2020, 2, 1)
    assert joined.attend("Jane Roe").value == datetime.date(2020, 2, 1)
    assert None not in joined


def test_a_pandas_frame_keeps_its_own_index() -> None:
    frame = pandas.DataFrame({"gpa": [3.4, 3.5], "salary": [1, 2]}, index=pandas.Index(["s1", "s2"], name="student"))
    answer = Database.from_table(frame, key="gpa", value="salary").attend(3.5)
    assert answer.rows[0].index == "s2"
    assert "student  gpa  salary  weight" in repr(answer)


def test_the_index_of_a_pandas_frame_can_be_the_key() -> None:
    frame = pandas.DataFrame({"salary": [1, 2]}, index=pandas.Index(["s1", "s2"], name="student"))
    assert Database.from_table(frame, key="student", value="salary")["s2"] == 2


def test_levels_of_a_pandas_index_can_be_keys() -> None:
    index = pandas.MultiIndex.from_tuples([("Rome", 1), ("Oslo", 2)], names=["city", "year"])
    database = Database.from_table(pandas.DataFrame({"x": [1.0, 2.0]}, index=index), key=["year", "city"], value="x")
    assert database[2, "Oslo"] == 2.0
    assert database.attend((2, "Oslo")).rows[0].index == ("Oslo", 2)


def test_a_frame_may_hold_objects_that_arrow_has_no_type_for() -> None:
    frame = pandas.DataFrame({"key": [1.0, 2.0], "value": [object(), object()]})
    assert Database.from_table(frame, key="key", value="value").attend(2.0).value is frame["value"][1]
    mixed = pandas.DataFrame({"key": ["a", 1], "value": [1.0, 2.0]})
    assert Database.from_table(mixed, key="key", value="value")[1] == 2.0


def test_any_table_that_speaks_arrow_will_do() -> None:
    class Speaker:
        def __arrow_c_stream__(self, requested_schema: object = None) -> object:
            return arrow.table(COLUMNS).__arrow_c_stream__(requested_schema)

    assert Database.from_table(Speaker(), key="name", value="major")["John Doe"] == "psychology"


def test_a_column_can_name_the_rows() -> None:
    answer = Database.from_table(COLUMNS, key="gpa", value="salary", index="name").attend(3.5)
    assert answer.rows[0].index == "John Doe"
    assert repr(answer).splitlines()[1].startswith("name ")


def test_a_value_may_also_be_a_key() -> None:
    assert Database.from_table(COLUMNS, key="gpa", value=["gpa", "salary"])[3.5] == {"gpa": 3.5, "salary": 70_000}


def test_empty_text_in_a_file_is_missing(tmp_path: Path) -> None:
    path = tmp_path / "words.csv"
    path.write_text('word,count\na,1\n"",2\nc,3\n')
    answer = Database.from_table(path, key="word", value="count").attend("c")
    assert (answer.value, answer.n_left_out) == (3.0, 1)


def test_a_misspelt_column_is_told_the_nearest_and_all() -> None:
    with pytest.raises(TableError) as error:
        Database.from_table(COLUMNS, key="GPAs", value="salary")
    assert str(error.value) == (
        "A key or a value must be a column of the table: got 'GPAs'. Did you mean 'gpa'? "
        "The columns are: name, gpa, age, major, honours, joined, salary."
    )


@pytest.mark.parametrize("source", ["csv", "parquet", "feather", "pandas", "polars", "polars, lazy", "arrow table"])
def test_every_source_checks_its_columns(source: str, tmp_path: Path) -> None:
    with pytest.raises(TableError, match="got 'salry'. Did you mean 'salary'?"):
        Database.from_table(SOURCES[source](tmp_path), key="gpa", value="salry")


def test_many_columns_are_not_all_listed() -> None:
    with pytest.raises(TableError, match=r"c19, … \(30 in all\)\."):
        Database.from_table({f"c{place}": [1] for place in range(30)}, key="x", value="c1")


def test_a_file_that_is_not_there_is_told_the_nearest(tmp_path: Path) -> None:
    csv(tmp_path)
    with pytest.raises(TableError, match=r"must be a file that exists: got '.*grade.csv'. Did you mean 'grades.csv'?"):
        Database.from_table(tmp_path / "grade.csv", key="gpa", value="salary")
    with pytest.raises(TableError, match="There is no folder '.*nowhere'"):
        Database.from_table(tmp_path / "nowhere" / "grades.csv", key="gpa", value="salary")
    with pytest.raises(TableError, match="Check the path"):
        Database.from_table(tmp_path / "zzzz.parquet", key="gpa", value="salary")


def test_a_file_of_another_kind_is_refused() -> None:
    with pytest.raises(TableError, match=r"must end in .csv, .tsv, .parquet, .feather or .arrow: got 'grades.xlsx'"):
        Database.from_table("grades.xlsx", key="gpa", value="salary")


@pytest.mark.parametrize("name", ["broken.csv", "broken.parquet", "broken.feather"])
def test_a_file_that_is_no_table_is_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text("a,b\n1,2,3\n4\n" if name.endswith("csv") else "not a table")
    with pytest.raises(TableError, match=rf"{name} must be a \.\w+ table: it could not be read \("):
        Database.from_table(tmp_path / name, key="a", value="b")


def test_what_is_no_table_is_refused() -> None:
    with pytest.raises(TableError, match=r"got int. For keys and values in memory, use Database\(keys, values\)."):
        Database.from_table(3, key="a", value="b")


def test_columns_of_different_lengths_are_refused() -> None:
    with pytest.raises(
        ShapeError, match="The columns of a table must have the same number of rows: got {'a': 1, 'b': 2}"
    ):
        Database.from_table({"a": [1], "b": [1, 2]}, key="a", value="b")


def test_a_column_is_named_once_and_at_least_one_is() -> None:
    with pytest.raises(TableError, match=r"`key` must name each column once: got \['gpa', 'gpa'\]. Leave out"):
        Database.from_table(COLUMNS, key=["gpa", "gpa"], value="salary")
    with pytest.raises(TableError, match="`value` must name at least one column: got none."):
        Database.from_table(COLUMNS, key="gpa", value=[])


def test_two_columns_of_one_name_are_refused() -> None:
    frame = pandas.DataFrame([[1, 2, 3]], columns=["a", "a", "b"])
    with pytest.raises(TableError, match="the frame has several called 'a'. Rename them."):
        Database.from_table(frame, key="a", value="b")


def test_without_pyarrow_a_file_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = csv(tmp_path)
    without(monkeypatch, "pyarrow")
    with pytest.raises(MissingDependency) as error:
        Database.from_table(path, key="gpa", value="salary")
    assert str(error.value) == (
        'Reading grades.csv needs pyarrow, which is not installed. Install it with pip install "regard[tables]", '
        "or pass keys and values in memory."
    )


def test_without_pyarrow_a_dict_of_columns_still_works(monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, "pyarrow")
    assert Database.from_table(COLUMNS, key="gpa", value="salary").attend(3.5).found


def without(monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    """As if a package were not installed."""
    import importlib
    import sys

    def refuse(name: str, *arguments: Any, **options: Any) -> Any:
        if name.partition(".")[0] == package:
            raise ImportError(name)
        return original(name, *arguments, **options)

    original = importlib.import_module
    for name in [each for each in sys.modules if each.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(importlib, "import_module", refuse)
    monkeypatch.setattr(builtins, "__import__", _refusing_import(builtins.__import__, package))


def _refusing_import(original: Any, package: str) -> Any:
    def refuse(name: str, *arguments: Any, **options: Any) -> Any:
        if name.partition(".")[0] == package:
            raise ImportError(name)
        return original(name, *arguments, **options)

    return refuse


def test_an_unnamed_level_of_a_pandas_index_does_not_shift_the_others() -> None:
    index = pandas.MultiIndex.from_tuples([("Rome", 1), ("Oslo", 2)], names=[None, "year"])
    assert Database.from_table(pandas.DataFrame({"x": [1.0, 2.0]}, index=index), key="year", value="x")[2] == 2.0


def test_columns_may_be_called_by_numbers() -> None:
    for table in ({0: [1, 2], 1: [3, 4], 2: ["a", "b"]}, pandas.DataFrame({0: [1, 2], 1: [3, 4], 2: ["a", "b"]})):
        assert Database.from_table(table, key="0", value="1")[2] == 4
        assert Database.from_table(table, key=0, value=[1], index=2).attend(1).rows[0].index == "a"


def test_a_polars_column_may_be_called_like_a_pattern() -> None:
    frame = polars.DataFrame({"^a.*$": [1, 2], "ab": [3, 4]})
    for source in (frame, frame.lazy()):
        assert Database.from_table(source, key="^a.*$", value="ab")[2] == 4


@pytest.mark.parametrize(("frequency", "kind"), [("M", "date"), ("D", "date"), ("h", "moment")])
def test_periods_are_dates_or_moments(frequency: str, kind: str) -> None:
    frame = pandas.DataFrame({"when": pandas.period_range("2020-01-01", periods=5, freq=frequency), "x": range(5)})
    for database in (Database.from_table(frame, key="when", value="x"), Database(frame["when"], frame["x"])):
        assert f"({kind})" in repr(database)
        assert database.attend(frame["when"][2], score=Gaussian(1e-3)).value == 2.0
    missing = Database(pandas.Series([pandas.Period("2020-01"), pandas.NaT]), [1, 2])
    assert missing.attend(pandas.Period("2020-01")).n_left_out == 1


def test_series_are_not_paired_against_their_labels() -> None:
    keys = pandas.Series([1.0, 2.0], index=["a", "b"])
    with pytest.raises(ShapeError) as error:
        Database(keys, pandas.Series([3.0, 4.0], index=["b", "a"]))
    assert str(error.value) == (
        "`keys` and `values` that are pandas Series must have the same index, in the same order: got ['a', 'b']… and "
        "['b', 'a']…. Align them with .reindex(), or pass .to_numpy() to pair them by position."
    )
    with pytest.raises(ShapeError, match="the same index"):
        Database({"x": keys, "y": pandas.Series([3.0, 4.0])}, [1, 2])
    assert Database(keys, pandas.Series([3.0, 4.0], index=["a", "b"]))[2.0] == 4.0
    assert Database(keys, [3.0, 4.0])[2.0] == 4.0


def test_what_is_done_to_a_frame_later_is_not_done_to_the_database() -> None:
    numpy = pytest.importorskip("numpy")
    numbers = numpy.array([[1.0, 3.0], [2.0, 4.0]], order="F")
    frame = pandas.DataFrame(numbers, columns=["x", "y"], copy=False)
    database = Database.from_table(frame, key="x", value="y")
    numbers.fill(0.0)
    assert frame["x"].tolist() == [0.0, 0.0]
    assert list(database) == [(1.0, 3.0), (2.0, 4.0)]


@pytest.mark.parametrize("kind", ["csv", "parquet", "pandas", "polars"])
def test_ids_that_are_the_same_float_are_told_apart_wherever_they_come_from(tmp_path: Path, kind: str) -> None:
    start = 10**17 if kind == "csv" else 2**63 + 2**20
    table = arrow.table({"id": arrow.array(range(start, start + 5), arrow.uint64()), "v": [10, 20, 30, 40, 50]})
    path = tmp_path / f"ids.{kind}"
    if kind == "csv":
        arrow.csv.write_csv(table, path)
    elif kind == "parquet":
        arrow.parquet.write_table(table, path)
    frames = {"pandas": table.to_pandas, "polars": lambda: polars.from_arrow(table)}
    database = Database.from_table(frames[kind]() if kind in frames else path, key="id", value="v")
    assert database.attend(start + 3).value == 40
    assert database.notes[0].startswith("id: compared by equality, since beyond 2⁵³ numbers are taken for others")
    assert database.swap().average().value == pytest.approx(start)
