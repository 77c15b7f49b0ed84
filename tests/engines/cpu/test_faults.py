"""Bad input, broken surroundings, and what Numba must and must not do."""

import importlib
import os
import pkgutil
import shutil
import sys
import threading
from pathlib import Path

import pytest
import torch

pytest.importorskip("numba")

import numba

import regard.engines
from regard import (
    Additive,
    Allowed,
    Causal,
    Custom,
    Entmax,
    Gated,
    Laplacian,
    Mask,
    ScaledDot,
    Selected,
    TopK,
    attend,
    weigh,
)
from regard.engines.cpu import kernels
from regard.engines.cpu.kernels import list_loops, tile_gradients, tile_loops
from regard.engines.cpu.passes import choosing
from regard.engines.cpu.runtime import jit, kernel_cache, thread_pool
from regard.engines.cpu.traversal import by_support
from regard.engines.tiled import Tiled
from regard.errors import OptionError, ScoreError, ShapeError

KERNELS, PLAIN = Tiled(kernels=True), Tiled(kernels=False)
N, DIM = 300, 16


@pytest.fixture(autouse=True)
def threads_are_healthy_afterwards(two_threads):
    yield
    q, k, v = (torch.randn(3, N, DIM) for _ in range(3))
    torch.testing.assert_close(attend(q, k, v, engine=KERNELS), attend(q, k, v, engine=PLAIN))
    # Both threads of the pool come.
    meeting = threading.Barrier(2)
    thread_pool.run([lambda: meeting.wait(30)] * 2)


def inputs(heads=3):
    torch.manual_seed(0)
    return [torch.randn(heads, N, DIM, requires_grad=True) for _ in range(3)]


def call(engine=KERNELS, tensors=None, **options):
    q, k, v = tensors or inputs()
    output = attend(q, k, v, engine=engine, **options)
    return [output.detach(), *torch.autograd.grad(output.square().sum(), (q, k, v))]


KINDS = {
    "dot": {},
    "causal": {"mask": Causal()},
    "gated": {"score": Gated(DIM, DIM)},
    "additive": {"score": Additive(DIM, DIM, 8)},
    "laplacian": {"score": Laplacian(1.0)},
    "entmax": {"weights": Entmax(1.5)},
    "dense entmax": {"score": ScaledDot(0.01), "weights": Entmax(1.5)},
    "top": {"weights": TopK(5)},
    "selected": {"mask": Selected(torch.arange(N)[:, None])},
}


# Bad input ------------------------------------------------------------------------------------------------------------


def test_an_error_of_a_users_score_comes_out_as_it_is():
    def score(queries, keys):
        raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine"):
        call(Tiled(), score=Custom(score))


def test_a_score_of_the_wrong_shape_is_named():
    with pytest.raises(ScoreError, match="shape"):
        call(Tiled(), score=Custom(lambda queries, keys: queries.sum(-1)))


@pytest.mark.parametrize("dropout", [-0.1, 1.0, 1.5, float("nan")])
def test_dropout_outside_its_range_is_refused(dropout):
    with pytest.raises(OptionError, match=r"`dropout` must be in \[0, 1\)"):
        call(dropout=dropout)


@pytest.mark.parametrize("alpha", [1.0, 0.5, 4.5, float("nan")])
def test_an_alpha_outside_its_range_is_refused(alpha):
    with pytest.raises(OptionError, match="alpha"):
        call(weights=Entmax(alpha))


def test_a_mask_larger_than_the_problem_is_refused():
    with pytest.raises(ShapeError):
        call(mask=Allowed(torch.ones(N + 1, N, dtype=torch.bool)))
    with pytest.raises(ShapeError):
        call(mask=Selected(torch.zeros(N + 1, 2, dtype=torch.long)))
    with pytest.raises((ShapeError, OptionError)):
        call(mask=Selected(torch.full((N, 2), N)))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("odd", [float("nan"), float("inf")])
def test_what_is_not_finite_among_visible_keys_shows_as_in_the_definition(kind, odd):
    q, k, v = (each.detach() for each in inputs())
    k[1, 7, 3] = odd
    got, wanted = (attend(q, k, v, engine=engine, **KINDS[kind]) for engine in (KERNELS, "reference"))
    torch.testing.assert_close(got, wanted, equal_nan=True, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_the_defaults_of_torch_change_nothing(kind):
    expected = call(**KINDS[kind])
    torch.set_default_dtype(torch.float64)
    try:
        found = call(tensors=[each.float().detach().requires_grad_() for each in inputs_in_float32()], **KINDS[kind])
    finally:
        torch.set_default_dtype(torch.float32)
    with torch.inference_mode():
        found_without_gradient = attend(*inputs(), engine=KERNELS, **KINDS[kind])
    assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))
    assert torch.equal(found_without_gradient, expected[0])


def inputs_in_float32(heads=3):
    torch.manual_seed(0)
    return [torch.randn(heads, N, DIM, dtype=torch.float32) for _ in range(3)]


@pytest.mark.parametrize("kind", ["dot", "gated", "additive", "entmax", "top"])
def test_tensors_on_the_cpu_stay_there_whatever_the_default_device_is(kind):
    tensors = [each.detach() for each in inputs()]
    expected = attend(*tensors, engine=KERNELS, **KINDS[kind])
    with torch.device("meta"):
        assert torch.equal(attend(*tensors, engine=KERNELS, **KINDS[kind]), expected)


# Errors in the middle of the work -------------------------------------------------------------------------------------


def fail_the_second_time(kernel, error):
    calls = []

    def failing(*arguments):
        calls.append(1)
        if len(calls) > 1:
            raise error
        return kernel(*arguments)

    return failing


@pytest.mark.parametrize(
    ("module", "kernel", "kind"),
    [
        (tile_loops, "pool_span", "dot"),
        (tile_gradients, "differentiate_span", "dot"),
        (tile_gradients, "differentiate_span", "additive"),
        (list_loops, "pool_listed", "selected"),
        (list_loops, "differentiate_listed", "top"),
        (by_support, "weigh_candidates", "entmax"),
        (tile_loops, "list_span", "entmax"),
        (choosing, "entmax_strip", "dense entmax"),
        (choosing, "best_strip", "top"),
    ],
)
def test_an_error_inside_a_worker_comes_out(monkeypatch, module, kernel, kind):
    expected = call(**KINDS[kind])
    with monkeypatch.context() as broken:
        failing = fail_the_second_time(getattr(module, kernel), MemoryError("out of memory in a worker"))
        broken.setattr(module, kernel, failing)
        with pytest.raises(MemoryError, match="out of memory in a worker"):
            call(**KINDS[kind])
    assert all(torch.equal(one, other) for one, other in zip(call(**KINDS[kind]), expected, strict=True))


def test_an_error_in_a_users_mask_comes_out():
    class Broken(Mask):
        def allows(self, rows, columns, grid):
            if thread_pool.count() == 1:  # in a worker
                raise LookupError("no such row")
            return columns >= 0

    with pytest.raises(LookupError, match="no such row"):
        call(mask=Broken())


def test_a_users_mask_may_attend():
    class Curious(Mask):
        """Looks at a few keys by the weights of another attention."""

        def allows(self, rows, columns, grid):
            vectors = torch.arange(200.0).reshape(1, 100, 2).cos()
            return attend(vectors, vectors, vectors, engine=KERNELS)[0, 0, 0] + columns * rows >= 0

    for score in (None, Additive(DIM, DIM, 8)):
        options = {} if score is None else {"score": score}
        found, expected = call(mask=Curious(), **options), call(**options)
        for one, other in zip(found, expected, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


def test_a_view_after_an_error_is_right(monkeypatch):
    q, k, v = (each.detach() for each in inputs())
    with monkeypatch.context() as broken:
        broken.setattr(tile_loops, "pool_span", fail_the_second_time(tile_loops.pool_span, MemoryError("none left")))
        view = weigh(q, k, v, engine=KERNELS)
        with pytest.raises(MemoryError, match="none left"):
            _ = view.output
    torch.testing.assert_close(view.output, attend(q, k, v, engine=PLAIN))


# Numba ----------------------------------------------------------------------------------------------------------------


def compiled_functions():
    """Every kernel and helper, by name, those in closures of others too."""
    found = {}

    def visit(name, value):
        value = value.dispatcher if isinstance(value, jit.Kernel) else value
        if numba.extending.is_jitted(value) and id(value) not in seen:
            seen.add(id(value))
            found[name] = value
            for cell in value.py_func.__closure__ or ():
                visit(f"{name}.{value.py_func.__name__}", cell.cell_contents)

    seen = set()
    modules = [
        importlib.import_module(f"{kernels.__name__}.{each.name}") for each in pkgutil.iter_modules(kernels.__path__)
    ]
    for module in (jit, *modules):
        for name, value in vars(module).items():
            visit(f"{module.__name__}.{name}", value)
    return found


def test_kernels_release_the_gil_run_on_one_thread_and_let_nan_pass():
    found = compiled_functions()
    assert len(found) > 50
    for name, function in found.items():
        options = function.targetoptions
        assert options.get("nogil") is True, name
        assert not options.get("parallel"), name
        assert options.get("error_model") == "numpy", name
        assert set(options["fastmath"]) <= {"contract", "reassoc", "arcp", "nsz"}, name


def test_another_source_makes_another_name(tmp_path, monkeypatch):
    engines = Path(regard.engines.__file__).parent
    shutil.copytree(engines, tmp_path / "engines", ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(kernel_cache, "__file__", str(tmp_path / "engines/cpu/runtime/kernel_cache.py"))
    fingerprint = kernel_cache.fingerprint.__wrapped__
    sources = ["kernels/codes.py", "cpu/kernels/row_steps.py", "cpu/runtime/jit.py", "cpu/runtime/signatures.py"]
    names = [fingerprint()]
    for source in sources:
        with (tmp_path / "engines" / source).open("a") as file:
            file.write("# changed")
        names.append(fingerprint())
    assert len(set(names)) == 1 + len(sources)
    (tmp_path / "engines/cpu/passes/forward.py").write_text("nothing is compiled here")
    assert fingerprint() == names[-1]


SMALL_CALL = """
import sys, torch
from regard import attend
from regard.engines.tiled import Tiled

torch.manual_seed(0)
q, k, v = (torch.randn(2, {n}, 16, requires_grad=True) for _ in range(3))
def difference(**options):
    return (attend(q, k, v, **options) - attend(q, k, v, engine="reference")).detach().abs().max().item()
"""


def test_numba_is_not_imported_for_small_calls(child):
    child(SMALL_CALL.format(n=8) + "assert difference() < 1e-5 and 'numba' not in sys.modules")


def test_without_numba_all_runs_in_plain_torch(child):
    code = """
import sys
sys.modules["numba"] = None  # as if it were not installed
"""
    code += SMALL_CALL.format(n=300)
    code += """
from regard import Additive, Entmax, TopK, weigh
assert difference(engine="tiled") < 1e-5
for options in ({"score": Additive(16, 16, 8)}, {"weights": Entmax(1.5)}, {"weights": TopK(3)}):
    attend(q, k, v, engine="tiled", **options).sum().backward()
    weigh(q.detach(), k.detach(), v.detach(), engine="tiled", **options).collect(top=2, received=True)
from regard.cli.doctor import examine
print(examine()["kernels"])
"""
    assert child(code) == "Numba is not installed: pip install regard[fast]\n"


def test_a_numba_that_cannot_be_imported_is_named_once(child, tmp_path):
    (tmp_path / "numba.py").write_text('raise ImportError("Numba needs NumPy 2.2 or less")')
    code = """
import warnings
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    assert difference(engine="tiled") < 1e-5
    assert difference(engine="tiled") < 1e-5
print(*(each.message for each in caught))
from regard.cli.doctor import examine
assert "Numba needs NumPy 2.2 or less" in examine()["kernels"]
"""
    assert child(SMALL_CALL.format(n=300) + code) == (
        "regard runs in plain torch, which is slower. "
        "Numba is installed but cannot be imported: Numba needs NumPy 2.2 or less\n"
    )


NOWHERE = os.path.join(os.devnull, "nowhere")


def test_attention_runs_by_kernels_where_the_users_folder_cannot_be_written(child):
    code = SMALL_CALL.format(n=300) + "with torch.no_grad(): assert difference(engine=Tiled(kernels=True)) < 1e-5"
    child(code, NUMBA_CACHE_DIR=NOWHERE)


def test_a_process_compiles_a_kernel_for_itself_where_no_folder_can_be_written(child):
    # One that is quickly compiled: those of an attention take half a minute.
    code = f"""
import pathlib, tempfile
import numpy as np
from regard.engines.cpu.runtime import background_compilation, kernel_cache
kernel_cache._places, tempfile.tempdir = lambda: [pathlib.Path({NOWHERE!r})], {NOWHERE!r}
from regard.engines.cpu.kernels.tile_gradients import turn
assert background_compilation.are_ready(frozenset([turn.name]))
matrix, turned = np.arange(20, dtype=np.float32).reshape(4, 5), np.empty((3, 4), np.float32)
turn(matrix, 2, turned)
assert (turned == matrix.T[2:]).all()
assert kernel_cache.writable() is None
"""
    child(code)


# Memory ---------------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_backward_pass_needs_less_memory_than_one_matrix_of_scores(child):
    code = """
import torch
from regard import Additive, attend
from regard.engines.tiled import Tiled

torch.set_num_threads(2)

def peak():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) / 1024

def call(n, score):
    q, k, v = (torch.randn(1, 1, n, 64, requires_grad=True) for _ in range(3))
    attend(q, k, v, engine=Tiled(kernels=True), **score).sum().backward()

for score in ({}, {"score": Additive(64, 64, 64)}):
    call(512, score)
    before = peak()
    call(4096, score)
    print(peak() - before)
"""
    grown = [float(line) for line in child(code).split()]
    assert len(grown) == 2
    assert max(grown) < 40  # MiB; one matrix of scores has 64, and inputs, gradients and scratch some 25
