"""Versions: whether tensors are still what they were, so that nothing is computed from old and new ones together.

torch counts the changes that are made to a tensor in place, by an optimizer too.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from torch import Tensor, nn

from regard.errors import ViewExpired
from regard.problem import AttentionProblem
from regard.scores.form import CustomForm, Form, SumForm
from regard.tracing import is_tracing


class Versions:
    """Which change each tensor of a problem was at.

    Args:
        problem: Whose tensors they are; none of them an inference tensor (see `held`), which does not count changes.
        score: Whether what the score has learned matters: not where only its form is computed from.
    """

    def __init__(self, problem: AttentionProblem, *, score: bool = True) -> None:
        found: dict[int, tuple[str, Tensor, int]] = {}
        for name, each in () if is_tracing() else _named(problem, score):
            if not each.is_inference():
                found.setdefault(id(each), (name, each, each._version))
        self._known = list(found.values())

    @property
    def changed(self) -> str | None:
        """What was changed in place; None if nothing was."""
        return next((name for name, each, version in self._known if each._version != version), None)

    def check(self) -> None:
        """Raise if something was changed in place."""
        name = self.changed
        if name is not None:
            by = ", as by a step of an optimizer," if name.startswith(("`score.", "`weights.")) else ""
            raise ViewExpired(
                f"A view must have its inputs as they were: {name} was changed in place{by} after the view was made. "
                f"Make the view again, or make it of a clone."
            )


def held(problem: AttentionProblem) -> AttentionProblem:
    """The problem with copies of its inference tensors, which do not count changes."""
    mask = problem.mask
    tensors = (problem.queries, problem.keys, problem.values, *problem.form.tensors())
    masked = () if mask is None else mask.tensors()
    learned = (*problem.weights.parameters(), *problem.weights.buffers())
    if is_tracing() or not any(each.is_inference() for each in (*tensors, *masked, *learned)):
        return problem
    queries, keys, values, *form = (each.clone() if each.is_inference() else each for each in tensors)
    copied = replace(
        problem,
        queries=queries,
        keys=keys,
        values=values,
        mask=copy.deepcopy(mask),
        weights=copy.deepcopy(problem.weights),
    )
    # Where `kept` keeps what it has computed: projections are not done again.
    copied.__dict__["form"] = problem.form.rebuilt(iter(form))
    return copied


def _named(problem: AttentionProblem, score: bool) -> Iterator[tuple[str, Tensor]]:
    """Every tensor that weights depend on, and what a message calls it: the plainest name first."""
    yield from (("`queries`", problem.queries), ("`keys`", problem.keys), ("`values`", problem.values))
    captures = problem.form.captures
    for of, module in (("score", problem.score if score or captures else None), ("weights", problem.weights)):
        if module is not None:
            tensors = (*module.named_parameters(), *module.named_buffers())
            yield from ((f"`{of}.{name}`", each) for name, each in tensors)
    if problem.mask is not None:
        yield from (("a tensor of the mask", each) for each in problem.mask.tensors())
    yield from (("a tensor of the score", each) for each in problem.form.tensors())
    if captures:
        for function in _functions(problem.form):
            yield from (("what the function of Custom reads", each) for each in _closed_over(function))


def _functions(form: Form) -> Iterator[Callable[..., Any]]:
    if isinstance(form, CustomForm):
        yield form.function
    elif isinstance(form, SumForm):
        for term in form.terms:
            yield from _functions(term)


def _closed_over(function: Callable[..., Any]) -> Iterator[Tensor]:
    """The tensors that a function of a user's finds around it, its own and those of modules."""
    if not inspect.isfunction(function):
        return  # a module is a part of the score
    around = inspect.getclosurevars(function)
    for value in (*around.nonlocals.values(), *around.globals.values()):
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, nn.Module):
            yield from (*value.parameters(), *value.buffers())
        elif inspect.isfunction(value) and value is not function:
            yield from _closed_over(value)
