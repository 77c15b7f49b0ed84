"""The kernels for GPUs where there is none: Triton's interpreter runs them, on a CPU."""

from __future__ import annotations

from importlib.metadata import version

import pytest
import torch

from regard.engines.cuda.cuda_kernels import CudaKernels
from regard.engines.kernels import dispatch


@pytest.fixture(autouse=True)
def on_this_device(monkeypatch):
    if torch.cuda.is_available():
        return
    if tuple(map(int, version("triton").split(".")[:2])) < (3, 9):
        pytest.skip("the interpreter of this Triton does not know today's NumPy")
    monkeypatch.setitem(dispatch._KERNELS, "cpu", CudaKernels())
