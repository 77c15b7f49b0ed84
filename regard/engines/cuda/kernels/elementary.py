"""Functions of one number, as a GPU's special function units compute them: one instruction each.

Triton spells them with a detour around numbers below 1e-38, which nobody here can tell from 0.
"""

from __future__ import annotations

import os

import triton
import triton.language as tl

LOG2_E = tl.constexpr(1.4426950408889634)
# The interpreter has no instructions.
INSTRUCTIONS = tl.constexpr(os.environ.get("TRITON_INTERPRET", "0") != "1")


@triton.jit
def is_not_finite(x):
    """Whether x is NaN or infinite. Not x − x ≠ 0: of a product, compilers make the error of its rounding of that."""
    return (tl.abs(x) < float("inf")) == 0


@triton.jit
def exp2(x):
    """2^x, to two units in the last place."""
    if INSTRUCTIONS:
        x = tl.inline_asm_elementwise("ex2.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1)
    else:
        x = tl.exp2(x)
    return x


@triton.jit
def binary_logarithm(x):
    """log₂ x to 2⁻²²; −∞ for 0, and NaN below."""
    if INSTRUCTIONS:
        x = tl.inline_asm_elementwise("lg2.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1)
    else:
        x = tl.log2(x)
    return x


@triton.jit
def reciprocal(x):
    """1/x, to one unit in the last place."""
    if INSTRUCTIONS:
        x = tl.inline_asm_elementwise("rcp.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1)
    else:
        x = 1.0 / x
    return x


@triton.jit
def rough_reciprocals(x):
    """1/x of numbers above 0, of which two share an instruction: 1/x = y/(xy). At least 2⁻⁶³; NaN stays."""
    if INSTRUCTIONS:
        x = tl.inline_asm_elementwise(
            """
            {
            .reg .f32 a, b, c;
            min.NaN.f32 a, $2, 0f5F000000;
            min.NaN.f32 b, $3, 0f5F000000;
            mul.f32 c, a, b;
            rcp.approx.ftz.f32 c, c;
            mul.f32 $0, c, b;
            mul.f32 $1, c, a;
            }
            """,
            "=f,=f,f,f", [x], dtype=tl.float32, is_pure=True, pack=2,
        )  # fmt: skip
    else:
        x = 1.0 / tl.minimum(x, 9.223372036854775808e18, propagate_nan=tl.PropagateNan.ALL)
    return x


@triton.jit
def tanh(x, ROUGH: tl.constexpr):
    """tanh to a few units in the last place; where `ROUGH`, to 2⁻¹¹ of it, four times as exact as bfloat16."""
    if ROUGH and INSTRUCTIONS:
        x = tl.inline_asm_elementwise("tanh.approx.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1)
    else:
        # A polynomial near 0, where the quotient of exponentials cancels.
        square = x * x
        series = 1.0 + square * (-1 / 3 + square * (2 / 15 + square * (-17 / 315 + square * (62 / 2835))))
        rest = exp2(tl.abs(x) * (-2.0 * LOG2_E))
        far = (1.0 - rest) * reciprocal(1.0 + rest)
        x = tl.where(tl.abs(x) < 0.3, x * series, tl.where(x < 0, -far, far))
    return x


@triton.jit
def computed_once(x):
    """x of two axes, in a way that no compiler computes it again where it needs it laid out otherwise.

    Triton 3.6 would, all the way from the loads of vectors, which it then cannot lay out so.
    """
    return tl.sum(x[:, :, None], 2)
