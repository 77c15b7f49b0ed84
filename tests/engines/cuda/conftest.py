"""The kernels for GPUs where there is none: Triton's interpreter runs them, on a CPU."""

from __future__ import annotations

import pytest
import torch

triton = pytest.importorskip("triton")
if not torch.cuda.is_available() and tuple(map(int, triton.__version__.split(".")[:2])) < (3, 9):
    collect_ignore_glob = ["test_*"]  # older interpreters do not know today's NumPy

from regard.engines.cuda.cuda_kernels import CudaKernels
from regard.engines.kernels import dispatch


@pytest.fixture(autouse=True)
def on_this_device(monkeypatch):
    device = "cuda" if torch.cuda.is_available() else "cpu"
    monkeypatch.setitem(dispatch._KERNELS, device, CudaKernels())
