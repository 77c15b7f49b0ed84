"""Claims about damaged and odd files: a table or an error that names the file, never a dead process."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from regard import Database
from regard.errors import TableError

arrow = pytest.importorskip("pyarrow")
feather = pytest.importorskip("pyarrow.feather")
parquet = pytest.importorskip("pyarrow.parquet")

TABLE = {"x": list(range(50)), "word": [f"word {row % 7}" * (row % 3) for row in range(50)]}


def saved(path: Path, **options: Any) -> Path:
    if path.suffix == ".parquet":
        parquet.write_table(arrow.table(TABLE), path)
    else:
        feather.write_feather(arrow.table(TABLE), path, **options)
    return path


DAMAGED = """
import sys
from pathlib import Path
from regard.database.files import read_file
from regard.errors import TableError
from regard.database.arrow_columns import arrow_column
for path in sorted(Path(sys.argv[1]).iterdir()):
    try:
        table, _ = read_file(path, ["x", "word"])
        for name in ("x", "word"):
            column = arrow_column(name, table.column(name))
            list(column.entries)
    except TableError as error:
        assert path.name in str(error) or "must be a column of the table" in str(error), error
print("done")
"""


def test_a_damaged_arrow_file_never_kills_the_process(tmp_path: Path) -> None:
    kinds = [
        saved(tmp_path / "good.feather", compression=compression).read_bytes()
        for compression in ("uncompressed", "lz4", "zstd")
    ]
    folder = tmp_path / "damaged"
    folder.mkdir()
    dice = random.Random(0)
    for number in range(240):
        damaged = bytearray(kinds[number % 3])
        for _ in range(dice.choice((1, 3, 20))):
            damaged[dice.randrange(len(damaged))] = dice.randrange(256)
        (folder / f"{number}.arrow").write_bytes(damaged[: dice.choice((len(damaged), dice.randrange(len(damaged))))])
    run = subprocess.run([sys.executable, "-c", DAMAGED, str(folder)], capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout) == (0, "done\n"), run.stderr[-2000:]


def test_offsets_beyond_their_buffer_are_an_error(tmp_path: Path) -> None:
    path = saved(tmp_path / "table.feather", compression="uncompressed")
    whole = path.read_bytes()
    offsets = arrow.table(TABLE).column("word").chunk(0).buffers()[1].to_pybytes()[:204]
    assert whole.count(offsets) == 1
    path.write_bytes(whole.replace(offsets, offsets[:-4] + b"\xff\xff\xff\x7f"))
    with pytest.raises(TableError, match="table.feather must be a .feather table: it could not be read"):
        Database.from_table(path, key="x", value="word")


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
def test_a_small_arrow_file_does_not_take_gigabytes_without_a_word(tmp_path: Path, compression: str) -> None:
    path = tmp_path / "table.feather"
    feather.write_feather(
        arrow.table({"a": arrow.nulls(9 << 20, arrow.int64()).fill_null(0)}), path, compression, chunksize=9 << 20
    )
    assert path.stat().st_size < 400_000
    with pytest.raises(TableError, match=r"table.feather must hold no more than 64 MiB, .*: it holds 72 MiB. Read it"):
        Database.from_table(path, key="a", value="a")


def test_a_parquet_file_whose_schema_contradicts_what_it_says_of_columns_is_refused(tmp_path: Path) -> None:
    """pyarrow's own look at such a column ends the process."""
    path = tmp_path / "table.parquet"
    parquet.write_table(arrow.table({"a": [1.0, 2.0], "b": [1.0, 2.0]}), path)
    optional, required = b"\x25\x02\x18\x01a", b"\x25\x00\x18\x01a"
    content = path.read_bytes()
    assert content.count(optional) == 1
    path.write_bytes(content.replace(optional, required))
    with pytest.raises(TableError, match="table.parquet"):
        Database.from_table(path, key="a", value="b")


def test_a_small_parquet_file_does_not_take_gigabytes_without_a_word(tmp_path: Path) -> None:
    path = tmp_path / "table.parquet"
    parquet.write_table(arrow.table({"a": arrow.nulls(9 << 20, arrow.int64()).fill_null(1)}), path)
    assert path.stat().st_size < 400_000
    with pytest.raises(TableError, match=r"table.parquet must hold no more than 64 MiB, .*: it holds 288 MiB. Read it"):
        Database.from_table(path, key="a", value="a")


LONG = arrow.array(["x" * 1_000_000])
ONES = arrow.array([1.0] * 100_000)
FIRST = arrow.array([0] * 100, arrow.int32())
NULLS = arrow.nulls(2_000_000_000)
END, MANY = (arrow.array([end], arrow.int32()) for end in (100, 2_000_000_000))

REPEATED = {
    "nulls": NULLS,
    "nulls in a list": arrow.ListArray.from_arrays(arrow.array([0, len(NULLS)], arrow.int32()), NULLS),
    "nulls in a struct": arrow.StructArray.from_arrays([NULLS], ["x"]),
    "a run of a number": arrow.RunEndEncodedArray.from_arrays(MANY, ONES[:1]),
    "a run of a long text": arrow.RunEndEncodedArray.from_arrays(END, LONG),
    "a union of one long text": arrow.UnionArray.from_dense(arrow.array([0] * 100, arrow.int8()), FIRST, [LONG]),
    "narrow numbers": arrow.array([0] * 3_000_000, arrow.int8()),
    "yes or no": arrow.array([True] * 3_000_000),
    "a dictionary of one long text": arrow.DictionaryArray.from_arrays(FIRST, LONG),
    "a dictionary of one long list": arrow.DictionaryArray.from_arrays(
        FIRST, arrow.ListArray.from_arrays(arrow.array([0, len(ONES)], arrow.int32()), ONES)
    ),
}
if hasattr(arrow, "ListViewArray"):
    REPEATED["views of one list"] = arrow.ListViewArray.from_arrays(
        FIRST, arrow.array([len(ONES)] * 100, arrow.int32()), ONES
    )


@pytest.mark.parametrize("kind", REPEATED)
def test_what_an_arrow_file_repeats_counts_as_often_as_it_stands_in_a_row(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "table.arrow"
    table = arrow.table({"a": REPEATED[kind]})
    with arrow.ipc.new_file(path, table.schema, options=arrow.ipc.IpcWriteOptions(compression="zstd")) as file:
        file.write_table(table)
    assert path.stat().st_size < 2000
    with pytest.raises(
        TableError, match=r"table.arrow must hold no more than 64 MiB, .*: it holds [\d,]+ MiB. Read it"
    ):
        Database.from_table(path, key="a", value="a")


WRITTEN: dict[str, tuple[Any, dict[str, Any]]] = {
    "text, as a dictionary": (["x" * 1_000_000] * 100, {"dictionary_pagesize_limit": 1 << 24}),
    "text, as differences": (
        ["x" * 1_000_000] * 100,
        {"use_dictionary": False, "column_encoding": {"a": "DELTA_BYTE_ARRAY"}},
    ),
    "text, compressed": (["x" * 1_000_000] * 100, {"use_dictionary": False}),
    "yes or no": ([True] * 3_000_000, {}),
    "lists of numbers": ([[1] * 100_000] * 100, {}),
    "lists of text": ([["x" * 100_000] * 10] * 100, {"dictionary_pagesize_limit": 1 << 24}),
}


@pytest.mark.parametrize("kind", WRITTEN)
def test_what_a_parquet_file_repeats_counts_as_often_as_it_stands_in_a_row(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "table.parquet"
    entries, options = WRITTEN[kind]
    parquet.write_table(arrow.table({"a": entries}), path, compression="zstd", **options)
    assert path.stat().st_size < 20_000
    with pytest.raises(TableError, match=r"table.parquet must hold no more than 64 MiB, .*: it holds [\d,]+ MiB. Read"):
        Database.from_table(path, key="a", value="a")


FULL_HALFWAY = {"dictionary_pagesize_limit": 2000, "data_page_size": 500, "write_batch_size": 50}


@pytest.mark.parametrize("encoding", ["PLAIN", "DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY", None])
def test_text_is_read_however_parquet_stores_it(tmp_path: Path, encoding: str | None) -> None:
    path = tmp_path / "table.parquet"
    texts = [f"text {row % 700}" for row in range(2000)]
    columns = {"a": texts, "l": [[text, "x"] for text in texts], "b": [text.encode() for text in texts], "a.b": texts}
    options = {} if encoding is None else {"use_dictionary": False, "column_encoding": encoding}
    # A dictionary that is full halfway: the rest of a row group is plain.
    parquet.write_table(arrow.table(columns), path, row_group_size=600, **FULL_HALFWAY, **options)
    for name in columns:
        read = [entry for _, entry in Database.from_table(path, key="a", value=name)]
        assert read == columns[name]


@pytest.mark.parametrize("encoding", ["PLAIN", "DELTA_BYTE_ARRAY"])
def test_a_parquet_file_without_rows_is_an_empty_database(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "table.parquet"
    table = arrow.table({"a": arrow.array([], arrow.string())})
    with parquet.ParquetWriter(path, table.schema, use_dictionary=False, column_encoding=encoding) as file:
        file.write_table(table)
    assert len(Database.from_table(path, key="a", value="a")) == 0


@pytest.mark.parametrize("compression", ["uncompressed", "lz4", "zstd"])
def test_an_ordinary_arrow_file_is_read_whatever_its_compression(tmp_path: Path, compression: str) -> None:
    path = saved(tmp_path / "table.feather", compression=compression)
    assert Database.from_table(path, key="x", value="word")[8] == "word 1word 1"


def test_what_is_done_to_a_file_later_is_not_done_to_the_database(tmp_path: Path) -> None:
    path = saved(tmp_path / "table.feather", compression="uncompressed")
    database = Database.from_table(path, key="x", value="word")
    with path.open("r+b") as file:
        file.truncate(10)
    assert database[8] == "word 1word 1"


@pytest.mark.parametrize("suffix", [".csv", ".csv.gz", ".csv.xz", ".csv.zst", ".parquet", ".feather", ".arrow"])
@pytest.mark.parametrize(
    "content", [b"", b"\0", bytes(range(256)) * 40, b"\xff\xfe\0", b"PAR1PAR1", b"ARROW1\0\0ARROW1"]
)
def test_bytes_that_are_no_table_are_an_error_that_names_the_file(tmp_path: Path, suffix: str, content: bytes) -> None:
    path = tmp_path / f"table{suffix}"
    path.write_bytes(content)
    with pytest.raises(TableError, match=f"table{suffix}|must be a column of the table"):
        Database.from_table(path, key="a", value="b")


def test_a_cut_arrow_file_is_given_no_advice_for_csv(tmp_path: Path) -> None:
    path = tmp_path / "table.arrow"
    feather.write_feather(arrow.table({"a": list(range(999)), "b": list(range(999))}), path, compression="uncompressed")
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(TableError, match="table.arrow") as error:
        Database.from_table(path, key="a", value="b")
    assert "Give each row" not in str(error.value)


def test_rows_of_different_lengths_name_the_row(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text("a,b\n1,2\n3\n")
    with pytest.raises(
        TableError, match=r"table.csv must be a .csv table: .* Row #3: Expected 2 columns, got 1: 3\)\. Give"
    ):
        Database.from_table(path, key="a", value="b")


def test_a_line_of_megabytes_is_read_or_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text("a,b\n" + "x" * (5 << 20) + ",1\n")
    assert Database.from_table(path, key="a", value="b")["x" * (5 << 20)] == 1
    path.write_text("x" * (5 << 20))
    with pytest.raises(TableError, match="table.csv"):
        Database.from_table(path, key="a", value="b")


def test_a_path_that_no_file_can_have_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(TableError, match="A table must be a file that exists"):
        Database.from_table(tmp_path / f"{'a' * 5000}.csv", key="a", value="b")


def test_only_names_that_are_alike_are_suggested(tmp_path: Path) -> None:
    (tmp_path / "economics.csv").write_text("a\n1\n")
    with pytest.raises(TableError, match=r"nofile.csv'\. Check the path\.$"):
        Database.from_table(tmp_path / "nofile.csv", key="a", value="a")
    with pytest.raises(TableError, match=r"Did you mean 'economics.csv'\?$"):
        Database.from_table(tmp_path / "economic.csv", key="a", value="a")
    with pytest.raises(TableError, match=r"Did you mean 'economics.csv'\?$"):
        Database.from_table(tmp_path / "economics.parquet", key="a", value="a")


@pytest.mark.parametrize("kind", [arrow.date32(), arrow.timestamp("s"), arrow.duration("s")], ids=str)
def test_a_time_beyond_python_s_is_an_error_that_names_the_file(tmp_path: Path, kind: Any) -> None:
    path = tmp_path / "table.feather"
    days = arrow.array([1, 2_000_000_000], arrow.int32()) if kind == arrow.date32() else arrow.array([1, 10**17])
    table = arrow.table({"a": [1, 2], "d": days.cast(kind)})
    feather.write_feather(table, path)
    with pytest.raises(TableError, match=f"{path.name}"):
        list(Database.from_table(path, key="a", value="d"))
