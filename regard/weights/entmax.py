"""Sparsemax and entmax: convex weights that can be exactly zero.

α_j = [(alpha − 1)·a_j − τ]₊^(1/(alpha − 1)), with the threshold τ such that the weights sum to 1. Scores are taken
relative to their row's largest, z = (alpha − 1)·(a − max a) ≤ 0, so that τ lies in [−1, 0) whatever the size of
the scores.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from regard.errors import OptionError
from regard.learned import as_text, keep
from regard.modes import is_forward_mode, is_hidden, is_tracing, waits
from regard.tensors import broadcast_shapes
from regard.weights.rule import Fold, Peak, Statistics, Weights, masked, over_one_tile

if TYPE_CHECKING:
    from collections.abc import Iterator

# A safeguarded Newton step at least halves a bracket of length 1, so float64 is exhausted well before this many.
MAX_PASSES = 128

# While tracing nothing can be known to have settled: so many halvings are what float64 can tell apart.
TRACED_PASSES = 52


def sparsemax(scores: Tensor, allowed: Tensor | None = None) -> Tensor:
    """The nearest point of the simplex to each row of scores; zeros in a row that allows no key.

    Example:
        >>> import torch
        >>> from regard.weights import sparsemax
        >>> sparsemax(torch.tensor([[1.0, 0.5, -1.0]]))
        tensor([[0.7500, 0.2500, 0.0000]])
    """
    return entmax(scores, allowed, alpha=2.0)


def entmax(scores: Tensor, allowed: Tensor | None = None, *, alpha: float | Tensor = 1.5) -> Tensor:
    """[(alpha − 1)·a − τ]₊^(1/(alpha − 1)) over the allowed keys, row by row; zeros in a row that allows none.

    Differentiable in the scores and in `alpha`, to third order.

    Example:
        >>> import torch
        >>> from regard.weights import entmax
        >>> entmax(torch.tensor([[2.0, 2.0, -2.0]]), alpha=1.5)
        tensor([[0.5000, 0.5000, 0.0000]])
    """
    scores = masked(scores, allowed)
    if scores.shape[-1] == 0:
        return scores
    order = torch.as_tensor(alpha, dtype=torch.float64, device=scores.device)
    order = order.reshape(*order.shape, 1, 1)
    peak, threshold = _solve(
        over_one_tile(scores.detach(), torch.arange(scores.shape[-1], device=scores.device)), order.detach()
    )
    weights = _weights(scores.detach(), peak, threshold, order.detach())
    if scores.requires_grad or order.requires_grad or is_tracing() or is_forward_mode():
        weights = _differentiable(weights, scores, order)
    return weights.to(scores.dtype)


class Entmax(Weights):
    """Entmax with any alpha in (1, 4]: between softmax (alpha → 1) and ever sparser weights (sparsemax is alpha = 2).

    Beyond alpha = 2 the derivative of a weight, α^(2 − alpha), grows without bound at the edge of the support, where a
    score that float32 rounded decides how large it is. Weights keep five digits or more; gradients of a whole tensor,
    in float32, are those of float64 to about 1e-6 of their norm up to alpha = 2, 1e-3 up to 3 and a tenth up to 4. Use
    float64 where that is not enough.

    Args:
        alpha: A number; a tensor for one alpha per head (the last batch axis); an `nn.Parameter` of either shape to
            learn it.

    Example:
        >>> import torch
        >>> from regard import Entmax
        >>> Entmax(1.5)(torch.tensor([[2.0, 2.0, -2.0]]))
        tensor([[0.5000, 0.5000, 0.0000]])
    """

    kind = "convex"
    centre = "slope"
    alpha: float | Tensor

    def __init__(self, alpha: float | Tensor = 1.5) -> None:
        super().__init__()
        keep(self, "alpha", alpha)
        if not (isinstance(self.alpha, Tensor) and waits(self.alpha)):  # kernels tell of one on a device
            self._check_alpha()

    @property
    def batch_shape(self) -> tuple[int, ...]:
        return tuple(self.alpha.shape) if isinstance(self.alpha, Tensor) else ()

    def at_rest(self) -> Weights:
        # A copy that learns nothing, of the same numbers.
        learns = type(self) is Entmax and isinstance(self.alpha, Tensor) and self.alpha.requires_grad
        return Entmax(self.alpha.detach()) if learns else self  # type: ignore[union-attr]

    def define(self, scores: Tensor) -> Tensor:
        self._check_alpha()
        return entmax(scores, alpha=self.alpha)

    def solve(self, fold: Fold) -> Statistics:
        self._check_alpha()
        peak, threshold = _solve(fold, self._order())
        if not self.learned():
            return peak, threshold
        # What ∂α/∂alpha needs besides: the row's Σ slope and its entropy.
        return peak, threshold, *fold(_SlopeAndEntropy(peak, threshold, self._order(peak.device)))

    def weights(self, scores: Tensor, statistics: Statistics, columns: Tensor) -> Tensor:
        return _weights(scores, statistics[0], statistics[1], self._order(scores.device)).to(scores.dtype)

    def slope(self, scores: Tensor, weights: Tensor, statistics: Statistics, columns: Tensor) -> Tensor:
        return _slope(weights, self._order().to(weights))

    def arguments(self) -> tuple[object, ...]:
        return (self.alpha,)

    def layout(self) -> tuple[tuple[int, torch.dtype | None], ...]:
        # Σ slope and entropy are kept for a learned alpha alone.
        return (1, None), (1, torch.float64), *(((1, torch.float64),) * 2 if self.learned() else ())

    def learned(self) -> tuple[Tensor, ...]:
        return (self.alpha,) if isinstance(self.alpha, Tensor) and self.alpha.requires_grad else ()

    def tangents(self, scores: Tensor, weights: Tensor, statistics: Statistics, columns: Tensor) -> tuple[Tensor, ...]:
        peak, threshold, total_slope, entropy = statistics
        order = self._order(scores.device)
        exact = _weights(scores, peak, threshold, order)
        share = _slope(exact, order) / torch.where(total_slope == 0, 1, total_slope)  # 0: a fully masked row
        return (_turned(exact, share, order, entropy).to(weights.dtype),)

    def _order(self, device: torch.device | None = None) -> Tensor:
        """alpha as `([heads,] 1, 1)` in float64: thresholds are solved there, since alpha > 2 is ill-conditioned."""
        order = torch.as_tensor(self.alpha, dtype=torch.float64, device=device).detach()
        return order.reshape(*order.shape, 1, 1)

    def _check_alpha(self) -> None:
        if isinstance(self.alpha, Tensor) and is_hidden(self.alpha):
            return
        # Plain numbers stay numbers, so that torch.compile can follow.
        numbers = self.alpha.detach().flatten().tolist() if isinstance(self.alpha, Tensor) else [self.alpha]
        if not all(1 < number <= 4 for number in numbers):
            raise OptionError(
                f"`alpha` of Entmax must be in (1, 4]: got {', '.join(map(str, numbers))}. "
                f"Use Softmax() for alpha = 1; clamp a learned alpha."
            )

    def extra_repr(self) -> str:
        return f"alpha={as_text(self.alpha)}"


class Sparsemax(Entmax):
    """α = the nearest point of the simplex to the scores: entmax with alpha = 2.

    Example:
        >>> import torch
        >>> from regard import Sparsemax
        >>> Sparsemax()(torch.tensor([[1.0, 0.5, -1.0]]))
        tensor([[0.7500, 0.2500, 0.0000]])
    """

    def __init__(self) -> None:
        super().__init__(2.0)

    def arguments(self) -> tuple[object, ...]:
        return ()

    def extra_repr(self) -> str:
        return ""


def _solve(fold: Fold, order: Tensor) -> tuple[Tensor, Tensor]:
    """(largest score, threshold) of each row, both `(..., n_queries, 1)`; the threshold of an empty row is +inf."""
    (peak,) = fold(Peak())
    order = order.to(peak.device)
    (count,) = fold(_Count())
    # One key alone has weight 1 at τ = −1, so the sum is at least 1 there; m equal keys have τ = −(1/m)^(alpha − 1).
    low = torch.full_like(peak, -1.0, dtype=torch.float64).expand(broadcast_shapes(peak.shape, order.shape)).clone()
    high = -(count.double().clamp(min=1).reciprocal().pow(order - 1)).expand_as(low).clone()
    threshold = low.clone()
    for _ in range(TRACED_PASSES if is_tracing() else MAX_PASSES):
        total, slope = fold(_SumAndSlope(peak, threshold, order))
        low = torch.where(total >= 1, threshold, low)
        high = torch.where(total <= 1, threshold, high)
        step = threshold + (total - 1) / slope
        # Newton where it stays inside the bracket (always, for alpha ≤ 2: the sum is convex in τ), else halve.
        inside = (step >= low) & (step <= high) & torch.isfinite(step)
        following = torch.where(inside, step, (low + high) / 2)
        settled = ((following - threshold).abs() <= 1e-15 * threshold.abs()) | (total == 1) | ~peak.isfinite()
        threshold = torch.where(settled, threshold, following)
        if not is_tracing() and bool(settled.all()):
            break
    return peak, torch.where(count == 0, torch.inf, threshold)


def _excess(scores: Tensor, peak: Tensor, threshold: Tensor, order: Tensor) -> tuple[Tensor, Tensor]:
    """z − τ where it is positive (1 elsewhere), and where that is: the support."""
    blocked = scores == -torch.inf
    peak = torch.where(peak == -torch.inf, 0, peak)
    # A row with a score of NaN or +inf is NaN, and so is its gradient: at alpha = 2 the power below would forget it.
    factor = torch.where(peak.isfinite(), order - 1, torch.nan)
    z = (torch.where(blocked, peak, scores).double() - peak) * factor
    excess = z - threshold
    # A NaN score counts as support: it must reach its row.
    support = ~(blocked | (excess <= 0) | (threshold == torch.inf))
    return torch.where(support, excess, 1), support


def _weights(scores: Tensor, peak: Tensor, threshold: Tensor, order: Tensor) -> Tensor:
    excess, support = _excess(scores, peak, threshold, order)
    return torch.where(support, excess.pow(1 / (order - 1)), 0)


def _slope(weights: Tensor, order: Tensor) -> Tensor:
    """dα/d((alpha − 1)·z) · (alpha − 1) = α^(2 − alpha) on the support."""
    inside = weights != 0
    return torch.where(inside, torch.where(inside, weights, 1).pow(2 - order), 0)


def _differentiable(weights: Tensor, scores: Tensor, order: Tensor) -> Tensor:
    """The weights as a function of scores and alpha, whose values they are, to third order.

    dα = slope · (da − Σ slope·da / Σ slope) + ∂α/∂alpha · dalpha depends on the weights alone, and is added up on the
    straight way to where scores and alpha are: by Simpson's rule, since the way has no length. (The derivatives of
    [z − τ]₊^(1/(alpha − 1)) itself grow as α^(1 − 2·(alpha − 1)) and cancel: at alpha = 4 no digit would be left.)
    """
    reach = torch.where(weights != 0, scores, 0).double()
    way = reach - reach.detach()  # 0, with a gradient
    turn = order - order.detach() if order.requires_grad else None

    def ahead(weights: Tensor, part: float) -> Tensor:
        """dα over the whole way, as it is when part of it is done, with these weights there."""
        return _tangent(weights, order if turn is None else order.detach() + part * turn, way, turn)

    start = ahead(weights, 0.0)
    middle, end = (
        ahead(weights + part / 2 * (start + ahead(weights + part * start, part)), part) for part in (0.5, 1.0)
    )
    return weights + (start + 4 * middle + end) / 6


def _tangent(weights: Tensor, order: Tensor, way: Tensor, turn: Tensor | None) -> Tensor:
    """How the weights change when scores go a way and alpha takes a turn."""
    inside = weights != 0
    # Not `_slope`: to autograd, a power of 0 is a constant in its exponent, too.
    slope = torch.where(inside, ((2 - order) * torch.where(inside, weights, 1).log()).exp(), 0)
    total = slope.sum(-1, keepdim=True)
    total = torch.where(total == 0, 1, total)  # a fully masked row
    change = slope * (way - (slope * way).sum(-1, keepdim=True) / total)
    if turn is not None:
        change = change + turn * _turned(weights, slope / total, order, None)
    return torch.where(inside, change, 0)


def _turned(weights: Tensor, share: Tensor, order: Tensor, entropy: Tensor | None) -> Tensor:
    """∂α/∂alpha, from each key's share of the row's slope; the row's entropy, if not all of it is here."""
    surprise = -torch.where(weights != 0, weights, 1).log() * weights
    entropy = surprise.sum(-1, keepdim=True) if entropy is None else entropy
    return (weights - share) / (order - 1).square() + (surprise - share * entropy) / (order - 1)


class _TileSum:
    """Sums over the columns of functions of a tile."""

    def __init__(self, peak: Tensor, threshold: Tensor, order: Tensor) -> None:
        self.peak, self.threshold, self.order = peak, threshold, order

    def columns_of(self, scores: Tensor) -> Iterator[Tensor]:
        raise NotImplementedError  # pragma: no cover

    def lift(self, scores: Tensor, columns: Tensor) -> tuple[Tensor, ...]:
        return tuple(each.sum(-1, keepdim=True) for each in self.columns_of(scores))

    def merge(self, left: tuple[Tensor, ...], right: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return tuple(a + b for a, b in zip(left, right, strict=True))


class _SumAndSlope(_TileSum):
    """(Σα, −dΣα/dτ) of each row at a trial threshold."""

    def columns_of(self, scores: Tensor) -> Iterator[Tensor]:
        excess, support = _excess(scores, self.peak, self.threshold, self.order)
        power = 1 / (self.order - 1)
        yield torch.where(support, excess.pow(power), 0)
        yield power * torch.where(support, excess.pow(power - 1), 0)


class _SlopeAndEntropy(_TileSum):
    """(Σ slope, entropy) of each row at its threshold."""

    def columns_of(self, scores: Tensor) -> Iterator[Tensor]:
        weights = _weights(scores, self.peak, self.threshold, self.order)
        yield _slope(weights, self.order)
        yield -torch.xlogy(weights, weights)


class _Count:
    """How many keys each row allows."""

    def lift(self, scores: Tensor, columns: Tensor) -> tuple[Tensor]:
        return ((scores != -torch.inf).sum(-1, keepdim=True),)

    def merge(self, left: tuple[Tensor], right: tuple[Tensor]) -> tuple[Tensor]:
        return (left[0] + right[0],)
