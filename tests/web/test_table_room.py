"""Claims about the room of a table: what a reader does with a query, and that what is shown is the library's."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import math
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from datetime import date, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

pytest.importorskip("pyarrow", reason="needs regard[tables]")

from regard import Database, Gaussian

Open = Callable[..., AbstractContextManager[Any]]
CITIES = ("Oslo", "Rome", "Paris")
WEATHER = "day,date,city,temperature,rain,bikes\n" + "".join(
    f"day {i},{date(2024, 1, 1) + timedelta(days=3 * i)},{CITIES[i % 3]},{(i * 37) % 60 / 2},"
    f"{'yes' if (i * 37) % 60 < 25 else 'no'},{round(200 + 4 * ((i * 37) % 60) + 30 * (i % 3) + 9 * math.sin(i), 1)}\n"
    for i in range(90)
)


@pytest.fixture(scope="module")
def weather(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tables") / "weather.csv"
    path.write_text(WEATHER, encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def named(exploring: Callable[..., AbstractContextManager[Any]], weather: Path) -> Iterator[Any]:
    """A page that was started with the path of a table."""
    with exploring(weather) as page:
        yield page


@pytest.fixture
def open_room(open_page: Open, named: Any) -> Open:
    """What opens the room at that page, once its first answer and curve are there."""

    @contextlib.contextmanager
    def opened(settings: str = "", **options: Any) -> Iterator[Any]:
        with open_page(page=named, fragment=f"#table{settings}", **options) as tab:
            settle(tab)
            yield tab

    return opened


def settle(tab: Any) -> None:
    tab.wait_for_selector(".drawn .curve", state="attached")  # what is level has no height to be seen by
    tab.wait_for_load_state("networkidle")


def expect(tab: Any, selector: str) -> Any:
    """Claims about elements that may come a little later."""
    from playwright.sync_api import expect

    return expect(tab.locator(selector))


def headline(tab: Any) -> str:
    return " ".join(tab.inner_text(".answer-line").split())


def told(path: Path, asked: Any, **more: Any) -> str:
    """The library's headline."""
    given = {"key": "temperature", "value": "bikes"} | {
        name: more.pop(name) for name in ("key", "value") if name in more
    }
    return str(Database.from_table(path, **given, index="day").attend(asked, **more)).splitlines()[0]


def test_a_path_of_the_command_line_is_the_first_table_and_answered_as_the_library_does(
    open_room: Open, weather: Path
) -> None:
    with open_room() as tab:
        assert tab.locator("select[name=table] option").all_inner_texts() == [
            "weather.csv",
            "graduates.csv (an example)",
        ]
        asked = float(tab.input_value("input[name=query-0]"))
        answer = Database.from_table(weather, key="temperature", value="bikes", index="day").attend(asked)
        assert headline(tab) == str(answer).splitlines()[0]
        listed = tab.locator("table.rows tbody tr")
        assert listed.count() == len(answer.rows)
        for place, row in enumerate(answer.rows):
            texts = listed.nth(place).locator("td").all_inner_texts()
            assert texts[0] == row.index
            assert float(texts[1]) == row.key
        bars = tab.eval_on_selector_all(
            ".bar-cell rect", "bars => bars.map(each => parseFloat(each.getAttribute('width')))"
        )
        weights = answer.weights / answer.weights.max()
        assert bars == pytest.approx((100 * weights).tolist(), abs=0.01)
        assert tab.locator(".points").count() == 1
        every = Database.from_table(weather, key="temperature", value="bikes").attend(asked, top=90).weights
        assert tab.locator(".heavy").count() == int((every >= 0.01 * every.max()).sum())


def test_the_query_is_dragged_slid_and_typed(open_room: Open, weather: Path) -> None:
    with open_room() as tab:
        box = tab.locator(".plot").bounding_box()
        tab.mouse.move(box["x"] + box["width"] * 0.3, box["y"] + 100)
        tab.mouse.down()
        for step in range(31, 80, 4):
            tab.mouse.move(box["x"] + box["width"] * step / 100, box["y"] + 120)
        tab.mouse.up()
        dragged = float(tab.input_value("input[name=query-0]"))
        assert 20 < dragged < 26
        expect(tab, ".answer-line").to_contain_text(told(weather, dragged).split("→ ")[1])
        at = tab.locator(".query-handle").bounding_box()
        assert at["x"] + at["width"] / 2 == pytest.approx(box["x"] + box["width"] * 0.79, abs=4)
        tab.locator("input[name=slide-0]").fill("100")
        assert float(tab.input_value("input[name=query-0]")) == pytest.approx(29.5 / 4, abs=0.1)
        tab.fill("input[name=query-0]", "12.3")
        tab.keyboard.press("Enter")
        expect(tab, ".answer-line").to_have_text(re.compile(re.escape(told(weather, 12.3).split("→ ")[1])))
        assert tab.get_attribute(".query-handle", "aria-valuenow") == "12.3"
        assert "q=12.3" in tab.url or tab.wait_for_url("**q=12.3**") is None


def test_the_query_is_moved_by_keys_alone(open_room: Open, weather: Path) -> None:
    with open_room("?keys=3&value=5&q=10") as tab:
        tab.focus(".query-handle")
        field = "input[name=query-0]"
        for key, at in [
            ("ArrowRight", 10.2),
            ("ArrowLeft", 10),
            ("Shift+ArrowRight", 12),
            ("PageDown", 10),
            ("Home", 0),
        ]:
            tab.keyboard.press(key)
            assert float(tab.input_value(field)) == pytest.approx(at)
        tab.keyboard.press("End")
        assert tab.input_value(field) == "29.5"
        text = f"29.5: {told(weather, 29.5)}"
        expect(tab, ".query-handle").to_have_attribute("aria-valuetext", text)
        assert tab.get_attribute(".query-handle", "role") == "slider"


def test_nothing_near_the_query_is_said(open_room: Open) -> None:
    with open_room() as tab:
        tab.fill("input[name=query-0]", "1e9")
        tab.keyboard.press("Enter")
        expect(tab, ".answer-line").to_contain_text("no similar rows")
        assert tab.locator("table.rows").is_hidden()
        assert tab.locator(".output").count() == 0
        assert "No similar rows" in tab.inner_text(".warning")


def test_columns_are_chosen_and_a_key_is_added_and_removed(open_room: Open, weather: Path) -> None:
    with open_room() as tab:
        tab.click("button:text-is('Ask by one more key')")
        expect(tab, ".key").to_have_count(2)
        settle(tab)
        assert tab.locator("select[name=key-1] option:checked").inner_text() == "city (text)"
        tab.select_option("select[name=query-1]", label="Rome")
        asked = {"temperature": float(tab.input_value("input[name=query-0]")), "city": "Rome"}
        expect(tab, ".answer-line").to_contain_text(told(weather, asked, key=["temperature", "city"]).split("→ ")[1])
        assert "A mismatch weighs" in tab.inner_text(".key:nth-of-type(3)")
        tab.select_option("select[name=along]", label="city")
        expect(tab, ".drawn text:text-is('Rome')").to_have_count(1)
        tab.click("[aria-label='Do not ask by temperature']")
        settle(tab)
        assert tab.locator(".key").count() == 1
        assert "city = Rome" in headline(tab)
        tab.select_option("select[name=value]", label="temperature")
        expect(tab, ".answer-line").to_contain_text(told(weather, "Rome", key="city", value="temperature"))
        tab.select_option("select[name=label]", "")
        expect(tab, "table.rows th >> nth=0").to_have_text("row, from 0")


def test_a_category_as_key_is_compared_by_equality_unless_a_mismatch_weighs(open_room: Open, weather: Path) -> None:
    with open_room("?keys=2&value=5") as tab:
        assert headline(tab) == told(weather, tab.inner_text("select[name=query-0] option:checked"), key="city")
        assert "nothing (usual)" in tab.inner_text(".key")
        assert tab.locator(".drawn .band").count() == 3
        tab.focus(".query-handle")
        tab.keyboard.press("End")
        assert tab.inner_text("select[name=query-0] option:checked") == "Paris"
        tab.focus("input[name=width-0]")
        tab.keyboard.press("End")
        expect(tab, ".answer-line").to_contain_text(f"{mean(weather):.0f} ±")
        assert "ignored" in tab.inner_text(".key")
        tab.click("button:text-is('Usual widths')")
        expect(tab, ".answer-line").to_contain_text(told(weather, "Paris", key="city").split("→ ")[1])


def mean(path: Path) -> float:
    values = [float(row["bikes"]) for row in csv.DictReader(io.StringIO(path.read_text()))]
    return sum(values) / len(values)


def test_a_category_as_value_has_a_line_for_each_and_says_which(open_room: Open, weather: Path) -> None:
    with open_room("?keys=3&value=4&q=11") as tab:
        assert headline(tab) == told(weather, 11.0, value="rain")
        assert tab.locator(".drawn .curve.share").count() == 4  # two lines, and two in the legend
        answer = Database.from_table(weather, key="temperature", value="rain").attend(11.0)
        legend = [re.sub(" <?([0-9.]+)%", r" \1", each) for each in tab.locator(".drawn text.ink").all_text_contents()]
        for entry, name in zip(legend, ("no", "yes"), strict=True):
            assert entry.split()[0] == name
            assert float(entry.split()[1]) == pytest.approx(100 * answer.probabilities[name], abs=0.06)
        heights = tab.eval_on_selector_all(".output", "dots => dots.map(each => Number(each.getAttribute('cy')))")
        marks = tab.eval_on_selector_all(
            ".drawn text.number",
            "all => Object.fromEntries(all.map(each => [each.textContent, Number(each.getAttribute('y')) - 4]))",
        )
        shares = [(marks["0%"] - height) / (marks["0%"] - marks["100%"]) for height in heights]
        assert shares == pytest.approx([answer.probabilities[name] for name in ("no", "yes")], abs=1e-3)
        assert "Brier score, 0 is perfect). Always guessing the shares: 0." in tab.inner_text(".error-note")


def test_a_date_is_a_key_with_a_field_of_its_own(open_room: Open, weather: Path) -> None:
    with open_room("?keys=1&value=5") as tab:
        assert tab.get_attribute("input[name=query-0]", "type") == "date"
        tab.fill("input[name=query-0]", "2024-05-05")
        expect(tab, ".answer-line").to_contain_text(told(weather, date(2024, 5, 5), key="date"))
        tab.focus(".query-handle")
        tab.keyboard.press("ArrowRight")
        assert re.fullmatch(r"2024-05-\d\d", tab.input_value("input[name=query-0]"))
        assert {"2024", "Apr"} & set(tab.locator(".drawn text.number").all_text_contents())


def test_the_error_of_hidden_rows_follows_the_bandwidth(open_room: Open, weather: Path) -> None:
    with open_room("?keys=3&value=5&q=10") as tab:
        expect(tab, ".errors .curve").to_have_count(1)
        assert "(best)" in tab.inner_text(".key output >> nth=1")
        middle = "each => each.getBBox().x + each.getBBox().width / 2"
        dot, best = (tab.eval_on_selector(f".errors {name}", middle) for name in (".mark-dot", ".best-line"))
        assert dot == pytest.approx(best, abs=0.6)
        assert "by this bandwidth: the least, or nearly (root" in tab.inner_text(".error-note")
        unknowing = float(tab.inner_text(".error-note").partition("Knowing nothing of temperature: ")[2].rstrip("."))
        assert unknowing == pytest.approx(missed(weather, 1e9), rel=1e-3)
        before = tab.get_attribute(".drawn path.curve", "d")
        tab.locator("input[name=width-0]").fill("150")
        tab.wait_for_url("**&w=*")
        width = float(tab.url.partition("&w=")[2])
        expect(tab, ".answer-line").to_contain_text(told(weather, 10.0, score=Gaussian(width)))
        assert f"bandwidth={width:.4g}"[:14] in tab.inner_text(".notes")
        assert "(best)" not in tab.inner_text(".key output >> nth=1")
        settle(tab)
        assert tab.get_attribute(".drawn path.curve", "d") != before
        found = re.search(r"others: ([\d.]+) by this bandwidth, at best ([\d.]+)", tab.inner_text(".error-note"))
        here, least = map(float, found.groups())
        assert here == pytest.approx(missed(weather, width), rel=0.02)
        assert least < here
        tab.click("button:text-is('Best widths')")
        expect(tab, ".answer-line").to_contain_text(told(weather, 10.0))


def missed(path: Path, width: float) -> float:
    """The root mean square of leave-one-out, by its definition."""
    rows = [(float(row["temperature"]), float(row["bikes"])) for row in csv.DictReader(io.StringIO(path.read_text()))]
    total = 0.0
    for place, (key, value) in enumerate(rows):
        weights = [math.exp(-((key - other) ** 2) / (2 * width**2)) for other, _ in rows]
        weights[place] = 0.0
        total += (sum(w * each for w, (_, each) in zip(weights, rows, strict=True)) / sum(weights) - value) ** 2
    return math.sqrt(total / len(rows))


def test_a_file_is_opened_by_the_button_and_by_dropping_it(open_page: Open, tmp_path: Path) -> None:
    path = tmp_path / "heights.csv"
    path.write_text("height,weight\n" + "".join(f"{150 + i},{50 + i % 9}\n" for i in range(40)), encoding="utf-8")
    with open_page("#table?table=example") as tab:
        settle(tab)
        with tab.expect_file_chooser() as chooser:
            tab.click("button:text-is('Open a file …')")
        chooser.value.set_files(path)
        expect(tab, "select[name=table] option:checked").to_have_text("heights.csv")
        expect(tab, ".answer-line").to_contain_text("height = ")
        transfer = tab.evaluate_handle(
            """() => {
                const transfer = new DataTransfer();
                const lines = "secret,b\\n1,2\\n2,3\\n3,5\\n";
                transfer.items.add(new File([lines], "dropped.csv", { type: "text/csv" }));
                return transfer;
            }"""
        )
        tab.dispatch_event(".room", "dragenter", {"dataTransfer": transfer})
        assert tab.locator(".room.is-over").count() == 1
        tab.dispatch_event(".room", "drop", {"dataTransfer": transfer})
        expect(tab, ".answer-line").to_contain_text("secret = ")
        assert tab.locator(".room.is-over").count() == 0
        assert "secret" not in tab.url
        assert "dropped" not in tab.url
        settle(tab)


def test_a_file_that_is_no_table_is_said_and_the_next_is_opened(open_page: Open) -> None:
    with open_page("#table?table=example") as tab:
        settle(tab)
        tab.set_input_files("input[type=file]", {"name": "a.csv", "mimeType": "text/csv", "buffer": b'a,b\n1,"2\n'})
        expect(tab, ".table-notice").to_contain_text("quot")
        expect(tab, "select[name=table]").to_have_value("example")  # which stays, and can be asked on
        tab.fill("input[name=query-0]", "3.5")
        tab.keyboard.press("Enter")
        expect(tab, ".answer-line").to_contain_text("gpa = 3.5 →")
        expect(tab, ".drawn .output").to_have_count(1)
        tab.set_input_files("input[type=file]", {"name": "a.exe", "mimeType": "text/csv", "buffer": b"a,b\n1,2\n"})
        kinds = tab.inner_text(".drop-hint").partition(": ")[2]
        expect(tab, ".table-notice").to_contain_text(f"must be a {kinds} file")
        tab.set_input_files("input[type=file]", {"name": "b.csv", "mimeType": "text/csv", "buffer": b"a\n1\n2\n"})
        expect(tab, ".table-notice").to_contain_text("must have two columns")
        assert headline(tab).startswith("gpa = 3.5")
        expect(tab, "select[name=table]").to_have_value("example")
        tab.select_option("select[name=table]", "example")
        expect(tab, ".answer-line").to_contain_text("gpa = ")
        expect(tab, ".table-notice").to_be_hidden()
        settle(tab)


def test_what_was_asked_is_asked_on_where_the_next_table_is_none(open_page: Open) -> None:
    with open_page("#table?table=example") as tab:
        settle(tab)
        searches = held(tab, "best")
        tab.click("button:text-is('Ask by one more key')")
        until(tab, lambda: len(searches) == 1)
        tab.set_input_files("input[type=file]", {"name": "a.csv", "mimeType": "text/csv", "buffer": b'a,b\n1,"2\n'})
        expect(tab, ".table-notice").to_contain_text("quot")
        until(tab, lambda: len(searches) == 2)
        searches[1].continue_()
        expect(tab, ".error-note >> nth=0").to_contain_text("each row is hidden")
        settle(tab)


def test_of_two_files_the_last_is_shown_whichever_arrives_first(open_page: Open) -> None:
    with open_page("#table?table=example") as tab:
        settle(tab)
        held: list[Any] = []
        tab.route("**/files?name=first.csv", lambda route: held.append(route))
        for name in ("first", "second"):
            file = {"name": f"{name}.csv", "mimeType": "text/csv", "buffer": f"{name},b\n1,2\n2,3\n3,5\n".encode()}
            tab.set_input_files("input[type=file]", file)
        expect(tab, ".answer-line").to_contain_text("second = ")
        held[0].continue_()
        expect(tab, "select[name=table] option:text-is('first.csv')").to_have_count(1)
        settle(tab)
        assert headline(tab).startswith("second = ")
        assert tab.inner_text("select[name=table] option:checked") == "second.csv"


def test_a_guess_is_called_one_until_the_best_widths_are_found(open_page: Open) -> None:
    def large(route: Any) -> None:
        answer = route.fetch()
        route.fulfill(response=answer, json={**answer.json(), "rows": 60_000})

    with open_page("") as tab:
        tab.route("**/ask/table/open", large)
        searches = held(tab, "best")
        tab.evaluate("location.hash = '#table?table=example'")
        expect(tab, ".error-note").to_have_text("A guess; searching for the best bandwidth …")
        expect(tab, ".key output >> nth=1").to_contain_text("(a guess)")
        until(tab, lambda: len(searches) == 1)
        searches[0].continue_()
        expect(tab, ".key output >> nth=1").to_contain_text("(best)")
        expect(tab, ".error-note").to_contain_text("In place of the guess, the best bandwidth.")
        expect(tab, "#said").to_contain_text("The best widths are found, and used now. gpa = ")
        tab.unroute_all()
        settle(tab)


def test_errors_that_cannot_be_read_are_not_awaited(open_page: Open) -> None:
    with open_page("#table?table=example") as tab:
        settle(tab)
        refusal = {"status": 422, "json": {"error": "Not now."}}
        tab.route("**/ask/table/errors", lambda route: route.fulfill(**refusal))
        tab.select_option("select[name=value]", label="salary")
        expect(tab, ".warning").to_have_text("Not now.")
        tab.locator("input[name=width-0]").fill("150")
        expect(tab, ".key output >> nth=1").not_to_contain_text("(best)")
        assert tab.inner_text(".error-note") == ""
        tab.unroute_all()


def test_all_of_it_is_saved(open_room: Open, weather: Path) -> None:
    with open_room("?keys=3&value=5&q=10&w=2.5") as tab:

        def saved(kind: str) -> str:
            with tab.expect_download() as found:
                tab.click(f".saving button:text-is('{kind}')")
            return Path(found.value.path()).read_text(encoding="utf-8")

        table = Database.from_table(weather, key="temperature", value="bikes", index="day")
        answer = table.attend(10.0, score=Gaussian(2.5), top=100)
        rows = list(csv.reader(io.StringIO(saved("CSV"))))
        assert rows[0] == ["day", "temperature", "bikes", "weight"]
        assert [row[0] for row in rows[1:]] == [row.index for row in answer.rows]
        assert [float(row[3]) for row in rows[1:]] == pytest.approx([row.weight for row in answer.rows], rel=1e-6)
        data = json.loads(saved("JSON"))
        assert (data["key"], data["value"], data["widths"]) == (["temperature"], "bikes", [2.5])
        assert data["output"]["number"] == pytest.approx(answer.value)
        assert [row["weight"] for row in data["rows"]] == pytest.approx([row.weight for row in answer.rows], rel=1e-6)
        picture = saved("SVG")
        assert picture.startswith("<svg")
        assert "temperature" in picture
        assert "var(" not in re.sub(r'fill="var\([^"]*"', "", picture)
        tab.click(".saving button:text-is('Python')")
        expect(tab, "pre.python").to_contain_text("print")
        python = tab.inner_text("pre.python")
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(python.replace('"weather.csv"', repr(str(weather))), {})
        assert printed.getvalue() == f"{table.attend(10.0, score=Gaussian(2.5))}\n"


def held(tab: Any, operation: str) -> list[Any]:
    """The questions of an operation from now on: none arrives at the server before it is let go on."""
    found: list[Any] = []
    tab.route(f"**/ask/table/{operation}", lambda route: found.append(route))
    return found


def until(tab: Any, holds: Callable[[], bool]) -> None:
    for _ in range(200):
        if holds():
            return
        tab.wait_for_timeout(20)
    raise AssertionError("it did not come to that")


def test_an_answer_along_another_key_is_not_drawn(open_room: Open) -> None:
    with open_room("?keys=3~1&value=5") as tab:
        curves, answers = held(tab, "curve"), held(tab, "answer")
        tab.fill("input[name=query-1]", "2024-05-05")  # the curve along the temperature is another one
        tab.keyboard.press("Enter")
        until(tab, lambda: len(curves) == len(answers) == 1)
        tab.select_option("select[name=along]", label="date")
        expect(tab, ".drawn .points").to_have_count(1)
        for late in (curves[0], answers[0]):
            late.continue_()
        until(tab, lambda: len(curves) == len(answers) == 2)  # the next are asked once those are there
        expect(tab, ".drawn .curve").to_have_count(0)
        expect(tab, ".drawn .output").to_have_count(0)
        for right in (curves[1], answers[1]):
            right.continue_()
        expect(tab, ".drawn .output").to_have_count(1)
        settle(tab)
        with tab.expect_download() as found:
            tab.click(".saving button:text-is('JSON')")
            until(tab, lambda: len(answers) == 3)
            answers[2].continue_()
        curve = json.loads(Path(found.value.path()).read_text(encoding="utf-8"))["curve"]
        first = (date(2024, 1, 1) - date(1970, 1, 1)).days
        assert (curve["across"], curve["at"][0]) == ("date", first)


@pytest.mark.parametrize("by", ["other columns", "another table", "another room"])
def test_what_is_asked_no_more_is_ended(open_room: Open, by: str) -> None:
    with open_room() as tab:
        ended: list[str] = []
        tab.on("requestfailed", lambda request: ended.append(urlsplit(request.url).path.rpartition("/")[2]))
        questions = held(tab, "best")
        tab.select_option("select[name=key-0]", label="date (date)")
        until(tab, lambda: len(questions) == 1)
        assert ended == []
        if by == "other columns":
            tab.select_option("select[name=value]", label="temperature")
        elif by == "another table":
            tab.select_option("select[name=table]", "example")
        else:
            tab.evaluate("location.hash = '#formula'")
        until(tab, lambda: "best" in ended)
        tab.unroute_all()  # the next is let go on
        tab.wait_for_load_state("networkidle")


def test_the_address_holds_the_state_and_never_the_data(open_room: Open, weather: Path) -> None:
    with open_room("?table=t1&keys=3~2&value=5&q=8.5~1&w=2~0.2&along=0") as tab:
        assert float(tab.input_value("input[name=query-0]")) == 8.5
        assert tab.inner_text("select[name=query-1] option:checked") == "Rome"
        assert "20.0%" in tab.inner_text(".key:nth-of-type(3)")
        fragment = urlsplit(tab.url).fragment
        assert not any(word in fragment.lower() for word in ("rome", "weather", "temperature", "bikes"))
        tab.reload()
        settle(tab)
        assert float(tab.input_value("input[name=query-0]")) == 8.5


@pytest.mark.parametrize(
    "settings", ["keys=99&value=98", "keys=a&value=b&q=c&w=d", "keys=3&value=3", "table=t1&keys=3&value=5&q=1e999&w=-4"]
)
def test_an_address_that_fits_no_table_begins_anew(open_room: Open, settings: str) -> None:
    with open_room(f"?{settings}") as tab:
        assert headline(tab).startswith("temperature = ")


def test_a_query_among_rarer_categories_is_answered_and_not_shown_elsewhere(open_page: Open) -> None:
    text = "code,y\n" + "".join(f"c{i % 40},{i % 40}\n" for i in range(200))
    with open_page("#table?table=example") as tab:
        settle(tab)
        tab.set_input_files("input[type=file]", {"name": "codes.csv", "mimeType": "text/csv", "buffer": text.encode()})
        expect(tab, ".answer-line").to_contain_text("code = c0")
        settle(tab)
        tab.select_option("select[name=query-0]", label="c30")
        expect(tab, ".answer-line").to_contain_text("30.0")
        assert tab.locator(".drawn .output, .drawn .query-line").count() == 0
        assert not tab.locator(".query-handle").is_visible()
        assert "Of 40 kinds of code it shows the 16 most frequent" in tab.inner_text("figcaption >> nth=0")


# Texts of the picture that do not lie within it, and pairs of them that lie on each other.
CUT = """() => {
    const picture = document.querySelector(".drawn svg"), frame = picture.getBoundingClientRect();
    return [...picture.querySelectorAll("text")].filter(each => {
        const { left, right, top, bottom } = each.getBoundingClientRect();
        return left < frame.left - 1 || right > frame.right + 1 || top < frame.top - 1 || bottom > frame.bottom + 1;
    }).map(each => each.textContent);
}"""
OVERLAPPING = """() => {
    const texts = [...document.querySelectorAll(".drawn svg text")];
    const boxes = texts.map(each => [each.textContent, each.getBoundingClientRect()]);
    const across = (a, b) => Math.min(a.right, b.right) - Math.max(a.left, b.left);
    const down = (a, b) => Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
    return boxes.flatMap(([one, a], place) =>
        boxes.slice(place + 1).filter(([, b]) => across(a, b) > 1 && down(a, b) > 2).map(([other]) => [one, other]));
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 1280])
@pytest.mark.parametrize("settings", ["?keys=1~3~2&value=5", "?keys=2&value=4", "?keys=3&value=4"])
def test_nothing_is_cut_and_no_reader_meets_a_barrier(
    open_room: Open, barriers: Callable[[Any], list[str]], settings: str, width: int, scheme: str
) -> None:
    with open_room(settings, viewport={"width": width, "height": 900}, color_scheme=scheme) as tab:
        assert barriers(tab) == []
        assert tab.evaluate("document.documentElement.scrollWidth") <= width
        assert tab.evaluate(CUT) == []
        assert tab.evaluate(OVERLAPPING) == []
        weight = tab.locator("td.weight").first.bounding_box()
        assert weight["x"] + weight["width"] <= width


def test_paper_has_the_answer_the_picture_and_the_rows(open_room: Open) -> None:
    with open_room() as tab:
        tab.emulate_media(media="print")
        for shown in (".answer-line", ".drawn svg", "table.rows", ".notes"):
            assert tab.locator(shown).is_visible()
        for hidden in (".saving", ".side"):
            assert not tab.locator(hidden).first.is_visible()
