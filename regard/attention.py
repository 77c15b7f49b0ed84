"""Attention: problem → plan → run. The file to read first.

Attention(q, D) = Σ_i α(q, k_i) · v_i        D = {(k_1, v_1), …, (k_m, v_m)}
"""

from __future__ import annotations

import torch
from torch import Tensor

from regard.engines import Engine
from regard.engines.cuda.small_calls import kind_of_call, pool_again, remember, watch
from regard.engines.cuda.tiny_calls import pool_admitted, pool_known, tiny_call
from regard.engines.sdpa.shortcut import pool_plainly
from regard.masks import Mask
from regard.modes import is_forward_mode, is_tracing
from regard.partials import Partial, start_partial
from regard.planner import Plan, choose, explain
from regard.problem import make_problem
from regard.scores import ScaledDot, Score
from regard.traced import attend_traced
from regard.validation import refuse_jit_trace
from regard.view.weights_view import WeightsView
from regard.weights import Softmax, Weights

_SCALED_DOT = ScaledDot()
_SOFTMAX = Softmax()


def attend(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    *,
    score: Score = _SCALED_DOT,
    weights: Weights = _SOFTMAX,
    mask: Mask | None = None,
    dropout: float = 0.0,
    engine: str | Engine | None = None,
) -> Tensor:
    """The values pooled by attention, `(..., n_queries, value_dim)`.

    Attention(q, D) = Σ_i α(q, k_i) · v_i, where `score` says how similar a query and a key are, `mask` which keys a
    query may attend to, and `weights` how scores become α. A fully masked query gets zeros.

    Under torch.compile (with `fullgraph=True` too) and torch.export, a dot product under softmax without a mask is
    PyTorch's own operator, and all else is one operator, `regard::attend`, with a first derivative. `Custom`, `Where`,
    and scores' forms, rules and masks of your own are compiled by their definition, which builds n × m: a warning says
    so. Inside torch.vmap, torch.func.grad and the like everything goes by the definition. By the definition, NaN under
    a mask is not held back there, nor while a CUDA graph is captured. torch.jit.trace takes the first of these, a dot
    product under softmax without a mask; all else is refused there.

    Args:
        queries: `(..., n_queries, query_dim)`. Batch axes (heads among them) broadcast without copies.
        keys: `(..., n_keys, key_dim)`.
        values: `(..., n_keys, value_dim)`.
        score: a(q, k); qᵀk/√d if left out.
        weights: How scores become weights; softmax if left out.
        mask: Which keys each query may attend to; all if left out.
        dropout: The share of weights that are dropped, in [0, 1); the others are scaled by 1/(1 − dropout).
        engine: The name of an engine, or an `Engine`; the planner chooses if left out.

    Raises:
        ShapeError, DtypeError, DeviceError, OptionError, ScoreError: Something does not fit; the text says what to do.
        EngineRefusal: The engine asked for cannot compute this.

    Example:
        >>> import torch
        >>> from regard import Causal, attend
        >>> x = torch.eye(3)
        >>> attend(x, x, x, mask=Causal()).shape
        torch.Size([3, 3])
    """
    if is_tracing():
        return attend_traced(queries, keys, values, score, weights, mask, dropout, engine)
    kind = tiny = output = None
    if engine is None and not is_forward_mode():
        # The most common calls. What is below would come to the same, some microseconds later.
        if type(dropout) is float and dropout == 0.0:
            output = pool_plainly(queries, keys, values, score, weights, mask)
            if output is None and type(queries) is Tensor and queries.is_cuda:
                kind = kind_of_call(queries, keys, values, score, weights, mask)
                output = None if kind is None else pool_again(kind, queries, keys, values)
        if output is None and kind is None:
            tiny = tiny_call(queries, keys, values, score, weights, mask, dropout)
            output = None if tiny is None else pool_known(tiny, queries, keys, values)
        if output is not None:
            return output
    weights = at_rest(weights, queries)
    problem = make_problem(queries, keys, values, score=score, weights=weights, mask=mask, dropout=dropout, seed=None)
    chosen = choose(problem, engine)
    if tiny is not None:
        output = pool_admitted(tiny, problem, chosen)
    elif kind is not None:
        watch(problem)
        output = chosen.run(problem)
        remember(kind, problem)
    return chosen.run(problem) if output is None else output


def weigh(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    *,
    score: Score = _SCALED_DOT,
    weights: Weights = _SOFTMAX,
    mask: Mask | None = None,
    dropout: float = 0.0,
    engine: str | Engine | None = None,
) -> WeightsView:
    """A view of the weights α, which reads them without storing them; arguments as `attend`.

    Example:
        >>> import torch
        >>> from regard import weigh
        >>> view = weigh(torch.zeros(2, 4), torch.rand(5, 4), torch.rand(5, 3))
        >>> view.top(2).indices
        tensor([[0, 1],
                [0, 1]])
        >>> view.rows([0])
        tensor([[0.2000, 0.2000, 0.2000, 0.2000, 0.2000]])
    """
    refuse_jit_trace()
    problem = make_problem(queries, keys, values, score=score, weights=weights, mask=mask, dropout=dropout, seed=None)
    return WeightsView(problem, choose(problem, engine), asked=engine is not None)


def plan(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    *,
    score: Score = _SCALED_DOT,
    weights: Weights = _SOFTMAX,
    mask: Mask | None = None,
    dropout: float = 0.0,
    engine: str | Engine | None = None,
) -> Plan:
    """Which engine `attend` would take for these arguments, why, and why not the others.

    Example:
        >>> import torch
        >>> from regard import Additive, plan
        >>> q, k = torch.rand(512, 8), torch.rand(512, 8)
        >>> print(plan(q, k, k, score=Additive(8, 8, 16)))
        512 queries × 512 keys, float32 on cpu: Additive under Softmax
          engine: tiled, because it computes any score, rule and mask over tiles; ...; about ...; needs ...
          reference: supported, would need 36.0 MiB and about ...
          sdpa: not supported: Additive is not a dot product of projected queries and keys
    """
    weights = at_rest(weights, queries)
    problem = make_problem(queries, keys, values, score=score, weights=weights, mask=mask, dropout=dropout)
    return explain(problem, engine)


def partial(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    *,
    score: Score = _SCALED_DOT,
    weights: Weights = _SOFTMAX,
    mask: Mask | None = None,
) -> Partial:
    """Attention over a part of the keys, to be merged with other parts: for shards and rings.

    Arguments as `attend`. The parts' keys follow each other in the order in which they are merged; a positional mask
    or score must be aligned with its own part: `align=` an integer, where its first query stands among all keys, less
    where the part begins.

    Example:
        >>> import torch
        >>> from regard import attend, partial
        >>> q, k, v = torch.rand(2, 4), torch.rand(6, 4), torch.rand(6, 3)
        >>> merged = partial(q, k[:2], v[:2]).merge(partial(q, k[2:], v[2:])).finish()
        >>> torch.allclose(merged, attend(q, k, v))
        True
    """
    refuse_jit_trace()
    return start_partial(make_problem(queries, keys, values, score=score, weights=weights, mask=mask, all_keys=False))


def at_rest(weights: Weights, queries: Tensor) -> Weights:
    """The rule that computes the output: on a CPU, kernels know a learned one where it needs no gradient alone."""
    waits = not isinstance(queries, Tensor) or not queries.is_cpu or not isinstance(weights, Weights)
    return weights if waits or torch.is_grad_enabled() or is_forward_mode() else weights.at_rest()
