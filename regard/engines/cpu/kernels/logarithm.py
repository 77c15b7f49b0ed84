"""ln x, and where a float32 stands among all others: both are read from the bits of the number."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from regard.engines.cpu.runtime.jit import Function


def exact_inline(function: Function) -> Function:
    """An exact helper that is written out where it is called: long ones are not otherwise, and loops stay scalar."""
    options = {"nogil": True, "error_model": "numpy", "fastmath": {"contract"}, "forceinline": True}
    return numba.njit(**options)(function)  # type: ignore[no-any-return]


_BITS = ir.IntType(32)
_ROOT_OF_HALF = ir.Constant(_BITS, 0x3F3504F3)  # the bits of √½
_FRACTION = ir.Constant(_BITS, 23)  # how many bits a float32 has behind its point
_MAGNITUDE = ir.Constant(_BITS, 0x7FFFFFFF)


def _exponent_bits(builder: Any, bits: Any) -> Any:
    return builder.ashr(builder.sub(bits, _ROOT_OF_HALF), _FRACTION)


@intrinsic  # type: ignore[untyped-decorator]
def _exponent(typing: Any, number: Any) -> Any:
    """n of x = m·2ⁿ with m in [√½, √2), as a float32."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        bits = builder.bitcast(arguments[0], _BITS)
        return builder.sitofp(_exponent_bits(builder, bits), ir.FloatType())

    return types.float32(types.float32), build


@intrinsic  # type: ignore[untyped-decorator]
def _mantissa(typing: Any, number: Any) -> Any:
    """m of x = m·2ⁿ."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        bits = builder.bitcast(arguments[0], _BITS)
        shift = builder.shl(_exponent_bits(builder, bits), _FRACTION)
        return builder.bitcast(builder.sub(bits, shift), ir.FloatType())

    return types.float32(types.float32), build


@intrinsic  # type: ignore[untyped-decorator]
def order_of(typing: Any, number: Any) -> Any:
    """An integer (int64, of 32 bits) that is larger where the float32 is; −0 comes just before 0."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        bits = builder.bitcast(arguments[0], _BITS)
        sign = builder.ashr(bits, ir.Constant(_BITS, 31))
        return builder.sext(builder.xor(bits, builder.and_(sign, _MAGNITUDE)), ir.IntType(64))

    return types.int64(types.float32), build


@intrinsic  # type: ignore[untyped-decorator]
def number_of(typing: Any, order: Any) -> Any:
    """The float32 of an `order_of`."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        bits = builder.trunc(arguments[0], _BITS)
        sign = builder.ashr(bits, ir.Constant(_BITS, 31))
        return builder.bitcast(builder.xor(bits, builder.and_(sign, _MAGNITUDE)), ir.FloatType())

    return types.float32(types.int64), build


_LN2_HIGH = np.float32(0.693359375)  # ln 2 in two parts: the first has few bits, so that its multiples are exact
_LN2_LOW = np.float32(-2.12194440e-4)


@exact_inline
def logarithm(x):  # type: ignore[no-untyped-def]
    """ln x of a positive, normal float32, to about one unit in the last place; some number for any other x."""
    n = _exponent(x)
    f = _mantissa(x) - np.float32(1.0)
    square = f * f
    p = np.float32(7.0376836292e-2)
    p = p * f + np.float32(-1.1514610310e-1)
    p = p * f + np.float32(1.1676998740e-1)
    p = p * f + np.float32(-1.2420140846e-1)
    p = p * f + np.float32(1.4249322787e-1)
    p = p * f + np.float32(-1.6668057665e-1)
    p = p * f + np.float32(2.0000714765e-1)
    p = p * f + np.float32(-2.4999993993e-1)
    p = p * f + np.float32(3.3333331174e-1)
    return n * _LN2_HIGH + (f + (p * f * square + n * _LN2_LOW - np.float32(0.5) * square))
