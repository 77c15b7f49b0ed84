"""What the launches of one problem share: pointers with their strides, sizes, and what kernels are specialised by."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor

from regard.engines import torch_internals
from regard.engines.cuda.launch_settings import Shape, block_of
from regard.engines.cuda.launcher import launch as run
from regard.engines.cuda.program import Program, coded
from regard.engines.cuda.stand_ins import stand_ins
from regard.engines.cuda.value_errors import told
from regard.engines.kernels import codes
from regard.weights import Entmax, Softmax

# Rules whose weights may leave float16.
UNBOUNDED = {codes.CONIC, codes.RAW}
# Steps that add a number, which may be −inf; those after which −inf is still −inf; and those that show where a squared
# distance was rounded.
ADDING = {codes.ADD_ROW, codes.ADD_COLUMN, codes.ADD_PAIRS, codes.RELATIVE}
HARMLESS = {*ADDING, codes.DISTANCE, codes.LINE_DISTANCE}
COMPACT = {codes.INDICATOR, codes.PARABOLA, codes.TENT}

Strided: TypeAlias = tuple[Tensor, tuple[int, ...]]  # a tensor with its strides, as kernels take them


class Facts(NamedTuple):
    """What a row is differentiated with, (entries, n_queries) each; as `kernels/tile_gradients.py` has them."""

    levels: Tensor
    inverses: Tensor
    deltas: Tensor  # dO·u; of rules that subtract nothing, nobody reads it
    units: Tensor  # (entries,), see `Launch.units`


class Launch:
    """The arguments of every kernel that computes a program."""

    def __init__(self, program: Program) -> None:
        self.program = program
        grid = program.problem.grid
        self.device = grid.device
        self.n_queries, self.n_keys = grid.n_queries, grid.n_keys
        self.dim, self.value_dim = program.left.shape[-1], program.values.shape[-1]
        # The first of three batch axes need not be known.
        self.batch_sizes = program.layout.keep("batch sizes", lambda: program.batch.sizes[1:])
        self.n_entries = program.n_entries

    def run(
        self,
        kernel: Any,
        n_programs: int,
        arguments: Sequence[Any],
        constants: Mapping[str, Any],
        options: Mapping[str, int] = MappingProxyType({}),
        *,
        variant: Hashable = (),
        fresh: Sequence[Tensor] = (),
    ) -> None:
        """Launch a kernel for this program, as `launcher.launch`."""
        layout = self.program.layout
        run(kernel, n_programs, arguments, constants, options, layout=layout, variant=variant, fresh=fresh)

    @cached_property
    def inputs(self) -> tuple[Any, ...]:
        """Queries, keys, values, and weights of channels if there are any, each with its strides."""
        program = self.program
        tensors = [program.left, program.right, program.values]
        if program.weight is not None:
            tensors.append(program.weight)
        return tuple([part for each in zip(tensors, program.layout.strides, strict=False) for part in each])

    @cached_property
    def walked(self) -> tuple[Any, ...]:
        """The inputs, and what was prepared of them, if anything."""
        prepared, given = self.program.prepared, self.inputs
        if not prepared:
            return given
        strides = self.program.layout.strides[len(given) // 2 :]
        return (*given, tuple([part for each in zip(prepared, strides, strict=False) for part in each]))

    @cached_property
    def mask(self) -> tuple[Any, ...]:
        mask, strides = self.program.mask, self.program.layout.strides
        stop = len(strides) - len(self.program.beside)
        return mask.spelled(strides[stop - len(mask.strided()) : stop])

    @property
    def line(self) -> tuple[int, int]:
        """The bounds of row 0, of a mask whose bounds go on by one column from row to row."""
        return self.program.mask.line or (0, 0)

    @cached_property
    def sink(self) -> tuple[Any, ...]:
        sink, rule = self.program.sink, self.program.problem.rule
        if sink is None and isinstance(rule, Softmax) and rule.sink is not None:
            sink = self._number(float(rule.sink), torch.float32)
        return () if sink is None else (sink, self.program.batch.strides(sink, 0))  # of one number or one for each head

    @property
    def has_threshold(self) -> bool:
        """Whether the rule needs a threshold for every row, before rows are pooled."""
        return self.program.rule >= codes.ENTMAX_ANY

    @cached_property
    def units(self) -> Tensor:
        """alpha − 1 of every batch entry, NaN where alpha is not in (1, 4]; a stand-in where no kernel reads it."""
        rule = self.program.problem.rule
        if self.program.rule != codes.ENTMAX_ANY:
            return stand_ins(self.device).number
        assert isinstance(rule, Entmax)
        if not isinstance(rule.alpha, Tensor):
            return torch.full((self.n_entries,), rule.alpha - 1, dtype=torch.float32, device=self.device)
        alpha = rule.alpha.detach().to(self.device)
        unit = torch.where((alpha > 1) & (alpha <= 4), alpha.double() - 1, torch.nan).float()
        return unit.expand(self.program.problem.grid.batch_shape).contiguous().reshape(-1)

    @cached_property
    def dropout(self) -> tuple[Any, ...]:
        """As kernels take it.

        The seed, on the device; a number in two halves, below which a hash drops its weight; what multiplies others.
        """
        problem = self.program.problem
        if not problem.dropout:
            return ()
        seed = problem.seed
        seed = seed.to(self.device) if isinstance(seed, Tensor) else self._number(seed, torch.int64)
        return seed, *dropped(problem.dropout)

    def _number(self, value: float, dtype: torch.dtype) -> Tensor:
        """A number on the device, written there: copied from the host, it would be waited for."""
        return torch.full((), value, dtype=dtype, device=self.device)

    @property
    def codes(self) -> dict[str, Any]:
        """What every kernel over tiles is specialised by."""
        return self.program.layout.keep("codes", self._codes)

    def _codes(self) -> dict[str, Any]:
        program = self.program
        return {
            "FORM": program.form,
            "STEPS": program.steps,
            "EXCLUDES": self._excludes,
            "FOLDS": self._folds,
            "RULE": program.rule,
            "MASK": program.mask.kinds,
            "DROPOUT": bool(program.problem.dropout),
            "EXACT": self._is_exact,
            "ROUGH": self.is_rough,
            "PRECISION": self._precision,
            "DIM": self.dim,
            "VALUE_DIM": self.value_dim,
            "BLOCK_DIM": block_of(self.dim),
            "BLOCK_VALUE_DIM": block_of(self.value_dim),
        }

    @property
    def _excludes(self) -> bool:
        """Whether more is to be done with a pair to which a step adds −inf than to add that."""
        steps = self.program.steps
        adding = [place for place, step in enumerate(steps) if step in ADDING]
        if not adding:
            return False
        return self.program.rule != codes.SOFTMAX or not HARMLESS.issuperset(steps[adding[0] :])

    @property
    def _folds(self) -> bool:
        """Whether the scale is multiplied by within exponentials, or, in the forward pass, within a gate."""
        program = self.program
        if program.form != codes.DOT or not self.is_rough or not 1e-6 < abs(program.scale) < 1e6:
            return False
        if not program.steps:
            return program.rule in (codes.SOFTMAX, codes.SIGMOID) and program.scale > 0
        return program.steps[0] == codes.GATE

    @property
    def is_rough(self) -> bool:
        """Whether half precision is exact enough."""
        return self.program.left.dtype.itemsize == 2 and not self.program.mask.lists

    @property
    def _is_exact(self) -> bool:
        """Whether a score is summed channel by channel, differences first of all."""
        program = self.program
        if program.form not in (codes.DOT, codes.SQUARE) or program.weight is not None:
            return True  # no product serves, or it would be of rounded numbers
        # A step that shows rounding, or multiplies it by what nobody knows.
        shows = not {*COMPACT, codes.SCALE}.isdisjoint(program.steps) and program.left.dtype == torch.float32
        return program.form == codes.SQUARE and shows

    @property
    def shape(self) -> Shape:
        """What the size of blocks depends on."""
        return self.program.layout.keep("shape", self._shape)

    def _shape(self) -> Shape:
        program = self.program
        itemsize = 4 if self.is_whole else program.left.dtype.itemsize
        by_pairs = bool(program.mask.pairs) or codes.ADD_PAIRS in program.steps
        return Shape(self.dim, self.value_dim, itemsize, by_pairs)

    @property
    def backward_codes(self) -> dict[str, Any]:
        """What a kernel of the backward pass is specialised by besides."""
        problem = self.program.problem
        # What is not finite has no gradient by way of its projection.
        return {"CENTRED": problem.rule.centre != "none", "PROJECTED": problem.may_leak}

    @property
    def is_whole(self) -> bool:
        """Whether weights may leave float16, and are not rounded to it."""
        return self.program.values.dtype == torch.float16 and self.program.rule in UNBOUNDED

    @property
    def general_precision(self) -> str:
        """How products are computed by kernels for any rule, also one whose weights leave float16."""
        return "whole" if self.program.values.dtype == torch.float16 else self._precision

    @property
    def _precision(self) -> str:
        """How products are computed: in float32 exactly enough, unless torch was told that less will do."""
        if self.is_whole:
            return "whole"
        # Of a squared distance, digits cancel that TF32 does not have.
        return precision_on(self.device, self.program.form == codes.DOT)

    def strides_of(self, tensor: Tensor) -> tuple[int, ...]:
        """Of vectors `(…, n, dim)` that lie together, with every batch axis; times −1, as `Batch.strides`."""
        n1, n2 = self.batch_sizes
        size = tensor.shape[-2] * tensor.shape[-1]
        return -n1 * n2 * size, -n2 * size, -size, -tensor.shape[-1]

    @property
    def errors(self) -> Tensor:
        """Where kernels tell of values that are an error."""
        return told(self.device)

    def empty(self, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        return torch.empty(shape, dtype=dtype, device=self.device)

    def flags(self, n_programs: int) -> Tensor:
        """Where each program says whether something in its results is not finite."""
        return self.empty(n_programs, dtype=torch.int32)


def dropped(dropout: float) -> tuple[int, int, float]:
    """A number in two halves, below which a hash drops its weight; what multiplies others."""
    high, low = divmod(int(dropout * 2**32), 2**16)
    return coded(high), coded(low), 1 / (1 - dropout)


def precision_on(device: torch.device, may_round: bool) -> str:
    """How products of float32 are computed on a device, by TF32 where they may be rounded and torch was told so."""
    if device.type != "cuda":
        return "wide"  # Triton's interpreter
    return "tf32" if may_round and torch_internals.allows_tf32() else "tf32x3"
