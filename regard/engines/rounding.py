"""Whether scores are so large that their rounding shows in the weights.

A score is rounded to a few parts in 10⁷ of the terms that it is summed from, in float32, and e^a turns what is lost
into a factor: at 1e8, into e^±8. Two computations of one score, in tiles of another shape or by other loops, are
rounded apart. So weights that are computed again are those of before only where that is little; elsewhere they must
come from the same computation, which `engines/strips.py` is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from regard.modes import is_capturing, is_tracing
from regard.problem import AttentionProblem
from regard.scores import steps
from regard.scores.form import ChannelForm, DotForm, Form, Step, SumForm
from regard.weights import Conic, Entmax, Proportional, Raw, Softmax, Statistics, TopK, Uniform, Weights

# How large the terms of a score may be. Two roundings of it are then apart by a few parts in 10⁴ in float32, in 10¹³ in
# float64: less than weights are good for.
LIMIT = 1024.0

# Terms of both signs are rounded apart by less than those of one.
CANCELLING = 4

# Weights that are scores, or do not depend on them: what is rounded off stays as small a part of them.
_PROPORTIONAL = (Conic, Proportional, Raw, Uniform)


class _Terms(NamedTuple):
    """How large the terms are that scores are summed from."""

    most: float  # none is larger; inf where that is not known
    cancelling: float  # nor any of those that may be much larger than their sum


class Rounding:
    """How far apart two roundings of the scores of a problem may be.

    Args:
        problem: Whose scores.
        longest: The lengths of the longest vectors of a product, left and right, if they are known.
    """

    def __init__(self, problem: AttentionProblem, longest: Sequence[float] | None = None) -> None:
        self._rule, self._eps = problem.rule, torch.finfo(problem.compute_dtype).eps
        known = not (isinstance(self._rule, _PROPORTIONAL) or problem.queries.is_meta or is_tracing())
        with torch.no_grad():
            self._terms = _terms_of(problem.form, longest) if known else _Terms(0.0, 0.0)

    @property
    def is_small(self) -> bool:
        """Whether it is nowhere above the limit."""
        return self._is_small(self._terms.most)

    @property
    def is_large(self) -> bool:
        """Whether it may be above the limit, wherever the best scores of rows are."""
        return not self._is_small(self._terms.cancelling / CANCELLING)

    def shows(self, statistics: Statistics) -> bool:
        """Whether it may show in weights of rows with these statistics."""
        return not self.is_small and (self.is_large or self._shows_at(_peaks(self._rule, statistics)))

    def shows_in(self, scores: Tensor) -> bool:
        """Whether it may show in weights of rows with these scores."""
        if self.is_small or not scores.shape[-1]:
            return False
        return self.is_large or (_has_peaks(self._rule) and self._shows_at(scores.detach().amax(-1)))

    def decides(self, scores: Tensor) -> bool:
        """Whether it may decide which keys a rule that chooses takes: the best that it leaves out is close."""
        k = self._rule.k if isinstance(self._rule, TopK) else 1
        if scores.is_meta or k >= scores.shape[-1]:
            return False
        best = scores.detach().topk(k + 1, dim=-1).values
        last, next_best = best[..., -2], best[..., -1]
        close = 16 * self._eps * last.abs().clamp(min=self._terms.cancelling)
        return bool((last - next_best <= close).any())  # not where nothing is left out: NaN and infinity are not close

    def _shows_at(self, peaks: Tensor | None) -> bool:
        # A key with a weight has a score near its row's best, and terms of one sign are no larger than their sum.
        return peaks is not None and not self._is_small(_largest(torch.where(peaks == -torch.inf, 0, peaks)))

    def _is_small(self, size: float) -> bool:
        return size <= LIMIT  # NaN is not


def rounds_apart(problem: AttentionProblem, statistics: Statistics) -> bool:
    """Whether the best scores of rows are so large that rounding shows; it costs microseconds, where `Rounding` looks
    at every query and key.
    """
    peaks = _peaks(problem.rule, statistics)
    return peaks is not None and are_large(peaks)


def are_large(peaks: Tensor) -> bool:
    """Whether the best scores of rows are so large that their rounding shows in weights."""
    if peaks.is_meta or is_tracing() or is_capturing(peaks.device) or not peaks.numel():
        return False
    least, most = (float(each) for each in torch.aminmax(torch.where(peaks == -torch.inf, 0, peaks)))
    return max(-least, most) > LIMIT


def _has_peaks(rule: Weights) -> bool:
    return isinstance(rule, Softmax | Entmax) or (isinstance(rule, TopK) and _has_peaks(rule.then))


def _peaks(rule: Weights, statistics: Statistics) -> Tensor | None:
    """The best score of each row, for rules whose weights depend on how far below it a score is."""
    if isinstance(rule, TopK):
        return _peaks(rule.then, statistics[1:])
    return statistics[0] if _has_peaks(rule) else None


def _terms_of(form: Form, longest: Sequence[float] | None = None) -> _Terms:
    if type(form) is DotForm:
        left, right = (_longest(form.left), _longest(form.right)) if longest is None else longest
        size = abs(form.scale) * left * right
        terms = _Terms(size, size)
    elif type(form) is ChannelForm:
        terms = _terms_of_channels(form)
    elif type(form) is SumForm:
        each = [_terms_of(term) for term in form.terms]
        terms = _Terms(sum(term.most for term in each), sum(term.cancelling for term in each))
    else:  # a user's: what it returns is all that is known of it
        terms = _Terms(torch.inf, 0.0)
    for step in form.steps:
        terms = _after(terms, step)
    return terms


def _terms_of_channels(form: ChannelForm) -> _Terms:
    weight, total = form.weight, float(form.left.shape[-1])
    if weight is not None:
        total = _largest(weight.abs().sum(-1))
    if form.function in ("absolute", "square"):
        reach = _largest(form.left) + _largest(form.right)
        total *= reach * reach if form.function == "square" else reach  # ** would raise where a product is infinite
    total *= abs(form.scale)
    one_sign = form.function != "tanh" and (weight is None or bool((weight >= 0).all()) or bool((weight <= 0).all()))
    return _Terms(total, 0.0 if one_sign else total)


def _after(terms: _Terms, step: Step) -> _Terms:
    """How large terms are after a step."""
    most, cancelling = terms
    match step:
        case steps.Scale():
            factor = _largest(step.factor)
            return _Terms(most * factor, cancelling * factor)
        case steps.Gate() | steps.Cap():  # no steeper than 1
            return terms
        case steps.AddPairs():
            return _Terms(most + _largest(torch.where(step.bias == -torch.inf, 0, step.bias)), cancelling)
        case steps.AddDistance():
            reach = _largest(step.query_positions) + _largest(step.key_positions)
            return _Terms(most + _largest(step.slope) * reach, cancelling)
        case steps.AddRelative():
            return _Terms(most + _largest(step.table), cancelling)
        case steps.Indicator():
            return _Terms(1.0, 0.0)
        case steps.Parabola() | steps.Tent():
            radius = _least(step.radius)
            return _Terms(1.0, cancelling / radius / radius)
    return _Terms(torch.inf, cancelling)


def _longest(vectors: Tensor) -> float:
    return _largest(torch.linalg.vector_norm(vectors, dim=-1, dtype=torch.promote_types(vectors.dtype, torch.float32)))


def _largest(tensor: Tensor) -> float:
    if not tensor.numel():
        return 0.0
    least, most = torch.aminmax(tensor)
    return max(-float(least), float(most)) if float(least) == float(least) else torch.nan


def _least(tensor: Tensor) -> float:
    return float(tensor.abs().amin()) if tensor.numel() else 1.0
