"""The bar of long passes: on a terminal alone, after a while, gone afterwards."""

from __future__ import annotations

import io
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest
import torch

import regard
from regard import weigh
from regard.progress import Progress, bars_are_drawn


class Screen(io.StringIO):
    """A terminal that remembers what was written."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def screen(monkeypatch):
    screen = Screen()
    monkeypatch.setattr("regard.progress.sys", SimpleNamespace(stderr=screen))
    monkeypatch.setattr("regard.progress.DELAY_SECONDS", 0.0)
    for name, value in {"TERM": "xterm-256color", "COLUMNS": "80"}.items():
        monkeypatch.setenv(name, value)
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    with bars_are_drawn():
        yield screen


def test_a_reading_draws_nothing_and_starts_no_thread_unless_it_was_asked_to(monkeypatch):
    screen, started = Screen(), []
    monkeypatch.setattr("regard.progress.sys", SimpleNamespace(stderr=screen))
    monkeypatch.setattr("regard.progress.DELAY_SECONDS", 0.0)
    monkeypatch.setattr("regard.progress.threading.Thread.start", lambda thread: started.append(thread.name))
    x = torch.randn(30, 4)
    weigh(x, x, x).collect(top=2, entropy=True, map=(3, 3))
    assert (started, screen.getvalue()) == ([], "")
    with bars_are_drawn():
        weigh(x, x, x).received()
    assert started == ["regard_progress"]


def test_the_command_line_asks_for_bars(monkeypatch):
    from typer.testing import CliRunner

    from regard import cli, progress

    wanted = []
    command = cli.typer.Typer(cls=cli.RegardGroup)
    command.callback()(lambda: None)
    command.command("look")(lambda: wanted.append(progress._wanted.get()))
    CliRunner().invoke(command, ["look"], catch_exceptions=False)
    assert wanted == [True]
    assert not progress._wanted.get()


def wait_for(screen: Screen, text: str) -> None:
    deadline = time.monotonic() + 30
    while text not in screen.getvalue():
        assert time.monotonic() < deadline, f"{text!r} is not in {screen.getvalue()!r}"
        time.sleep(0.01)


HIDE, SHOW, WIPE = "\x1b[?25l", "\x1b[?25h", "\x1b[2K"


def assert_clean(screen: Screen) -> None:
    """The cursor is back, and the last thing that was written wiped the line."""
    written = screen.getvalue()
    assert written.count(HIDE) == written.count(SHOW) == 1
    assert written.endswith(WIPE)


def test_a_bar_says_how_much_of_all_passes_is_done_and_is_wiped(screen):
    progress = Progress("something")
    with progress.over(2):
        wait_for(screen, "0%")
        progress.advance(0.5)
        wait_for(screen, "25%")
        with progress.over(1):  # a part of what is shown already
            progress.advance(0.5)
            wait_for(screen, "50%")
    assert "something" in screen.getvalue()
    assert_clean(screen)


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_the_terminal_is_clean_after_ctrl_c_and_errors(screen, error):
    progress = Progress("something")

    def fail():
        with progress.over(1):
            wait_for(screen, "0%")
            raise error

    with pytest.raises(error):
        fail()
    assert_clean(screen)
    with progress.over(1):  # and the next one has its own
        progress.advance(0.75)
        wait_for(screen, "75%")


def test_one_of_several_calls_has_the_screen(screen):
    first, second = Progress("first"), Progress("second")
    with first.over(1):
        wait_for(screen, "first")
        with second.over(1):
            time.sleep(0.3)
    assert "second" not in screen.getvalue()
    assert_clean(screen)


def test_short_calls_show_nothing_and_do_not_import_rich(screen, monkeypatch):
    monkeypatch.setattr("regard.progress.DELAY_SECONDS", 60.0)
    x = torch.randn(300, 4)
    weigh(x, x, x).collect(top=2, entropy=True, map=(3, 3))
    assert screen.getvalue() == ""


def test_nothing_is_shown_where_there_is_no_terminal():
    code = """
import sys, time, regard.progress
regard.progress.DELAY_SECONDS = 0.0
progress = regard.progress.Progress("something")
for stderr in (sys.stderr, None):
    sys.stderr = stderr
    with regard.progress.bars_are_drawn(), progress.over(1):
        time.sleep(0.2)
print("rich" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("False\n", "")


RULES = [regard.Softmax(), regard.Sparsemax(), regard.TopK(3), regard.OneHot()]


@pytest.mark.parametrize("spread", [0.1, 8.0])  # under sparsemax many keys have a weight, or few
@pytest.mark.parametrize("kernels", [False, True])
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: type(rule).__name__)
@pytest.mark.parametrize("mask", [None, regard.Causal(), regard.Selected(torch.arange(2).expand(90, 2))])
def test_what_passes_say_they_did_adds_up(rule, kernels, mask, spread):
    x = torch.randn(2, 90, 3) * spread
    view = weigh(x, x, x, weights=rule, mask=mask, engine=regard.engines.Tiled(1 << 12, kernels=kernels))

    def done(read) -> tuple[int, float]:
        passes = []

        def over(n_passes):
            passes.append(n_passes)
            return Progress.over(view._passes._progress, n_passes)

        view._passes._progress.over = over
        read()
        return passes[0], sum(view._passes._progress._shares)

    for read, expected in (
        (lambda: view.collect(top=2, received=True), 2),
        (lambda: view.received(), 1),
        (lambda: view.output, 1),
        (lambda: view.collect(received=True, map=(2, 2), pool="max"), 2 if kernels else 1),
    ):
        n_passes, shares = done(read)
        assert n_passes == expected
        assert shares == pytest.approx(expected)


def test_a_rule_without_passes_says_how_far_it_is():
    class Squared(regard.Weights):
        kind = "conic"

        def define(self, scores):
            return torch.where(scores == -torch.inf, 0, scores).square()

    view = weigh(torch.randn(9, 2), torch.randn(5, 2), torch.randn(5, 2), weights=Squared())
    view.received()
    assert sum(view._passes._progress._shares) == pytest.approx(1)
