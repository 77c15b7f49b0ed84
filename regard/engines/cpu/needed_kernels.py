"""Which kernels a problem may call, known before any of them is compiled. Imports no Numba."""

from __future__ import annotations

import math
from functools import lru_cache

from regard.engines.kernels.support import inner_rule
from regard.problem import AttentionProblem
from regard.scores.form import ChannelForm
from regard.weights import Entmax

# Fewer batch entries never share a call, on one thread neither: see `batched_calls.groups_of`.
FEWEST_ENTRIES = 4


def needed_kernels(problem: AttentionProblem, *, reads: bool = False) -> frozenset[str]:
    """The names of the kernels that may be called for a problem: forward, and backward if an input needs a gradient.

    Args:
        problem: One that `support.unsupported` says nothing against.
        reads: Whether its weights are read, as by a view.
    """
    form, (rule, choose) = problem.form, inner_rule(problem.rule)
    by_channels = isinstance(form, ChannelForm)
    masked = problem.mask is not None
    alike = not (by_channels or masked or problem.dropout or form.steps)
    return _needed(
        form.function if isinstance(form, ChannelForm) else None,
        isinstance(rule, Entmax),
        choose > 0,
        # Rows whose mask lists few keys gather them; channel scores always go by tiles.
        masked and not by_channels,
        alike and not choose and math.prod(problem.grid.batch_shape) >= FEWEST_ENTRIES,
        any(each.requires_grad for each in (*form.tensors(), problem.values, *problem.rule.learned())),
        reads,
    )


@lru_cache(maxsize=512)
def _needed(
    function: str | None, threshold: bool, choice: bool, lists: bool, groups: bool, training: bool, reads: bool
) -> frozenset[str]:
    names = set[str]()
    lists |= choice
    if choice:
        names |= {"best_k.best_strip", "tile_loops.score_span", "list_loops.score_listed"}
    if threshold:
        names |= {
            "tile_loops.score_span",
            "entmax_thresholds.entmax_strip",
            "list_loops.drop_strip",
            "list_loops.pool_weights",
        }
        names |= {"list_loops.score_listed"} if lists else set()
        names |= set() if choice else {"tile_loops.gather_span", "entmax_candidates.weigh_candidates"}
    else:
        names |= {"list_loops.pool_listed"} if lists else set()
        names |= set() if choice else {"tile_loops.pool_span"}
        names |= {"tile_loops.pool_entries"} if groups else set()
    if training:
        names |= {"list_loops.differentiate_listed"} if lists or threshold else set()
        names |= {"tile_loops.list_span"} if threshold and not choice else set()
        names |= set() if choice else {"tile_gradients.differentiate_span", "tile_gradients.turn"}
        names |= {"tile_gradients.differentiate_entries"} if groups else set()
    if reads:
        names |= {"row_readings.weigh_rows", "tile_readings.read_tile", "row_readings.sum_tile"}
        names |= {"list_loops.score_listed", "row_readings.spread_lists"} if lists else set()
        names |= set() if choice else {"tile_loops.score_span"} | (set() if threshold else {"row_readings.settle_best"})
    return frozenset(names | _channel_kernels(function, training))


def _channel_kernels(function: str | None, training: bool) -> set[str]:
    """Those of a score that sums over channels; tanh has three ways, chosen by the spread of the keys."""
    if function is None:
        return set()
    names = {"channel_loops.pack_keys", "channel_loops.pack_queries", f"channel.{function}_scores"}
    names |= {f"channel.{function}_gradients"} if training else set()
    if function == "tanh":
        names |= {"channel_tanh.take_in", "channel_tanh.pack_tanh_keys", "channel_tanh.pack_tanh_queries"}
        names |= {"channel.single_scores", "channel.shared_scores"}
        names |= {"channel.factored_gradients"} if training else set()
    return names
