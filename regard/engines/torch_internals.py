"""What is private in torch and used here, in one place: another torch may lack it, and then each has a way without.

- which of its kernels `scaled_dot_product_attention` would take: without an answer, `sdpa` leaves all to others;
- its flash attention by name, with what its gradient needs: without it, autograd keeps a graph of its own;
- the matrix product of its BLAS as an address: without it there are no compiled kernels;
- how many cores its libraries use in one thread: without that, `torch.set_num_threads` says it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend

_LIBRARIES = ("libtorch_cpu.so", "torch_cpu.dll", "libtorch_cpu.dylib")

_MATH = int(SDPBackend.MATH.value)

_choice = getattr(torch, "_fused_sdp_choice", None)


def backend_of(query: Tensor, key: Tensor, value: Tensor, **options: Any) -> int:
    """Which kernel `scaled_dot_product_attention` would take, as a value of SDPBackend; MATH if nobody knows."""
    return _MATH if _choice is None else int(_choice(query, key, value, **options))


def allows_tf32() -> bool:
    """Whether torch was told that products of float32 on a GPU may have the digits of TF32, in either of its words."""
    newer = getattr(torch.backends.cuda.matmul, "fp32_precision", "none")
    if newer != "none":
        return str(newer) == "tf32"
    try:
        return torch.get_float32_matmul_precision() != "highest"
    except RuntimeError:  # both were used
        return False


def _operator(name: str) -> Any:
    return getattr(getattr(torch.ops.aten, name, None), "default", None)


# What scaled_dot_product_attention comes to on a CPU. Called by name, it hands over what its gradient needs.
flash = _operator("_scaled_dot_product_flash_attention_for_cpu")
flash_gradients = _operator("_scaled_dot_product_flash_attention_for_cpu_backward")


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


@contextmanager
def openmp_threads(count: int) -> Iterator[None]:
    """Have torch's own operations use so many cores in this thread for a while."""
    library = _library()
    set_threads, threads = (getattr(library, f"omp_{name}", None) for name in ("set_num_threads", "get_max_threads"))
    if set_threads is None or threads is None:
        yield
        return
    before = threads()
    set_threads(count)
    try:
        yield
    finally:
        set_threads(before)


def rest_openmp() -> None:
    """Send torch's own threads of this thread to rest: they come again with torch's next parallel operation.

    After one they would go on spinning for milliseconds, in case of another, on the cores that kernels are about to
    use.
    """
    pause = getattr(_library(), "omp_pause_resource_all", None)
    if pause is not None:
        pause(1)  # omp_pause_soft


def sdpa_backends() -> tuple[bool, ...]:
    """Which kernels of PyTorch's attention are allowed: `torch.nn.attention.sdpa_kernel` changes it, on a CPU too."""
    allowed = torch.backends.cuda
    return allowed.flash_sdp_enabled(), allowed.mem_efficient_sdp_enabled(), allowed.cudnn_sdp_enabled()
