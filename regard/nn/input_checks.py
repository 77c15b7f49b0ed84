"""What every layer checks of the tensors that it is given."""

from __future__ import annotations

import torch
from torch import Tensor

from regard.errors import DtypeError, LayerInputError
from regard.tensors import is_autocast_on


def check_tensors(**tensors: Tensor) -> None:
    """Refuse what is no tensor, each under its name."""
    for name, each in tensors.items():
        if not isinstance(each, Tensor):
            raise DtypeError(
                f"`{name}` must be a torch.Tensor: got {type(each).__name__}. Convert it with torch.as_tensor."
            )


def refuse_nested(**tensors: Tensor) -> None:
    """Refuse nested tensors, and what is no tensor, each under its name."""
    check_tensors(**tensors)
    for name, each in tensors.items():
        if each.is_nested:
            raise LayerInputError(
                f"`{name}` must be an ordinary tensor: got a nested one. Pad it, "
                f"torch.nested.to_padded_tensor({name}, 0.0), and mask what is padding."
            )


def check_dtype(tokens: Tensor, dtype: torch.dtype) -> None:
    """Refuse tokens of another dtype than a layer's parameters have, unless autocast makes them one."""
    if tokens.dtype != dtype and not is_autocast_on(tokens.device.type):
        raise DtypeError(
            f"Tokens must have the dtype of the layer's parameters, {dtype}: got {tokens.dtype}. "
            f"Use tokens.to({dtype})" + (f", or layer.to({tokens.dtype})." if tokens.is_floating_point() else ".")
        )
