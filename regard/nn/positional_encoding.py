"""Positional encodings: attention itself does not know the order of its keys."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from regard.errors import DtypeError, OptionError, ShapeError
from regard.nn.input_checks import refuse_nested
from regard.scores.score import check_sizes


class SinusoidalPositions(nn.Module):
    """Adds sines and cosines of the position, of wavelengths from 2π to base · 2π, to each token. Nothing is learned.

    Args:
        dim: The size of a token; even.
        base: How much longer the longest wave is than the shortest.

    Example:
        >>> import torch
        >>> from regard import nn
        >>> nn.SinusoidalPositions(4)(torch.zeros(2, 4))
        tensor([[0.0000, 1.0000, 0.0000, 1.0000],
                [0.8415, 0.5403, 0.0100, 0.9999]])
    """

    def __init__(self, dim: int, base: float = 10_000.0) -> None:
        super().__init__()
        _check_waves("SinusoidalPositions", dim, base, "a sine and a cosine each")
        self.dim, self.base = dim, base

    def forward(self, tokens: Tensor, start: int = 0) -> Tensor:
        """`(..., n, dim)` tokens, the first at position `start`."""
        _check_tokens("SinusoidalPositions", tokens, self.dim)
        angles = _angles(tokens, self.dim, self.base, start)
        waves = torch.stack([angles.sin(), angles.cos()], -1).flatten(-2)
        return tokens + waves.to(tokens.dtype)

    def extra_repr(self) -> str:
        return f"{self.dim}"


class LearnedPositions(nn.Module):
    """Adds a learned vector for each position.

    Args:
        max_length: How many positions there are.
        dim: The size of a token.

    Example:
        >>> import torch
        >>> from regard import nn
        >>> nn.LearnedPositions(10, 4)(torch.zeros(3, 4)).shape
        torch.Size([3, 4])
    """

    def __init__(self, max_length: int, dim: int) -> None:
        super().__init__()
        check_sizes("LearnedPositions", max_length=max_length, dim=dim)
        self.weight = nn.Parameter(torch.empty(max_length, dim))
        nn.init.normal_(self.weight, std=0.02)

    def forward(self, tokens: Tensor, start: int = 0) -> Tensor:
        """`(..., n, dim)` tokens, the first at position `start`."""
        _check_tokens("LearnedPositions", tokens, self.weight.shape[1])
        if start < 0:
            raise OptionError(f"`start` must be 0 or more, the first position that is learned: got {start}.")
        end = start + tokens.shape[-2]
        if end > len(self.weight):
            raise ShapeError(
                f"Positions are learned up to {len(self.weight)}: got {end} tokens. "
                f"Cut the sequence, or build LearnedPositions({end}, {self.weight.shape[1]}) and train it."
            )
        return tokens + self.weight[start:end]

    def extra_repr(self) -> str:
        return f"{self.weight.shape[0]}, {self.weight.shape[1]}"


class Rotary(nn.Module):
    """Rotates each pair of channels by an angle proportional to the position: qᵀk depends on relative position.

    For queries and keys of a head: `MultiHeadAttention(..., rotary=Rotary(head_dim))`.

    Args:
        dim: The size of a head; even.
        base: How much slower the slowest pair turns than the fastest.

    Example:
        >>> import torch
        >>> from regard import nn
        >>> rotary, q, k = nn.Rotary(8), torch.rand(1, 8), torch.rand(1, 8)
        >>> near = rotary(q, 3) @ rotary(k, 1).T
        >>> far = rotary(q, 103) @ rotary(k, 101).T
        >>> torch.allclose(near, far, atol=1e-4)
        True
    """

    def __init__(self, dim: int, base: float = 10_000.0) -> None:
        super().__init__()
        _check_waves("Rotary", dim, base, "since numbers are turned in pairs")
        self.dim, self.base = dim, base

    def forward(self, tokens: Tensor, start: int = 0) -> Tensor:
        """`(..., n, dim)` queries or keys, the first at position `start`."""
        _check_tokens("Rotary", tokens, self.dim, "the size of a head, embed_dim / num_heads")
        angles = _angles(tokens, self.dim, self.base, start)
        cos, sin = angles.cos().to(tokens.dtype), angles.sin().to(tokens.dtype)
        even, odd = tokens[..., ::2], tokens[..., 1::2]
        return torch.stack([even * cos - odd * sin, even * sin + odd * cos], -1).flatten(-2)

    def extra_repr(self) -> str:
        return f"{self.dim}"


def _check_tokens(owner: str, tokens: Tensor, dim: int, size: str = "the size of a token") -> None:
    """Raise unless tokens are vectors of the right size: an axis of 1 would broadcast, and integers lose the waves."""
    refuse_nested(tokens=tokens)
    if tokens.ndim < 2 or tokens.shape[-1] != dim:
        raise ShapeError(
            f"{owner} of dim {dim} takes (..., n, {dim}) tokens: got {tuple(tokens.shape)}. Build it for {size}."
        )
    if not tokens.is_floating_point():
        raise DtypeError(f"{owner} takes vectors of floating-point numbers: got {tokens.dtype}. Embed token ids first.")


def _check_waves(owner: str, dim: int, base: float, why_even: str) -> None:
    check_sizes(owner, dim=dim)
    if dim % 2:
        raise OptionError(f"`dim` of {owner} must be even, {why_even}: got {dim}.")
    if not 0 < base < math.inf:
        raise OptionError(f"`base` of {owner} must be above 0 and finite: got {base}. 10 000 is what papers use.")


def _angles(tokens: Tensor, dim: int, base: float, start: int) -> Tensor:
    """The angle of each position and pair, `(n, dim / 2)`, in float64: float32 would lose digits far along."""
    wide = torch.float32 if tokens.device.type == "mps" else torch.float64
    positions = torch.arange(start, start + tokens.shape[-2], device=tokens.device, dtype=wide)
    pairs = torch.arange(0, dim, 2, device=tokens.device, dtype=wide)
    return positions[:, None] * torch.exp(pairs * (-math.log(base) / dim))
