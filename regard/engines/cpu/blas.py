"""Torch's own libraries: the matrix product of its BLAS, as an address for kernels, and how many cores it uses."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import torch

_LIBRARIES = ("libtorch_cpu.so", "torch_cpu.dll", "libtorch_cpu.dylib")


@cache
def _library() -> ctypes.CDLL | None:
    folder = Path(torch.__file__).parent / "lib"
    for name in _LIBRARIES:
        if (folder / name).exists():
            try:
                return ctypes.CDLL(str(folder / name))
            except OSError:
                continue
    return None


@cache
def sgemm_address() -> int | None:
    """Where `sgemm` is; None where torch's library does not show it."""
    function = getattr(_library(), "sgemm_", None)
    return None if function is None else ctypes.cast(function, ctypes.c_void_p).value


def use_one_core() -> bool:
    """Have torch and its BLAS use one core in this thread; returns whether they do now.

    As torch.set_num_threads(1), which would also change what threads use that are yet to begin.
    """
    torch.get_num_threads()  # a thread that never asked would take the number of others later on
    set_openmp = getattr(_library(), "omp_set_num_threads", None)
    if set_openmp is None:
        return False
    set_openmp(1)
    set_mkl = getattr(_library(), "MKL_Set_Num_Threads_Local", None)
    if set_mkl is not None:  # other libraries ask OpenMP
        set_mkl(1)
    return torch.get_num_threads() == 1


@contextmanager
def on_one_core() -> Iterator[None]:
    """Have the BLAS use one core in this thread for a while: it adds in the same order then as in any other thread."""
    set_mkl = getattr(_library(), "MKL_Set_Num_Threads_Local", None)
    before = None if set_mkl is None else set_mkl(1)
    try:
        yield
    finally:
        if set_mkl is not None:
            set_mkl(before)


def rest_openmp() -> None:
    """Send torch's own threads of this thread to rest: they come again with torch's next parallel operation.

    After one they would go on spinning for milliseconds, in case of another, on the cores that kernels are about to
    use.
    """
    pause = getattr(_library(), "omp_pause_resource_all", None)
    if pause is not None:
        pause(1)  # omp_pause_soft
