"""Ties among keys that are equal bit for bit, for rules that choose: the lowest index wins.

Equal keys have equal scores, but floats do not quite: a matrix product, or a loop over a row, rounds the columns at its
end otherwise than those before. So where a choice is decided by no more than rounding, the keys themselves are asked.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from regard.problem import AttentionProblem
from regard.scores import ChannelForm, DotForm, Form, SumForm, steps
from regard.tracing import is_capturing, is_hidden
from regard.weights.topk import best_k

# How many units in the last place of what was summed up a score may be off by rounding.
ROUNDING = 64

# Steps that give equal scores equal results, wherever they stand.
_ALIKE = (steps.Scale, steps.Gate, steps.Cap, steps.Indicator, steps.Parabola, steps.Tent)


def twins_of(problem: AttentionProblem) -> Tensor | None:
    """For each key of a problem the lowest index of an equal one, `(..., n_keys)`; None where none are equal."""
    if "twins" not in problem.notes:
        problem.notes["twins"] = equal_keys(problem.keys)
    twins: Tensor | None = problem.notes["twins"]
    return twins


def equal_keys(keys: Tensor) -> Tensor | None:
    """For each key of `(..., n_keys, dim)` the lowest index of one that is equal bit for bit; None if none is."""
    keys = keys.detach()
    # Two coordinates are enough to know that no keys are equal, as a rule.
    if keys.shape[-2] < 2 or keys.shape[-1] == 0 or not _repeats(_hashes(keys[..., :2])):
        return None
    hashes = _hashes(keys)
    order = hashes.sort(dim=-1, stable=True).indices  # equal ones by their index
    ranked = hashes.gather(-1, order)
    places = torch.arange(keys.shape[-2], device=keys.device).expand(ranked.shape)
    starts = torch.ones_like(ranked, dtype=torch.bool)
    starts[..., 1:] = ranked[..., 1:] != ranked[..., :-1]
    start = torch.where(starts, places, 0).cummax(-1).values
    first = torch.empty_like(order).scatter(-1, order, order.gather(-1, start))
    # Hashes of different keys may be equal: such keys are left alone.
    bits = _bits(keys)
    same = (bits == bits.gather(-2, first.unsqueeze(-1).expand(bits.shape))).all(-1)
    first = torch.where(same, first, places)
    return first if bool((first != places).any()) else None


def _bits(keys: Tensor) -> Tensor:
    return keys.contiguous().view({2: torch.int16, 4: torch.int32, 8: torch.int64}[keys.itemsize])


def _hashes(keys: Tensor) -> Tensor:
    """A number for each key, the same for equal ones: `(..., n_keys)`."""
    generator = torch.Generator().manual_seed(1)
    factors = torch.randint(2**62, keys.shape[-1:], generator=generator, device="cpu").to(keys.device) * 2 + 1
    return (_bits(keys).long() * factors).sum(-1)


def _repeats(hashes: Tensor) -> bool:
    ranked = hashes.sort(-1).values
    return bool((ranked[..., 1:] == ranked[..., :-1]).any())


def is_positional(form: Form) -> bool:
    """Whether equal keys may have different scores, by where they stand."""
    if isinstance(form, SumForm) and any(is_positional(term) for term in form.terms):
        return True
    return any(not isinstance(step, _ALIKE) for step in form.steps)


def rounding_of(form: Form, dtype: torch.dtype) -> float:
    """How far apart rounding may put the scores of equal keys; 0 where their size does not say."""
    size = ROUNDING * torch.finfo(dtype).eps * _size(form)
    # Where positions count, a difference may be meant: no more is put down to rounding than there is, as a rule.
    return (size / 8 if is_positional(form) else size) if math.isfinite(size) else 0.0


def _size(form: Form) -> float:
    """About the largest sum of absolute values that a score is a sum of; 0 where a score is one itself."""
    if isinstance(form, SumForm):
        return sum(_size(term) for term in form.terms)
    if isinstance(form, DotForm) and form.left.numel() and form.right.numel():
        sizes = [each.detach().float().norm(dim=-1).amax() for each in (form.left, form.right)]
        return float(sizes[0] * sizes[1]) * abs(form.scale)
    if isinstance(form, ChannelForm) and form.function == "tanh":
        weight = form.left.shape[-1] if form.weight is None else float(form.weight.detach().abs().sum(-1).amax())
        return weight * abs(form.scale)
    return 0.0


def with_ties_settled(
    scores: Tensor, columns: Tensor, choices: tuple[int, ...], form: Form, twins: Callable[[], Tensor | None]
) -> Tensor:
    """The scores of whole rows for a rule that chooses: as they are, unless rounding decides between equal keys.

    Args:
        scores: `(..., n_queries, n_columns)`, −inf where not allowed.
        columns: The position of each column among all keys.
        choices: How many keys the rule takes.
        form: What the scores were computed by.
        twins: Finds out which keys are equal, see `equal_keys`.
    """
    if is_hidden(scores) or is_capturing(scores.device) or scores.numel() == 0:
        return scores
    rounding = rounding_of(form, scores.dtype)
    if not any(_is_close(scores.detach(), k, rounding) for k in choices):
        return scores
    first = twins()
    return scores if first is None else _levelled(scores, columns, first, rounding if is_positional(form) else None)


def _is_close(scores: Tensor, k: int, rounding: float) -> bool:
    """Whether rounding decides, in some row, who is among the best k."""
    if k >= scores.shape[-1]:
        return False
    last = scores.amax(-1, keepdim=True) if k == 1 else scores.topk(k).values[..., -1:]
    near = (scores >= last - within(last, rounding)) & (scores > -torch.inf)
    return bool((near.sum(-1) > k).any())


def within(scores: Tensor, rounding: float) -> Tensor:
    """How much less than these scores others may be that differ from them by rounding."""
    own = ROUNDING * torch.finfo(scores.dtype).eps * scores.abs()
    return own.nan_to_num(0.0, 0.0, 0.0).clamp(min=rounding)


def _levelled(scores: Tensor, columns: Tensor, first: Tensor, rounding: float | None) -> Tensor:
    """The scores, with the largest of theirs for equal keys that are allowed; gradients are as before.

    With `rounding`, equal keys may have different scores: those that differ by more stay as they are.
    """
    (chosen,) = _paired(first)[columns].nonzero(as_tuple=True)
    plain = scores.detach()
    some = plain.index_select(-1, chosen)
    names, groups = first[..., columns[chosen]].unique(return_inverse=True)
    groups = groups.unsqueeze(-2).expand(some.shape)
    peaks = some.new_full((*some.shape[:-1], len(names)), -torch.inf).scatter_reduce(-1, groups, some, "amax")
    level = peaks.gather(-1, groups)
    alike = some > -torch.inf
    if rounding is not None:
        alike = alike & (some >= level - within(level, rounding))
    even = plain.index_copy(-1, chosen, torch.where(alike, level, some))
    if not scores.requires_grad:
        return even
    moved = even != plain
    return torch.where(moved, even + (torch.where(moved, scores, 0) - torch.where(moved, plain, 0)), scores)


def _paired(first: Tensor) -> Tensor:
    """Which keys are equal to another one, in some batch entry: `(n_keys,)`."""
    flat = first.reshape(-1, first.shape[-1])
    counts = torch.zeros_like(flat).scatter_add(-1, flat, torch.ones_like(flat))
    return (counts.gather(-1, flat) > 1).any(0)


def lowest_of_equals(problem: AttentionProblem, index: Tensor, near: Tensor) -> Tensor:
    """The keys that rows chose, with the lowest ones where rounding decided between equal keys.

    Args:
        problem: Whose scores they are.
        index: `(*batch_shape, n_queries, k)`, best first, then −1.
        near: Of which rows more than k keys are the best but for rounding, `(*batch_shape, n_queries)`.
    """
    first = twins_of(problem)
    if first is None:
        return index
    if problem.mask is None and not is_positional(problem.form):
        return _in_order(first.expand(*problem.grid.batch_shape, -1), index)
    rows = near.reshape(-1, near.shape[-1]).any(0).nonzero().flatten()
    rounding = rounding_of(problem.form, problem.compute_dtype) if is_positional(problem.form) else None
    columns = torch.arange(problem.grid.n_keys, device=index.device)
    index = index.clone()
    for some in rows.split(max((1 << 20) // problem.grid.n_keys, 1)):
        scores = problem.scores(some).expand(*problem.grid.batch_shape, len(some), problem.grid.n_keys)
        best, places = best_k(_levelled(scores, columns, first, rounding), index.shape[-1])
        found = torch.full_like(index[..., some, :], -1)
        found[..., : best.shape[-1]] = torch.where(best == -torch.inf, -1, places)
        index[..., some, :] = torch.where(near[..., some, None], found, index[..., some, :])
    return index


def _in_order(first: Tensor, index: Tensor) -> Tensor:
    """The chosen keys, with as many of the lowest for every group of equals as were chosen of it: all are allowed."""
    order = first.sort(dim=-1, stable=True).indices
    ranked = first.gather(-1, order)
    wide = first.unsqueeze(-2).expand(*index.shape[:-1], -1)
    names = torch.where(index < 0, -1, wide.gather(-1, index.clamp(min=0)))
    rank = torch.zeros_like(index)
    for place in range(1, index.shape[-1]):
        rank[..., place] = (names[..., :place] == names[..., place : place + 1]).sum(-1)
    flat = names.flatten(-2)
    start = torch.searchsorted(ranked.contiguous(), flat.clamp(min=0)).reshape(index.shape)
    lowest = order.unsqueeze(-2).expand(*index.shape[:-1], -1).gather(-1, start + rank)
    return torch.where(index < 0, -1, lowest)
