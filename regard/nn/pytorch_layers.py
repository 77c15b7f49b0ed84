"""PyTorch's layers inside ours: they take PyTorch's arguments alone."""

from __future__ import annotations

from typing import Any

from torch import nn

from regard.errors import OptionError

_THEIRS = (
    nn.MultiheadAttention,
    nn.TransformerEncoder,
    nn.TransformerEncoderLayer,
    nn.TransformerDecoder,
    nn.TransformerDecoderLayer,
)


def besides(layer: nn.Module, **arguments: Any) -> dict[str, Any]:
    """The arguments that PyTorch's layers do not have, those that are given: a layer with its signature serves too."""
    given = {name: value for name, value in arguments.items() if value is not None}
    if given and isinstance(layer, _THEIRS):
        raise OptionError(
            f"PyTorch's {type(layer).__name__} must be called with PyTorch's masks, tensors, and without a cache: got "
            f"{', '.join(f'{name}={value!r}' for name, value in given.items())}. Put the layer of regard.nn in its "
            f"place, or pass a tensor in which True means that a key is not attended to."
        )
    return given
