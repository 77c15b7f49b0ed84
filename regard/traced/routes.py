"""Which way a traced call goes: straight to PyTorch's kernel, through an operator, or by the definition."""

from __future__ import annotations

import warnings
from functools import cache

import torch
from torch import Tensor

from regard.engines import ENGINES, Engine
from regard.engines.sdpa.fused_call import Call, fold, shaped
from regard.errors import EngineRefusal
from regard.masks import Mask
from regard.modes import constant, is_transforming
from regard.planner import find_engine
from regard.problem import AttentionProblem, make_problem
from regard.scores import DotForm, Score
from regard.tensors import without_autocast
from regard.traced.description import describe
from regard.traced.operators import attend_operator, statistics_width
from regard.validation import refuse_jit_trace
from regard.weights import Softmax, Weights


def attend_traced(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    score: Score,
    weights: Weights,
    mask: Mask | None,
    dropout: float,
    engine: str | Engine | None,
    seed: int | Tensor | None = None,
) -> Tensor:
    """`attend`, while tracing; the seed of dropout is drawn if left out."""
    problem = make_problem(queries, keys, values, score=score, weights=weights, mask=mask, dropout=dropout, seed=seed)
    name = None if engine is None else _name_of(engine)
    if name == "reference" or is_transforming():
        refuse_jit_trace()
        return _by_definition(problem, name)
    if name in (None, "sdpa"):
        output = _straight(problem)
        if output is not None:
            return output
    refuse_jit_trace()
    training = problem.needs_gradient
    described = describe(problem.form, weights, mask, problem.dropout, name, training)
    if described is None:
        if engine is None:
            _say_so(type(score).__name__, type(weights).__name__, type(mask).__name__)
        return _by_definition(problem, name)
    shape, device = problem.output_shape, values.device
    output, _ = attend_operator(
        problem.values,
        [each if each.device == device else each.to(device) for each in described.tensors],
        described.numbers,
        problem.seed if isinstance(problem.seed, Tensor) else None,
        described.text,
        shape,
        statistics_width(weights, shape[-1]),
    )
    pooled: Tensor = output.to(problem.dtype)
    return pooled


def _name_of(engine: str | Engine) -> str:
    found = find_engine(engine)
    if ENGINES.get(found.name) is not found:
        raise EngineRefusal(
            f"While torch traces `attend`, `engine` must be one of {', '.join(ENGINES)}, by name: got {engine!r}. "
            f"Leave it out, or call attend outside torch.compile and torch.func."
        )
    return found.name


def _straight(problem: AttentionProblem) -> Tensor | None:
    """softmax(scale · QKᵀ)V without a mask, by PyTorch's own operator, which compilers know; None for all else."""
    form, rule, grid, values = problem.form, problem.rule, problem.grid, problem.values
    if type(form) is not DotForm or form.steps or type(rule) is not Softmax or rule.sink is not None:
        return None
    if problem.mask is not None or problem.dropout:
        return None
    # What `sdpa` refuses: an empty problem, other dtypes for scores and values, and where PyTorch would build n × m.
    if 0 in (*grid.batch_shape, grid.n_queries, grid.n_keys, form.left.shape[-1], values.shape[-1]):
        return None
    if form.left.dtype != values.dtype or (values.is_cuda and values.dtype == torch.float64):
        return None
    folded = fold(grid, form.left, form.right, values)
    if folded is None:
        return None
    with without_autocast(grid.device.type):
        call = Call(*folded, None, None, False, form.scale, values.shape[-1])
        return shaped(call.compute(), grid)


def _by_definition(problem: AttentionProblem, engine: str | None) -> Tensor:
    if engine not in (None, "reference"):
        raise EngineRefusal(
            f"`engine` must be 'reference' inside a transform of torch.func, and under torch.compile for scores, rules "
            f"and masks of your own: got {engine!r}. Leave it out."
        )
    return ENGINES["reference"].run(problem)


@constant
def _say_so(score: str, weights: str, mask: str) -> None:
    """Warn while tracing, once for the same three."""
    _warn(f"{score}, {weights}" if mask == "NoneType" else f"{score}, {weights} and mask {mask}")


@cache
def _warn(names: str) -> None:
    warnings.warn(
        f"attend is compiled by its definition, which builds n × m, because a function or class of your own is among "
        f"{names}. Outside torch.compile it would stream over tiles. "
        f'A call of attend that is to be so passes engine="reference"; of a model, leave that part uncompiled.',
        stacklevel=1,
    )
