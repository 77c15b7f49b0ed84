"""Pairwise forms: what is left of a score once its projections are done.

A score is projections (ordinary tensor operations on queries or keys alone) plus a pairwise form. Engines know the
forms here and nothing about parameters:

- `DotForm`      left · right
- `ChannelForm`  Σ_c w_c · φ(left_c, right_c)
- `CustomForm`   any function of a tile of queries and a tile of keys
- `SumForm`      the sum of several forms

followed by `steps` (`regard.scores.steps`): elementwise functions of a score with terms for each query and each key.

A form is a frozen bundle of tensors. Each tensor field says which axis it follows, and from that one declaration come
`narrow` (the form of a tile), `tensors` and `rebuilt` (so that an engine can put buffers or leaves in their place).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, Self, TypeAlias

import torch
from torch import Tensor

from regard.errors import ScoreError
from regard.positions import broadcast_shapes
from regard.scores.capture import call

Span: TypeAlias = range | Tensor
"""Some rows or columns: a range (a slice, no copy) or a tensor of indices (a gather)."""

ChannelFunction: TypeAlias = Literal["tanh", "absolute", "square", "differ"]


def per_query(**options: Any) -> Any:
    """A tensor field of shape `(..., n_queries or 1, width)`."""
    return field(metadata={"axes": (True, False)}, **options)


def per_key(**options: Any) -> Any:
    """A tensor field of shape `(..., n_keys or 1, width)`."""
    return field(metadata={"axes": (False, True)}, **options)


def per_pair(**options: Any) -> Any:
    """A tensor field of shape `(..., n_queries or 1, n_keys or 1)`."""
    return field(metadata={"axes": (True, True)}, **options)


def shared(**options: Any) -> Any:
    """A tensor field that every pair uses whole."""
    return field(metadata={"axes": (False, False)}, **options)


def take(tensor: Tensor, axis: int, span: Span) -> Tensor:
    """The entries of `tensor` along `axis` that `span` names; an axis of size 1 stands for every entry."""
    if tensor.shape[axis] == 1:
        return tensor
    if isinstance(span, range):
        return tensor.narrow(axis, span.start, len(span))
    return tensor.index_select(axis, span)


def product(left: Tensor, right: Tensor) -> Tensor:
    """`left @ right`, without a copy of `right` for each of the last batch entries of `left` that share it.

    torch.matmul makes those copies: for grouped queries, `(..., groups, repeat, n, d)` by `(..., groups, 1, d, m)`, the
    keys are copied `repeat` times. Here the entries that share become more rows of one product.
    """
    rows = [left.shape[-2]]
    while left.ndim > 2 and right.ndim > 2 and right.shape[-3] == 1:
        rows.insert(0, left.shape[-3])
        left, right = left.flatten(-3, -2), right.squeeze(-3)
    together = left @ right
    return together if len(rows) == 1 else together.unflatten(-2, rows)


@dataclass(frozen=True)
class Parts:
    """A bundle of tensors that can be narrowed to a tile."""

    def _fields(self) -> Iterator[tuple[str, Tensor, tuple[bool, bool]]]:
        for each in dataclasses.fields(self):
            value = getattr(self, each.name)
            if "axes" in each.metadata and value is not None:
                yield each.name, value, each.metadata["axes"]

    def tensors(self) -> tuple[Tensor, ...]:
        """Every tensor of the bundle, in a fixed order."""
        return tuple(tensor for _, tensor, _ in self._fields())

    def rebuilt(self, tensors: Iterator[Tensor]) -> Self:
        """The same bundle around other tensors, taken from the iterator in the order of `tensors()`."""
        return dataclasses.replace(self, **{name: next(tensors) for name, _, _ in self._fields()})

    def narrow(self, rows: Span, columns: Span) -> Self:
        """The bundle for a tile: those queries and those keys."""
        changes = {}
        for name, tensor, (by_query, by_key) in self._fields():
            part = tensor
            if by_query:
                part = take(part, -2, rows)
            if by_key:
                part = take(part, -1 if by_query else -2, columns)
            changes[name] = part
        return dataclasses.replace(self, **changes)

    def to(self, dtype: torch.dtype) -> Self:
        """The bundle with its floating-point tensors in `dtype`."""
        return self.rebuilt(iter([each.to(dtype) if each.is_floating_point() else each for each in self.tensors()]))


@dataclass(frozen=True)
class Step(Parts):
    """An elementwise function of a score; `regard.scores.steps` has them all."""

    def __call__(self, scores: Tensor) -> Tensor:
        """The scores after this step: `(..., n_queries, n_keys)` to the same."""
        raise NotImplementedError  # pragma: no cover


@dataclass(frozen=True)
class Form(Parts):
    """A pairwise form and the steps that follow it."""

    steps: tuple[Step, ...] = field(default=(), kw_only=True)

    # How many elements the widest intermediate holds for each pair: engines choose their tiles by it.
    width: int = field(default=1, kw_only=True)

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

    def scores(self) -> Tensor:
        """a(q, k) for every pair of the form, `(..., n_queries, n_keys)`."""
        scores = self.pairs()
        for step in self.steps:
            scores = step(scores)
        return scores

    def then(self, step: Step) -> Self:
        """This form with one more step at the end."""
        return dataclasses.replace(self, steps=(*self.steps, step))

    def tensors(self) -> tuple[Tensor, ...]:
        return (*super().tensors(), *(tensor for step in self.steps for tensor in step.tensors()))

    def rebuilt(self, tensors: Iterator[Tensor]) -> Self:
        rebuilt = super().rebuilt(tensors)
        return dataclasses.replace(rebuilt, steps=tuple(step.rebuilt(tensors) for step in self.steps))

    def narrow(self, rows: Span, columns: Span) -> Self:
        narrowed = super().narrow(rows, columns)
        return dataclasses.replace(narrowed, steps=tuple(step.narrow(rows, columns) for step in self.steps))

    def _step_batches(self) -> list[tuple[int, ...]]:
        return [tuple(tensor.shape[:-2]) for step in self.steps for tensor in step.tensors()]


@dataclass(frozen=True)
class DotForm(Form):
    """scale · left · right."""

    left: Tensor = per_query()
    right: Tensor = per_key()
    scale: float = 1.0

    def pairs(self) -> Tensor:
        # Scale the smaller factor, not the n × m product; and before the product, so that large inputs do not overflow.
        left = self.left if self.scale == 1.0 else self.left * self.scale
        return product(left, self.right.mT)

    @property
    def batch_shape(self) -> tuple[int, ...]:
        return broadcast_shapes(self.left.shape[:-2], self.right.shape[:-2], *self._step_batches())


@dataclass(frozen=True)
class ChannelForm(Form):
    """Σ_c w_c · φ(left_c, right_c), with φ one of tanh(l + r), |l − r|, (l − r)², [l ≠ r]."""

    left: Tensor = per_query()
    right: Tensor = per_key()
    function: ChannelFunction = "square"
    weight: Tensor | None = shared(default=None)  # (..., 1, channels)
    scale: float = 1.0

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


@dataclass(frozen=True)
class CustomForm(Form):
    """Whatever `function(queries, keys)` returns for a tile."""

    left: Tensor = per_query()
    right: Tensor = per_key()
    function: Callable[[Tensor, Tensor], Tensor] = field(kw_only=True)
    result_dtype: torch.dtype | None = None

    @property
    def captures(self) -> bool:
        return True

    def to(self, dtype: torch.dtype) -> Self:
        # The function sees queries and keys in their own dtype, which is its tensors' too; what it returns is
        # converted.
        steps = tuple(step.to(dtype) for step in self.steps)
        return dataclasses.replace(self, steps=steps, result_dtype=dtype)

    def pairs(self) -> Tensor:
        scores = call(self.function, self.left, self.right)
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
        return scores if self.result_dtype is None else scores.to(self.result_dtype)

    @property
    def batch_shape(self) -> tuple[int, ...]:
        return broadcast_shapes(self.left.shape[:-2], self.right.shape[:-2], *self._step_batches())


@dataclass(frozen=True)
class SumForm(Form):
    """The sum of several forms of the same pairs."""

    terms: tuple[Form, ...] = ()

    @property
    def captures(self) -> bool:
        return any(term.captures for term in self.terms)

    def pairs(self) -> Tensor:
        total = self.terms[0].scores()
        for term in self.terms[1:]:
            total = total + term.scores()
        return total

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
