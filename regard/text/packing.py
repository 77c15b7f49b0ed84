"""Weights in a quarter of their size: whole numbers from −127 to 127, and what each row of them is multiplied by."""

from __future__ import annotations

import torch
from torch import Tensor

_SCALE = ".scale"


def pack(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Matrices as whole numbers of 8 bits, by row, with a scale of each row; all else in half precision.

    Example:
        >>> packed = pack({"weight": torch.tensor([[0.5, -1.27]])})
        >>> packed["weight"]
        tensor([[  50, -127]], dtype=torch.int8)
        >>> unpack(packed)["weight"]
        tensor([[ 0.5000, -1.2700]])
    """
    packed = {}
    for name, tensor in weights.items():
        if tensor.ndim < 2:
            packed[name] = tensor.half()
            continue
        scale = tensor.abs().amax(-1, keepdim=True).clamp_min(torch.finfo(torch.float32).tiny) / 127
        packed[name] = (tensor / scale).round().to(torch.int8)
        packed[name + _SCALE] = scale
    return {name: tensor.contiguous().cpu() for name, tensor in packed.items()}


def unpack(packed: dict[str, Tensor]) -> dict[str, Tensor]:
    """The weights that `pack` packed, in single precision."""
    return {
        name: tensor.float() * packed[name + _SCALE] if name + _SCALE in packed else tensor.float()
        for name, tensor in packed.items()
        if not (name.endswith(_SCALE) and name.removesuffix(_SCALE) in packed)  # one may be learned under that name
    }
