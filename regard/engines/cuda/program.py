"""Programs: a problem that the CUDA kernels support, as pointers, strides and codes.

Nothing is computed here but factors of gates. Nothing is copied, unless tensors lie in a way that kernels cannot walk.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor

from regard.engines import torch_internals
from regard.engines.cuda.batch import Batch, join
from regard.engines.cuda.layout import Layout, layout_of
from regard.engines.cuda.masks import MaskTensors, mask_tensors
from regard.engines.kernels import codes
from regard.engines.kernels.support import RULES
from regard.grid import Grid
from regard.problem import AttentionProblem
from regard.scores import steps
from regard.scores.form import ChannelForm, DotForm, Form, Step
from regard.weights import Entmax, Softmax, Weights

# Pairs of all batch entries up to which one launch of a kernel for any rule and mask costs less than faster ones.
SMALL = 1 << 18

FUNCTIONS = {"square": codes.SQUARE, "tanh": codes.TANH, "absolute": codes.ABSOLUTE, "differ": codes.DIFFER}

Role: TypeAlias = Literal["row", "column", "number", "table"]


@dataclass(frozen=True)
class Program:
    """A problem for kernels."""

    problem: AttentionProblem
    layout: Layout
    left: Tensor
    right: Tensor
    values: Tensor
    weight: Tensor | None  # of channels, (..., channels)
    prepared: tuple[Tensor, ...]  # of queries and of keys, see `channels.py`: for walks along channels, or norms
    sink: Tensor | None  # one that is a tensor
    form: int  # its code
    scale: float
    steps: tuple[int, ...]  # a code for each
    terms: tuple[tuple[Any, ...], ...]  # what each step has, as `kernels/tile_scores.py` takes it
    mask: MaskTensors
    roles: tuple[tuple[int, Role] | None, ...]  # for each tensor of the steps: the gradient it gets, by step and axis
    rule: int  # its code
    is_small: bool  # whether kernels for any rule and mask compute it all
    beside: tuple[tuple[int, ...], ...] = ()  # strides of tensors that are no part of the problem

    @property
    def is_walked(self) -> bool:
        """Whether scores are sums over channels of prepared coordinates, and no products."""
        return len(self.prepared) > 2

    @property
    def batch(self) -> Batch:
        return self.layout.batch

    @property
    def n_entries(self) -> int:
        return math.prod(self.problem.grid.batch_shape)


def translate(
    problem: AttentionProblem,
    beside: Sequence[Tensor] = (),
    *,
    rule: int | None = None,
    mask: MaskTensors | None = None,
    lists: bool = True,
) -> Program:
    """The program of a problem that the kernels have all parts of.

    Args:
        problem: What is computed.
        beside: Tensors `(*batch_shape, n, dim)` that kernels are to read or write besides.
        rule: The code of what stands for its rule, which then is none of one pass.
        mask: What stands for its mask.
        lists: Whether the keys of each row may be listed.
    """
    form, grid = problem.form, problem.grid
    assert isinstance(form, DotForm | ChannelForm)
    small = is_small(grid)
    chooses = rule is not None or mask is not None
    mask = mask_tensors(problem.mask, grid, may_list=lists and not small) if mask is None else mask
    # Who chooses, and goes along lists, takes gates as they are.
    walked = not (small or chooses or mask.lists or grid.n_queries == 1)
    tensors = _tensors_of(problem, factors=not small and not chooses, walked=walked)
    rule = _rule_code(problem.rule) if rule is None else rule
    steps = tuple([each.code for each in tensors.steps])
    has_sink = isinstance(problem.rule, Softmax) and problem.rule.sink is not None
    numbers = tuple([each.numbers for each in tensors.steps])
    kind = (
        _form_code(form),
        float(form.scale),
        steps,
        numbers,
        rule,
        has_sink,
        mask.kinds,
        bool(mask.lists),
        mask.line,
        problem.dropout,
        grid.n_queries,
        grid.n_keys,
        grid.device,
        torch_internals.allows_tf32(),
    )
    others = [(each, 2) for each in beside]
    layout = layout_of(kind, grid.batch_shape, [*tensors.strided(), *mask.strided(), *others])
    if layout is None:
        mask = mask.of_every_entry(grid)
        layout = layout_of(kind, grid.batch_shape, [*tensors.strided(), *mask.strided(), *others])
    if layout is None:  # what had to be copied lies otherwise than `can_join` saw it
        tensors = tensors.of_every_entry(grid.batch_shape)
        layout = layout_of(kind, grid.batch_shape, [*tensors.strided(), *mask.strided(), *others])
    assert layout is not None
    strides = iter(layout.strides[tensors.n_inputs :])
    return Program(
        problem,
        layout,
        tensors.left,
        tensors.right,
        tensors.values,
        tensors.weight,
        tensors.prepared,
        tensors.sink,
        kind[0],
        float(form.scale),
        steps,
        tuple([part.spelled(strides) for part in tensors.steps]),
        mask,
        tuple(
            [None if role is None else (place, role) for place, part in enumerate(tensors.steps) for role in part.roles]
        ),
        rule,
        small,
        layout.strides[len(layout.strides) - len(others) :],
    )


def is_small(grid: Grid) -> bool:
    """Whether kernels for any rule and mask compute a problem, its mask without lists."""
    return math.prod(grid.batch_shape) * grid.n_queries * grid.n_keys <= SMALL


def coded(number: int) -> int:
    """A whole number as kernels take it that are compiled for any: odd, and not 1.

    Triton compiles kernels for numbers that are 1 or multiples of 16 apart, whatever it is told, where they lie in a
    tuple; and 3.6 loses the 1.
    """
    return 4 * number + 3


def can_join(problem: AttentionProblem) -> bool:
    """Whether three batch axes are enough for all tensors of a problem beside the mask's, as they lie."""
    form = problem.form
    tensors = [(form.tensors()[0], 2), (form.tensors()[1], 2), (problem.values, 2)]
    tensors += [each for step in form.steps for each in _terms(step, problem.grid).tensors]
    tensors += [(each, own) for each, own in ((_weight_of(form), 1), (_sink_of(problem), 0)) if each is not None]
    return join(problem.grid.batch_shape, tensors) is not None


@dataclass(frozen=True)
class _Tensors:
    """All that kernels read of a problem beside its mask, as they read it."""

    left: Tensor
    right: Tensor
    values: Tensor
    weight: Tensor | None
    prepared: tuple[Tensor, ...]
    sink: Tensor | None
    steps: tuple[_Term, ...]

    @property
    def n_inputs(self) -> int:
        """How many come before those of the steps."""
        return 3 + (self.weight is not None) + len(self.prepared) + (self.sink is not None)

    def strided(self) -> list[tuple[Tensor, int]]:
        """Each with the number of its own axes."""
        found = [(self.left, 2), (self.right, 2), (self.values, 2)]
        numbers = (self.weight, 1), *[(each, 1) for each in self.prepared], (self.sink, 0)
        found += [(each, own) for each, own in numbers if each is not None]
        return found + [each for step in self.steps for each in step.tensors]

    def of_every_entry(self, batch_shape: tuple[int, ...]) -> _Tensors:
        """The same with every batch axis, one entry after the other."""

        def whole(tensor: Tensor, own: int) -> Tensor:
            return tensor.expand(*batch_shape, *tensor.shape[tensor.ndim - own :]).contiguous()

        return _Tensors(
            whole(self.left, 2),
            whole(self.right, 2),
            whole(self.values, 2),
            None if self.weight is None else whole(self.weight, 1),
            tuple(whole(each, 1) for each in self.prepared),
            None if self.sink is None else whole(self.sink, 0),
            tuple(
                replace(step, tensors=tuple((whole(each, own), own) for each, own in step.tensors))
                for step in self.steps
            ),
        )


def _tensors_of(problem: AttentionProblem, *, factors: bool, walked: bool) -> _Tensors:
    """What a program holds: converted first, so that strides are those of what is read; factors of gates if wanted.

    `walked`: whether tiles of channels are.
    """
    form = problem.form
    assert isinstance(form, DotForm | ChannelForm)
    left, right = _together(form.left.detach()), _together(form.right.detach())
    if left.dtype != right.dtype:
        common = torch.promote_types(left.dtype, right.dtype)
        left, right = left.to(common), right.to(common)
    weight, sink = _weight_of(form), _sink_of(problem)
    return _Tensors(
        left,
        right,
        _together(problem.values.detach()),
        None if weight is None else weight.float(),
        _prepared(form, left, right) if walked else (),
        None if sink is None else sink.float(),
        tuple(
            _with_factors(term, left) if factors else term
            for term in (_terms(step, problem.grid) for step in form.steps)
        ),
    )


def _rule_code(rule: Weights) -> int:
    if not isinstance(rule, Entmax):
        return RULES[type(rule)]
    if isinstance(rule.alpha, Tensor):  # at which nobody looks
        return codes.ENTMAX_ANY
    return {2.0: codes.ENTMAX_ONE, 1.5: codes.ENTMAX_TWO}.get(rule.alpha, codes.ENTMAX_ANY)


def _form_code(form: Form) -> int:
    return FUNCTIONS[form.function] if isinstance(form, ChannelForm) else codes.DOT


def _prepared(form: Form, left: Tensor, right: Tensor) -> tuple[Tensor, ...]:
    """Coordinates and their ranges, of queries and of keys; their norms where products serve for distances."""
    if not isinstance(form, ChannelForm):
        return ()
    from regard.engines.cuda.channels import prepared, prepared_norms  # imports Triton, which may be missing

    if form.function == "square" and form.weight is None:
        return prepared_norms(left, right, float(form.scale))
    return (*prepared(left, _form_code(form)), *prepared(right, _form_code(form)))


def _weight_of(form: Form) -> Tensor | None:
    """What channels are multiplied by, `(..., channels)`."""
    return form.weight.detach().squeeze(-2) if isinstance(form, ChannelForm) and form.weight is not None else None


def _sink_of(problem: AttentionProblem) -> Tensor | None:
    sink = problem.rule.sink if isinstance(problem.rule, Softmax) else None
    return sink.detach() if isinstance(sink, Tensor) else None


@dataclass(frozen=True)
class _Term:
    """A step: its code, its tensors with the number of their own axes, and numbers."""

    code: int
    tensors: tuple[tuple[Tensor, int], ...] = ()
    numbers: tuple[float | int, ...] = ()
    roles: tuple[Role | None, ...] = ()  # for each tensor of the step: which gradient it gets

    def spelled(self, strides: Iterator[tuple[int, ...]]) -> tuple[Any, ...]:
        """As kernels take it: each tensor with its strides, then numbers."""
        return (*[part for tensor, _ in self.tensors for part in (tensor, next(strides))], *self.numbers)


def _terms(step: Step, grid: Grid) -> _Term:
    match step:
        case steps.Scale():
            return _Term(codes.SCALE, (_number(step.factor),), roles=("number",))
        case steps.Gate():
            lines = _line(step.query_term, grid.n_queries), _line(step.key_term, grid.n_keys)
            return _Term(codes.GATE, lines, roles=("row", "column"))
        case steps.Cap():
            return _Term(codes.CAP, numbers=(float(step.cap),))
        case steps.AddPairs():
            bias = step.bias.detach()
            if bias.shape[-2] == 1:
                return _Term(codes.ADD_COLUMN, (_line(bias.mT, grid.n_keys),), roles=("column",))
            if bias.shape[-1] == 1:
                return _Term(codes.ADD_ROW, (_line(bias, grid.n_queries),), roles=("row",))
            return _Term(codes.ADD_PAIRS, ((bias, 2),), roles=(None,))
        case steps.AddDistance() if step.offset is not None:
            # Even, see `Batch.strides` about a number that is 1.
            roles: tuple[Role | None, ...] = (None, None, "number")
            return _Term(codes.LINE_DISTANCE, (_number(step.slope),), (-2 * step.offset,), roles)
        case steps.AddDistance():
            positions = _line(step.query_positions, grid.n_queries), _line(step.key_positions, grid.n_keys)
            return _Term(codes.DISTANCE, (*positions, _number(step.slope)), roles=(None, None, "number"))
        case steps.AddRelative():
            positions = _line(step.query_positions, grid.n_queries), _line(step.key_positions, grid.n_keys)
            table = step.table.detach().squeeze(-2)
            reach = table.shape[-1] // 2
            return _Term(codes.RELATIVE, (*positions, (table, 1)), (-reach,), roles=(None, None, "table"))
        case steps.Indicator():
            return _Term(codes.INDICATOR, numbers=(step.limit * (1 + 32 * torch.finfo(torch.float32).eps),))
        case steps.Parabola():
            return _Term(codes.PARABOLA, (_number(step.radius),), roles=("number",))
        case steps.Tent():
            return _Term(codes.TENT, (_number(step.radius),), roles=("number",))
    raise AssertionError(f"no code for {type(step).__name__}")  # pragma: no cover


def _with_factors(term: _Term, left: Tensor) -> _Term:
    """A gate with what its two sides are multiplied as, in half precision: σ(g + h) = 1 / (1 + e^−g · e^−h)."""
    if term.code != codes.GATE or left.dtype.itemsize != 2:
        return term
    from regard.engines.cuda.gates import factors_of  # imports Triton, which may be missing

    return replace(term, tensors=(*term.tensors, *((factors_of(gate), 1) for gate, _ in term.tensors)))


def _together(tensor: Tensor) -> Tensor:
    """A tensor in which the numbers of a vector lie together."""
    return tensor if tensor.shape[-1] == 1 or tensor.stride(-1) == 1 else tensor.contiguous()


def _number(tensor: Tensor) -> tuple[Tensor, int]:
    return tensor.detach().squeeze(-1).squeeze(-1), 0


def _line(tensor: Tensor, length: int) -> tuple[Tensor, int]:
    """A number for each row or column, lying together."""
    line = tensor.detach().squeeze(-1)
    if line.shape[-1] != length:
        line = line.expand(*line.shape[:-1], length)
    return line if line.stride(-1) == 1 or length == 1 else line.contiguous(), 1
