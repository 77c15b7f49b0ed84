"""Claims about `regard explore` before there is a page: what it is told, and what it says of a mistake."""

from __future__ import annotations

import socket
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from regard.cli import app

needs_web = [pytest.importorskip(name, reason="needs regard[web]") for name in ("starlette", "uvicorn")]


def explore(*arguments: str | Path) -> Any:
    return CliRunner().invoke(app, ["explore", "--no-browser", *map(str, arguments)])


def said(result: Any) -> str:
    """What stands on stderr, without the frame that typer may draw around it."""
    return " ".join(result.stderr.replace("│", " ").split())


def test_a_table_must_be_there(grades: str, tmp_path: Path) -> None:
    for path in (tmp_path / "none.csv", tmp_path):
        found = explore(grades, path)
        assert found.exit_code == 2
        assert "a table must be a file: there is none at" in said(found)
        assert found.stdout == ""


def test_a_model_must_be_a_folder(grades: str, tmp_path: Path) -> None:
    for path in (tmp_path / "none", grades):
        found = explore("--model", path)
        assert found.exit_code == 2
        assert "--model must be a folder: there is none at" in said(found)


@pytest.mark.parametrize("name", ["uvicorn", "starlette"])
def test_what_is_not_installed_is_said_with_how_to_install_it(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    for module in [each for each in sys.modules if each.startswith(("regard.web", f"{name}."))]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, name, None)
    found = explore()
    assert found.exit_code == 1
    assert f"The page needs {name}. Install it with: pip install 'regard[web,tables,text]'" in said(found)
    assert found.stdout == ""


@pytest.mark.parametrize(
    "options", [("--port", "65536"), ("--port", "-1"), ("--port", "http"), ("--idle", "0"), ("--idle", "soon")]
)
def test_a_number_that_there_is_not_is_a_mistake_in_the_usage(options: tuple[str, str]) -> None:
    found = explore(*options)
    assert found.exit_code == 2
    assert options[0] in said(found)


def test_a_port_that_is_taken_is_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        found = explore("--port", str(port))
    assert found.exit_code == 1
    assert said(found) == f"error: --port must be free: {port} is taken. Name another, or leave it out."


def test_a_host_and_a_name_that_there_are_not_are_one_line() -> None:
    found = explore("--host", "256.1.1.1")
    assert found.exit_code == 1
    assert "--host must be an address of this machine: got 256.1.1.1" in said(found)
    found = explore("--allow-host", "https://page.example")
    assert found.exit_code == 1
    assert "--allow-host must be a name, with a port or without: got 'https://page.example'." in said(found)


def test_a_page_that_nobody_asks_ends_if_told_to(monkeypatch: pytest.MonkeyPatch, grades: str) -> None:
    from regard.web import server

    monkeypatch.setattr(server, "CHECKED", 0.05)
    found = explore(grades, "--port", "0", "--idle", "0.01")
    assert found.exit_code == 0, found.output
    assert found.stdout.startswith("http://127.0.0.1:")
    assert said(found) == "open it in a browser on this machine; Ctrl-C ends it"


def test_a_browser_that_opens_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    import webbrowser

    from regard.web import server

    monkeypatch.setattr(server, "CHECKED", 0.05)
    monkeypatch.setenv("BROWSER", "any")
    monkeypatch.setattr(webbrowser, "open", lambda address: True)
    found = CliRunner().invoke(app, ["explore", "--port", "0", "--idle", "0.01"])
    assert said(found) == "opened in your browser; Ctrl-C ends it"
