"""What the launches of one problem share: pointers with their strides, sizes, and what kernels are specialised by."""

from __future__ import annotations

from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard.engines import torch_internals
from regard.engines.cuda.launch_settings import Shape, block_of
from regard.engines.cuda.program import Program
from regard.engines.kernels import codes
from regard.weights import Softmax

# Rules whose weights may leave float16.
UNBOUNDED = {codes.CONIC, codes.RAW}


class Facts(NamedTuple):
    """What a row is differentiated with, (entries, n_queries) each."""

    peaks: Tensor
    totals: Tensor
    deltas: Tensor  # dO·u; one number that nobody reads, for rules that subtract nothing


class Launch:
    """The arguments of every kernel that computes a program."""

    def __init__(self, program: Program) -> None:
        self.program = program
        grid = program.problem.grid
        self.device = grid.device
        self.n_queries, self.n_keys = grid.n_queries, grid.n_keys
        self.dim, self.value_dim = program.left.shape[-1], program.values.shape[-1]
        # The first of three batch axes need not be known.
        self.batch_sizes = program.batch.sizes[1:]
        self.n_entries = program.n_entries

    @cached_property
    def inputs(self) -> tuple[Any, ...]:
        """Queries, keys, values, and weights of channels if there are any, each with its strides."""
        program = self.program
        tensors = [(program.left, 2), (program.right, 2), (program.values, 2)]
        if program.weight is not None:
            tensors.append((program.weight, 1))
        return tuple(part for each, own in tensors for part in (each, program.batch.strides(each, own)))

    @cached_property
    def mask(self) -> tuple[Any, ...]:
        return self.program.mask.spelled(self.program.batch)

    @cached_property
    def sink(self) -> tuple[Any, ...]:
        sink, rule = self.program.sink, self.program.problem.rule
        if sink is None and isinstance(rule, Softmax) and rule.sink is not None:
            sink = self._number(float(rule.sink), torch.float32)
        return () if sink is None else (sink, self.program.batch.strides(sink, 0))

    @cached_property
    def dropout(self) -> tuple[Any, ...]:
        """The seed, on the device, the number below which a hash drops its weight, and what multiplies the others."""
        problem = self.program.problem
        if not problem.dropout:
            return ()
        seed = problem.seed
        seed = seed.to(self.device) if isinstance(seed, Tensor) else self._number(seed, torch.int64)
        return seed, int(problem.dropout * 2**32), 1 / (1 - problem.dropout)

    def _number(self, value: float, dtype: torch.dtype) -> Tensor:
        """A number on the device, written there: copied from the host, it would be waited for."""
        return torch.full((), value, dtype=dtype, device=self.device)

    @cached_property
    def codes(self) -> dict[str, Any]:
        """What every kernel over tiles is specialised by."""
        program = self.program
        return {
            "FORM": program.form,
            "STEPS": program.steps,
            "RULE": program.rule,
            "MASK": program.mask.code,
            "DROPOUT": bool(program.problem.dropout),
            "PRECISION": self._precision,
            "DIM": self.dim,
            "VALUE_DIM": self.value_dim,
            "BLOCK_DIM": block_of(self.dim),
            "BLOCK_VALUE_DIM": block_of(self.value_dim),
        }

    @property
    def shape(self) -> Shape:
        """What the size of blocks depends on."""
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
    def _precision(self) -> str:
        """How products are computed: in float32 exactly enough, unless torch was told that less will do."""
        if self.is_whole:
            return "whole"
        if self.device.type != "cuda":
            return "wide"  # Triton's interpreter
        return "tf32" if torch_internals.allows_tf32() else "tf32x3"

    # Whether each launch is the safe one: it comes second, and ends at once where the first found all finite. A weight
    # may be 0 without a mask, too: by a score of −inf, by dropout, or since nothing smaller is a number.
    passes = (False, True)

    def strides_of(self, tensor: Tensor) -> tuple[int, ...]:
        """Of vectors `(…, n, dim)` that lie together, with every batch axis; times −1, as `Batch.strides`."""
        n1, n2 = self.batch_sizes
        size = tensor.shape[-2] * tensor.shape[-1]
        return -n1 * n2 * size, -n2 * size, -size, -tensor.shape[-1]

    def empty(self, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        return torch.empty(shape, dtype=dtype, device=self.device)

    def flags(self, n_programs: int) -> Tensor:
        """Where each program says whether something in its results is not finite."""
        return self.empty(n_programs, dtype=torch.int32)
