"""Where a problem is broken, and where that shows: by its rule and by its form, before anything is computed."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from regard.engines.nonfinite.visibility import any_seen, sees
from regard.problem import AttentionProblem
from regard.scores import ChannelForm, DotForm, Form, SumForm, steps
from regard.scores.form_part import Axes
from regard.tensors import is_finite
from regard.weights import Entmax, Sigmoid, Softmax, Sparsemax, TopK, Uniform, Weights

# Where a score of NaN shows, by rule: in all of its row; in the choice of keys, where it comes first; in its pair
# alone; nowhere. Rules that are not here, and users' own, go by the definition.
ROW, CHOICE, PAIR, NOWHERE = "row", "choice", "pair", "nowhere"
SPREADS: dict[type[Weights], str] = {
    Softmax: ROW,
    Entmax: ROW,
    Sparsemax: ROW,
    TopK: CHOICE,
    Sigmoid: PAIR,
    Uniform: NOWHERE,
}

# What NaN passes through, forward and backward, whatever else a pair holds.
STEPS = (steps.Scale, steps.Gate, steps.Cap, steps.AddPairs, steps.AddDistance, steps.AddRelative)


class Marks(NamedTuple):
    """Where a problem is broken; each `(..., n, 1)`, broadcast over batch axes."""

    undefined_queries: Tensor  # every score of theirs is NaN
    undefined_keys: Tensor
    undefined: Tensor  # rows that see a score of NaN, and whose output is NaN for it
    unclear: Tensor  # rows to be computed by the definition
    chosen: bool  # whether the run is to choose keys whose score is NaN before all others


def follows(problem: AttentionProblem) -> bool:
    """Whether it is known what a score of NaN comes to under this form and rule."""
    sane, _, _ = problem.sane
    rule = problem.rule
    if type(rule) not in SPREADS or (isinstance(rule, TopK) and SPREADS.get(type(rule.then)) != ROW):
        return False
    if not _carries(sane) or 0 in (*problem.output_shape, problem.grid.n_keys):
        return False
    if problem.dropout and needs_reach(rule) and not is_finite(problem.values):
        return False  # a weight that is dropped is not one that has no slope
    numbers = [each for each in sane.tensors() if each.is_floating_point()]
    return is_finite(*numbers)  # a bias may hold −inf, for what is not allowed


def needs_reach(rule: Weights) -> bool:
    """Whether a gradient goes to the keys that have weight, rather than to all that are seen."""
    return type(rule) in (Entmax, Sparsemax, TopK)


def _carries(form: Form) -> bool:
    """Whether NaN for a query or key is NaN for all of its scores, and for every gradient through them."""
    if type(form) is SumForm:
        known = all(_carries(term) for term in form.terms)
    else:
        known = type(form) is DotForm or (type(form) is ChannelForm and form.function != "differ")
    return known and all(type(step) in STEPS and not _scatters(step) for step in form.steps)


def _scatters(step: object) -> bool:
    """Whether a gradient goes to a place of its own for each pair, of which nobody knows here who sees it."""
    if isinstance(step, steps.AddPairs):
        return step.bias.requires_grad and 1 not in step.bias.shape[-2:]
    return isinstance(step, steps.AddRelative) and step.table.requires_grad


@torch.no_grad()
def mark(problem: AttentionProblem, chooses: bool) -> Marks | None:
    """Where the problem is broken; None where so many rows are unclear that nothing is gained."""
    _, broken_queries, broken_keys = problem.sane
    undefined_queries, undefined_keys = _undefined(problem.form)
    infinite_queries, infinite_keys = broken_queries & ~undefined_queries, broken_keys & ~undefined_keys
    unclear = infinite_queries | sees(problem, infinite_keys)
    undefined = (undefined_queries & any_seen(problem)) | sees(problem, undefined_keys)
    rule = problem.rule
    chosen = False
    if isinstance(rule, TopK):
        # What a row then weighs is NaN: it may pass to those chosen, and to no other.
        chosen = chooses and type(rule.then) is Softmax and not problem.dropout and not bool(unclear.any())
        unclear = unclear if chosen else unclear | undefined
    if SPREADS[type(rule)] == NOWHERE:
        undefined = torch.zeros_like(undefined)
    if bool(unclear.any()) and 2 * int(rows_of(unclear, problem).numel()) > problem.grid.n_queries:
        return None
    return Marks(undefined_queries, undefined_keys, undefined & ~unclear, unclear, chosen)


def _undefined(form: Form) -> tuple[Tensor, Tensor]:
    """Which queries and which keys have NaN among what the form holds for them."""
    found = [torch.zeros(1, 1, dtype=torch.bool, device=form.tensors()[0].device)] * 2
    for tensor, axes in zip(form.tensors(), axes_of(form), strict=True):
        if axes[0] != axes[1] and tensor.is_floating_point() and tensor.shape[-1]:
            found[axes[1]] = found[axes[1]] | tensor.amax(-1, keepdim=True).isnan()
    return found[0], found[1]


def axes_of(form: Form) -> list[Axes]:
    """Whether each of `form.tensors()` follows queries and keys."""
    own = [axes for part in (form, *form.steps) for _, _, axes in part.fields()]
    return [*(axes for term in form.terms for axes in axes_of(term)), *own] if isinstance(form, SumForm) else own


def preferring(form: Form, marks: Marks) -> Form:
    """The form in which scores of NaN are +inf: the best, as they are by definition."""
    dtype = form.tensors()[0].dtype
    for undefined in (marks.undefined_queries, marks.undefined_keys.mT):
        form = form.then(steps.AddPairs(torch.where(undefined, torch.inf, 0.0).to(dtype)))
    return form


def rows_of(marked: Tensor, problem: AttentionProblem) -> Tensor:
    """The rows that are marked in some batch entry."""
    whole = marked.expand(*marked.shape[:-2], problem.grid.n_queries, 1)
    return whole.reshape(-1, problem.grid.n_queries).any(0).nonzero().flatten()
