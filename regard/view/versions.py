"""Versions: whether tensors are still what they were, so that nothing is computed from old and new ones together.

torch counts the changes that are made to a tensor in place, by an optimizer too.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import repeat
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from regard.errors import ViewExpired
from regard.modes import is_tracing
from regard.problem import AttentionProblem
from regard.scores.form import CustomForm, Form, SumForm

# How many numbers of a parameter are compared at most.
COMPARED = 1 << 16


class Versions:
    """Which change each tensor of a problem was at.

    Args:
        problem: Whose tensors they are; none of them an inference tensor (see `held`), which does not count changes.
        score: Whether what the score has learned matters: not where only its form is computed from.
    """

    def __init__(self, problem: AttentionProblem, *, score: bool = True) -> None:
        found: dict[int, tuple[str, Tensor, int, Tensor | None]] = {}
        for name, each in () if is_tracing() else _named(problem, score):
            if not each.is_inference() and id(each) not in found:
                # Fused optimizers change parameters without counting: small ones are compared by their numbers.
                small = isinstance(each, nn.Parameter) and each.numel() <= COMPARED and not each.is_meta
                found[id(each)] = name, each, each._version, each.detach().clone() if small else None
        self._known = list(found.values())

    @property
    def changed(self) -> str | None:
        """What was changed in place; None if nothing was."""
        for name, each, version, numbers in self._known:
            if each._version != version or (numbers is not None and not _same(each.detach(), numbers)):
                return name
        return None

    def check(self) -> None:
        """Raise if something was changed in place."""
        name = self.changed
        if name is not None:
            by = ", as by a step of an optimizer," if name.startswith(("`score.", "`weights.")) else ""
            raise ViewExpired(
                f"A view must have its inputs as they were: {name} was changed in place{by} after the view was made. "
                f"Make the view again, or make it of a clone."
            )


def _same(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors of one shape have the same numbers, NaN being one."""
    return one.shape == other.shape and torch.allclose(one, other, rtol=0, atol=0, equal_nan=True)


def held(problem: AttentionProblem) -> AttentionProblem:
    """The problem with copies of its inference tensors, which do not count changes."""
    mask = problem.mask
    tensors = (problem.queries, problem.keys, *problem.tensors)
    masked = () if mask is None else mask.tensors()
    learned = (*problem.rule.parameters(), *problem.rule.buffers())
    if is_tracing() or not any(map(Tensor.is_inference, (*tensors, *masked, *learned))):
        return problem
    queries, keys, *form, values = (each.clone() if each.is_inference() else each for each in tensors)
    copied = replace(
        problem,
        queries=queries,
        keys=keys,
        values=values,
        mask=copy.deepcopy(mask),
        rule=copy.deepcopy(problem.rule),
    )
    # Where `kept` keeps what it has computed: projections are not done again.
    copied.__dict__["form"] = problem.form.rebuilt(iter(form))
    return copied


def _named(problem: AttentionProblem, score: bool) -> list[tuple[str, Tensor]]:
    """Every tensor that weights depend on, and what a message calls it: the plainest name first."""
    found = [("`queries`", problem.queries), ("`keys`", problem.keys), ("`values`", problem.values)]
    captures = problem.form.captures
    for of, module in (("score", problem.score if score or captures else None), ("weights", problem.rule)):
        if module is not None:
            for name, each in (*module.named_parameters(), *module.named_buffers()):
                found.append((f"`{of}.{name}`", each))
    if problem.mask is not None:
        found += zip(repeat("a tensor of the mask"), (*problem.mask.tensors(), *_read_by_mask(problem)))
    found += zip(repeat("a tensor of the score"), problem.tensors)
    if captures:
        found += zip(repeat("what the function of Custom reads"), _read_by(problem.form))
    return found


def _read_by(form: Form) -> Iterator[Tensor]:
    """The tensors that functions of a user's read besides queries and keys, found by a call for one pair."""
    if isinstance(form, SumForm):
        for term in form.terms:
            yield from _read_by(term)
    elif isinstance(form, CustomForm) and form.left.shape[-2] and form.right.shape[-2]:
        pair = form.narrow(range(1), range(1))
        yield from _read_in(pair.function, pair.left, pair.right)


def _read_by_mask(problem: AttentionProblem) -> Iterable[Tensor]:
    """The tensors that a mask reads, one that is a function of a user's too; found in the same way."""
    grid, mask = problem.grid, problem.mask
    if mask is None or not grid.n_queries or not grid.n_keys:
        return ()
    first = torch.zeros(1, 1, dtype=torch.long, device=grid.device)
    return _read_in(lambda rows, columns: mask.allows(rows, columns, grid), first, first.clone())


def _read_in(function: Callable[[Tensor, Tensor], Any], left: Tensor, right: Tensor) -> Iterable[Tensor]:
    """The tensors that a call reads besides those given; what it raises, it raises again when weights are read."""
    reading = _Reading(left, right)
    with suppress(Exception), torch.no_grad(), reading:
        function(left, right)
    return reading.found.values()


class _Reading(TorchFunctionMode):
    """Notes every tensor that goes into an operation and has come out of none, but for those given."""

    def __init__(self, *given: Tensor) -> None:
        super().__init__()
        self._made = {id(each): each for each in given}
        self.found: dict[int, Tensor] = {}

    def __torch_function__(
        self, function: Callable[..., Any], types: Iterable[type], args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        for each in tree_leaves((args, kwargs)):
            if isinstance(each, Tensor) and id(each) not in self._made:
                self.found[id(each)] = each
        result = function(*args, **(kwargs or {}))
        self._made |= {id(each): each for each in tree_leaves(result) if isinstance(each, Tensor)}
        return result
