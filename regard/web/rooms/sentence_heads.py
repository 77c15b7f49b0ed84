"""One head of a long text, some of whose keys may be set aside."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

import torch

from regard.masks import KeyMask
from regard.nn.recording import _Recorded
from regard.planner import choose
from regard.view.levels import Levels
from regard.view.one_entry import one_entry
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
        alone = one_entry(view, (0, head))
        self._whole = view if alone is None else alone
        self._hidden = list(hidden)
        shown = without_keys(self._whole, hidden) if hidden else self._whole
        super().__init__(shown, (0, head if alone is None else 0))

    @cached_property
    def hidden_share(self) -> float:
        """Of the weight, that on hidden keys: the mean over some queries, evenly spaced."""
        if not self._hidden:
            return 0.0
        step = max(self.n_queries // SAMPLED, 1)
        return float(self._of_entry(self._whole.rows(slice(None, None, step)))[:, self._hidden].sum(-1).mean())


@torch.no_grad()
def without_keys(view: WeightsView, hidden: Sequence[int]) -> WeightsView:
    """The same where nobody attends to some keys: each row's weights are those of the others."""
    problem = view._problem
    shown = torch.ones(view.shape[-1], dtype=torch.bool)
    shown[list(hidden)] = False
    mask = KeyMask(shown) if problem.mask is None else problem.mask & KeyMask(shown)
    part = replace(problem, mask=mask).around(problem.form)
    return _Recorded(part, choose(part, None))
