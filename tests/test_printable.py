"""Claims about what may be printed."""

from __future__ import annotations

import json

import pytest

from regard.printable import escaped, on_one_line, printable

STEERING = [
    "\x1b[2J",
    "\x9b31m",
    "\x1b]0;title\x07",
    "\x08",
    "\r",
    "\x7f",
    "\u202e",
    "\u2066",
    "\u200f",
    "\u2028",
    "\ud800",
]


@pytest.mark.parametrize("text", STEERING, ids=ascii)
def test_what_steers_a_terminal_is_shown_as_a_mark(text: str) -> None:
    assert "�" in printable(f"a{text}b")
    assert not set(text) & set(printable(text)) - set("[2J31m]0;title")


@pytest.mark.parametrize(
    "text", ["José", "法律", "a\u00a0b", "می\u200cخواهم", "👩\u200d💻", "e\u0301", "\n\t", "\ue000", ""]
)
def test_what_is_written_stays(text: str) -> None:
    assert printable(text) == text


def test_one_line_is_one_line() -> None:
    assert on_one_line(" New\n\tYork\r\n\u2028NY ") == "New York NY"


@pytest.mark.parametrize("text", [*STEERING, "\U000e0041", "José\n"], ids=ascii)
def test_json_keeps_what_it_says_and_steers_nothing(text: str) -> None:
    said = escaped(json.dumps([text], ensure_ascii=False, indent=2))
    assert json.loads(said) == [text]
    assert printable(said) == said
