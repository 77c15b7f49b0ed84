"""One head of a long text, some of whose keys may be set aside."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

import torch

from regard.masks import KeyMask
from regard.nn.recorded_slices import of_heads, part_of_mask
from regard.nn.recording import _Recorded
from regard.planner import choose
from regard.view.levels import Levels
from regard.view.weights_view import WeightsView

SAMPLED = 256  # queries of which the share of hidden keys is read


class LongHead(Levels):
    """One head of one layer of a long text, from its recorded queries and keys: never all of its weights at once.

    Args:
        view: Of all heads of the layer, `(1, heads, n_queries, n_keys)`.
        head: Which of them.
        hidden: Keys that are set aside: each query attends to the others alone.
    """

    def __init__(self, view: WeightsView, head: int, hidden: Sequence[int]) -> None:
        self._whole = one_head(view, head)
        self._hidden = list(hidden)
        super().__init__(without_keys(self._whole, hidden) if hidden else self._whole)

    @cached_property
    def hidden_share(self) -> float:
        """Of the weight, that on hidden keys: the mean over some queries, evenly spaced."""
        if not self._hidden:
            return 0.0
        step = max(self.n_queries // SAMPLED, 1)
        return float(self._whole.rows(slice(None, None, step))[0, 0][:, self._hidden].sum(-1).mean())


@torch.no_grad()
def one_head(view: WeightsView, head: int) -> WeightsView:
    """The view of one head of a recorded layer, of the first entry of the batch."""
    problem = view._problem
    n_heads, heads = problem.grid.batch_shape[-1], torch.tensor([head], device=problem.grid.device)
    form = problem.form.rebuilt(iter([of_heads(each, heads, n_heads) for each in problem.form.tensors()]))
    queries, keys, values = (of_heads(each, heads, n_heads) for each in (problem.queries, problem.keys, problem.values))
    mask = None if problem.mask is None else part_of_mask(problem.mask, None, heads, problem.grid)
    part = replace(problem, queries=queries, keys=keys, values=values, mask=mask).around(form)
    return _Recorded(part, choose(part, None))


@torch.no_grad()
def without_keys(view: WeightsView, hidden: Sequence[int]) -> WeightsView:
    """The same where nobody attends to some keys: each row's weights are those of the others."""
    problem = view._problem
    shown = torch.ones(view.shape[-1], dtype=torch.bool)
    shown[list(hidden)] = False
    mask = KeyMask(shown) if problem.mask is None else problem.mask & KeyMask(shown)
    part = replace(problem, mask=mask).around(problem.form)
    return _Recorded(part, choose(part, None))
