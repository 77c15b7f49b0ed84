"""Claims about how answers look: in characters, in colour, in a notebook."""

from __future__ import annotations

import io
from datetime import date, datetime, timedelta

import pytest
import torch
from rich.console import Console

from regard import Conic, Database, Gaussian, Triangular
from regard.database.layout import cut, wrapped
from regard.database.render import bar, entry_text, percent
from regard.printable import printable


@pytest.fixture
def salaries() -> Database:
    return Database({"gpa": [3.0, 3.4, 3.5, 3.6, 4.0, None]}, {"salary": [61_000, 69_000, 70_000, 72_000, 80_000, 1]})


def drawn(renderable: object, width: int = 80, **options: bool) -> str:
    stream = io.StringIO()
    Console(file=stream, width=width, highlight=False, **options).print(renderable)  # type: ignore[arg-type]
    return stream.getvalue()


def test_an_answer_reads_top_to_bottom(salaries: Database) -> None:
    assert repr(salaries.attend(3.5, score=Gaussian(0.1), top=3)).splitlines() == [
        "gpa = 3.5 → 70,274 ± 1,138",
        "row  gpa  salary  weight",
        "  2  3.5  70,000   45.2%  ████████████████",
        "  1  3.4  69,000   27.4%  █████████▊",
        "  3  3.6  72,000   27.4%  █████████▊",
        "± is the standard deviation of the rows' values, by weight",
        "5 rows, 1 left out (missing key or value) · 2.8 in effect · gpa:",
        "  Gaussian(bandwidth=0.1) · Softmax()",
    ]


def test_what_is_not_listed_is_summed_up(salaries: Database) -> None:
    assert "the other rows weigh 54.8%" in repr(salaries.attend(3.5, score=Gaussian(0.1), top=1))


def test_no_answer_says_so_and_why(salaries: Database) -> None:
    assert repr(salaries.attend(35.0)).splitlines()[:3] == [
        "gpa = 35.0 → no similar rows",
        "No similar rows: the nearest, gpa = 4.0, is too far away. To reach it, pass a",
        "  wider `score`.",
    ]


def test_categories_show_the_three_likeliest() -> None:
    database = Database(["x"] * 10, list("aaaabbbccd"))
    assert repr(database.attend("x")).splitlines()[0] == "key = x → a 40.0%, b 30.0%, c 20.0%, … (4 in all)"


def test_several_values_stand_side_by_side() -> None:
    answer = Database(["x", "x"], {"salary": [1000.0, 3000.0], "city": ["Rome", "Rome"]}).attend("x")
    assert repr(answer).splitlines()[0] == "key = x → salary 2,000 ± 1,000; city Rome 100.0%"


def test_the_average_is_of_every_row(salaries: Database) -> None:
    assert repr(salaries.average()).startswith("every row → 58,667 ± ")


def test_many_answers_have_a_line_each(salaries: Database) -> None:
    lines = repr(salaries.attend([3.5, 35.0], score=None)).splitlines()
    assert lines[0] == "2 answers: salary"
    assert lines[1].split() == ["gpa", "→", "heaviest", "row", "weight"]
    assert lines[2].startswith("3.5 ")
    assert "row 2" in lines[2]
    assert lines[3].startswith("35.0  no similar rows")
    assert repr(salaries.attend([])) == "no queries, no answers"


def test_it_fits_in_eighty_columns_however_long_the_entries() -> None:
    long = "a long name that goes on and on and on, as names of things sometimes do in tables"
    database = Database(
        {"first": [long, long], "second": [long, "b"], "number": [123456.789, 2.0]},
        {"third": [long, "c"], "fourth": [long, "d"]},
    )
    for text in (
        repr(database),
        repr(database.attend((long, long, 3.0))),
        drawn(database.attend((long, long, 3.0))),
        drawn(database),
        repr(database.attend([(long, long, 3.0)])),
    ):
        assert max(map(len, text.splitlines())) <= 80


def test_rich_draws_the_same_table(salaries: Database) -> None:
    answer = salaries.attend(3.5)
    text = drawn(answer)
    assert "\x1b" not in text
    for line in repr(answer).splitlines()[:4]:
        assert line in text
    assert "\x1b" in drawn(answer, force_terminal=True)
    assert "2 answers" in drawn(salaries.attend([3.5, 3.6]))
    assert "Database of 6 pairs" in drawn(salaries)


def test_square_brackets_are_text_not_markup() -> None:
    assert "[red]x" in drawn(Database(["[red]x"], ["[bold]y"]).attend("[red]x"))


def test_a_notebook_gets_a_table_with_bars(salaries: Database) -> None:
    page = salaries.attend(3.5, score=Gaussian(0.1))._repr_html_()
    assert page.count("<tr>") == 6
    assert "width:100.0%" in page
    assert "<b>gpa = 3.5 →" in page
    assert salaries.attend([3.5, 3.6])._repr_html_().count("<tr>") == 3


def test_a_notebook_is_not_taken_in_by_markup() -> None:
    page = Database(["<script>"], ["<b>"]).attend("<script>")._repr_html_()
    assert "<script>" not in page
    assert "&lt;script&gt;" in page


@pytest.mark.parametrize(
    ("entry", "text"),
    [
        (3.0, "3.0"),
        (3.14159265, "3.1416"),
        (0.0, "0.0"),
        (71_234.56, "71,234.6"),
        (1_234_567.8, "1,234,568"),
        (1e20, "1e+20"),
        (1e15, "1,000,000,000,000,000"),
        (-123456789012345680.0, "-123,456,789,012,345,680"),
        (2019, "2019"),
        (12_500, "12,500"),
        (None, "–"),
        (True, "yes"),
        (False, "no"),
        (date(2020, 1, 2), "2020-01-02"),
        (datetime(2020, 1, 2, 3, 4, 5), "2020-01-02 03:04:05"),
        (timedelta(0), "0 days"),
        (timedelta(days=183), "183 days"),
        (timedelta(hours=3), "3 hours"),
        (torch.tensor([1.0, 2.5]), "(1.0, 2.5)"),
        ((1, 2, 3, 4, 5), "(1, 2, 3, 4, …)"),
        ("two\nlines", "two lines"),
    ],
)
def test_entries_are_written_for_people(entry: object, text: str) -> None:
    assert entry_text(entry) == text


def test_weights_that_do_not_sum_to_one_are_no_percents(salaries: Database) -> None:
    answer = salaries.attend(3.5, score=Triangular(0.2), weights=Conic())
    assert [line.split()[3] for line in repr(answer).splitlines()[2:5]] == ["1.0", "0.5", "0.5"]
    assert "%" not in repr(answer) + repr(salaries.attend([3.5], score=Triangular(0.2), weights=Conic()))


def test_one_answer_of_many_is_one_answer(salaries: Database) -> None:
    assert repr(salaries.attend([3.5])).startswith("1 answer: salary\n")


def test_a_large_answer_is_written_in_digits() -> None:
    database = Database([1.0, 1.0], [1e15, 3e15])
    assert repr(database.attend(1.0)).startswith("key = 1.0 → 2,000,000,000,000,000 ± 1,000,000,000,000,000\n")


def test_a_weight_never_looks_like_nothing() -> None:
    assert [percent(each) for each in (1.0, 0.123, 0.004, 1e-9, 0.0, -1e-9)] == [
        "100.0%",
        "12.3%",
        "0.40%",
        "<0.01%",
        "0.0%",
        ">-0.01%",
    ]
    assert [bar(each, 4) for each in (1.0, 0.5, 1e-9, 0.0, -1.0, 7.0)] == ["████", "██", "▏", "", "", "████"]


def test_digits_that_the_spread_drowns_are_left_out() -> None:
    answer = Database(["x", "x"], [0.12345, 0.12355]).attend("x")
    assert repr(answer).splitlines()[0] == "key = x → 0.123500 ± 0.000050"


def test_a_narrow_terminal_loses_the_bars_and_no_digit(salaries: Database) -> None:
    assert drawn(salaries.attend(3.5, score=Gaussian(0.1), top=2), width=40).splitlines()[1:4] == [
        "row  gpa  salary  weight",
        "  2  3.5  70,000   45.2%",
        "  1  3.4  69,000   27.4%",
    ]
    many = drawn(salaries.attend([3.5, 3.6], score=Gaussian(0.1)), width=36)
    assert "70,274 ± 1,138" in many
    assert "█" not in many


def test_numbers_stay_whole_where_nothing_fits(salaries: Database) -> None:
    for width in (8, 12, 20):
        text = drawn(salaries.attend(3.5, score=Gaussian(0.1)), width=width)
        assert {"3.5", "70,000", "45.2%"} <= set(text.split())


def test_text_gives_way_before_the_bars_do_and_more_after() -> None:
    database = Database({"a long name": ["x" * 40] * 2}, {"y": [1.0, 2.0]})
    answer = database.attend("x" * 40)
    assert f"{'x' * 27}…" in drawn(answer, width=80)
    assert f"0  {'x' * 11}…  1.0   50.0%  █" in drawn(answer, width=48)
    assert f"0  {'x' * 27}…  1.0   50.0%\n" in drawn(answer, width=47)
    assert f"0  {'x' * 5}…  1.0   50.0%\n" in drawn(answer, width=24)
    assert "x" * 40 in drawn(answer, width=150).splitlines()[2]


def test_it_is_as_wide_as_the_terminal() -> None:
    long = "word " * 30
    database = Database({f"column {place}": [long] for place in range(4)}, {"y": [1.0]})
    for width in (60, 80, 160):
        lines = drawn(database, width=width).splitlines()
        assert width - 12 < max(map(len, lines)) <= width


def test_wide_characters_keep_the_columns_straight() -> None:
    database = Database({"major": ["法律", "art", "e\u0301cole"]}, {"salary": [1.0, 2.0, 3.0]})
    header, *lines = repr(database).splitlines()[1:]
    assert header == "row  major  salary"
    assert lines == ["  0  法律      1.0", "  1  art       2.0", "  2  e\u0301cole     3.0"]


def test_text_is_cut_by_the_width_of_its_characters() -> None:
    assert (cut("法律法律", 6), cut("法律", 4), cut("law", 2)) == ("法律…", "法律", "l…")
    assert cut("e\u0301cole", 3) == "e\u0301c…"


def test_long_words_and_wide_ones_are_wrapped() -> None:
    assert wrapped("a bc def", 6) == ["a bc", "  def"]
    assert wrapped("abcdefghij", 6) == ["abcd", "  efgh", "  ij"]
    assert wrapped("法律法律 法律", 6) == ["法律", "  法律", "  法律"]
    assert wrapped("", 6) == [""]


def test_rows_that_differ_look_different() -> None:
    near = Database([1e6 + 0.001, 1e6 + 0.002], [0.1, 0.1 + 1e-9]).attend(1e6 + 0.0015, score=Gaussian(1.0))
    text = repr(near)
    assert "key = 1,000,000.0015 →" in text
    for cell in ("1,000,000.001 ", "1,000,000.002 ", " 0.1 ", " 0.100000001 "):
        assert cell in text
    moments = [datetime(2020, 1, 1, microsecond=each) for each in (1, 2)]
    assert "2020-01-01 00:00:00.000002" in repr(Database(moments, [1.0, 2.0]))


def test_an_answer_is_never_cut_off() -> None:
    long = "a long answer that goes on and on, " * 5 + "to its very end"
    database = Database({"question": ["a", "b"]}, {"reply": [long, "short"]})
    for text in (repr(database.attend("a")), repr(database.attend(["a", "b"])), drawn(database.attend(["a", "b"]))):
        assert max(map(len, text.splitlines())) <= 80
        assert long in " ".join(text.replace("row 0", "").replace("100.0%", "").replace("█", "").split())


def test_a_vector_that_is_the_answer_is_shown_whole() -> None:
    answer = Database(["x"], torch.arange(8.0).unsqueeze(0)).attend("x")
    assert "0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0" in " ".join(repr(answer).split())


def test_one_row_has_no_spread_and_a_spread_is_explained(salaries: Database) -> None:
    alone = repr(Database(["a", "b"], [1.0, 2.0]).attend("a"))
    assert alone.startswith("key = a → 1.0\n")
    assert "±" not in alone
    assert "±" not in repr(Database(["a", "b"], [1.0, 2.0]).attend(["a", "b"]))
    for answer in (salaries.attend(3.5), salaries.attend([3.5, 3.6])):
        assert "± is the standard deviation of the rows' values, by weight" in repr(answer)


def test_rows_that_are_all_alike_are_counted_not_listed() -> None:
    text = repr(Database(list(range(20_000)), [0.0, 1.0] * 10_000).average())
    assert "no row stands out: each weighs 0.01% or less" in text
    assert "20,000 rows · 20,000 in effect" in text
    assert "row  key" not in text


def test_the_effective_number_of_rows_is_said() -> None:
    assert "4 rows · 3 in effect" in repr(Database(["a", "a", "b", "a"], [1.0, 2.0, 3.0, 4.0]).attend("a"))
    assert Database(["a", "a", "b"], [1.0, 2.0, 3.0]).attend("a").effective_rows == pytest.approx(2.0)


def test_numbers_of_rows_and_of_one_column_are_written_alike() -> None:
    keys = torch.zeros(12_000)
    keys[[2442, 10_314]] = 1.0
    values = torch.zeros(12_000)
    values[2442], values[10_314] = 2442, 10_314
    lines = repr(Database(keys, values).attend(1.0, score=Gaussian(0.1))).splitlines()
    assert [line.split()[0] for line in lines[2:4]] == ["2442", "10314"]
    assert [line.split()[2] for line in lines[2:4]] == ["2,442.0", "10,314"]


@pytest.mark.parametrize("query", [[3.5, None], [None, 3.5], [float("nan"), 3.5]])
def test_a_missing_query_is_missing_in_its_place(salaries: Database, query: list[float | None]) -> None:
    answers = salaries.attend(query)
    assert sorted(answer.found for answer in answers) == [False, True]
    (missing,) = [answer for answer in answers if not answer.found]
    assert missing.message == "The query is missing: it says nothing about gpa."
    assert repr(missing).splitlines()[0] == "gpa missing"
    assert "missing" in repr(answers).splitlines()[2 + list(answers).index(missing)]
    assert missing.as_dict()["query"] is None


def test_a_missing_query_among_rows_and_vectors_keeps_its_place() -> None:
    rows = Database({"x": [1.0, 2.0], "word": ["a", "b"]}, [1.0, 2.0])
    for many in ([(1.0, "a"), (None, None)], [(1.0, "a"), None], [{"x": 1.0}, {}], {"x": [1.0, None]}):
        assert [answer.found for answer in rows.attend(many)] == [True, False]
        assert "missing" in repr(rows.attend(many))
    vectors = Database(torch.eye(2), [1.0, 2.0])
    assert [answer.found for answer in vectors.attend([None, [1.0, 0.0]])] == [False, True]


@pytest.mark.parametrize("text", ["\x1b[2J", "\x9b31m", "\x1b]0;t\x07", "\u202e", "a\nb", "\r"], ids=ascii)
def test_no_entry_steers_the_terminal(text: str) -> None:
    database = Database({f"k{text}": [text, "b"]}, {f"v{text}": [text, "c"]}, index=[text, "d"])
    for looked_at in (database, database.attend(text), database.attend([text, "b"]), database.attend("none")):
        assert printable(repr(looked_at)) == repr(looked_at)
        assert printable(drawn(looked_at)) == drawn(looked_at)
