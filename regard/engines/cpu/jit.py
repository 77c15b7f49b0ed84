"""What compiled functions are made with: Numba, imported with this module and so on first use alone.

Kernels run on one thread and release the GIL: `workers.py` runs them side by side. NaN must pass through them, so that
of fast mathematics only what keeps it is allowed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

import numba
import numpy as np
from llvmlite import ir
from numba.core import types
from numba.core.cgutils import get_or_insert_function
from numba.extending import intrinsic

Function: TypeAlias = Callable[..., Any]  # arguments of compiled functions have no types that mypy could read

_FAST = {"contract", "reassoc", "arcp", "nsz"}


def kernel(function: Function) -> Function:
    """A compiled function that Python calls; kept on disk between processes, where a disk lets us."""
    # Numba takes machine code for fresh if the kernel's own file is as it was, whatever became of its helpers. The name
    # is a part of the files' names, so that other sources have other files.
    function.__qualname__ += f"_{_fingerprint()}"
    options = {"nogil": True, "error_model": "numpy", "fastmath": _FAST}
    try:
        return numba.njit(cache=True, **options)(function)  # type: ignore[no-any-return]
    except RuntimeError:  # no folder is writable: every process compiles for itself
        return numba.njit(**options)(function)  # type: ignore[no-any-return]


@cache
def _fingerprint() -> str:
    """Twelve digits that change with any source from which machine code is made."""
    found = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        source = path.read_bytes()
        if b"regard.engines.cpu.jit" in source or path.stem in ("jit", "codes"):
            found.update(source)
    return found.hexdigest()[:12]


def helper(function: Function) -> Function:
    """A compiled function that kernels call, on whole rows or single numbers."""
    return numba.njit(nogil=True, error_model="numpy", fastmath=_FAST)(function)  # type: ignore[no-any-return]


def exact_helper(function: Function) -> Function:
    """A helper whose sums must be done in the order in which they are written."""
    return numba.njit(nogil=True, error_model="numpy", fastmath={"contract"})(function)  # type: ignore[no-any-return]


@intrinsic  # type: ignore[untyped-decorator]
def larger(typing: Any, left: Any, right: Any) -> Any:
    """The larger of two numbers, the other where one is NaN: Python's comparison would not be vectorised."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = arguments[0].type
        function = builder.module.declare_intrinsic("llvm.maxnum", [kind], ir.FunctionType(kind, [kind, kind]))
        return builder.call(function, arguments, fastmath=("nsz", "nnan"))

    return left(left, left), build


@intrinsic  # type: ignore[untyped-decorator]
def two_to_the(typing: Any, exponent: Any) -> Any:
    """2ⁿ of an integer n in [−126, 127], float32, made of its bits."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        integer = ir.IntType(32)
        biased = builder.add(arguments[0], ir.Constant(integer, 127))
        return builder.bitcast(builder.shl(biased, ir.Constant(integer, 23)), ir.FloatType())

    return types.float32(types.int32), build


@intrinsic  # type: ignore[untyped-decorator]
def fetch(typing: Any, matrix: Any, row: Any, column: Any) -> Any:
    """Ask for the cache line of a number of a matrix, which will be needed soon."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        whole, byte = ir.IntType(32), ir.IntType(8).as_pointer()
        row_stride, column_stride = (builder.extract_value(array.strides, axis) for axis in (0, 1))
        offset = builder.add(builder.mul(arguments[1], row_stride), builder.mul(arguments[2], column_stride))
        address = builder.gep(builder.bitcast(array.data, byte), [offset])
        kind = ir.FunctionType(ir.VoidType(), [byte, whole, whole, whole])
        function = get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        read, keep, data = (ir.Constant(whole, n) for n in (0, 3, 1))
        builder.call(function, [address, read, keep, data])
        return context.get_dummy_value()

    return types.void(matrix, types.intp, types.intp), build


@intrinsic
def multiply(  # type: ignore[no-untyped-def]
    typing, sgemm, n_rows, n_columns, depth, left, left_stride, left_turned, right, right_stride, right_turned, alpha,
    beta, product, product_stride,
):  # fmt: skip
    """product = alpha · left · right + beta · product, by the BLAS routine at the address `sgemm`.

    Matrices are float32, a row after the other: an address and how many numbers apart rows are. One that is `turned` is
    stored transposed. The address is an argument, since a constant would be wrong in the next process.
    """

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        integer, real, byte = ir.IntType(32), ir.FloatType(), ir.IntType(8)
        (address, rows, columns, depth, left, left_stride, left_turned, right, right_stride, right_turned, alpha,
         beta, product, product_stride) = arguments  # fmt: skip

        def place(value: Any) -> Any:
            """Fortran takes everything by reference."""
            slot = builder.alloca(value.type)
            builder.store(value, slot)
            return slot

        def size(value: Any) -> Any:
            return place(builder.trunc(value, integer))

        def letter(turned: Any) -> Any:
            return place(
                builder.select(
                    builder.trunc(turned, ir.IntType(1)), ir.Constant(byte, ord("T")), ir.Constant(byte, ord("N"))
                )
            )

        def matrix(value: Any) -> Any:
            return builder.inttoptr(value, real.as_pointer())

        # Fortran stores columns after each other: what it takes for the product's transpose is the product.
        arguments = [
            letter(right_turned), letter(left_turned), size(columns), size(rows), size(depth),
            place(alpha), matrix(right), size(right_stride), matrix(left), size(left_stride),
            place(beta), matrix(product), size(product_stride),
        ]  # fmt: skip
        kind = ir.FunctionType(ir.VoidType(), [each.type for each in arguments])
        builder.call(builder.inttoptr(address, kind.as_pointer()), arguments)
        return context.get_dummy_value()

    whole = types.int64
    signature = types.void(
        whole, whole, whole, whole, whole, whole, whole, whole, whole, whole, types.float32, types.float32, whole, whole
    )
    return signature, build


_LOG2_E = np.float32(1.4426950408889634)
_LN2_HIGH = np.float32(0.693359375)  # ln 2 in two parts: the first has few bits, so that its multiples are exact
_LN2_LOW = np.float32(-2.12194440e-4)
_SMALLEST = np.float32(-87.3)  # below, e^x is not a normal number: it counts as 0


@exact_helper
def exponential(x):  # type: ignore[no-untyped-def]
    """e^x of a float32 up to 88, to about one unit in the last place; 0 below −87.3; NaN passes."""
    bounded = _SMALLEST if x < _SMALLEST else x
    n = np.rint(bounded * _LOG2_E)
    r = bounded - n * _LN2_HIGH - n * _LN2_LOW  # |r| ≤ ln 2 / 2
    p = np.float32(1.9875691500e-4)
    p = p * r + np.float32(1.3981999507e-3)
    p = p * r + np.float32(8.3334519073e-3)
    p = p * r + np.float32(4.1665795894e-2)
    p = p * r + np.float32(1.6666665459e-1)
    p = p * r + np.float32(5.0000001201e-1)
    y = (p * (r * r) + r + np.float32(1.0)) * two_to_the(np.int32(n))
    return np.float32(0.0) if x < _SMALLEST else y


@exact_helper
def sigmoid(x):  # type: ignore[no-untyped-def]
    """1 / (1 + e^−x), float32; 0 at −inf."""
    small = exponential(-abs(x))
    return (np.float32(1.0) if x >= np.float32(0.0) else small) / (np.float32(1.0) + small)


@exact_helper
def tangent(x):  # type: ignore[no-untyped-def]
    """tanh(x), float32, to about two units in the last place near 0 too; NaN passes."""
    double = abs(x) * np.float32(2.0)
    double = np.float32(20.0) if double > np.float32(20.0) else double  # tanh is 1 from there on
    n = np.rint(double * _LOG2_E)
    r = double - n * _LN2_HIGH - n * _LN2_LOW
    p = np.float32(1.9875691500e-4)
    p = p * r + np.float32(1.3981999507e-3)
    p = p * r + np.float32(8.3334519073e-3)
    p = p * r + np.float32(4.1665795894e-2)
    p = p * r + np.float32(1.6666665459e-1)
    p = p * r + np.float32(5.0000001201e-1)
    scale = two_to_the(np.int32(n))
    # e^2|x| − 1, without the cancellation of computing e^2|x| first.
    less_one = scale * (p * (r * r) + r) + (scale - np.float32(1.0))
    y = less_one / (less_one + np.float32(2.0))
    return -y if x < np.float32(0.0) else y
