"""Kernels that are not compiled yet: plain torch answers while another process compiles them."""

import json
import os
import re
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import torch

pytest.importorskip("numba")

import regard
from regard import attend, plan, weigh
from regard.engines import Tiled
from regard.engines.cpu.needed_kernels import needed_kernels
from regard.engines.cpu.runtime import background_compilation, jit, kernel_cache
from regard.engines.kernels.dispatch import why_plain
from regard.errors import EngineRefusal
from regard.problem import make_problem
from regard.scores.form import DotForm


def problem(n=300, **options):
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, n, 16) for _ in range(3))
    return make_problem(q, k, v, **{"score": regard.ScaledDot(), "weights": regard.Sigmoid(), **options})


@pytest.fixture
def nothing_is_compiled(monkeypatch, tmp_path):
    """An empty folder for machine code, and kernels that have none; no process is started: returns what was asked."""
    for name in KEPT:
        jit.KERNELS[name].prepare()
        kept[name] = kept.get(name) or kernel_cache.read(name)
    asked = []
    monkeypatch.setattr(background_compilation, "request", lambda names: asked.append(sorted(names)) or False)
    monkeypatch.setattr(background_compilation, "_state", background_compilation._State())
    monkeypatch.setattr(kernel_cache, "folders", lambda: (tmp_path / "regard-test",))
    for kernel in jit.KERNELS.values():
        monkeypatch.setattr(kernel, "_ready", False)
        monkeypatch.setattr(kernel, "_stored", None)
    return asked


def fill(tmp_path, names):
    """Machine code in the folder of a test, from where it really is."""
    kernel_cache.folders()[0].parent.mkdir(exist_ok=True)
    for name in names:
        kernel_cache.write(name, kept[name])


# Kernels whose machine code these tests write: of a sigmoid's forward pass, and one that is compiled in a moment.
KEPT, kept = {"tile_loops.pool_span", "channel_loops.pack_queries"}, {}

ROUTES = {
    "sigmoid forward": ({}, False, False),
    "sigmoid training": ({}, True, False),
    "additive training": ({"score": lambda: regard.Additive(16, 16, 8)}, True, False),
    "entmax training": ({"weights": lambda: regard.Entmax(1.5)}, True, False),
    "top-k": ({"weights": lambda: regard.TopK(5)}, True, False),
    "gated": ({"score": lambda: regard.Gated(16, 16)}, True, False),
    "a view": ({}, False, True),
}


@pytest.mark.parametrize("route", ROUTES)
def test_plain_torch_answers_while_kernels_are_not_compiled(nothing_is_compiled, monkeypatch, route):
    options, training, reads = ROUTES[route]
    options = {name: make() for name, make in options.items()}
    options.setdefault("weights", regard.Sigmoid())
    torch.manual_seed(0)
    tensors = [torch.randn(2, 300, 16, requires_grad=training) for _ in range(3)]

    def call(**engine):
        if reads:
            return [weigh(*tensors, **options, **engine).received()]
        output = attend(*tensors, **options, **engine)
        gradients = torch.autograd.grad(output.square().sum(), tensors) if training else ()
        return [output.detach(), *gradients]

    for kernel in jit.KERNELS.values():
        monkeypatch.setattr(kernel, "prepare", lambda: pytest.fail("a kernel was compiled, or called"))
    found, plain = call(engine="tiled"), call(engine=Tiled(kernels=False))
    assert all(torch.equal(one, other) for one, other in zip(found, plain, strict=True))
    assert nothing_is_compiled  # somebody was asked to compile them
    assert "kernels are being compiled: 0 of" in str(plan(*tensors, **options, engine="tiled"))


def test_the_plan_tells_of_kernels_once_they_are_there(nothing_is_compiled, tmp_path):
    given = problem()
    needed = needed_kernels(given)
    assert why_plain(given) == f"kernels are being compiled: 0 of {len(needed)} are there"
    assert nothing_is_compiled[-1] == sorted(needed)
    fill(tmp_path, needed)
    assert why_plain(given) is None


def test_the_planner_counts_on_kernels_only_where_they_are(nothing_is_compiled, tmp_path):
    given = problem(n=600)
    names = {"score": given.score, "weights": given.rule}
    before = plan(given.queries, given.keys, given.values, **names)
    assert "in plain torch: kernels are being compiled" in before.reason
    fill(tmp_path, needed_kernels(given))
    after = plan(given.queries, given.keys, given.values, **names)
    assert (after.engine, "(compiled kernels)" in after.reason) == ("tiled", True)


@pytest.mark.parametrize("damage", ["cut", "garbage", "empty", "a bit", "a folder"])
def test_damaged_kernel_cache_is_not_run_but_made_again(nothing_is_compiled, tmp_path, damage):
    name = "channel_loops.pack_queries"  # which is compiled in a moment
    fill(tmp_path, [name])
    path = kernel_cache._path(kernel_cache.folders()[0], name)
    whole = path.read_bytes()
    if damage == "a folder":
        path.unlink()
        path.mkdir()
    else:
        flipped = bytes([whole[99] ^ 1])
        made = {
            "cut": whole[:1000],
            "garbage": os.urandom(500),
            "empty": b"",
            "a bit": whole[:99] + flipped + whole[100:],
        }
        path.write_bytes(made[damage])
    kernel = fresh(name)
    assert not kernel.fetch()
    kernel.prepare()
    assert kernel.dispatcher.stats.cache_misses  # compiled
    if damage != "a folder":
        assert fresh(name).fetch()  # and mended on disk


def test_kernel_cache_of_another_making_is_compiled_again(nothing_is_compiled, tmp_path):
    name = "channel_loops.pack_queries"
    kernel_cache.write(name, b"not a pickle, though its digest is right")
    kernel = fresh(name)
    assert kernel.fetch()
    kernel.prepare()
    assert kernel.dispatcher.stats.cache_misses


def fresh(name):
    """The same kernel as in a new process."""
    known = jit.KERNELS[name]
    return jit.Kernel(known.dispatcher.py_func, known.signature)


@pytest.mark.skipif(not hasattr(os, "getuid") or os.getuid() == 0, reason="root may read everything")
def test_kernel_cache_that_may_not_be_read_is_made_again(nothing_is_compiled, tmp_path):
    name = "channel_loops.pack_queries"
    fill(tmp_path, [name])
    path = kernel_cache._path(kernel_cache.folders()[0], name)
    path.chmod(0)
    assert not fresh(name).fetch()
    assert stat.S_IMODE(path.stat().st_mode) == 0


def test_a_folder_that_can_only_be_read_is_read(monkeypatch, tmp_path):
    first, second = tmp_path / "image", tmp_path / "user"
    monkeypatch.setattr(kernel_cache, "_places", lambda: [first, second])
    monkeypatch.setattr(kernel_cache, "folders", kernel_cache.folders.__wrapped__)
    first.mkdir()
    second.mkdir()
    kernel_cache.write("x", b"from the image")
    monkeypatch.setattr(kernel_cache, "_can_write", lambda place: place != first)
    assert kernel_cache.read("x") == b"from the image"
    kernel_cache.write("y", b"mine")
    assert [path.name for path in second.rglob("*.code")] == ["y.code"]


def test_kernels_have_one_signature_and_refuse_any_other():
    kernel = jit.KERNELS["channel_loops.pack_queries"]
    kernel.prepare()
    assert list(kernel.dispatcher.overloads) == [kernel.signature]
    with pytest.raises(TypeError, match="No matching definition"):
        kernel(torch.zeros(2, 4, dtype=torch.float64).numpy(), torch.zeros(2, 1, 4).numpy())


def test_an_argument_without_a_type_is_named():
    with pytest.raises(TypeError, match="mysterious has unheard_of"):

        @jit.kernel
        def mysterious(scores, unheard_of):
            """Does nothing."""


# Who compiles ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def started(monkeypatch, tmp_path):
    """Processes that were started, of which none does anything."""
    commands, ended = [], threading.Event()

    class Process:
        def __init__(self, command, **options):
            commands.append((command, options))

        def wait(self):
            ended.wait(30)

    monkeypatch.setattr(background_compilation, "_state", background_compilation._State())
    monkeypatch.setattr(kernel_cache, "folders", lambda: (tmp_path / "regard-test",))
    monkeypatch.setattr(background_compilation.subprocess, "Popen", Process)
    commands.append(ended)
    yield commands
    ended.set()


REQUEST = background_compilation.request


def test_one_process_is_started_however_often_it_is_asked(started):
    for _ in range(3):
        assert not REQUEST(["tile_gradients.turn"])
    (command, options) = started[1]
    assert len(started) == 2
    assert command[-1] == "tile_gradients.turn"
    assert json.loads(command[3]) == sys.path
    assert options["start_new_session"]
    assert {options[name] for name in ("stdin", "stdout", "stderr")} == {subprocess.DEVNULL}


def test_no_process_is_started_while_another_compiles(started):
    with background_compilation.only_one() as alone:
        assert alone
        assert not REQUEST(["tile_gradients.turn"])
        assert "being compiled" in background_compilation.why_not_ready(["tile_gradients.turn"])
    assert len(started) == 1
    assert not REQUEST(["tile_gradients.turn"])
    assert len(started) == 2


def test_a_process_that_ends_too_early_is_started_once_more_and_then_given_up(started):
    started[0].set()
    for _ in range(4):
        REQUEST(["tile_gradients.turn"])
        while background_compilation._state.runs:
            time.sleep(0.001)
    assert len(started) == 1 + background_compilation.MOST_STARTS
    assert "could not be compiled" in background_compilation.why_not_ready(["tile_gradients.turn"])


def test_a_terminal_is_told_once_and_nobody_else(started, monkeypatch, capsys):
    REQUEST(["tile_gradients.turn"])
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(background_compilation, "_state", background_compilation._State())
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    REQUEST(["tile_gradients.turn"])
    REQUEST(["tile_gradients.turn"])
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "compiles its kernels in the background" in said
    assert "regard warm-up" in said


def test_where_nothing_can_be_kept_kernels_are_compiled_at_once(monkeypatch):
    made = []
    monkeypatch.setattr(background_compilation, "_state", background_compilation._State())
    monkeypatch.setattr(kernel_cache, "writable", lambda: None)
    monkeypatch.setattr(jit.KERNELS["tile_gradients.turn"], "prepare", lambda: made.append(1))
    assert REQUEST(["tile_gradients.turn"])
    assert made


def test_a_process_of_its_own_compiles_what_was_asked_first_and_leaves_nothing_behind(child, tmp_path):
    # The process that compiles is let do one kernel, and the one it is at: it ends when its folder is gone.
    code = """
import os, time
from regard.engines.cpu.runtime import kernel_cache
from regard.engines.cpu.runtime import background_compilation
asked = ["channel_loops.pack_queries", "tile_gradients.turn"]
assert not background_compilation.request(asked)
folder = kernel_cache.writable()
deadline = time.monotonic() + 300
while kernel_cache.read(asked[0]) is None and time.monotonic() < deadline:
    time.sleep(0.05)
assert f"{asked[0]}.code" in {path.name for path in folder.glob("*.code")} <= {f"{name}.code" for name in asked}
os.rename(folder.parent, str(folder.parent) + "-gone")
while background_compilation._state.runs and time.monotonic() < deadline:
    time.sleep(0.05)
assert not background_compilation._state.runs
assert not [line for line in os.popen("ps -o stat= --ppid %d" % os.getpid()) if line.startswith("Z")]
"""
    child(code, seconds=400, NUMBA_CACHE_DIR=str(tmp_path / "kept"))


# What is asked for ----------------------------------------------------------------------------------------------------


def test_nobody_compiles_for_one_who_has_ended_with_his_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "gone"))
    monkeypatch.setattr(background_compilation, "_step_back", lambda: pytest.fail("it begins to compile"))
    background_compilation.compile_in_background(["tile_loops.pool_span"])
    assert not (tmp_path / "gone").exists()


def test_kernels_that_are_asked_for_are_waited_for(nothing_is_compiled):
    assert why_plain(problem(), asked=True) is None
    assert why_plain(problem(n=3), asked=True) is None
    assert not nothing_is_compiled


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"score": regard.Custom(lambda q, k: q @ k.mT)}, "the kernels do not have Custom"),
        ({"score": regard.Additive(16, 16, 4), "weights": regard.TopK(2)}, "Additive under a choice of keys"),
        ({"weights": regard.Entmax(torch.nn.Parameter(torch.tensor(1.5)))}, "a learned alpha of Entmax"),
    ],
)
def test_kernels_that_are_asked_for_refuse_what_they_do_not_support(options, reason):
    given = problem(**options)
    with pytest.raises(EngineRefusal, match=reason):
        Tiled(kernels=True).run(given)
    tensors, named = (given.queries, given.keys, given.values), {"score": given.score, "weights": given.rule}
    for call in (attend, plan):
        with pytest.raises(EngineRefusal, match=reason):
            call(*tensors, **named, engine=Tiled(kernels=True))
    said = plan(*tensors, **named, engine=Tiled())
    assert f"in plain torch: {why_plain(given)}" in said.reason
    assert reason in said.reason


def test_float64_is_refused_by_kernels_that_are_asked_for():
    q = torch.randn(100, 4, dtype=torch.float64)
    with pytest.raises(EngineRefusal, match="compute in float32, not float64"):
        attend(q, q, q, engine=Tiled(kernels=True))


def test_what_takes_a_step_or_rule_away_shows(monkeypatch):
    from regard.engines.kernels import support

    given = problem(score=regard.SoftCap(regard.ScaledDot(), 5.0))
    assert isinstance(given.form, DotForm)
    assert why_plain(given, asked=True) is None
    monkeypatch.setattr(support, "STEPS", support.STEPS[:2])
    assert why_plain(given, asked=True) == "the kernels do not have Cap"


def test_sources_of_kernel_cache_lie_in_one_folder_and_are_compiled_ahead():
    """A kernel elsewhere would be kept when its source changes, and `regard warm-up` would not know it."""
    package = Path(regard.__file__).parent
    sources = [
        path for path in package.rglob("*.py") if re.search(r"^@kernel|jit import .*\bkernel\b", path.read_text(), re.M)
    ]
    assert {path.parent for path in sources} == {package / "engines" / "cpu" / "kernels"}
    assert {path.stem for path in sources} == {name.partition(".")[0] for name in background_compilation.kernels()}


def test_a_forked_child_knows_how_often_compiling_was_tried(monkeypatch):
    monkeypatch.setattr(background_compilation, "_state", background_compilation._State())
    background_compilation._state.starts, background_compilation._state.runs = background_compilation.MOST_STARTS, True
    background_compilation._forget()
    assert (background_compilation._state.starts, background_compilation._state.runs) == (
        background_compilation.MOST_STARTS,
        False,
    )
