"""The kernels for GPUs where there is none: Triton's interpreter runs them, on a CPU."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton")

from regard.engines.cuda.cuda_kernels import CudaKernels
from regard.engines.kernels import dispatch


@pytest.fixture(autouse=True)
def on_this_device(monkeypatch):
    device = "cuda" if torch.cuda.is_available() else "cpu"
    monkeypatch.setitem(dispatch._KERNELS, device, CudaKernels())
