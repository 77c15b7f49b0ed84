"""Weights: how scores become weights.

A rule has one definition and one streamed way to compute it:

- `define(scores)`, the definition, on a whole matrix of scores;
- `solve(fold)`, which finds the *statistics* of each row (a maximum and a sum, a threshold, the best index) in passes
  over tiles of scores, and then `weights` and `slope`, two elementwise functions of a tile and those statistics.

`fold` is all that a rule sees of the outside: `fold(monoid)` lifts every tile of a row's scores, wherever it lives,
and merges what comes out. So the same rule serves one tile, many tiles, a file larger than memory, and many machines.

In a tile, a score of −inf means "not allowed". A statistic is a tensor `(..., n_queries, width)`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal, Protocol, TypeAlias, TypeVar

import torch
from torch import Tensor, nn

from regard.grid import per_head

if TYPE_CHECKING:
    from regard.scores.score import Score

Kind: TypeAlias = Literal["linear", "conic", "convex", "one-hot", "uniform"]
Statistics: TypeAlias = tuple[Tensor, ...]
State = TypeVar("State", bound=tuple[Tensor, ...])


class Monoid(Protocol[State]):
    """Something that can be said of a tile of scores, and merged for two tiles of the same rows.

    The identity is what `lift` says of a tile in which nothing is allowed.
    """

    def lift(self, scores: Tensor, columns: Tensor) -> State:
        """What a tile says: scores `(..., n_queries, n_columns)`, and the key position of each of its columns."""
        ...

    def merge(self, left: State, right: State) -> State:
        """What two tiles of the same rows say together; `left` holds the lower columns."""
        ...


class Fold(Protocol):
    """Runs a monoid over every tile of some rows."""

    def __call__(self, monoid: Monoid[State]) -> State: ...


class Weights(nn.Module):
    """A rule that turns the scores of a query into weights.

    To write one, give `kind` and `define`, which is enough for the reference engine; with `solve`, `weights` and
    `slope` it runs on every tile-wise engine too. Most rules are simpler still: see `OnePass`.

    Example:
        >>> import torch
        >>> from regard import attend
        >>> from regard.weights import Weights
        >>> class Squared(Weights):
        ...     kind = "conic"
        ...     def define(self, scores):
        ...         return torch.where(scores == -torch.inf, 0, scores).square()
        >>> attend(torch.ones(1, 4), torch.ones(2, 4), torch.ones(2, 1), weights=Squared())
        tensor([[8.]])
    """

    kind: Kind = "linear"

    # False for a rule that asks which pairs are allowed and not how similar they are: no score is computed for it.
    scored: ClassVar[bool] = True

    # What the one backward formula, dS = slope · (dP − dO·u), subtracts: nothing (u = 0), the output itself, or the
    # values averaged by slope.
    centre: Literal["none", "output", "slope"] = "none"

    def forward(self, scores: Tensor, allowed: Tensor | None = None) -> Tensor:
        """α over the allowed keys.

        Args:
            scores: `(..., n_queries, n_keys)`; −inf means "not allowed".
            allowed: Boolean, broadcast to the scores; all if left out.
        """
        scores, factor = masked(scores, allowed), self.factor
        if isinstance(factor, Tensor) or factor != 1.0:
            # What is not allowed stays so, and sends no gradient: 0 · −inf would be NaN.
            blocked = scores == -torch.inf
            scaled = torch.where(blocked, 0, scores) * (per_head(factor) if isinstance(factor, Tensor) else factor)
            scores = torch.where(blocked, -torch.inf, scaled)
        return self.define(scores)

    def within(self, n_keys: int) -> Weights:
        """This rule for so many keys: the same weights, perhaps in less memory."""
        return self

    def at_rest(self) -> Weights:
        """This rule where nothing needs a gradient: the same weights, perhaps by more kernels."""
        return self

    def define(self, scores: Tensor) -> Tensor:
        """The definition: α of scores `(..., n_queries, n_keys)`, times `factor`, that are −inf where not allowed."""
        raise NotImplementedError(f"{type(self).__name__} must define define(scores).")

    @property
    def factor(self) -> float | Tensor:
        """What scores are multiplied by first: 1/temperature, for rules that have one. Engines fold it in the score."""
        return 1.0

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """The batch axes of what the rule itself holds: one for heads, where it has a number for each."""
        return ()

    @property
    def streams(self) -> bool:
        """Whether this rule has passes, so that it can run over tiles."""
        return type(self).solve is not Weights.solve

    @property
    def choices(self) -> tuple[int, ...]:
        """How many keys a rule that takes the best of a row takes, and one inside it; nothing for all other rules."""
        return ()

    def solve(self, fold: Fold) -> Statistics:
        """The statistics of each row."""
        raise NotImplementedError(f"{type(self).__name__} must define solve(fold) to run over tiles.")

    def weights(self, scores: Tensor, statistics: Statistics, columns: Tensor) -> Tensor:
        """α of a tile, from the statistics of its rows."""
        raise NotImplementedError(f"{type(self).__name__} must define weights(scores, statistics, columns).")

    def slope(self, scores: Tensor, weights: Tensor, statistics: Statistics, columns: Tensor) -> Tensor | None:
        """The diagonal part of dα/da on a tile; None where no gradient flows to scores."""
        raise NotImplementedError(f"{type(self).__name__} must define slope(...), or return None for no gradient.")

    def learned(self) -> tuple[Tensor, ...]:
        """The tensors that the weights depend on beside the scores, in the order of `tangents`."""
        return ()

    def tangents(self, scores: Tensor, weights: Tensor, statistics: Statistics, columns: Tensor) -> tuple[Tensor, ...]:
        """∂α/∂θ on a tile for each tensor θ in `learned()`, at fixed scores."""
        return ()

    def learned_gradients(
        self,
        scores: Tensor,
        weights: Tensor,
        statistics: Statistics,
        columns: Tensor,
        to_weights: Tensor,
        delta: Tensor,
    ) -> tuple[Tensor, ...]:
        """What a tile adds to the gradient of each tensor in `learned()`.

        Args:
            scores: The tile; `weights`, `statistics` and `columns` belong to it.
            to_weights: The gradient of its weights, dP.
            delta: dO·u of each row, 0 where the rule subtracts nothing.
        """
        tangents = self.tangents(scores, weights, statistics, columns)
        return tuple(
            (to_weights * tangent).double().sum_to_size(*each.shape, 1, 1).reshape(each.shape)
            for each, tangent in zip(self.learned(), tangents, strict=True)
        )

    def arguments(self) -> tuple[object, ...]:
        """What an equal rule can be made of, but for its `factor`: for the operator, which has that in the score."""
        return ()

    def layout(self) -> tuple[tuple[int, torch.dtype | None], ...]:
        """The width and dtype of each statistic of `solve`; None is the dtype of the scores."""
        raise NotImplementedError(f"{type(self).__name__} must define layout() to run inside an operator.")

    def log_normalizer(self, statistics: Statistics) -> Tensor | None:
        """log Z of each row, `(..., n_queries)`, for rules that have one."""
        return None

    def check_score(self, score: Score) -> None:
        """Raise if this rule can never take that score."""


def masked(scores: Tensor, allowed: Tensor | None) -> Tensor:
    """The scores with −inf where they are not allowed."""
    return scores if allowed is None else torch.where(allowed, scores, -torch.inf)


class Peak:
    """The largest score of each row; −inf where nothing is allowed."""

    def lift(self, scores: Tensor, columns: Tensor) -> tuple[Tensor]:
        return (scores.amax(-1, keepdim=True),)

    def merge(self, left: tuple[Tensor], right: tuple[Tensor]) -> tuple[Tensor]:
        return (torch.maximum(left[0], right[0]),)


def over_one_tile(scores: Tensor, columns: Tensor) -> Fold:
    """A fold for scores that are all there."""

    def fold(monoid: Monoid[State]) -> State:
        return monoid.lift(scores, columns)

    return fold
