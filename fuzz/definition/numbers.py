"""What scores and rules share: numbers that may be learned, and functions whose derivatives do not vanish."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

Parameters = dict[str, Tensor]


def reader(options: dict[str, Any], parameters: Parameters, like: Tensor) -> Any:
    """A function that reads a number by its name: a learned one, or one that is fixed."""

    def number(name: str) -> Tensor:
        value = options[name]
        return parameters[value] if isinstance(value, str) else torch.as_tensor(value, dtype=like.dtype)

    return number


def a_head(number: Tensor) -> Tensor:
    """One number for each head, or one for all, against `(..., n, m)`."""
    return number.reshape(*number.shape, 1, 1)


def offset_of(align: Any, n_axes: int, n: int, m: int) -> int | Tensor:
    """Where the first query stands among the keys; one offset for each batch row if `align` has them."""
    if isinstance(align, Tensor):
        return align.reshape(*align.shape, *(1,) * (n_axes - align.ndim), 1, 1)
    return {None: 0, "start": 0, "end": m - n}.get(align, align)


_steep = False


@contextmanager
def steep() -> Iterator[None]:
    """Derivatives of sigmoid and tanh as if nothing saturated: what they are rounded relative to, not what they are."""
    global _steep
    _steep = True
    try:
        yield
    finally:
        _steep = False


class Sigmoid(torch.autograd.Function):
    """σ(x), with a derivative that does not vanish by rounding: σ·(1 − σ) is 0 from x = 40 on."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return torch.sigmoid(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        small = (-x.abs()).exp()
        return gradients[0] if _steep else gradients[0] * small / (1 + small).square()


class Tanh(torch.autograd.Function):
    """tanh(x), with a derivative that does not vanish by rounding: 1 − tanh² is 0 from x = 20 on."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return torch.tanh(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        small = (-2 * x.abs()).exp()
        return gradients[0] if _steep else gradients[0] * 4 * small / (1 + small).square()


class Square(torch.autograd.Function):
    """x², whose slope is steep as if its terms, 8 and more, cancelled: folded into a dot product they do."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x.square()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return gradients[0] * 2 * (x.abs() + 8 if _steep else x)
