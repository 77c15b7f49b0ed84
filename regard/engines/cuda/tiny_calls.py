"""Tiny calls in training: softmax of dot products, one launch forward and one back.

Where a block holds all pairs of a batch entry, a step of training is a matter of how many operations there are, and of
how long each is thought about. What follows from the kind of a call is worked out once; what is left is room for the
results.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard.engines.cuda import program
from regard.engines.cuda.batch import MOST_AXES, Batch
from regard.engines.cuda.launch import dropped, precision_on
from regard.engines.cuda.launch_settings import block_of
from regard.engines.cuda.launcher import launch, on_device
from regard.engines.cuda.layout import Layout, keep
from regard.engines.cuda.masks import line_of
from regard.engines.cuda.small_calls import kind_of_parts
from regard.engines.cuda.value_errors import raise_told
from regard.engines.engine import Engine
from regard.engines.kernels.dispatch import kernels_for, why_plain
from regard.engines.second_derivatives import gradients_over_strips
from regard.masks import Allowed, Mask
from regard.problem import AttentionProblem, draw_seed
from regard.scores import Score
from regard.scores.form import DotForm
from regard.weights import Softmax, Weights

MOST_LENGTH = 32
MOST_BYTES = 8192  # of the longest of queries, keys and values of a batch entry, which all stay in registers
DTYPES = (torch.float32, torch.bfloat16, torch.float16)

_KNOWN: dict[Hashable, Tiny | None] = {}


class Call(NamedTuple):
    """A call that may be tiny, without its tensors."""

    kind: Hashable
    score: Score
    weights: Weights
    mask: Mask | None
    dropout: float
    pairs: Tensor | None  # what a mask is that was given as a tensor: a byte for each pair


@dataclass(frozen=True)
class Tiny:
    """What all calls of a kind have in common."""

    kernels: tuple[Any, Any]  # forward and back
    batch: Batch
    sizes: tuple[Any, ...]  # n_queries, n_keys, low, high, n1, n2, scale: as the kernels take them
    strides: tuple[tuple[int, ...], ...]  # of queries, keys and values, and of the mask's bytes if there are any
    dropped: tuple[Any, ...]  # what dropout takes beside its seed; nothing without dropout
    output_shape: tuple[int, ...]
    n_entries: int
    constants: dict[str, Any]
    options: dict[str, int]
    layout: Layout  # with the kernels that were launched
    others: dict[Hashable, tuple[int, ...]]  # strides of outputs and gradients, by their own

    def strides_of(self, tensor: Tensor) -> tuple[int, ...]:
        """Of vectors with every batch axis, as kernels take them."""
        given = tensor.shape, tensor.stride()
        known = self.others.get(given)
        if known is None:
            known = keep(self.others, given, self.batch.strides(tensor, 2))
        return known


def tiny_call(
    queries: Tensor, keys: Tensor, values: Tensor, score: Score, weights: Weights, mask: Mask | None, dropout: float
) -> Call | None:
    """A call that may be tiny; None for others."""
    if not type(queries) is type(keys) is type(values) is Tensor or type(weights) is not Softmax:
        return None
    if type(dropout) is not float or queries.is_nested or keys.is_nested or values.is_nested:
        return None
    if queries.ndim < 2 or keys.ndim < 2:
        return None
    if queries.shape[-2] > MOST_LENGTH or keys.shape[-2] > MOST_LENGTH:
        return None
    kernels = kernels_for(queries.device)
    if kernels is None or not kernels.looks_for_itself:
        return None
    learning = torch.is_grad_enabled() and (queries.requires_grad or keys.requires_grad or values.requires_grad)
    if not learning and not dropout:
        return None  # see `small_calls.py`
    pairs = _pairs_of(mask)
    parts = kind_of_parts(queries, keys, values, score, weights, mask if pairs is None else None)
    if parts is None:
        return None
    lying = None if pairs is None else (pairs.shape, pairs.stride(), pairs.device, pairs.data_ptr() % 16)
    return Call((parts, dropout, lying), score, weights, mask, dropout, pairs)


def _pairs_of(mask: Mask | None) -> Tensor | None:
    """What a mask is that was given as a tensor, where it lies, a byte for each pair."""
    # By type, not isinstance: a user's subclass may allow something else.
    return mask.tensor.view(torch.uint8) if type(mask) is Allowed and type(mask.tensor) is Tensor else None


def pool_known(call: Call, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor | None:
    """The output of a call of a kind that was admitted before, `(..., n_queries, value_dim)`; None for others."""
    tiny = _KNOWN.get(call.kind)
    if tiny is None:
        return None
    raise_told(queries.device)
    seed = draw_seed(queries.device) if call.dropout else 0
    return _pooled(tiny, call, seed, queries, keys, values)


def pool_admitted(call: Call, problem: AttentionProblem, engine: Engine) -> Tensor | None:
    """The output of a call for which an engine was chosen, if that is what its kernels compute in one block."""
    try:
        tiny = _KNOWN[call.kind]
    except KeyError:
        tiny = keep(_KNOWN, call.kind, _admitted(call, problem, engine))
    if tiny is None:
        return None
    return _pooled(tiny, call, problem.seed, problem.queries, problem.keys, problem.values)


def _admitted(call: Call, problem: AttentionProblem, engine: Engine) -> Tiny | None:
    grid, form, rule = problem.grid, problem.form, problem.rule
    tensors = queries, keys, values = problem.queries, problem.keys, problem.values
    if not engine.pools_by_tiles or why_plain(problem) is not None or not program.is_small(grid):
        return None
    if type(form) is not DotForm or form.steps or not (form.left is queries and form.right is keys):
        return None
    if not isinstance(rule, Softmax) or rule.sink is not None or queries.dtype not in DTYPES:
        return None
    if not queries.dtype == keys.dtype == values.dtype:
        return None
    dim, value_dim = queries.shape[-1], values.shape[-1]
    rows, columns = block_of(grid.n_queries), block_of(grid.n_keys)
    most = max(rows, columns) * block_of(max(dim, value_dim))
    if most * queries.dtype.itemsize > MOST_BYTES:
        return None
    batch_shape = grid.batch_shape
    alike = all(each.shape[:-2] == batch_shape and each.stride(-1) == 1 for each in tensors)
    by_line = call.mask if call.pairs is None else None
    line = (-grid.n_queries, grid.n_keys) if by_line is None else line_of(by_line, grid)
    if len(batch_shape) > MOST_AXES or not alike or line is None:
        return None
    missing = MOST_AXES - len(batch_shape)
    batch = Batch(batch_shape, (*[()] * missing, *[(axis,) for axis in range(len(batch_shape))]))
    strides = tuple([batch.strides(each, 2) for each in (*tensors, *(() if call.pairs is None else (call.pairs,)))])
    from regard.engines.cuda.kernels.tiny import differentiate_entry, pool_entry  # imports Triton

    return Tiny(
        (pool_entry, differentiate_entry),
        batch,
        (grid.n_queries, grid.n_keys, *line, *batch.sizes[1:], float(form.scale)),
        strides,
        dropped(call.dropout) if call.dropout else (),
        problem.output_shape,
        math.prod(batch_shape),
        {
            "PRECISION": "whole" if queries.dtype == torch.float16 else precision_on(queries.device, True),
            "DIM": dim,
            "VALUE_DIM": value_dim,
            "BLOCK_DIM": block_of(dim),
            "BLOCK_VALUE_DIM": block_of(value_dim),
            "ROWS": rows,
            "COLUMNS": columns,
        },
        {"num_warps": 4 if most <= 1024 else 8, "num_stages": 1},
        Layout(batch, strides),
        {},
    )


def _pooled(tiny: Tiny, call: Call, seed: int | Tensor, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    if torch.is_grad_enabled():
        return _Tiny.apply(tiny, call, seed, queries, keys, values)  # type: ignore[no-any-return, no-untyped-call]
    return _pool(tiny, call, seed, queries, keys, values)


def _pool(tiny: Tiny, call: Call, seed: int | Tensor, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    # As queries lie: heads that were cut out of a token are put together again without a copy.
    output = _room_like(queries) if queries.shape == tiny.output_shape else queries.new_empty(tiny.output_shape)
    of_queries, of_keys, of_values, *_ = tiny.strides
    arguments = (
        (queries, of_queries, keys, of_keys, values, of_values),
        output,
        tiny.strides_of(output),
        () if call.pairs is None else (call.pairs, tiny.strides[3]),
        _dropout(tiny, seed, queries.device),
        *tiny.sizes,
    )
    with on_device(queries.device):
        launch(
            tiny.kernels[0], tiny.n_entries, arguments, tiny.constants, tiny.options, layout=tiny.layout, variant=None
        )
    return output


def _room_like(tensor: Tensor) -> Tensor:
    """Room for as many numbers, which lie in the same order, but together."""
    room = torch.empty_like(tensor)
    return room if room.stride(-1) == 1 else torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device)


def _dropout(tiny: Tiny, seed: int | Tensor, device: torch.device) -> tuple[Any, ...]:
    if not tiny.dropped:
        return ()
    where = seed if isinstance(seed, Tensor) else torch.full((), seed, dtype=torch.int64, device=device)
    return where, *tiny.dropped


class _Tiny(torch.autograd.Function):
    """The kernels with their own gradient, and a second derivative by the definition."""

    @staticmethod
    def forward(
        ctx: Any, tiny: Tiny, call: Call, seed: int | Tensor, queries: Tensor, keys: Tensor, values: Tensor
    ) -> Tensor:
        ctx.given = tiny, call, seed
        # The mask, too: whoever writes to it before the backward pass is told.
        ctx.save_for_backward(queries, keys, values, *(() if call.pairs is None else (call.pairs,)))
        return _pool(tiny, call, seed, queries, keys, values)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        arguments = (*ctx.given, ctx.needs_input_grad[3:], gradients[0], *ctx.saved_tensors)
        # Where nobody will differentiate them again, the gradients need no node of their own.
        found = _TinyGradients.apply(*arguments) if torch.is_grad_enabled() else _gradients(*arguments)  # type: ignore[no-untyped-call]
        return None, None, None, *found


class _TinyGradients(torch.autograd.Function):
    """The kernels' first derivative; its own derivative, over strips of the definition."""

    @staticmethod
    def forward(
        ctx: Any, tiny: Tiny, call: Call, seed: int | Tensor, needed: tuple[bool, ...], gradient: Tensor, *saved: Tensor
    ) -> tuple[Tensor | None, ...]:
        ctx.given, ctx.needed = (tiny, call, seed), needed
        ctx.save_for_backward(gradient, *saved)
        ctx.set_materialize_grads(False)
        return _gradients(tiny, call, seed, needed, gradient, *saved)

    @staticmethod
    def backward(ctx: Any, *second: Tensor | None) -> tuple[Tensor | None, ...]:
        gradient, queries, keys, values, *pairs = ctx.saved_tensors
        tiny, call, seed = ctx.given
        problem = AttentionProblem(queries, keys, values, call.score, call.weights, call.mask, call.dropout, seed, None)
        problem = problem.around(DotForm(queries, keys, tiny.sizes[-1])).without_a_look()
        found = gradients_over_strips(problem, ctx.needed, gradient, (queries, keys, values), second)
        return None, None, None, None, *found, *[None for _ in pairs]


def _gradients(
    tiny: Tiny, call: Call, seed: int | Tensor, needed: tuple[bool, ...], gradient: Tensor, *saved: Tensor
) -> tuple[Tensor | None, ...]:
    """The first derivatives with respect to queries, keys and values, where they are needed."""
    # Hooks may have unpacked the inputs to where they lie otherwise.
    gradient, queries, keys, values = [
        each if each.stride(-1) == 1 else each.contiguous() for each in (gradient, *saved[:3])
    ]
    of_queries, of_keys, of_values = [tiny.strides_of(each) for each in (queries, keys, values)]
    pairs = [(each, tiny.strides_of(each)) for each in saved[3:]]
    found = [_room_like(each) for each in (queries, keys, values)]
    strides = tiny.strides_of(gradient)
    into = tuple([part for each in found for part in (each, tiny.strides_of(each))])
    arguments = (
        (queries, of_queries, keys, of_keys, values, of_values),
        gradient,
        strides,
        into,
        pairs[0] if pairs else (),
        _dropout(tiny, seed, queries.device),
        *tiny.sizes,
    )
    with on_device(queries.device):
        launch(
            tiny.kernels[1],
            tiny.n_entries,
            arguments,
            tiny.constants,
            tiny.options,
            layout=tiny.layout,
            variant=(strides, of_queries, of_keys, of_values, *[of_pairs for _, of_pairs in pairs]),
            fresh=(gradient, queries, keys, values, *saved[3:]),
        )
    return tuple([each if need else None for each, need in zip(found, needed, strict=True)])
