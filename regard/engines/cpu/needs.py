"""Which kernels a problem may call, known before any of them is compiled. Imports no Numba."""

from __future__ import annotations

import math
from functools import lru_cache

from regard.engines.cpu.vocabulary import inner_rule
from regard.problem import AttentionProblem
from regard.scores.form import ChannelForm
from regard.weights import Entmax

# Fewer batch entries never share a call, on one thread neither: see `groups.groups_of`.
FEWEST_ENTRIES = 8


def needed_kernels(problem: AttentionProblem, *, reads: bool = False) -> frozenset[str]:
    """The names of the kernels that may be called for a problem: forward, and backward if an input needs a gradient.

    Args:
        problem: One that `vocabulary.unsupported` says nothing against.
        reads: Whether its weights are read, as by a view.
    """
    form, (rule, choose) = problem.form, inner_rule(problem.weights)
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
        any(each.requires_grad for each in (*form.tensors(), problem.values, *problem.weights.learned())),
        reads,
    )


@lru_cache(maxsize=512)
def _needed(
    function: str | None, threshold: bool, choice: bool, lists: bool, groups: bool, training: bool, reads: bool
) -> frozenset[str]:
    names = set[str]()
    lists |= choice
    if choice:
        names |= {"best.best_strip", "spans.score_span", "listed.score_listed"}
    if threshold:
        names |= {"spans.score_span", "thresholds.entmax_strip", "listed.drop_strip", "listed.pool_weights"}
        names |= {"listed.score_listed"} if lists else set()
        names |= set() if choice else {"spans.gather_span", "candidates.weigh_candidates"}
    else:
        names |= {"listed.pool_listed"} if lists else set()
        names |= set() if choice else {"spans.pool_span"}
        names |= {"spans.pool_entries"} if groups else set()
    if training:
        names |= {"listed.differentiate_listed"} if lists or threshold else set()
        names |= {"spans.list_span"} if threshold and not choice else set()
        names |= set() if choice else {"spans.differentiate_span", "spans.turn"}
        names |= {"spans.differentiate_entries"} if groups else set()
    if reads:
        names |= {"weighing.weigh_rows", "readings.read_tile", "weighing.sum_tile"}
        names |= {"listed.score_listed", "weighing.spread_lists"} if lists else set()
        names |= set() if choice else {"spans.score_span"} | (set() if threshold else {"weighing.settle_best"})
    return frozenset(names | _channel_kernels(function, training))


def _channel_kernels(function: str | None, training: bool) -> set[str]:
    """Those of a score that sums over channels; tanh has three ways, chosen by the spread of the keys."""
    if function is None:
        return set()
    names = {"channel_loops.pack_keys", "channel_loops.pack_queries", f"channel._{function}_scores"}
    names |= {f"channel._{function}_gradients"} if training else set()
    if function == "tanh":
        names |= {"channel_tanh.take_in", "channel_tanh.pack_tanh_keys", "channel_tanh.pack_tanh_queries"}
        names |= {"channel._single_scores", "channel._shared_scores"}
        names |= {"channel._factored_gradients"} if training else set()
    return names
