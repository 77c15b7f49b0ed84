"""A torch that lacks what is private in it: everything is computed all the same, more slowly."""

import ast
from pathlib import Path

import pytest
import torch

import regard
from regard import attend, plan
from regard.engines import ENGINES, Tiled, torch_internals
from regard.engines.cpu import missing, unusable
from regard.engines.kernels.dispatch import why_plain
from regard.problem import make_problem

ROOT = Path(regard.__file__).parent


def tensors(*shape):
    torch.manual_seed(0)
    return [torch.randn(*shape, requires_grad=True) for _ in range(3)]


def output_and_gradients(given, **options):
    output = attend(*given, **options)
    return [output.detach(), *torch.autograd.grad(output.square().sum(), given)]


def assert_same(found, expected):
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("mask", [None, regard.Causal()], ids=str)
def test_without_the_choice_of_kernels_others_compute_what_sdpa_would(monkeypatch, mask):
    given = tensors(2, 3, 40, 8)
    expected = output_and_gradients(given, mask=mask)
    assert plan(*given, mask=mask).engine == "sdpa"
    monkeypatch.setattr(torch_internals, "_choice", None)
    assert plan(*given, mask=mask).engine != "sdpa"
    assert_same(output_and_gradients(given, mask=mask), expected)


@pytest.mark.parametrize("lacking", ["flash", "flash_gradients"])
@pytest.mark.parametrize("mask", [None, regard.Causal()], ids=str)
def test_without_flash_attention_by_name_autograd_keeps_what_its_gradient_needs(monkeypatch, lacking, mask):
    given = tensors(2, 3, 40, 8)
    expected = output_and_gradients(given, mask=mask, engine="sdpa")
    monkeypatch.setattr(torch_internals, lacking, None)
    assert_same(output_and_gradients(given, mask=mask, engine="sdpa"), expected)


def test_an_operator_that_torch_lacks_is_none():
    assert torch_internals._operator("no_such_operator") is None


@pytest.fixture
def no_library(monkeypatch):
    """A torch whose library shows nothing."""
    cached = (torch_internals.sgemm_address, missing, unusable)
    monkeypatch.setattr(torch_internals, "_library", lambda: None)
    for each in cached:
        each.cache_clear()
    yield
    monkeypatch.undo()
    for each in cached:
        each.cache_clear()


def test_without_a_matrix_product_to_call_there_are_no_kernels(no_library):
    given = tensors(1, 200, 8)
    problem = make_problem(*given, score=regard.Dot(), weights=regard.Sigmoid())
    assert why_plain(problem) == "torch's library does not show its matrix product (sgemm)"
    assert (
        "(in plain torch: torch's library does not show"
        in plan(*given, weights=regard.Sigmoid(), engine="tiled").reason
    )
    found = output_and_gradients(given, weights=regard.Sigmoid(), engine="tiled")
    assert_same(found, output_and_gradients(given, weights=regard.Sigmoid(), engine="reference"))
    assert Tiled(kernels=True).refusals(problem)


def test_without_its_threads_to_set_torch_is_told_how_many(no_library):
    assert not torch_internals.use_one_core()
    torch_internals.rest_openmp()
    with torch_internals.on_one_core():
        pass


PRIVATE = {"_fused_sdp_choice", "_scaled_dot_product_flash_attention_for_cpu", "sgemm_", "ctypes"}


def test_one_file_names_what_is_private_in_torch_for_engines():
    assert ENGINES
    for path in (ROOT / "engines").rglob("*.py"):
        if path.name == "torch_internals.py":
            continue
        names = {
            getattr(node, "attr", None) or getattr(node, "name", None)
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
            if isinstance(node, ast.Attribute | ast.alias)
        }
        # `array.ctypes.data` is NumPy's, and public.
        found = (names & PRIVATE) - ({"ctypes"} if "import ctypes" not in path.read_text(encoding="utf-8") else set())
        assert not found, path
