"""Programs: a problem that the compiled kernels support, translated for them.

A `Program` holds a problem's tensors in float32 and its steps and rule as codes; an `Entry` of it is one batch entry,
two axes each, ready for a kernel.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from threading import Lock
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
from torch import Tensor

from regard.engines.cpu.kernels.channel import FUNCTIONS, prepare_keys
from regard.engines.kernels import codes
from regard.engines.kernels.support import RULES, inner_rule
from regard.problem import AttentionProblem
from regard.scores import steps
from regard.scores.form import ChannelForm, DotForm, Step
from regard.weights import Entmax, Weights

# e^−g is finite in float32 for both terms of a gate up to here, and so is their product.
GATE_LIMIT = 40.0

Role: TypeAlias = Literal["row", "column", "number", "table", "weight"]


@dataclass(frozen=True)
class Instruction:
    """A step: its code and parameters, each None where it has none, with the batch axes of the problem."""

    code: int
    by_row: Tensor | None = None  # (..., n_queries)
    by_column: Tensor | None = None  # (..., n_keys)
    number: Tensor | float = 0.0  # (...)
    table: Tensor | None = None  # (..., length)
    pairs: Tensor | None = None  # (..., n_queries, n_keys)
    # For each tensor of the step: which gradient it gets.
    roles: tuple[Role | None, ...] = ()
    along_pairs: bool = False  # whether its numbers for columns lie along the last axis, not the last but one


@dataclass(frozen=True)
class Channel:
    """What a channel form has beside its left and right."""

    function: int
    weight: Tensor  # (..., channels)
    scale: float
    learned: bool  # whether the weight is a tensor of the form


@dataclass(frozen=True)
class Program:
    """A problem as tensors in float32 and codes."""

    problem: AttentionProblem
    left: Tensor  # (..., n_queries, dim)
    right: Tensor  # (..., n_keys, dim)
    scale: float  # of a dot form
    channel: Channel | None  # for a channel form
    values: Tensor  # (..., n_keys, value_dim)
    instructions: tuple[Instruction, ...]
    inner: Weights  # the rule; that over the chosen keys, for a rule that chooses
    choose: int  # how many keys are chosen; 0 for a rule that does not

    @property
    def rule(self) -> int:
        """The code of the rule."""
        return RULES[type(self.inner)]

    @property
    def roles(self) -> tuple[Role | None, ...]:
        """For each tensor of the form, then the values: which axis it follows."""
        weight: tuple[Role, ...] = ("weight",) if self.channel is not None and self.channel.learned else ()
        steps = (role for each in self.instructions for role in each.roles)
        return ("row", "column", *weight, *steps, "column")

    @property
    def n_entries(self) -> int:
        return math.prod(self.problem.grid.batch_shape)

    @cached_property
    def indices(self) -> list[tuple[int, ...]]:
        """Where each batch entry is, in order."""
        return list(itertools.product(*(range(size) for size in self.problem.grid.batch_shape)))

    @cached_property
    def entries(self) -> list[Entry]:
        """Every batch entry, in order."""
        return [self._entry(place, index) for place, index in enumerate(self.indices)]

    @cached_property
    def left_addresses(self) -> tuple[Any, int]:
        """Where the left side of each entry is, and how far apart its rows are."""
        return addresses(self.left, self.problem.grid.batch_shape)

    @cached_property
    def right_addresses(self) -> tuple[Any, int]:
        """Where the right side of each entry is."""
        return addresses(self.right, self.problem.grid.batch_shape)

    @cached_property
    def values_addresses(self) -> tuple[Any, int]:
        """Where the values of each entry are."""
        return addresses(self.values, self.problem.grid.batch_shape)

    def _entry(self, place: int, index: tuple[int, ...]) -> Entry:
        grid = self.problem.grid
        count = len(self.instructions)
        by_row = np.zeros((count, grid.n_queries), np.float32)
        by_column = np.zeros((count, grid.n_keys), np.float32)
        numbers = np.zeros(count, np.float32)
        table, pairs = np.zeros(0, np.float32), None
        for step, each in enumerate(self.instructions):
            if each.by_row is not None:
                by_row[step] = pick(each.by_row, index, 1).numpy()
            if each.by_column is not None:
                by_column[step] = pick(each.by_column, index, 1).numpy()
            number = each.number
            numbers[step] = float(pick(number, index, 0)) if isinstance(number, Tensor) else number
            if each.table is not None:
                table = pick(each.table, index, 1).contiguous().numpy()
            if each.pairs is not None:
                pairs = pick(each.pairs, index, 2)
        return Entry(
            place=place,
            index=index,
            left=pick(self.left, index, 2),
            right=pick(self.right, index, 2),
            values=pick(self.values, index, 2),
            codes=np.array([each.code for each in self.instructions], np.int64),
            by_row=by_row,
            by_column=by_column,
            numbers=numbers,
            table=table,
            pairs=pairs,
            alpha=self.alpha(index),
            channel=None if self.channel is None else self.channel.function,
            weight=None if self.channel is None else pick(self.channel.weight, index, 1).contiguous().numpy(),
        )

    def alpha(self, index: tuple[int, ...]) -> float:
        """Entmax's, of a batch entry; 0 under other rules."""
        if not isinstance(self.inner, Entmax):
            return 0.0
        alpha = self.inner.alpha
        return float(pick(alpha.detach(), index, 0)) if isinstance(alpha, Tensor) else alpha


@dataclass(frozen=True)
class Entry:
    """One batch entry of a program."""

    place: int
    index: tuple[int, ...]
    left: Tensor
    right: Tensor
    values: Tensor
    codes: Any
    by_row: Any
    by_column: Any
    numbers: Any
    table: Any
    pairs: Tensor | None
    alpha: float  # entmax's
    channel: int | None  # the function of a channel form
    weight: Any
    _lock: Lock = field(default_factory=Lock)
    _packed: list[tuple[int, Any, Any]] = field(default_factory=list)

    @property
    def packed(self) -> tuple[int, Any, Any]:
        """The keys of a channel form, as its kernels take them; made once, by the thread that needs them first."""
        assert self.channel is not None
        with self._lock:  # not `cached_property`, which before Python 3.12 has one lock for all entries
            if not self._packed:
                self._packed.append(prepare_keys(self.right.contiguous().numpy(), self.channel))
            return self._packed[0]


def pick(tensor: Tensor, index: tuple[int, ...], trailing: int) -> Tensor:
    """The batch entry `index` of a tensor whose batch axes broadcast: a view with its `trailing` last axes."""
    lead = tensor.ndim - trailing
    for size, place in zip(tensor.shape[:lead], index[len(index) - lead :], strict=True):
        tensor = tensor[0 if size == 1 else place]
    return tensor


def addresses(tensor: Tensor, batch_shape: tuple[int, ...]) -> tuple[Any, int]:
    """Where the matrix of each batch entry of a tensor is, whose batch axes broadcast, and how far apart rows are."""
    strides = tensor.expand(*batch_shape, *tensor.shape[-2:]).stride()
    offsets = np.zeros(1, np.int64)
    for size, stride in zip(batch_shape, strides[: len(batch_shape)], strict=True):
        offsets = np.add.outer(offsets, stride * np.arange(size)).reshape(-1)
    return tensor.data_ptr() + tensor.element_size() * offsets, row_stride(tensor)


def row_stride(tensor: Tensor) -> int:
    """How far apart the rows of a matrix are, the same for every batch entry."""
    n_rows, dim = tensor.shape[-2:]
    # A single row may say anything of where the next one would be.
    stride = tensor.stride(-2) if n_rows > 1 else max(dim, 1)
    assert stride >= dim, "rows overlap"
    assert dim <= 1 or tensor.stride(-1) == 1, "numbers of a row lie apart"
    return stride


def translate(problem: AttentionProblem) -> Program:
    """The program of a problem that `support.unsupported` says nothing against."""
    form = problem.form
    inner, choose = inner_rule(problem.rule)
    assert inner is not None
    assert isinstance(form, DotForm | ChannelForm)
    left, channel, scale = _plain(form.left), None, 1.0
    if isinstance(form, DotForm):
        scale = form.scale
    else:
        weight = left.new_ones(1, left.shape[-1]) if form.weight is None else form.weight.detach().float()
        function = FUNCTIONS[form.function]
        channel = Channel(function, weight.squeeze(-2), form.scale, learned=form.weight is not None)
    right, values = _plain(form.right), _plain(problem.values)
    instructions = _instructions(form.steps)
    return Program(problem, left, right, scale, channel, values, instructions, inner, choose)


def _plain(tensor: Tensor) -> Tensor:
    """A tensor in float32 whose rows lie apart, each number next to the other, as products want it.

    Batch axes that were expanded are narrowed to one entry first: `pick` takes that for all, and nothing is copied for
    each.
    """
    tensor = tensor.detach()
    for axis in range(tensor.ndim - 2):
        if tensor.stride(axis) == 0:
            tensor = tensor.narrow(axis, 0, 1)
    tensor = tensor.float()
    n_rows, dim = tensor.shape[-2:]
    apart = (dim <= 1 or tensor.stride(-1) == 1) and (n_rows <= 1 or tensor.stride(-2) >= dim)
    return tensor if apart else tensor.contiguous()


# What puts back −inf in the end where a bias had it, since the steps between may have made another number of it.
EXCLUDING = {
    codes.ADD_ROW: codes.EXCLUDE_ROW,
    codes.ADD_COLUMN: codes.EXCLUDE_COLUMN,
    codes.ADD_PAIRS: codes.EXCLUDE_PAIRS,
    codes.RELATIVE: codes.EXCLUDE_RELATIVE,
}


def _instructions(steps: Sequence[Step]) -> tuple[Instruction, ...]:
    """The steps in codes."""
    found = [_instruction(step) for step in steps]
    again = [
        replace(each, code=EXCLUDING[each.code], roles=())
        for each, step in zip(found[:-1], steps, strict=False)
        if each.code in EXCLUDING and getattr(step, "excludes", True)
    ]
    return (*found, *again)


def _instruction(step: Step) -> Instruction:
    """A step in codes."""
    number, row, column, far = _number, _row, _column, codes.GATE_FAR
    match step:
        case steps.Scale():
            return Instruction(codes.SCALE, number=number(step.factor), roles=("number",))
        case steps.Gate():
            by_row, by_column = row(step.query_term), column(step.key_term)
            near = by_row.numel() == 0 or by_column.numel() == 0
            near = near or float(by_row.abs().amax()) < GATE_LIMIT > float(by_column.abs().amax())
            if near:
                by_row, by_column, far = torch.exp(-by_row), torch.exp(-by_column), codes.GATE
            return Instruction(far, by_row, by_column, roles=("row", "column"))
        case steps.Cap():
            return Instruction(codes.CAP, number=step.cap)
        case steps.AddPairs():
            return _bias(step.bias)
        case steps.AddDistance():
            by_row, by_column = row(step.query_positions), column(step.key_positions)
            slope = number(step.slope)
            return Instruction(codes.DISTANCE, by_row, by_column, number=slope, roles=(None, None, "number"))
        case steps.AddRelative():
            by_row, by_column = row(step.query_positions), column(step.key_positions)
            table = step.table.detach().float().squeeze(-2)
            return Instruction(codes.RELATIVE, by_row, by_column, table=table, roles=(None, None, "table"))
        case steps.Indicator():
            return Instruction(codes.INDICATOR, number=step.limit * (1 + 32 * torch.finfo(torch.float32).eps))
        case steps.Parabola():
            return Instruction(codes.PARABOLA, number=number(step.radius), roles=("number",))
        case steps.Tent():
            return Instruction(codes.TENT, number=number(step.radius), roles=("number",))
    raise AssertionError(f"no code for {type(step).__name__}")  # pragma: no cover


def _bias(bias: Tensor) -> Instruction:
    plain = bias.detach().float()
    if bias.shape[-2] == 1:
        return Instruction(codes.ADD_COLUMN, by_column=plain.squeeze(-2), roles=("column",), along_pairs=True)
    if bias.shape[-1] == 1:
        return Instruction(codes.ADD_ROW, by_row=plain.squeeze(-1), roles=("row",))
    return Instruction(codes.ADD_PAIRS, pairs=plain, roles=(None,))


def _number(tensor: Tensor) -> Tensor:
    return tensor.detach().float().squeeze(-1).squeeze(-1)


def _row(tensor: Tensor) -> Tensor:
    return tensor.detach().float().squeeze(-1)


def _column(tensor: Tensor) -> Tensor:
    return tensor.detach().float().squeeze(-1)
