"""Programs: a problem that the CUDA kernels support, as pointers, strides and codes.

Nothing is computed here and nothing is copied, unless tensors lie in a way that kernels cannot walk.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor

from regard.engines.cuda.batch import Batch, join
from regard.engines.cuda.masks import MaskTensors, mask_tensors
from regard.engines.kernels import codes
from regard.engines.kernels.support import RULES
from regard.problem import AttentionProblem
from regard.scores import steps
from regard.scores.form import ChannelForm, DotForm, Step
from regard.weights import Softmax

Role: TypeAlias = Literal["row", "column", "number"]


@dataclass(frozen=True)
class Program:
    """A problem for kernels."""

    problem: AttentionProblem
    batch: Batch
    left: Tensor
    right: Tensor
    values: Tensor
    weight: Tensor | None  # of the channels of squared distances, (..., channels); None for dot products
    given_weight: Tensor | None  # the same as the form has it, if it does
    scale: float
    steps: tuple[int, ...]  # a code for each
    terms: tuple[tuple[Any, ...], ...]  # what each step has, as `kernels/tile_scores.py` takes it
    mask: MaskTensors
    roles: tuple[tuple[int, Role] | None, ...]  # for each tensor of the steps: the gradient it gets, by step and axis

    @property
    def rule(self) -> int:
        return RULES[type(self.problem.rule)]

    @property
    def n_entries(self) -> int:
        return math.prod(self.problem.grid.batch_shape)

    @property
    def may_annihilate(self) -> bool:
        """Whether a pair may have weight 0 by more than rounding, so that its NaN must not spread."""
        excluding = {codes.ADD_ROW, codes.ADD_COLUMN, codes.ADD_PAIRS, codes.RELATIVE}
        rules = {codes.CONIC, codes.RAW, codes.PROPORTIONAL}
        return self.problem.mask is not None or bool(excluding & set(self.steps)) or self.rule in rules


def translate(problem: AttentionProblem) -> Program:
    """The program of a problem that the kernels have all parts of."""
    form = problem.form
    assert isinstance(form, DotForm | ChannelForm)
    left, right = _together(form.left.detach()), _together(form.right.detach())
    if left.dtype != right.dtype:
        common = torch.promote_types(left.dtype, right.dtype)
        left, right = left.to(common), right.to(common)
    values, weight = _together(problem.values.detach()), None
    if isinstance(form, ChannelForm):
        given = left.new_ones(1, left.shape[-1]) if form.weight is None else form.weight.detach()
        weight = given.squeeze(-2).float()
    found = [_terms(step) for step in form.steps]
    everything = [(left, 2), (right, 2), (values, 2), *_others(problem, found)]
    mask = mask_tensors(problem.mask, problem.grid)
    batch = join(problem.grid.batch_shape, [*everything, *((each, mask.n_axes) for each in mask.tensors)])
    if batch is None:
        mask = mask.of_every_entry(problem.grid)
        batch = join(problem.grid.batch_shape, [*everything, *((each, mask.n_axes) for each in mask.tensors)])
    assert batch is not None  # as `can_join` said
    return Program(
        problem,
        batch,
        left,
        right,
        values,
        weight,
        form.weight if isinstance(form, ChannelForm) else None,
        form.scale,
        tuple(part.code for part in found),
        tuple(part.spelled(batch) for part in found),
        mask,
        tuple(None if role is None else (place, role) for place, part in enumerate(found) for role in part.roles),
    )


def can_join(problem: AttentionProblem) -> bool:
    """Whether three batch axes are enough for all tensors of a problem beside the mask's."""
    form = problem.form
    tensors = [(form.tensors()[0], 2), (form.tensors()[1], 2), (problem.values, 2)]
    return join(problem.grid.batch_shape, [*tensors, *_others(problem, list(map(_terms, form.steps)))]) is not None


def _others(problem: AttentionProblem, found: Sequence[_Term]) -> list[tuple[Tensor, int]]:
    """The tensors of steps, channels and rule, each with the number of its own axes."""
    form, rule = problem.form, problem.rule
    others = [each for part in found for each in part.tensors]
    if isinstance(form, ChannelForm) and form.weight is not None:
        others.append((form.weight.detach().squeeze(-2), 1))
    if isinstance(rule, Softmax) and isinstance(rule.sink, Tensor):
        others.append((rule.sink.detach(), 0))
    return others


@dataclass(frozen=True)
class _Term:
    """A step: its code, its tensors with the number of their own axes, and numbers."""

    code: int
    tensors: tuple[tuple[Tensor, int], ...] = ()
    numbers: tuple[float | int, ...] = ()
    roles: tuple[Role | None, ...] = ()  # for each tensor of the step: which gradient it gets

    def spelled(self, batch: Batch) -> tuple[Any, ...]:
        pointers = (part for tensor, own in self.tensors for part in (tensor, batch.strides(tensor, own)))
        return (*pointers, *self.numbers)


def _terms(step: Step) -> _Term:
    match step:
        case steps.Scale():
            return _Term(codes.SCALE, (_number(step.factor),), roles=("number",))
        case steps.Gate():
            return _Term(codes.GATE, (_line(step.query_term), _line(step.key_term)), roles=("row", "column"))
        case steps.Cap():
            return _Term(codes.CAP, numbers=(float(step.cap),))
        case steps.AddPairs():
            bias = step.bias.detach()
            if bias.shape[-2] == 1:
                return _Term(codes.ADD_COLUMN, ((bias.squeeze(-2), 1),), roles=("column",))
            if bias.shape[-1] == 1:
                return _Term(codes.ADD_ROW, ((bias.squeeze(-1), 1),), roles=("row",))
            return _Term(codes.ADD_PAIRS, ((bias, 2),), roles=(None,))
        case steps.AddDistance():
            positions = _line(step.query_positions), _line(step.key_positions)
            return _Term(codes.DISTANCE, (*positions, _number(step.slope)), roles=(None, None, "number"))
        case steps.AddRelative():
            positions = _line(step.query_positions), _line(step.key_positions)
            table = step.table.detach().squeeze(-2)
            reach = table.shape[-1] // 2
            return _Term(codes.RELATIVE, (*positions, (table, 1)), (-reach,), roles=(None, None, None))
        case steps.Indicator():
            return _Term(codes.INDICATOR, numbers=(step.limit * (1 + 32 * torch.finfo(torch.float32).eps),))
        case steps.Parabola():
            return _Term(codes.PARABOLA, (_number(step.radius),), roles=("number",))
        case steps.Tent():
            return _Term(codes.TENT, (_number(step.radius),), roles=("number",))
    raise AssertionError(f"no code for {type(step).__name__}")  # pragma: no cover


def _together(tensor: Tensor) -> Tensor:
    """A tensor in which the numbers of a vector lie together."""
    return tensor if tensor.shape[-1] == 1 or tensor.stride(-1) == 1 else tensor.contiguous()


def _number(tensor: Tensor) -> tuple[Tensor, int]:
    return tensor.detach().squeeze(-1).squeeze(-1), 0


def _line(tensor: Tensor) -> tuple[Tensor, int]:
    return tensor.detach().squeeze(-1), 1
