"""Score: the score a(q, k) of a query and a key."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from regard.errors import DtypeError, OptionError, ShapeError
from regard.grid import Grid, per_head
from regard.scores.form import ChannelForm, DotForm, Form, Step
from regard.scores.steps import Scale
from regard.tensors import is_autocast_on, stretches

if TYPE_CHECKING:
    from regard.scores.composed import OnColumns, Scaled, Sum, WithBias


class Score(nn.Module):
    """A similarity a(q, k), learned or not.

    A subclass writes one method, `form`: the projections, as ordinary tensor operations, and the pairwise form that is
    left. Everything else (every engine, rule, mask and view) then works with it.

    Example:
        >>> import torch, regard
        >>> from regard.scores import DotForm, Score
        >>> class Halved(Score):
        ...     def form(self, queries, keys):
        ...         return DotForm(queries, keys, scale=0.5)
        >>> q, k, v = torch.ones(3, 4), torch.ones(5, 4), torch.ones(5, 2)
        >>> regard.attend(q, k, v, score=Halved()).shape
        torch.Size([3, 2])
    """

    # True where a(q, k) is the logarithm of a kernel, so never positive: Softmax turns it into kernel weights.
    is_log_kernel: bool = False

    # True where a(q, k) is a kernel: never negative, and 0 for what is not similar at all.
    is_kernel: bool = False

    def form(self, queries: Tensor, keys: Tensor) -> Form:
        """The pairwise form of this score.

        Args:
            queries: `(..., n_queries, query_dim)`.
            keys: `(..., n_keys, key_dim)`.
        """
        raise NotImplementedError(f"{type(self).__name__} must define form(queries, keys).")

    def forward(self, queries: Tensor, keys: Tensor) -> Tensor:
        """a(q, k) of every pair, `(..., n_queries, n_keys)`: the dense matrix, for small problems."""
        return self.form(queries, keys).scores()

    def __add__(self, other: Score | ScoreTerm) -> Sum | WithBias:
        from regard.scores.composed import Sum, WithBias

        if isinstance(other, ScoreTerm):
            return WithBias(self, other)
        if isinstance(other, Score):
            return Sum(self, other)
        if isinstance(other, Tensor):
            raise OptionError("A score and a tensor cannot be added. Wrap the tensor: score + Bias(tensor).")
        return NotImplemented

    def __mul__(self, factor: float) -> Scaled:
        from regard.scores.composed import Scaled

        if isinstance(factor, int | float):
            return Scaled(self, float(factor))
        return NotImplemented

    __rmul__ = __mul__

    def on(self, columns: Sequence[int] | slice) -> OnColumns:
        """This score on some coordinates of queries and keys alone: `Gaussian(1.0).on([0, 1]) + Equal().on([2])`."""
        from regard.scores.composed import OnColumns

        return OnColumns(self, columns)


class ScoreTerm(nn.Module):
    """Something added to a score that depends on positions alone: `score + term`."""

    def step(self, grid: Grid) -> Step:
        """The step that adds this term, for a problem of that size."""
        raise NotImplementedError(f"{type(self).__name__} must define step(grid).")

    def __add__(self, score: Score) -> WithBias:
        return score + self if isinstance(score, Score) else NotImplemented  # type: ignore[return-value]


def same_dim(queries: Tensor, keys: Tensor, owner: str) -> None:
    """Raise unless queries and keys have vectors of the same length."""
    if queries.shape[-1] != keys.shape[-1]:
        raise ShapeError(
            f"{owner} must have queries and keys of the same dim: got queries {tuple(queries.shape)} and keys "
            f"{tuple(keys.shape)}. Project one of them, or use Multiplicative(query_dim, key_dim) or Additive."
        )


def expect_dims(queries: Tensor, keys: Tensor, query_dim: int, key_dim: int, owner: str) -> None:
    """Raise unless queries and keys have the dims that the score was made for."""
    if queries.shape[-1] != query_dim or keys.shape[-1] != key_dim:
        raise ShapeError(
            f"{owner} must have queries of dim {query_dim} and keys of dim {key_dim}: got queries "
            f"{tuple(queries.shape)} and keys {tuple(keys.shape)}. "
            f"Make the score with query_dim={queries.shape[-1]}, key_dim={keys.shape[-1]}."
        )


def project(inputs: Tensor, matrix: Tensor, owner: str) -> Tensor:
    """`inputs @ matrix`, where the matrix may have a heads axis: `(..., n, dim)` and `([heads,] dim, width)`."""
    if inputs.dtype != matrix.dtype and not is_autocast_on(inputs.device.type):
        raise DtypeError(
            f"{owner} must have parameters of the inputs' dtype: got parameters in {matrix.dtype} and inputs in "
            f"{inputs.dtype}. Convert the score with .to({inputs.dtype}), or run under torch.autocast."
        )
    if matrix.ndim == 3 and inputs.ndim >= 3 and not stretches(inputs.shape[-3], matrix.shape[0]):
        raise ShapeError(
            f"{owner} has heads={matrix.shape[0]}, so the last batch axis must be {matrix.shape[0]} or 1: "
            f"got {tuple(inputs.shape)}. Put heads on the axis before n: (..., heads, n, dim)."
        )
    return inputs @ matrix


def heads_shape(heads: int | None) -> tuple[int, ...]:
    """The leading axes of a parameter: none, or one for heads."""
    if heads is None:
        return ()
    if heads < 1:
        raise OptionError(f"`heads` must be at least 1: got {heads}. Leave it out for one set of parameters.")
    return (heads,)


def scaled_by(form: Form, factor: float | Tensor) -> Form:
    """`form` times a factor, learned or not; a tensor has one factor, or one for each head."""
    if isinstance(factor, Tensor):
        # A factor for another number of heads stays a step: the problem says so with all its batch axes.
        fits = factor.numel() == 1 or all(stretches(size, factor.shape[-1]) for size in form.batch_shape[-1:])
        if isinstance(form, DotForm) and not form.steps and fits:
            return dataclasses.replace(form, left=form.left * per_head(factor))
        return form.then(Scale(per_head(factor)))
    if factor == 1.0:
        return form
    if isinstance(form, DotForm | ChannelForm) and not form.steps:
        return dataclasses.replace(form, scale=form.scale * factor)
    like = form.tensors()[0]
    return form.then(Scale(torch.full((1, 1), factor, dtype=like.dtype, device=like.device)))


def check_is_score(score: object, owner: str) -> None:
    """Raise unless what a score is made of is a score."""
    if not isinstance(score, Score):
        got = score.__name__ if isinstance(score, type) else type(score).__name__
        raise OptionError(f"{owner} must be given a regard Score: got {got}. Pass an object such as Dot().")


def check_sizes(owner: str, **sizes: int) -> None:
    """Raise unless every size of a learned score is a positive integer."""
    for name, size in sizes.items():
        if not isinstance(size, int) or size < 1:
            raise OptionError(
                f"`{name}` of {owner} must be an integer of at least 1: got {size!r}. Pass a vector's length."
            )
