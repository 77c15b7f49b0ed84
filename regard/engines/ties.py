"""Ties among keys that are equal, for rules that choose: the lowest index wins.

Equal keys have equal scores, but floats do not quite: a matrix product, or a loop over a row, rounds the columns at its
end otherwise than those before. So where a choice is decided by no more than rounding, the keys themselves are asked.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from regard.modes import is_capturing, is_hidden
from regard.problem import AttentionProblem
from regard.scores import ChannelForm, DotForm, Form, SumForm, steps
from regard.tensors import broadcast_shapes
from regard.weights.topk import best_k

# How many units in the last place of what was summed up a score may be off by rounding.
ROUNDING = 64

# How many units in the last place of its largest number a projected key may be off.
PROJECTED = 256

# Queries from which on it costs less to ask whether keys are equal than to ask each query whether rounding decides.
MANY_QUERIES = 512

# Elements of a strip of scores that is computed again.
COMPARED_ELEMENTS = 1 << 17

# Steps that give equal scores equal results, wherever they stand.
_ALIKE = (steps.Scale, steps.Gate, steps.Cap, steps.Indicator, steps.Parabola, steps.Tent)


def twins_of(*problems: AttentionProblem) -> Tensor | None:
    """For each key of problems whose keys follow each other the lowest index of an equal one; None where none are.

    Keys are equal, and so is, but for rounding, what the form holds for them: a score may tell equal keys
    apart by something of its own. The shape is `(..., n_keys)`.
    """
    notes = problems[0].notes if len(problems) == 1 else {}
    if "twins" not in notes:
        first = equal_keys(_joined([each.keys for each in problems]))
        held = [_of_keys(each.form) for each in problems] if first is not None else []
        # A distance may be folded among some keys and not among others: they cannot be compared.
        if len({tuple(each.shape[-1] for each in tensors) for tensors in held}) == 1:
            for several in zip(*held, strict=True):
                first = _where_alike(first, _joined(several))
        notes["twins"] = first
    twins: Tensor | None = notes["twins"]
    return twins


def _joined(tensors: Sequence[Tensor]) -> Tensor:
    """What problems hold for their keys, one after the other."""
    if len(tensors) == 1:
        return tensors[0]
    batch = broadcast_shapes(*(each.shape[:-2] for each in tensors))
    return torch.cat([each.expand(*batch, *each.shape[-2:]) for each in tensors], dim=-2)


def _of_keys(form: Form) -> list[Tensor]:
    """The numbers that a form holds for each key; positions are asked for elsewhere."""
    found = [each for term in form.terms for each in _of_keys(term)] if isinstance(form, SumForm) else []
    fields = [field for part in (form, *form.steps) for field in part.fields()]
    return found + [each.detach() for _, each, axes in fields if axes == (False, True) and each.is_floating_point()]


def _where_alike(first: Tensor | None, numbers: Tensor) -> Tensor | None:
    """For each key the lowest index of an equal one, if the numbers of both are the same but for rounding."""
    if first is None or numbers.shape[-2] != first.shape[-1]:
        return first
    batch = broadcast_shapes(first.shape[:-1], numbers.shape[:-2])
    numbers, first = numbers.expand(*batch, *numbers.shape[-2:]), first.expand(*batch, -1)
    others = numbers.gather(-2, first.unsqueeze(-1).expand(numbers.shape))
    units = PROJECTED if numbers.itemsize > 2 else 4
    largest = numbers.abs().amax(-1, keepdim=True)
    alike = ((numbers - others).abs() <= units * torch.finfo(numbers.dtype).eps * largest).all(-1)
    places = torch.arange(first.shape[-1], device=first.device)
    first = torch.where(alike, first, places)
    return first if bool((first != places).any()) else None


def equal_keys(keys: Tensor) -> Tensor | None:
    """For each key of `(..., n_keys, dim)` the lowest index of an equal one; None if none is."""
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
    """The same integers for equal numbers: NaN equals itself here, and −0 is 0."""
    return (keys + 0).contiguous().view({2: torch.int16, 4: torch.int32, 8: torch.int64}[keys.itemsize])


def _hashes(keys: Tensor) -> Tensor:
    """A number for each key, the same for equal ones: `(..., n_keys)`."""
    generator = torch.Generator().manual_seed(1)
    factors = torch.randint(2**62, keys.shape[-1:], generator=generator, device="cpu").to(keys.device) * 2 + 1
    bits = _bits(keys).long()
    # A product modulo 2⁶⁴ hears little of the upper half, where all is that float64 holds of a small integer.
    return ((bits ^ (bits >> 32)) * factors).sum(-1)


def _repeats(hashes: Tensor) -> bool:
    ranked = hashes.sort(-1).values
    return bool((ranked[..., 1:] == ranked[..., :-1]).any())


def is_positional(form: Form) -> bool:
    """Whether equal keys may have different scores, by where they stand."""
    if isinstance(form, SumForm) and any(is_positional(term) for term in form.terms):
        return True
    return any(not isinstance(step, _ALIKE) for step in form.steps)


def rounding_of(form: Form, scores: Tensor, chosen: Tensor) -> Tensor:
    """How much less than the score of a chosen key that of an equal key may be, by rounding alone.

    Args:
        form: Of the rows and of all keys.
        scores: The scores of the chosen keys, `(*batch_shape, n_queries, 1)`.
        chosen: Which keys they are; −1 for none.
    """
    size = scores.abs() + _size(form, chosen.clamp(min=0))
    # Where positions count, a difference may be meant: no more is put down to rounding than there is, as a rule.
    units = ROUNDING / 8 if is_positional(form) else ROUNDING
    return (units * torch.finfo(scores.dtype).eps * size).nan_to_num(0.0, 0.0, 0.0)


def _size(form: Form, chosen: Tensor) -> Tensor | float:
    """About the sum of absolute values that a chosen score is a sum of, where the score itself may be much smaller."""
    if isinstance(form, SumForm):
        return sum((_size(term, chosen) for term in form.terms), start=0.0)
    if isinstance(form, DotForm) and form.right.shape[-2]:
        chosen = chosen.clamp(max=form.right.shape[-2] - 1)  # of several parts, the size of a key of the first will do
        keys = form.right.detach().expand(*chosen.shape[:-2], *form.right.shape[-2:])
        keys = keys.gather(-2, chosen.expand(*chosen.shape[:-1], keys.shape[-1]))
        return _norm(form.left.detach()) * _norm(keys) * abs(form.scale)
    if isinstance(form, ChannelForm) and form.function == "tanh":
        weight = form.left.new_ones(1, form.left.shape[-1]) if form.weight is None else form.weight.detach()
        return weight.abs().sum(-1, keepdim=True) * abs(form.scale)
    return 0.0


def _norm(vectors: Tensor) -> Tensor:
    """The norm of each vector, `(..., 1)`; its square may leave the dtype."""
    largest = vectors.abs().amax(-1, keepdim=True) if vectors.shape[-1] else vectors.new_zeros(*vectors.shape[:-1], 1)
    norm: Tensor = (vectors / torch.where(largest == 0, 1, largest)).norm(dim=-1, keepdim=True)
    return norm * largest


def with_ties_settled(
    scores: Tensor, columns: Tensor, choices: tuple[int, ...], form: Form, twins: Callable[[], Tensor | None]
) -> Tensor:
    """The scores of whole rows for a rule that chooses: as they are, unless rounding decides between equal keys.

    Args:
        scores: `(..., n_queries, n_columns)`, −inf where not allowed.
        columns: The position of each column among all keys.
        choices: How many keys the rule takes.
        form: What the scores were computed by, of these rows and all keys.
        twins: Finds out which keys are equal, see `equal_keys`.
    """
    if is_hidden(scores) or is_capturing(scores.device) or scores.numel() == 0:
        return scores
    plain = scores.detach()
    if plain[..., 0].numel() < MANY_QUERIES and not any(_is_close(plain, columns, k, form) for k in choices):
        return scores
    first = twins()
    return scores if first is None else _levelled(scores, columns, first, form)


def _is_close(scores: Tensor, columns: Tensor, k: int, form: Form) -> bool:
    """Whether rounding decides, in some row, who is among the best k."""
    if k >= scores.shape[-1]:
        return False
    last, place = scores.max(-1, keepdim=True) if k == 1 else (each[..., -1:] for each in scores.topk(k))
    level = last - rounding_of(form, last, columns[place])
    return bool(((scores >= torch.where(last == -torch.inf, torch.inf, level)).sum(-1) > k).any())


def _levelled(scores: Tensor, columns: Tensor, first: Tensor, form: Form) -> Tensor:
    """The scores, with the largest of theirs for equal keys that are allowed; gradients are as before.

    Where positions count, equal keys have equal scores before them: those are levelled, so that what a bias or a
    distance means is heard, however small it is.
    """
    (chosen,) = _paired(first)[columns].nonzero(as_tuple=True)
    plain = scores.detach()
    some = plain.index_select(-1, chosen)
    if is_positional(form):
        level = _level_before_steps(some, columns[chosen], first, form)
        if level is None:
            return scores
    else:
        level = _level(some, first[..., columns[chosen]])
    even = plain.index_copy(-1, chosen, torch.where(some > -torch.inf, level, some))
    if not scores.requires_grad:
        return even
    moved = even != plain
    return torch.where(moved, even + (torch.where(moved, scores, 0) - torch.where(moved, plain, 0)), scores)


def _level(scores: Tensor, first: Tensor) -> Tensor:
    """The largest score among equal keys: `(..., n_queries, n_keys)`, with the first of the equals `(..., n_keys)`."""
    names, groups = first.unique(return_inverse=True)
    groups = groups.unsqueeze(-2).expand(scores.shape)
    peaks = scores.new_full((*scores.shape[:-1], len(names)), -torch.inf).scatter_reduce(-1, groups, scores, "amax")
    return peaks.gather(-1, groups)


def _level_before_steps(scores: Tensor, keys: Tensor, first: Tensor, form: Form) -> Tensor | None:
    """What the steps make of equal scores of equal keys; None where positions count before the steps, too.

    Args:
        scores: Of some keys, `(..., n_queries, n)`.
        keys: Which those are.
        first: As for all keys.
        form: Of all keys.
    """
    bare = dataclasses.replace(form, steps=())
    if is_positional(bare):
        return None
    with torch.no_grad():
        form = form.narrow(range(scores.shape[-2]), keys).to(scores.dtype)
        before = bare.narrow(range(scores.shape[-2]), keys).to(scores.dtype).scores().expand(scores.shape)
        level = _level(before, first[..., keys])
        for step in form.steps:
            level = step(level)
    return level.expand(scores.shape)


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
    columns = torch.arange(problem.grid.n_keys, device=index.device)
    index = index.clone()
    pairs = math.prod(problem.grid.batch_shape) * problem.grid.n_keys
    for some in rows.split(max(COMPARED_ELEMENTS // pairs, 1)):
        scores = problem.scores(some).expand(*problem.grid.batch_shape, len(some), problem.grid.n_keys)
        form = problem.form.narrow(some, problem.grid.columns)
        best, places = best_k(_levelled(scores, columns, first, form), index.shape[-1])
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
