"""A kernel that was launched before is launched again as it is; anything that it was compiled for makes another one."""

from __future__ import annotations

import io
import sys
import threading
from contextlib import nullcontext

import pytest
import torch

pytest.importorskip("triton")

from regard import Dot, SoftCap, Softmax
from regard.engines.cuda import launcher
from regard.engines.cuda.batch import Batch
from regard.engines.cuda.launcher import launch
from regard.engines.cuda.layout import Layout, layout_of
from regard.engines.cuda.program import translate
from regard.engines.kernels.terminal import Notice
from regard.problem import make_problem


class Kernel:
    """What Triton makes of a function of two arguments and two constants, and what it compiles it to."""

    arg_names = ("x", "y", "A", "B")

    def __init__(self):
        self.compilations, self.launches = [], []

    def __getitem__(self, grid):
        def run(*arguments, **constants):
            self.compilations.append((grid, arguments, constants))
            return Compiled(self.launches)

        return run


class Compiled:
    def __init__(self, launches):
        self.launches = launches

    def __getitem__(self, grid):
        return lambda *arguments: self.launches.append((grid, arguments))


def empty_layout():
    return Layout(Batch((), ((), (), ())), ())


def run(kernel, layout, x, *, variant=(), n_programs=3):
    constants = {"B": 2, "A": 1}
    launch(kernel, n_programs, (x, 5), constants, {"num_warps": 4}, layout=layout, variant=variant, fresh=(x,))


def test_a_kernel_is_compiled_once_and_its_constants_keep_their_order():
    kernel, layout, x = Kernel(), empty_layout(), torch.empty(64)
    run(kernel, layout, x)
    run(kernel, layout, x, n_programs=7)
    assert kernel.compilations == [((3,), (x, 5), {"B": 2, "A": 1, "num_warps": 4})]
    assert kernel.launches == [((7, 1, 1), (x, 5, 1, 2))]


def test_another_variant_and_another_alignment_are_other_kernels():
    kernel, layout, x = Kernel(), empty_layout(), torch.empty(64)
    run(kernel, layout, x)
    run(kernel, layout, x, variant=("safe",))
    run(kernel, layout, x[1:])  # which begins at no multiple of 16 bytes
    run(kernel, empty_layout(), x)
    assert len(kernel.compilations) == 4
    assert not kernel.launches


class Slow(Kernel):
    """One that is compiled until somebody lets it end."""

    def __init__(self):
        super().__init__()
        self.begun, self.ends = threading.Event(), threading.Event()

    def __getitem__(self, grid):
        compiled = super().__getitem__(grid)

        def run(*arguments, **constants):
            self.begun.set()
            assert self.ends.wait(30)
            return compiled(*arguments, **constants)

        return run


class Screen:
    """A stderr that is a terminal or not, and keeps what is written."""

    def __init__(self, terminal):
        self.terminal, self.text, self.written = terminal, "", threading.Event()

    def isatty(self):
        return self.terminal

    def write(self, text):
        self.text += text
        self.written.set()

    def flush(self):
        pass


def screen_for(monkeypatch, *, terminal=True, after=0.0):
    screen = Screen(terminal)
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setattr(launcher, "_notice", Notice(launcher._notice.text, after))
    return screen


def test_who_waits_for_a_compilation_at_a_terminal_is_told_while_it_runs_and_once(monkeypatch):
    screen, kernel, x = screen_for(monkeypatch), Slow(), torch.empty(64)
    threads = [threading.Thread(target=run, args=(kernel, empty_layout(), x)) for _ in range(4)]
    for thread in threads:
        thread.start()
    assert screen.written.wait(30)
    assert not kernel.compilations
    kernel.ends.set()
    for thread in threads:
        thread.join()
    run(kernel, empty_layout(), x)
    assert len(kernel.compilations) == 5
    assert screen.text.count("\n") == 1
    assert screen.text.startswith("regard compiles kernels for this GPU")


def timers():
    return [each for each in threading.enumerate() if isinstance(each, threading.Timer)]


@pytest.mark.parametrize("stderr", ["a file", "closed", "none"])
def test_nothing_is_said_where_there_is_no_terminal(stderr, monkeypatch):
    screen, kernel, before = screen_for(monkeypatch, terminal=False, after=3600.0), Slow(), timers()
    if stderr != "a file":
        closed = io.StringIO()
        closed.close()
        monkeypatch.setattr(sys, "stderr", closed if stderr == "closed" else None)
    thread = threading.Thread(target=run, args=(kernel, empty_layout(), torch.empty(64)))
    thread.start()
    assert kernel.begun.wait(30)
    assert timers() == before
    kernel.ends.set()
    thread.join()
    assert len(kernel.compilations) == 1
    assert screen.text == ""


def test_a_kernel_that_is_there_at_once_and_one_that_fails_are_not_talked_about(monkeypatch):
    screen, layout, x = screen_for(monkeypatch, after=3600.0), empty_layout(), torch.empty(64)
    before = set(timers())
    run(Kernel(), layout, x)
    with pytest.raises(TypeError):
        run(None, layout, x)
    for timer in set(timers()) - before:
        timer.join(30)
        assert not timer.is_alive()
    assert screen.text == ""


def test_a_kernel_that_was_launched_before_asks_for_no_terminal(monkeypatch):
    kernel, layout, x = Kernel(), empty_layout(), torch.empty(64)
    run(kernel, layout, x)
    monkeypatch.setattr(launcher, "_notice", None)
    run(kernel, layout, x)
    assert len(kernel.launches) == 1


def program_of(q, **options):
    return translate(make_problem(q, q, q, score=SoftCap(Dot(), 2.0), weights=Softmax(), **options))


def test_calls_of_one_kind_share_a_layout():
    one, two = program_of(torch.randn(2, 20, 8)), program_of(torch.randn(2, 20, 8))
    assert one.layout is two.layout
    others = [
        program_of(torch.randn(2, 21, 8)),
        program_of(torch.randn(20, 2, 8).transpose(0, 1)),
        program_of(torch.randn(2, 20, 8).to(torch.bfloat16)),
        program_of(torch.randn(2 * 20 * 8 + 1)[1:].view(2, 20, 8)),
        program_of(torch.randn(2, 20, 8), dropout=0.5),
    ]
    assert len({id(each.layout) for each in (one, *others)}) == 6


def test_what_needs_more_than_three_batch_axes_has_no_layout():
    scattered = torch.empty(2, 2, 2, 2, 3, 4).permute(3, 2, 1, 0, 4, 5)
    plain = torch.empty(2, 2, 2, 2, 3, 4)
    assert layout_of((), (2, 2, 2, 2), [(scattered, 2), (plain, 2)]) is None


def test_launches_that_may_wait_are_made_in_their_order_at_the_end():
    kernels, layout, x = [Kernel(), Kernel()], empty_layout(), torch.empty(64)
    run(kernels[0], layout, x)
    with launcher.compiled_together():
        run(kernels[0], layout, x)  # which is compiled: nobody waits for others yet
        assert len(kernels[0].launches) == 1
        run(kernels[1], layout, x)
        run(kernels[0], layout, x)
        assert len(kernels[0].launches) == 1
        with launcher.compiled_together():
            run(kernels[1], layout, x)
        assert not kernels[1].compilations
    assert len(kernels[0].launches) == 2
    assert (len(kernels[1].compilations), len(kernels[1].launches)) == (1, 1)
    run(kernels[1], layout, x)
    assert len(kernels[1].launches) == 2


def test_nothing_is_launched_where_the_body_fails():
    kernel, layout = Kernel(), empty_layout()

    def failing():
        with launcher.compiled_together():
            run(kernel, layout, torch.empty(64))
            raise KeyError

    with pytest.raises(KeyError):
        failing()
    assert not kernel.compilations
    run(kernel, layout, torch.empty(64))
    assert len(kernel.compilations) == 1


def test_several_kernels_are_compiled_and_loaded_at_the_same_time(monkeypatch):
    import triton

    meetings, met = [threading.Barrier(2, timeout=20) for _ in range(2)], []

    class Loading:
        @property
        def run(self):
            met.append(meetings[1].wait())

    class Compiling(Kernel):
        def warmup(self, *arguments, grid, **constants):
            return active().submit(id(self), compiled, ignored, ignored)

    def compiled():
        met.append(meetings[0].wait())
        return Loading()

    def ignored(made):
        pass

    active = triton.runtime._async_compile.active_mode.get
    monkeypatch.setattr(triton, "JITFunction", Kernel)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "device", lambda device: nullcontext())
    kernels, layout, x = [Compiling(), Compiling()], empty_layout(), torch.empty(64)
    with launcher.compiled_together():
        for kernel in kernels:
            run(kernel, layout, x)
    assert [len(kernel.compilations) for kernel in kernels] == [1, 1]
    assert len(met) == 4


def test_what_cannot_be_compiled_is_told_by_its_launch_and_triton_goes_on(monkeypatch):
    import triton

    class Failing(Kernel):
        def warmup(self, *arguments, grid, **constants):
            return active().submit(id(self), lambda: 1 / 0, None, lambda made: None)

        def __getitem__(self, grid):
            raise ZeroDivisionError

    active = triton.runtime._async_compile.active_mode.get
    monkeypatch.setattr(triton, "JITFunction", Kernel)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "device", lambda device: nullcontext())
    layout, x = empty_layout(), torch.empty(64)

    def failing():
        with launcher.compiled_together():
            run(Failing(), layout, x)
            run(Failing(), layout, x)

    with pytest.raises(ZeroDivisionError):
        failing()
    assert active() is None
