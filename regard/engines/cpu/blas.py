"""The matrix product of the BLAS that torch brings, as an address that compiled kernels call."""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path

import torch

_LIBRARIES = ("libtorch_cpu.so", "torch_cpu.dll", "libtorch_cpu.dylib")


@cache
def sgemm_address() -> int | None:
    """Where `sgemm` is; None where torch's library does not show it."""
    folder = Path(torch.__file__).parent / "lib"
    for name in _LIBRARIES:
        if (folder / name).exists():
            try:
                function = ctypes.CDLL(str(folder / name)).sgemm_
            except (OSError, AttributeError):
                continue
            return ctypes.cast(function, ctypes.c_void_p).value
    return None
