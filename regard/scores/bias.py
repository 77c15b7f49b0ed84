"""Biases: what may be added to a score, by position or pair."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from regard.errors import DtypeError, OptionError, ShapeError
from regard.grid import Align, Grid, check_align, per_head, resolve_offset
from regard.scores.form import Step
from regard.scores.score import ScoreTerm, heads_shape
from regard.scores.steps import AddDistance, AddPairs, AddRelative
from regard.tensors import stretches


class Bias(ScoreTerm):
    """One number added to each pair's score: `score + Bias(tensor)`.

    An entry of −inf means "not allowed", whatever is done to the score afterwards: it is a mask.

    Args:
        bias: `(..., n_queries or 1, n_keys or 1)`, broadcast from the right as PyTorch's `attn_mask`; an
            `nn.Parameter` to learn it, or a tensor that is a function of something learned.

    Example:
        >>> import torch
        >>> from regard import Bias, Dot
        >>> score = Dot() + Bias(torch.tensor([[0.0, 10.0]]))
        >>> score(torch.ones(1, 2), torch.ones(2, 2))
        tensor([[ 2., 12.]])
    """

    bias: Tensor

    def __init__(self, bias: Tensor) -> None:
        super().__init__()
        if not isinstance(bias, Tensor) or not bias.is_floating_point():
            got = bias.dtype if isinstance(bias, Tensor) else type(bias).__name__
            raise DtypeError(
                f"`bias` must be a floating-point tensor: got {got}. For true/false use mask=Allowed(tensor)."
            )
        if bias.ndim < 2:
            raise ShapeError(
                f"`bias` must have axes (..., n_queries or 1, n_keys or 1): got {tuple(bias.shape)}. "
                f"Use bias[None, :] for one number per key, bias[:, None] for one per query."
            )
        if isinstance(bias, nn.Parameter) or not bias.requires_grad:
            if isinstance(bias, nn.Parameter):
                self.bias = bias
            else:
                self.register_buffer("bias", bias)
        else:
            self.bias = bias  # computed from something learned: its gradient flows on

    def step(self, grid: Grid) -> Step:
        rows, columns = self.bias.shape[-2:]
        if not stretches(rows, grid.n_queries) or not stretches(columns, grid.n_keys):
            raise ShapeError(
                f"`bias` must be (..., {grid.n_queries} or 1, {grid.n_keys} or 1) for {grid.n_queries} queries and "
                f"{grid.n_keys} keys: got {tuple(self.bias.shape)}. Slice it to the problem."
            )
        return AddPairs(self.bias)

    def extra_repr(self) -> str:
        return f"tensor of {tuple(self.bias.shape)}"


class Alibi(ScoreTerm):
    """−slope · |distance between query and key|, one slope per head: `score + Alibi(slopes)`.

    Args:
        slopes: One number for each entry of the last batch axis (a sequence or tensor), or one number; an
            `nn.Parameter` to learn them.
        align: How queries stand among keys where their numbers differ (`regard.grid`).

    Example:
        >>> import torch
        >>> from regard import Alibi, Dot
        >>> (Dot() + Alibi(0.5))(torch.zeros(3, 2), torch.zeros(3, 2))
        tensor([[ 0.0000, -0.5000, -1.0000],
                [-0.5000,  0.0000, -0.5000],
                [-1.0000, -0.5000,  0.0000]])
    """

    slopes: Tensor

    def __init__(self, slopes: float | Sequence[float] | Tensor, *, align: Align = None) -> None:
        super().__init__()
        if isinstance(slopes, nn.Parameter):
            self.slopes = slopes
        else:
            dtype = slopes.dtype if isinstance(slopes, Tensor) and slopes.is_floating_point() else None
            self.register_buffer("slopes", torch.as_tensor(slopes, dtype=dtype or torch.get_default_dtype()))
        if self.slopes.ndim > 1:
            raise ShapeError(
                f"`slopes` of Alibi must be one number, or one for each head: got {tuple(self.slopes.shape)}. "
                f"Pass a tensor (heads,)."
            )
        check_align(align, "Alibi")
        self.align = align

    @classmethod
    def for_heads(cls, heads: int, *, align: Align = None) -> Alibi:
        """The slopes of the ALiBi paper: 2^(−8·i/heads) for i = 1 … heads."""
        return cls([2 ** (-8 * (i + 1) / heads) for i in range(heads)], align=align)

    def step(self, grid: Grid) -> Step:
        _check_heads(self.slopes.shape, grid, "`slopes` of Alibi")
        offset = resolve_offset(self.align, grid, "Alibi")
        known = offset if isinstance(offset, int) else None
        return AddDistance(*positions_on_a_line(self.align, grid, "Alibi"), per_head(self.slopes), known)

    def extra_repr(self) -> str:
        return f"slopes of {tuple(self.slopes.shape)}, align={self.align!r}"


class RelativeBias(ScoreTerm):
    """A learned number for each distance between query and key, shared beyond `max_distance`.

    Args:
        max_distance: Distances are clamped to [−max_distance, max_distance]; the table has 2 · max_distance + 1
            entries.
        heads: One table for each entry of the last batch axis; one for all if left out.
        align: How queries stand among keys where their numbers differ (`regard.grid`).

    Example:
        >>> import torch
        >>> from regard import RelativeBias, ScaledDot, attend
        >>> score = ScaledDot() + RelativeBias(max_distance=4, heads=2)
        >>> q = torch.rand(2, 6, 8)
        >>> attend(q, q, q, score=score).sum().backward()
        >>> score.term.table.grad.shape
        torch.Size([2, 9])
    """

    def __init__(self, max_distance: int, *, heads: int | None = None, align: Align = None) -> None:
        super().__init__()
        if max_distance < 0:
            raise OptionError(
                f"`max_distance` of RelativeBias must be at least 0: got {max_distance}. Use 0 for one number for all."
            )
        check_align(align, "RelativeBias")
        self.max_distance, self.heads, self.align = max_distance, heads, align
        self.table = nn.Parameter(torch.zeros(*heads_shape(heads), 2 * max_distance + 1))

    def step(self, grid: Grid) -> Step:
        _check_heads(self.table.shape[:-1], grid, "`heads` of RelativeBias")
        return AddRelative(*positions_on_a_line(self.align, grid, "RelativeBias"), self.table.unsqueeze(-2))

    def extra_repr(self) -> str:
        heads = f", heads={self.heads}" if self.heads else ""
        return f"max_distance={self.max_distance}{heads}, align={self.align!r}"


POSITIONAL = (Alibi, RelativeBias)
"""The scores that depend on where queries stand among keys."""


def _check_heads(shape: Sequence[int], grid: Grid, owner: str) -> None:
    """Raise unless what there is one of for each head broadcasts with the last batch axis."""
    if shape and grid.batch_shape and 1 not in (shape[-1], grid.batch_shape[-1]) and shape[-1] != grid.batch_shape[-1]:
        raise ShapeError(
            f"{owner} must be one for all heads, or one for each entry of the last batch axis: got {shape[-1]} for "
            f"batch axes {grid.batch_shape}. Pass {grid.batch_shape[-1]}."
        )


def positions_on_a_line(align: Align, grid: Grid, owner: str) -> tuple[Tensor, Tensor]:
    """The positions of queries `(..., n_queries, 1)` and of keys `(n_keys, 1)` on one line."""
    rows = torch.arange(grid.n_queries, device=grid.device).unsqueeze(-1)
    columns = torch.arange(grid.n_keys, device=grid.device).unsqueeze(-1)
    return rows + resolve_offset(align, grid, owner), columns
