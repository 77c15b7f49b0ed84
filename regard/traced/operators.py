"""`regard::attend` and `regard::attend_backward`: attention as operators that a graph can hold.

They take tensors, numbers and a description (`description.py`), and run the ordinary engines on the problem that it
describes. The projections of a score stay outside, as ordinary operations of the graph.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from regard.engines.gradients import Run, gradients_over_tiles
from regard.engines.kernels.protocol import Compiled
from regard.engines.nonfinite.vectors_of_forms import vectors_of, without_broken
from regard.engines.strips import pool_by_strips
from regard.engines.tile_stream import Stream
from regard.engines.tiled import are_rounded_apart, need_no_look, pool_stream
from regard.errors import EngineRefusal
from regard.planner import choose
from regard.problem import AttentionProblem
from regard.scores import ChannelForm, DotForm, Form, Score, SumForm
from regard.scores.distance import folded_where_safe
from regard.tensors import is_finite
from regard.traced.description import Description, Rebuilt, rebuild
from regard.weights import Statistics, Weights

_SCORE = Score()  # stands where a problem names its score: projections are done


def statistics_width(rule: Weights, value_dim: int) -> int:
    """How many numbers a row leaves for the backward pass."""
    return 1 + sum(width for width, _ in rule.layout()) + (value_dim if rule.centre == "slope" else 0)


@torch.library.custom_op("regard::attend", mutates_args=())
def attend_operator(
    values: Tensor,
    tensors: Sequence[Tensor],
    numbers: Sequence[float],
    seed: Tensor | None,
    text: str,
    shape: Sequence[int],
    width: int,
) -> tuple[Tensor, Tensor]:
    """The pooled output, in the dtype of computation, and what the backward pass needs of each row.

    Args:
        values: `(..., n_keys, value_dim)`.
        tensors, numbers: Those that the text speaks of.
        seed: What dropout depends on.
        text: Describes form, rule, mask, dropout and engine.
        shape: Of the output.
        width: Of a row's statistics.
    """
    description = Description(text, [each.detach() for each in tensors], list(numbers))
    said = rebuild(description)
    problem = _problem(said, values.detach().requires_grad_(said.training), seed)
    with torch.set_grad_enabled(said.training):  # so that kernels think of the backward pass too
        kernels = _kernels_alone(problem, said)
    if kernels is not None:
        pooled = kernels.pool()
        output = pooled.output.to(problem.compute_dtype)  # they may have written half precision themselves
        statistics = list(pooled.statistics)
        if problem.rule.centre == "slope":
            # Without gradients nobody has averaged by slope, and nobody asks.
            statistics.append(torch.zeros_like(output) if pooled.slope_mean is None else pooled.slope_mean)
        return output.expand(shape).contiguous(), _packed(True, statistics, shape[:-1])
    problem = _looked_at(problem)
    with torch.set_grad_enabled(said.training):  # so that the planner thinks of the backward pass too
        engine = choose(problem, said.engine)
    with torch.no_grad(), torch.autocast(values.device.type, enabled=False):
        if not engine.pools_by_tiles or problem.may_leak:
            output = engine.run(problem).to(problem.compute_dtype)
            return output.expand(shape).contiguous(), _no_statistics(values, (*shape[:-1], width))
        stream = Stream((problem,), engine.tile_elements, engine.kernels)
        pooled, by_kernels = pool_stream(stream), stream.compiled is not None
        if are_rounded_apart(stream, pooled, training=said.training):
            # As in `Tiled.run`: the backward pass, which runs the engine again, goes by strips, too.
            output = pool_by_strips(problem).to(problem.compute_dtype)
            return output.expand(shape).contiguous(), _no_statistics(values, (*shape[:-1], width))
        statistics = [*pooled.statistics, *(() if pooled.slope_mean is None else (pooled.slope_mean,))]
        return pooled.output.expand(shape).contiguous(), _packed(by_kernels, statistics, shape[:-1])


@attend_operator.register_fake
def _(
    values: Tensor, tensors: Any, numbers: Any, seed: Any, text: str, shape: Sequence[int], width: int
) -> tuple[Tensor, Tensor]:
    dtype = torch.float64 if values.dtype == torch.float64 else torch.float32
    return values.new_empty(shape, dtype=dtype), values.new_empty((*shape[:-1], width), dtype=torch.float64)


@torch.library.custom_op("regard::attend_backward", mutates_args=())
def backward_operator(
    gradient: Tensor,
    output: Tensor,
    statistics: Tensor,
    values: Tensor,
    tensors: Sequence[Tensor],
    numbers: Sequence[float],
    seed: Tensor | None,
    text: str,
    needed: Sequence[bool],
) -> list[Tensor]:
    """The gradients of `values` and of each of `tensors`, those that are needed, in that order."""
    inputs = [values, *tensors]
    with _autograd(), torch.enable_grad(), torch.autocast(values.device.type, enabled=False):
        leaves = [each.detach().requires_grad_(need) for each, need in zip(inputs, needed, strict=True)]
        said = rebuild(Description(text, leaves[1:], list(numbers)))
        problem = _problem(said, leaves[0], seed)
        if _kernels_alone(problem, said) is not None:
            outputs, gradients = _gradients_over_tiles(problem, gradient, output, statistics, by_kernels=True)
        elif _has_statistics(statistics):
            problem, by_kernels = _looked_at(problem), bool(statistics.flatten()[0])
            outputs, gradients = _gradients_over_tiles(problem, gradient, output, statistics, by_kernels=by_kernels)
        else:
            problem = _looked_at(problem)
            outputs, gradients = [choose(problem, said.engine).run(problem)], [gradient.to(problem.dtype)]
        wanted = [leaf for leaf, need in zip(leaves, needed, strict=True) if need]
        found = torch.autograd.grad(outputs, wanted, gradients, allow_unused=True)
    return [
        torch.zeros_like(leaf) if each is None else each.contiguous() for leaf, each in zip(wanted, found, strict=True)
    ]


@backward_operator.register_fake
def _(
    gradient: Any, output: Any, statistics: Any, values: Tensor, tensors: Sequence[Tensor], *rest: Any
) -> list[Tensor]:
    _numbers, _seed, _text, needed = rest
    inputs = zip([values, *tensors], needed, strict=True)
    return [torch.empty(each.shape, dtype=each.dtype, device=each.device) for each, need in inputs if need]


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    values, tensors, ctx.numbers, seed, ctx.text, _, _ = inputs
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(values, seed, *output, *tensors)


def _differentiate(ctx: Any, gradient: Tensor | None, _: Tensor | None) -> tuple[Any, ...]:
    values, seed, output, statistics, *tensors = ctx.saved_tensors
    needed = [ctx.needs_input_grad[0], *ctx.needs_input_grad[1]]
    if gradient is None or not any(needed):
        return None, [None] * len(tensors), None, None, None, None, None
    found = iter(backward_operator(gradient, output, statistics, values, tensors, ctx.numbers, seed, ctx.text, needed))
    gradients = [next(found) if need else None for need in needed]
    return gradients[0], gradients[1:], None, None, None, None, None


attend_operator.register_autograd(_differentiate, setup_context=_keep)


def _refuse(ctx: Any, *gradients: Any) -> Any:
    raise EngineRefusal(
        "A compiled attention must stop at first derivatives: got a request for a second. "
        'Compile with engine="reference", or take second derivatives in eager mode.'
    )


backward_operator.register_autograd(_refuse)


def _one_by_one(operator: Any) -> Any:
    """The rule of an operator under torch.vmap: each entry on its own."""

    def rule(info: Any, in_dims: tuple[Any, ...], *arguments: Any) -> Any:
        results = [
            operator(*(_entry(argument, axis, entry) for argument, axis in zip(arguments, in_dims, strict=True)))
            for entry in range(info.batch_size)
        ]
        stacked = [torch.stack(each) for each in zip(*results, strict=True)]
        return (stacked, [0] * len(stacked)) if isinstance(results[0], list) else (tuple(stacked), (0,) * len(stacked))

    return rule


def _entry(argument: Any, axis: Any, entry: int) -> Any:
    if isinstance(argument, Tensor):
        return argument if axis is None else argument.select(axis, entry)
    if isinstance(argument, list | tuple) and isinstance(axis, list | tuple):
        return [_entry(each, along, entry) for each, along in zip(argument, axis, strict=True)]
    return argument


attend_operator.register_vmap(_one_by_one(attend_operator))
backward_operator.register_vmap(_one_by_one(backward_operator))


def _problem(said: Rebuilt, values: Tensor, seed: Tensor | None) -> AttentionProblem:
    """The problem that a description speaks of."""
    form = folded_where_safe(said.form)
    left, right = _ends(form)
    number = 0 if seed is None else int(seed) if seed.device.type == "cpu" else seed
    problem = AttentionProblem(left, right, values, _SCORE, said.rule, said.mask, said.dropout, number, None)
    problem = problem.around(form)
    if said.mask is not None:
        said.mask.check(problem.grid)
    return problem


def _looked_at(problem: AttentionProblem) -> AttentionProblem:
    """The problem, told which of its vectors are not finite."""
    if is_finite(problem.values, *vectors_of(problem.form)):
        return problem
    return problem.around_broken(*without_broken(problem.form))


def _ends(form: Form) -> tuple[Tensor, Tensor]:
    """What a form has for queries and for keys."""
    if isinstance(form, SumForm):
        return _ends(form.terms[0])
    assert isinstance(form, DotForm | ChannelForm)
    return form.left, form.right


def _kernels_alone(problem: AttentionProblem, said: Rebuilt) -> Compiled | None:
    """The problem for kernels that need nobody to look at its numbers; None where there are none.

    What they support on the way back they supported before, where nothing needed a gradient.
    """
    stream = Stream((problem,))
    return stream.compiled if said.engine in (None, "tiled") and need_no_look(stream) else None


def _gradients_over_tiles(
    problem: AttentionProblem, gradient: Tensor, output: Tensor, statistics: Tensor, *, by_kernels: bool
) -> tuple[list[Tensor], list[Tensor]]:
    """The inputs of the problem that need a gradient, and those gradients."""
    rule = problem.rule
    slope_mean = statistics[..., -problem.values.shape[-1] :].to(output.dtype) if rule.centre == "slope" else None
    # Kernels may have become ready since the forward pass, and they round scores otherwise.
    stream = Stream((problem,), kernels=None if by_kernels else False)
    run = Run(stream, _unpacked(rule, statistics, output.dtype), slope_mean, (), True)
    inputs = problem.inputs
    needed = [each.requires_grad for each in inputs]
    with torch.no_grad():
        found = gradients_over_tiles(run, needed, output, gradient, [each.detach() for each in inputs])
    pairs = [(each, to_each) for each, to_each in zip(inputs, found, strict=True) if to_each is not None]
    return [each for each, _ in pairs], [to_each for _, to_each in pairs]


def _packed(by_kernels: bool, statistics: list[Tensor], rows: Sequence[int]) -> Tensor:
    """Whether kernels computed them, and the statistics of rows, side by side; keys' indices are exact in float64."""
    first = statistics[0].new_full((*rows, 1), by_kernels, dtype=torch.float64)
    return torch.cat([first, *(each.expand(*rows, -1).double() for each in statistics)], dim=-1)


def _no_statistics(like: Tensor, shape: tuple[int, ...]) -> Tensor:
    """What an engine leaves that has none: the backward pass then runs it again."""
    return like.new_full(shape, torch.inf, dtype=torch.float64)


def _has_statistics(packed: Tensor) -> bool:
    return packed.numel() > 0 and bool(packed.flatten()[0] < torch.inf)


def _unpacked(rule: Weights, packed: Tensor, dtype: torch.dtype) -> Statistics:
    statistics, start = [], 1
    for width, kind in rule.layout():
        statistics.append(packed[..., start : start + width].to(kind or dtype))
        start += width
    return tuple(statistics)


@contextmanager
def _autograd() -> Iterator[None]:
    """Autograd, which is off in the body of an operator."""
    key = torch._C.DispatchKey.AutogradFunctionality
    before = torch._C._dispatch_tls_is_dispatch_key_excluded(key)
    torch._C._dispatch_tls_set_dispatch_key_excluded(key, False)
    try:
        yield
    finally:
        torch._C._dispatch_tls_set_dispatch_key_excluded(key, before)
