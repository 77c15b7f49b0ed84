"""Claims about tables that are none, or too much, or would run: each is refused in words or answered."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import math
import os
import random
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="needs regard[tables]")

import pyarrow as pa
from pyarrow import feather, parquet

from regard import Database
from regard.errors import TableError
from regard.web.rooms.table_kept import Tables


def of_parquet(**columns: Any) -> bytes:
    file = io.BytesIO()
    parquet.write_table(pa.table(columns), file)
    return file.getvalue()


def of_feather() -> bytes:
    file = io.BytesIO()
    feather.write_feather(pa.table({"a": [1, 2], "b": [3, 4]}), file, compression="uncompressed")
    return file.getvalue()


def of_zip() -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("a.csv", "a,b\n1,2\n")
    return file.getvalue()


def many_columns() -> bytes:
    return (",".join(f"c{place}" for place in range(10**6)) + "\n" + ",".join("1" * 10**6) + "\n").encode()


TROUBLES: dict[str, tuple[str, Callable[[], bytes], str]] = {
    "a quote that is not closed": ("a.csv", lambda: b'a,b\n1,"2\n3,4\n', "quot"),
    "rows of other lengths": ("a.csv", lambda: b"a,b\n1,2\n3,4,5\n6\n", "The file"),
    "bytes that are no text": ("a.csv", lambda: b"a,b\n" + bytes(range(128, 256)) * 9 + b",\xff\n", "UTF-8"),
    "a program": ("a.csv", lambda: b"\x7fELF" + random.Random(0).randbytes(5000).replace(b"/", b""), "The file"),
    "a Parquet file called CSV": ("a.csv", lambda: of_parquet(a=[1, 2], b=[3, 4]), "The file"),
    "a CSV file called Parquet": ("a.parquet", lambda: b"a,b\n1,2\n", "Parquet"),
    "half of a Parquet file": ("a.parquet", lambda: of_parquet(a=list(range(999)), b=[1] * 999)[:-2000], "The file"),
    "a Parquet file with a hole": ("a.parquet", lambda: with_a_hole(of_parquet(a=list(range(9999)))), "The file"),
    "half of a Feather file": ("a.feather", lambda: of_feather()[:-200], "The file"),
    "an archive": ("a.csv", of_zip, "The file"),
    "a gzip file that is none": ("a.csv.gz", lambda: b"a,b\n1,2\n", "The file"),
    "half of a gzip file": ("a.csv.gz", lambda: gzip.compress(b"a,b\n" + b"1,2\n" * 9999)[:-20], "The file"),
    "a gzip file of gigabytes": ("a.csv.gz", lambda: bomb(), "The file"),
    "a million columns": ("a.csv", many_columns, "at most 1,000 columns to be looked at as a whole: it has at least"),
    "nothing": ("a.csv", lambda: b"", "The file"),
    "empty lines": ("a.csv", lambda: b"\n\n\n\n", "The file"),
    "one name for all columns": ("a.csv", lambda: b"a,a,a\n1,2,3\n", "differ"),
}


def with_a_hole(content: bytes) -> bytes:
    """A file whose bytes are zeros somewhere before its footer."""
    return content[:100] + bytes(2000) + content[2100:]


def bomb() -> bytes:
    """A few megabytes that unpack to 4 GiB."""
    part = gzip.compress(b"a,b\n" + b"1,2\n" * (1 << 22), 9)
    return part * 256


@pytest.mark.parametrize("name", TROUBLES)
def test_a_file_that_is_no_table_is_refused_in_words(served: Any, name: str) -> None:
    called, content, words = TROUBLES[name]
    table = served.drop(called, content())
    status, found = served.ask("table", "open", {"table": table})
    assert status == 422, found
    assert words.lower() in found["error"].lower()
    assert table not in found["error"]  # what it is called on the disk
    assert "/" not in found["error"]  # nor where
    assert found["error"].isprintable()
    assert len(found["error"]) < 1500
    assert served.answer("table", "open", {"table": "example"})["rows"] == 12


def test_bytes_of_0_in_cells_are_cells(served: Any) -> None:
    status, found = served.ask("table", "open", {"table": served.drop("a.csv", b"a,b\n1,x\x00y\n2,z\n")})
    assert status in (200, 422), found
    if status == 200:
        names = [name for _, name in found["columns"][1]["categories"]]
        assert all(name.isprintable() for name in names)


def test_another_encoding_is_read_or_refused_in_words(served: Any) -> None:
    text = "naïve,b\n1,é\n2,ü\n"
    for encoding in ("latin-1", "utf-16", "utf-8-sig"):
        status, found = served.ask("table", "open", {"table": served.drop("a.csv", text.encode(encoding))})
        assert status in (200, 422), found
        if status == 200:
            assert found["columns"][0]["name"] == "naïve"
        else:
            assert "UTF-8" in found["error"]


def test_a_line_of_many_megabytes_is_a_cell(served: Any) -> None:
    table = served.drop("a.csv", b"a,b,c\n1,2," + b"x" * (30 << 20) + b"\n2,3,y\n3,5,z\n")
    status, found = served.ask("table", "open", {"table": table})
    assert status in (200, 422), found
    assert len(json.dumps(found)) < 5000
    if status == 200:
        answer = served.answer("table", "answer", {"table": table, "keys": [0], "value": 1, "query": [1.5], "label": 2})
        assert len(json.dumps(answer)) < 10_000


def test_numbers_beyond_floats_are_near_enough_or_missing(served: Any, tmp_path: Path) -> None:
    text = f"a,b\n{2**63},1\n{2**63 + 10**6},2\n{-(2**64)},3\n1e308,4\n1e999,5\ninf,6\n-inf,7\nnan,8\n5,9\n"
    (tmp_path / "a.csv").write_text(text)
    table = served.drop("a.csv", text)
    found = served.answer("table", "open", {"table": table})
    assert found["columns"][0]["high"] == 1e308
    for asked in (2.0**63, 1e308, -1.7e308):
        question = {"table": table, "keys": [0], "value": 1, "query": [asked]}
        told = served.answer("table", "answer", question)
        answer = Database.from_table(tmp_path / "a.csv", key="a", value="b").attend(asked)
        assert told["report"]["headline"] == str(answer).splitlines()[0]
        assert told["left_out"] == answer.n_left_out
        points = served.answer("table", "points", {"table": table, "keys": [0], "value": 1})
        assert all(each is None or math.isfinite(each) for each in points["points"][0])


def test_numbers_beyond_what_a_page_counts_are_sent_as_they_are(served: Any) -> None:
    ids = [2**53 + 1, -(2**53) - 3, 2**53 - 1]
    text = "id,y\n" + "".join(f"{each},{place}\n" for place, each in enumerate(ids))
    asked = {"table": served.drop("a.csv", text), "keys": [0], "value": 1, "query": [2.0**53], "widths": [1e16]}
    raw = served.answer("table", "answer", asked)["report"]["raw"]
    assert {each[1] for each in raw} == {str(ids[0]), str(ids[1]), ids[2]}


def test_numbers_that_are_hardly_any_have_widths_and_errors(served: Any) -> None:
    text = "x,z,y\n" + "".join(f"{i}e-324,{i},{i * i}\n" for i in range(10))
    asked = {"table": served.drop("a.csv", text), "keys": [0, 1], "value": 0}
    assert all(width > 0 for width in served.answer("table", "best", asked)["widths"])
    assert served.answer("table", "errors", asked | {"tried": [0.5], "along": 1})["errors"] == [0.0]


def test_a_file_is_called_by_no_name_that_the_reader_does_not_know(served: Any) -> None:
    table = served.drop("a.csv", b"a,c,b\n1,2,\xff\n2,3,4\n")
    (note,) = served.answer("table", "open", {"table": table})["notes"]
    assert note.startswith("The file must be UTF-8: the column 'b' is not.")
    assert table not in note


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a name is text")
def test_a_file_whose_name_is_no_text_is_refused_in_words(tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(b"b\xff.csv")
    path.write_text("a,b\n1,2\n2,3\n")
    with pytest.raises(TableError, match="must have a name in UTF-8"):
        Tables().get("t1", path)


def test_far_too_many_categories_are_cut_in_the_picture_alone(served: Any) -> None:
    text = "name,y\n" + "".join(f"n{i},{i}\n" for i in range(50_000))
    table = served.drop("a.csv", text)
    found = served.answer("table", "open", {"table": table})
    assert found["columns"][0]["n"] == 50_000
    assert len(found["columns"][0]["categories"]) == 300
    told = served.answer("table", "answer", {"table": table, "keys": [0], "value": 1, "query": ["n49999"]})
    assert told["output"]["number"] == 49_999


@pytest.mark.parametrize("cell", ["=1+1", "@SUM(A1)", "-cmd|' /C calc'!A0", "<img src=x onerror=alert(1)>", "{{7*7}}"])
def test_cells_that_would_run_are_texts(served: Any, cell: str) -> None:
    text = f'a,b\n"{cell}",1\n"{cell}",2\nplain,3\n'
    table = served.drop("a.csv", text)
    told = served.answer("table", "answer", {"table": table, "keys": [0], "value": 1, "query": [cell]})
    assert told["output"]["number"] == 1.5
    assert told["report"]["lines"][0][1] == cell


def test_what_is_saved_of_such_cells_runs_in_no_spreadsheet(open_page: Callable[..., Any]) -> None:
    text = 'name,x,y\n"=HYPERLINK(""http://evil.example"")",1,2\n+1+1,2,4\n@a,3,5\n-1-1,4,7\n'
    with open_page("#table?table=example") as tab:
        tab.wait_for_load_state("networkidle")
        tab.set_input_files("input[type=file]", {"name": "a.csv", "mimeType": "text/csv", "buffer": text.encode()})
        tab.wait_for_selector(".answer-line:has-text('x = ')")
        with tab.expect_download() as found:
            tab.click(".saving button:text-is('CSV')")
        saved = Path(found.value.path()).read_text(encoding="utf-8").splitlines()
        assert len(saved) == 5, saved
        assert all(line.lstrip('"').startswith("'") for line in saved[1:]), saved
        tab.wait_for_load_state("networkidle")


def test_a_cell_that_is_missing_is_saved_as_an_empty_one(open_page: Callable[..., Any]) -> None:
    text = "name,x,y\nAnn,1,2\n,2,4\nCid,3,5\n"
    with open_page("#table?table=example") as tab:
        tab.wait_for_load_state("networkidle")
        tab.set_input_files("input[type=file]", {"name": "a.csv", "mimeType": "text/csv", "buffer": text.encode()})
        tab.wait_for_selector(".answer-line:has-text('x = ')")
        with tab.expect_download() as found:
            tab.click(".saving button:text-is('CSV')")
        header, *saved = Path(found.value.path()).read_text(encoding="utf-8").splitlines()
        assert header == "name,x,y,weight"
        assert sorted(line.split(",")[0] for line in saved) == ["", "Ann", "Cid"]
        tab.wait_for_load_state("networkidle")


def test_a_file_that_is_removed_meanwhile_is_said(
    exploring: Callable[..., contextlib.AbstractContextManager[Any]], tmp_path: Path
) -> None:
    path = tmp_path / "here.csv"
    path.write_text("a,b\n1,2\n2,3\n")
    with exploring(path) as page:
        assert page.answer("table", "open", {"table": "t1"})["rows"] == 2
        path.write_text("a,b\n1,2\n2,3\n3,4\n")
        assert page.answer("table", "open", {"table": "t1"})["rows"] == 3
        path.unlink()
        status, found = page.ask("table", "answer", {"table": "t1", "keys": [0], "value": 1, "query": [1]})
        assert (status, found["error"]) == (422, "The table's file is not there any more.")


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"keys": [9], "query": [1.0]}, "A column must be from 0 to 3: got 9."),
        ({"value": 9}, "A column must be from 0 to 3: got 9."),
        ({"label": 9}, "A column must be from 0 to 3: got 9."),
        ({"along": 5}, "`along` must be from 0 to 0: got 5."),
        ({"keys": [1], "query": [7]}, "A category must be from 0 to 2: got 7."),
        ({"keys": [1], "query": [0.5]}, "A category must be from 0 to 2: got 0.5."),
        ({"keys": [1], "query": [0], "widths": [2.0]}, "must be at most 1: got 2."),
        ({"keys": [2], "query": [1e300]}, "must be a date that there is: got 1e+300."),
        ({"keys": [0], "query": ["many"]}, "many"),
        ({"keys": [0], "query": [""]}, "must be said by the query"),
    ],
)
def test_a_question_that_fits_no_table_is_refused_in_words(served: Any, more: dict[str, Any], words: str) -> None:
    table = served.drop("a.csv", "x,kind,day,y\n1,red,2024-01-01,5\n2,green,2024-01-03,6\n4,blue,2024-01-04,8\n")
    status, found = served.ask("table", "answer", {"table": table, "keys": [0], "value": 3, "query": [7.0]} | more)
    assert status == 422, found
    assert words in found["error"]


@pytest.mark.parametrize("operation", ["answer", "curve", "errors", "python"])
@pytest.mark.parametrize("width", [5e-324, 1e-160, 1e-60, 1.0, 2.0, 1e160, 1e308])
def test_a_width_that_is_a_number_is_answered_or_refused_in_words(served: Any, operation: str, width: float) -> None:
    more: dict[str, dict[str, Any]] = {
        "curve": {"at": [1.0, 2.0]},
        "errors": {"tried": [width, 0.5]},
        "python": {"name": "a.csv"},
    }
    for keys, query in (([1], [3.5]), ([0], ["Ada"]), ([1, 0], [3.5, "Ada"])):
        asked: dict[str, Any] = {"table": "example", "keys": keys, "value": 2, "widths": [width] * len(keys)}
        asked |= {} if operation == "errors" else {"query": query}
        status, found = served.ask("table", operation, asked | more.get(operation, {}))
        if width > 1 and 0 in keys:
            assert (status, found["error"].partition(": got")[0]) == (
                422,
                "What a row weighs that differs in a category must be at most 1",
            )
        else:
            assert status == 200, found


@pytest.mark.parametrize(
    "more",
    [
        {"keys": []},
        {"keys": [0, 0], "query": [1, 1]},
        {"keys": [-1]},
        {"keys": list(range(9)), "query": [0] * 9},
        {"query": []},
        {"query": [None]},
        {"widths": [0]},
        {"widths": [-1]},
        {"widths": [1, 1]},
        {"counts": [False]},
        {"top": 0},
        {"top": 10**9},
        {"told": 1000},
        {"query": ["x" * 2000]},
    ],
)
def test_a_question_of_another_form_is_refused(served: Any, more: dict[str, Any]) -> None:
    asked = {"table": "example", "keys": [1], "value": 2, "query": [3.5]} | more
    status, found = served.ask("table", "answer", asked)
    assert status == 400, found


def test_the_page_is_alive_after_all(served: Any) -> None:
    assert served.process.poll() is None
    assert served.answer("table", "answer", {"table": "example", "keys": [1], "value": 2, "query": [3.5]})["found"]
