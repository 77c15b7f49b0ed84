"""The kernels for GPUs where there is none: Triton's interpreter runs them, on a CPU."""

from __future__ import annotations

from importlib.metadata import version

import pytest
import torch

from regard.engines.cuda import program, value_errors
from regard.engines.cuda.cuda_kernels import CudaKernels
from regard.engines.kernels import dispatch


@pytest.fixture(autouse=True, scope="session")
def language_is_replaced_once_a_launch():
    """Triton's interpreter replaces its language again for each function that a kernel calls: half of its time."""
    interpreter = pytest.importorskip("triton.runtime.interpreter")
    language = pytest.importorskip("triton.language")
    replace = interpreter._patch_lang

    def replace_once(function):
        own = [each for each in (language, language.core) if any(each is it for it in function.__globals__.values())]
        is_replaced = own and not any(language.core.is_builtin(each.dot) for each in own)
        return interpreter._LangPatchScope() if is_replaced else replace(function)

    with pytest.MonkeyPatch.context() as patching:
        patching.setattr(interpreter, "_patch_lang", replace_once)
        yield


@pytest.fixture(autouse=True)
def compiled_for_one_kind(monkeypatch):
    """Small problems, too, by the kernels that large ones have; `test_general.py` is for the others."""
    monkeypatch.setattr(program, "SMALL", 0)


@pytest.fixture(autouse=True)
def nothing_told():
    """No test hears of the negative scores of another."""
    yield
    for number in value_errors._TOLD.values():
        if number.is_pinned():
            torch.cuda.synchronize()
        number.zero_()


@pytest.fixture(autouse=True)
def on_this_device(monkeypatch):
    if torch.cuda.is_available():
        return
    if tuple(map(int, version("triton").split(".")[:2])) < (3, 9):
        pytest.skip("the interpreter of this Triton does not know today's NumPy")
    monkeypatch.setitem(dispatch._KERNELS, "cpu", CudaKernels())
