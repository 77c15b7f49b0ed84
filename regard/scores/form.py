"""Pairwise forms: what is left of a score once its projections are done.

A score is projections (ordinary tensor operations on queries or keys alone) plus a pairwise form. Engines know the
forms here and nothing about parameters:

- `DotForm`      left · right
- `ChannelForm`  Σ_c w_c · φ(left_c, right_c)
- `CustomForm`   any function of a tile of queries and a tile of keys
- `SumForm`      the sum of several forms

followed by `steps` (`regard.scores.steps`): elementwise functions of a score with terms for each query and each key.
"""

from __future__ import annotations

import dataclasses
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, Self, TypeAlias, TypeVar

import torch
from torch import Tensor

from regard.errors import OptionError, ScoreError
from regard.scores.closures import call
from regard.scores.form_part import Parts, per_key, per_query, shared
from regard.tensors import Span, broadcast_shapes, product, stretches

Kind = TypeVar("Kind", bound=type)

ChannelFunction: TypeAlias = Literal["tanh", "absolute", "square", "differ"]


@dataclass(frozen=True)
class Step(Parts):
    """An elementwise function of a score; `regard.scores.steps` has them all."""

    adds = False  # whether it adds something to a score, and does no more

    def __call__(self, scores: Tensor) -> Tensor:
        """The scores after this step: `(..., n_queries, n_keys)` to the same."""
        raise NotImplementedError  # pragma: no cover

    def excluded(self) -> Tensor | None:
        """Which pairs this step says are not allowed: boolean, broadcast to the scores; None where it says so of none.

        It is asked before the scores are known, and what it says holds whatever follows.
        """
        return None

    def settled(self, dtype: torch.dtype) -> Self:
        """This step, told whether it excludes any pair in that dtype, so that tiles need not look."""
        return self


@dataclass(frozen=True)
class Form(Parts):
    """A pairwise form and the steps that follow it."""

    steps: tuple[Step, ...] = field(default=(), kw_only=True)

    @property
    def width(self) -> int:
        """How many elements the widest intermediate holds for each pair: engines choose their tiles by it."""
        return 1

    def pairs(self) -> Tensor:
        """The scores before the steps, `(..., n_queries, n_keys)`."""
        raise NotImplementedError  # pragma: no cover

    @property
    def captures(self) -> bool:
        """Whether a user's function is in it, which may close over tensors that nobody else knows of."""
        return False

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """The broadcast batch axes of the scores."""
        raise NotImplementedError  # pragma: no cover

    @property
    def has_offsets(self) -> bool:
        """Whether a step puts queries at positions that differ by batch row."""
        return any(not each.is_floating_point() and each.ndim > 2 for step in self.steps for each in step.tensors())

    def scores(self, allowed: Tensor | None = None) -> Tensor:
        """a(q, k) for every pair of the form, `(..., n_queries, n_keys)`; −inf for those that are not allowed.

        A pair is not allowed where `allowed` says so, where an entry of a bias is −inf, or where a user's function
        returns −inf: whatever other steps and terms make of it.

        Args:
            allowed: Boolean, broadcast to the scores; all if left out.
        """
        scores, excluded = self._scored(_either(self.excluded(), None if allowed is None else ~allowed))
        return scores if excluded is None else torch.where(excluded, -torch.inf, scores)

    def excluded(self) -> Tensor | None:
        """Which pairs steps say are not allowed, as far as that is known before scores are; None where none can be."""
        found = None
        for step in self.steps:
            found = _either(found, step.excluded())
        return found

    def settled(self, dtype: torch.dtype) -> Self:
        """This form, its steps told whether they exclude any pair in that dtype, so that tiles need not look."""
        if not self.steps:
            return self
        steps = tuple(step.settled(dtype) for step in self.steps)
        return self if all(map(operator.is_, steps, self.steps)) else self._with_steps(steps)

    def _scored(self, excluded: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """The scores, any number where a pair is not allowed, and which those are: the ones that were known, and more.

        Where a gradient may follow, no step multiplies what it was that a pair is not allowed for: its gradient is 0,
        and 0 · ∞ or 0 · NaN would be NaN.
        """
        scores, excluded = self._scored_pairs(excluded)
        for step in self.steps:
            if excluded is not None and not step.adds and torch.is_grad_enabled():
                scores = torch.where(excluded, 0, scores)
            scores = step(scores)
        return scores, excluded

    def _scored_pairs(self, excluded: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """`_scored` before the steps."""
        return self.pairs(), excluded

    def then(self, step: Step) -> Self:
        """This form with one more step at the end."""
        return dataclasses.replace(self, steps=(*self.steps, step))

    def tensors(self) -> tuple[Tensor, ...]:
        own = super().tensors()
        return (*own, *(tensor for step in self.steps for tensor in step.tensors())) if self.steps else own

    def rebuilt(self, tensors: Iterator[Tensor]) -> Self:
        rebuilt = super().rebuilt(tensors)
        return rebuilt._with_steps(step.rebuilt(tensors) for step in self.steps)

    def narrow(self, rows: Span, columns: Span) -> Self:
        narrowed = super().narrow(rows, columns)
        return narrowed._with_steps(step.narrow(rows, columns) for step in self.steps) if self.steps else narrowed

    def _with_steps(self, steps: Iterable[Step]) -> Self:
        return self._with({"steps": tuple(steps)} if self.steps else {})

    def _step_batches(self) -> list[tuple[int, ...]]:
        return [tuple(tensor.shape[:-2]) for step in self.steps for tensor in step.tensors()]


def _steps_last(kind: Kind) -> Kind:
    """The class with `steps`, inherited, after its own fields: torch.compile of torch 2.10 counts arguments by them."""
    fields = kind.__dataclass_fields__  # type: ignore[attr-defined]
    fields["steps"] = fields.pop("steps")
    return kind


@_steps_last
@dataclass(frozen=True)
class DotForm(Form):
    """scale · left · right."""

    left: Tensor = per_query()
    right: Tensor = per_key()
    scale: float = 1.0

    def __post_init__(self) -> None:
        _check_scale(self.scale, "DotForm")

    def pairs(self) -> Tensor:
        # Scale the smaller factor, not the n × m product; and before the product, so that large inputs do not overflow.
        left = self.left if self.scale == 1.0 else self.left * self.scale
        return product(left, self.right.mT)

    @property
    def batch_shape(self) -> tuple[int, ...]:
        return broadcast_shapes(self.left.shape[:-2], self.right.shape[:-2], *self._step_batches())


@_steps_last
@dataclass(frozen=True)
class ChannelForm(Form):
    """Σ_c w_c · φ(left_c, right_c), with φ one of tanh(l + r), |l − r|, (l − r)², [l ≠ r]."""

    left: Tensor = per_query()
    right: Tensor = per_key()
    function: ChannelFunction = "square"
    weight: Tensor | None = shared(default=None)  # (..., 1, channels)
    scale: float = 1.0

    def __post_init__(self) -> None:
        _check_scale(self.scale, "ChannelForm")

    @property
    def width(self) -> int:
        return max(self.left.shape[-1], 1)

    def pairs(self) -> Tensor:
        left, right = self.left.unsqueeze(-2), self.right.unsqueeze(-3)
        match self.function:
            case "tanh":
                channels = torch.tanh(left + right)
            case "absolute":
                channels = (left - right).abs()
            case "square":
                channels = (left - right).square()
            case "differ":
                channels = (left != right).to(self.left.dtype)
        if self.weight is None:
            return channels.sum(-1) * self.scale
        return (channels @ self.weight.unsqueeze(-1)).squeeze(-1) * self.scale

    @property
    def batch_shape(self) -> tuple[int, ...]:
        weight = () if self.weight is None else self.weight.shape[:-2]
        return broadcast_shapes(self.left.shape[:-2], self.right.shape[:-2], weight, *self._step_batches())


@_steps_last
@dataclass(frozen=True)
class CustomForm(Form):
    """Whatever `function(queries, keys)` returns for a tile."""

    left: Tensor = per_query()
    right: Tensor = per_key()
    function: Callable[[Tensor, Tensor], Tensor] = field(kw_only=True)
    result_dtype: torch.dtype | None = None

    @property
    def width(self) -> int:
        # A function written naturally builds one element for each pair and coordinate.
        return max(self.left.shape[-1], self.right.shape[-1], 1)

    @property
    def captures(self) -> bool:
        return True

    def to(self, dtype: torch.dtype) -> Self:
        # The function sees queries and keys in their own dtype, which is its tensors' too; what it returns is
        # converted.
        steps = tuple(step.to(dtype) for step in self.steps)
        return dataclasses.replace(self, steps=steps, result_dtype=dtype)

    def pairs(self) -> Tensor:
        try:
            scores = call(self.function, self.left, self.right)
        except RuntimeError as error:
            # Torch's own about sizes; others, out of memory among them, are none of ours.
            if type(error) is not RuntimeError or not re.search("size|shape", str(error)):
                raise
            raise ScoreError(
                f"The function of Custom must take queries (..., rows, dim) and keys (..., columns, dim) to scores "
                f"(..., rows, columns), as queries @ keys.mT does: for {tuple(self.left.shape)} and "
                f"{tuple(self.right.shape)} it raised “{error}”. "
                f"For each pair's coordinates use queries.unsqueeze(-2) and keys.unsqueeze(-3)."
            ) from error
        wanted = (self.left.shape[-2], self.right.shape[-2])
        if not isinstance(scores, Tensor):
            raise ScoreError(
                f"The function of Custom must return a tensor of scores: got {type(scores).__name__}. "
                f"Return one score for each pair, of shape (..., n_queries, n_keys)."
            )
        if scores.ndim < 2 or tuple(scores.shape[-2:]) != wanted:
            raise ScoreError(
                f"The function of Custom must return scores of shape (..., {wanted[0]}, {wanted[1]}) for queries "
                f"{tuple(self.left.shape)} and keys {tuple(self.right.shape)}: got {tuple(scores.shape)}. "
                f"Return one score for each pair of the tile; tiles have different sizes."
            )
        if not scores.is_floating_point():
            raise ScoreError(
                f"The function of Custom must return floating-point scores: got {scores.dtype}. "
                f"Convert with .to(queries.dtype)."
            )
        batch_shape = broadcast_shapes(self.left.shape[:-2], self.right.shape[:-2])
        if scores.ndim - 2 > len(batch_shape) or not _expands(scores.shape[:-2], batch_shape):
            raise ScoreError(
                f"The function of Custom must return scores with the batch axes of its inputs, {batch_shape}: got "
                f"{tuple(scores.shape)}. Give queries or keys the axis that it adds."
            )
        return scores if self.result_dtype is None else scores.to(self.result_dtype)

    def scores(self, allowed: Tensor | None = None) -> Tensor:
        return self.pairs() if allowed is None and not self.steps else super().scores(allowed)

    def _scored_pairs(self, excluded: Tensor | None) -> tuple[Tensor, Tensor | None]:
        scores = self.pairs()
        return scores, _either(excluded, scores == -torch.inf)

    @property
    def batch_shape(self) -> tuple[int, ...]:
        return broadcast_shapes(self.left.shape[:-2], self.right.shape[:-2], *self._step_batches())


@_steps_last
@dataclass(frozen=True)
class SumForm(Form):
    """The sum of several forms of the same pairs."""

    terms: tuple[Form, ...] = ()

    @property
    def width(self) -> int:
        return max(term.width for term in self.terms)

    @property
    def captures(self) -> bool:
        return any(term.captures for term in self.terms)

    def pairs(self) -> Tensor:
        return self._scored_pairs(None)[0]

    def _scored_pairs(self, excluded: Tensor | None) -> tuple[Tensor, Tensor | None]:
        # Every term is told what all terms exclude: −inf and anything add up to −inf.
        total, excluded = self.terms[0]._scored(excluded)
        for term in self.terms[1:]:
            more, excluded = term._scored(excluded)
            total = total + more
        return total, excluded

    def excluded(self) -> Tensor | None:
        found = super().excluded()
        for term in self.terms:
            found = _either(found, term.excluded())
        return found

    def settled(self, dtype: torch.dtype) -> Self:
        terms = tuple(term.settled(dtype) for term in self.terms)
        return dataclasses.replace(super().settled(dtype), terms=terms)

    @property
    def batch_shape(self) -> tuple[int, ...]:
        return broadcast_shapes(*(term.batch_shape for term in self.terms), *self._step_batches())

    def tensors(self) -> tuple[Tensor, ...]:
        return (*(tensor for term in self.terms for tensor in term.tensors()), *super().tensors())

    def rebuilt(self, tensors: Iterator[Tensor]) -> Self:
        terms = tuple(term.rebuilt(tensors) for term in self.terms)
        return dataclasses.replace(super().rebuilt(tensors), terms=terms)

    def to(self, dtype: torch.dtype) -> Self:
        steps = tuple(step.to(dtype) for step in self.steps)
        return dataclasses.replace(self, terms=tuple(term.to(dtype) for term in self.terms), steps=steps)

    def narrow(self, rows: Span, columns: Span) -> Self:
        terms = tuple(term.narrow(rows, columns) for term in self.terms)
        return dataclasses.replace(super().narrow(rows, columns), terms=terms)


def _either(one: Tensor | None, other: Tensor | None) -> Tensor | None:
    """Where one or the other is true; None for nowhere."""
    if one is None or other is None:
        return other if one is None else one
    return one | other


def _check_scale(scale: object, owner: str) -> None:
    if isinstance(scale, Tensor):
        raise OptionError(
            f"`scale` of {owner} must be a number: got a tensor, which would get no gradient. "
            f"Multiply the queries by it."
        )


def _expands(shape: Sequence[int], wanted: Sequence[int]) -> bool:
    """Whether a shape expands to the wanted one."""
    return all(stretches(size, target) for size, target in zip(reversed(shape), reversed(wanted), strict=False))
