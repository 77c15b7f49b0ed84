"""Position-wise feed-forward layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from regard.errors import LayerRuntimeError, OptionError, ShapeError
from regard.masks import Mask
from regard.nn.input_checks import check_dtype, check_tensors
from regard.scores import Score
from regard.weights import Weights

Activation = Callable[[Tensor], Tensor]

_ACTIVATIONS: dict[str, Activation] = {"relu": functional.relu, "gelu": functional.gelu}


class WithFeedForward(nn.Module):
    """Two linear layers and an activation, under the names that PyTorch's Transformer layers give them."""

    def _build(
        self, dim: int, hidden_dim: int, dropout: float, activation: str | Activation, bias: bool, kind: dict[str, Any]
    ) -> None:
        self.linear1 = nn.Linear(dim, hidden_dim, bias=bias, **kind)
        self.dropout = nn.Dropout(dropout)
        self.linear2 = nn.Linear(hidden_dim, dim, bias=bias, **kind)
        self.activation = find_activation(activation)

    def __setattr__(self, name: str, value: Any) -> None:
        attentions = [part for part in ("self_attn", "multihead_attn") if part in self.__dict__.get("_modules", ())]
        if attentions and name in ("score", "weights", "mask") and isinstance(value, Score | Weights | Mask):
            raise OptionError(
                f"`{name}` of {type(self).__name__} must be set on its attention: got {type(value).__name__} for the "
                f"layer, where nothing would read it. Use {' or '.join(f'layer.{part}.{name}' for part in attentions)}."
            )
        super().__setattr__(name, value)

    def feed_forward(self, tokens: Tensor) -> Tensor:
        """linear2(dropout(activation(linear1(x)))), position-wise."""
        hidden: Tensor = self.dropout(self.activation(self.linear1(tokens)))
        return self.linear2(hidden)  # type: ignore[no-any-return]


class FeedForward(WithFeedForward):
    """linear2(dropout(activation(linear1(x)))), position-wise.

    Args:
        dim: The size of a token.
        hidden_dim: How many numbers there are in between.
        dropout: The share of those that are dropped in training.
        activation: "relu", "gelu" or a function.
        bias: Whether the two layers add a bias.

    Example:
        >>> import torch
        >>> from regard import nn
        >>> nn.FeedForward(8, 32)(torch.rand(2, 5, 8)).shape
        torch.Size([2, 5, 8])
    """

    def __init__(
        self,
        dim: int,
        hidden_dim: int,
        dropout: float = 0.0,
        activation: str | Activation = "relu",
        bias: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self._build(dim, hidden_dim, dropout, activation, bias, {"device": device, "dtype": dtype})

    def forward(self, tokens: Tensor) -> Tensor:
        """`(..., dim)` to `(..., dim)`."""
        check_tensors(tokens=tokens)
        check_dtype(tokens, self.linear1.weight.dtype)
        if not tokens.is_nested and tokens.shape[-1:] != (self.linear1.in_features,):
            raise ShapeError(
                f"Tokens must be (..., {self.linear1.in_features}): got {tuple(tokens.shape)}. "
                f"The last axis is a token's own numbers."
            )
        return self.feed_forward(tokens)


def find_activation(activation: str | Activation) -> Activation:
    """A function, or the one of that name."""
    if callable(activation):
        return activation
    if activation not in _ACTIVATIONS:
        raise LayerRuntimeError(
            f"`activation` must be {' or '.join(map(repr, _ACTIVATIONS))}, or a function: got {activation!r}."
        )
    return _ACTIVATIONS[activation]
