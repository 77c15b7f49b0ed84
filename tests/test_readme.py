"""Everything that the README and the pages it links to show is what happens."""

import doctest
import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

import regard
from regard.cli import app
from regard.testing.support_table import PAGE, with_tables

ROOT = Path(__file__).parent.parent
TEXTS = {
    str(path.relative_to(ROOT)): path.read_text(encoding="utf-8")
    for path in (*sorted(ROOT.glob("*.md")), *sorted(ROOT.glob("docs/*.md")))
}
PYTHON = [page for page, text in TEXTS.items() if ">>> " in text]
CONSOLE = [
    pytest.param(arguments, shown, id=f"{page}: {arguments}")
    for page, text in TEXTS.items()
    for arguments, shown in re.findall(r"```console\n\$ regard (.*?)\n(.*?)```", text, flags=re.DOTALL)
]


def test_examples_are_found():
    assert {"README.md", "CONTRIBUTING.md"} <= set(PYTHON)
    assert CONSOLE


@pytest.mark.parametrize("page", PYTHON)
def test_every_python_example_runs(page, monkeypatch):
    monkeypatch.chdir(ROOT)
    results = doctest.testfile(str(ROOT / page), module_relative=False, encoding="utf-8", optionflags=doctest.ELLIPSIS)
    assert results.attempted == TEXTS[page].count("\n>>> ")
    assert results.failed == 0


@pytest.mark.parametrize(("arguments", "shown"), CONSOLE)
def test_every_command_prints_what_is_shown(arguments, shown, monkeypatch):
    monkeypatch.chdir(ROOT)
    result = CliRunner().invoke(app, shlex.split(arguments))
    assert result.exit_code == 0, result.output
    assert "\n".join(line.rstrip() for line in result.stdout.splitlines()).strip() == shown.strip()


@pytest.mark.parametrize(
    ("package", "page"),
    [(regard.scores, "scores-and-rules"), (regard.weights, "scores-and-rules"), (regard.masks, "masks")],
)
def test_the_pages_list_every_score_rule_and_mask(package, page):
    text = TEXTS[f"docs/{page}.md"]
    assert not [name for name in package.__all__ if not re.search(rf"`([^`]*\W)?{name}\b[^`]*`", text)]


def test_every_file_that_the_architecture_names_is_there():
    there = [f"/{path.relative_to(ROOT).as_posix()}" for path in (ROOT / "regard").rglob("*.py")]
    there += [f"{path.rpartition('/')[0]}/" for path in there]
    named = set(re.findall(r"`([\w/]+(?:\.py|/))`", TEXTS["ARCHITECTURE.md"]))
    assert len(named) > 30
    assert not [name for name in named if not (ROOT / name).exists() and not any(f"/{name}" in path for path in there)]


def test_the_tables_are_those_of_the_code():
    text = TEXTS[str(PAGE)]
    assert with_tables(text) == text, "run: python -m regard.testing.support_table"


@pytest.mark.parametrize("page", TEXTS)
def test_every_link_leads_somewhere(page):
    for target, place in re.findall(r"\]\((?!http)([^)#]*)(#[^)]*)?\)", TEXTS[page]):
        path = (ROOT / page).parent / target if target else ROOT / page
        assert path.exists(), target
        assert not place or place[1:] in _places(path), f"{target}{place}"


def _places(path):
    """The headings of a page, as links name them."""
    headings = re.findall(r"^#+ (.*)$", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading).lower().replace(" ", "-") for heading in headings}
