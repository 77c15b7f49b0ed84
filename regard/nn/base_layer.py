"""What every attention layer has: a score, a rule, a mask, dropout. The one place where layers call attention."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from regard.attention import at_rest, weigh
from regard.engines.reference import define_weights, dropout_factors
from regard.errors import OptionError
from regard.masks import Mask, PerHead
from regard.modes import is_tracing
from regard.nn.pooled_outputs import show_pooled
from regard.nn.recording import attend_and_tell, note
from regard.planner import choose
from regard.problem import make_problem
from regard.scores import Bias, ScaledDot, Score
from regard.tensors import without_autocast
from regard.traced import attend_traced
from regard.validation import check_options
from regard.view.weights_view import WeightsView
from regard.weights import Softmax, Weights


def pool_and_weigh(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    *,
    score: Score,
    weights: Weights,
    mask: Mask | None,
    dropout: float,
) -> tuple[Tensor, Tensor]:
    """What `attend` gives, and the n × m weights as a tensor, those that dropout left; arguments as `attend`."""
    if not dropout and not is_tracing():
        view = weigh(queries, keys, values, score=score, weights=at_rest(weights, queries), mask=mask)
        return view.output, view.dense().to(values.dtype)  # as PyTorch's layer has them
    # A view has weights before dropout, and chooses its engine by what tensors hold, which nobody sees while torch
    # traces: weights come by their definition, and what is pooled by an engine, which drops the same.
    problem = make_problem(queries, keys, values, score=score, weights=weights, mask=mask, dropout=dropout, seed=None)
    with without_autocast(queries.device.type):
        dense = define_weights(problem)
        if dropout:
            dense = dense * dropout_factors(problem, None, dense.dtype)
    if is_tracing():
        pooled = attend_traced(queries, keys, values, score, weights, mask, dropout, None, problem.seed)
    else:
        pooled = choose(problem, None).run(problem)
    return pooled, dense.to(problem.dtype)


class AttentionLayer(nn.Module):
    """The base of attention layers: attention itself, once queries, keys and values are there.

    Args:
        score: a(q, k); qᵀk/√d if left out.
        weights: How scores become weights; softmax if left out.
        mask: Which keys each query may attend to, in every call; a list gives each head its own, None for one
            that attends to every key.
        dropout: The share of weights that are dropped in training.
    """

    score: Score
    weights: Weights
    dropout: float
    sharing = 1  # a recording keeps keys as `by_head` gives them

    def __init__(
        self,
        *,
        score: Score | None = None,
        weights: Weights | None = None,
        mask: Mask | Sequence[Mask | None] | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        if not 0.0 <= dropout < 1.0:
            raise OptionError(f"`dropout` must be in [0, 1): got {dropout}. It is the share of weights to drop.")
        score = ScaledDot() if score is None else score
        weights = Softmax() if weights is None else weights
        mask = PerHead(mask) if isinstance(mask, Sequence) and not isinstance(mask, str) else mask
        check_options(score, weights, mask)
        self.score, self.weights, self.mask = score, weights, mask
        self.dropout = dropout

    def pool(
        self, queries: Tensor, keys: Tensor, values: Tensor, *, mask: Mask | None = None, bias: Tensor | None = None
    ) -> Tensor:
        """Attention with this layer's score, rule and mask, and one call's own: `(..., n_queries, value_dim)`.

        Args:
            queries, keys, values: As for `regard.attend`.
            mask: What this call allows, besides the layer's own mask.
            bias: `(..., n_queries or 1, n_keys or 1)`, added to the scores.
        """
        options = self._options(queries, mask, bias)
        wanting = note(self, self, queries, keys, options)
        pooled = attend_and_tell(wanting, queries, keys, values, options, self._dropped())
        show_pooled(self, pooled, self.heads_of)
        return pooled

    def view(
        self, queries: Tensor, keys: Tensor, values: Tensor, *, mask: Mask | None = None, bias: Tensor | None = None
    ) -> WeightsView:
        """The weights that `pool` uses, before dropout, read without storing them; arguments as `pool`."""
        options = self._options(queries, mask, bias)
        note(self, self, queries, keys, options)
        return weigh(queries, keys, values, **options, dropout=self._dropped())

    def pool_and_weigh(
        self, queries: Tensor, keys: Tensor, values: Tensor, *, mask: Mask | None = None, bias: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """What `pool` gives, and the n × m weights as a tensor, those that dropout left; arguments as `pool`."""
        options = self._options(queries, mask, bias)
        note(self, self, queries, keys, options)
        pooled, dense = pool_and_weigh(queries, keys, values, **options, dropout=self._dropped())
        show_pooled(self, pooled, self.heads_of)
        return pooled, dense

    def own_mask(self) -> Mask | None:
        """The layer's mask, over all keys that its calls have."""
        return self.mask

    def by_head(self, queries: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
        """Queries and keys as a recording keeps them: with the batch axes that weights are read with."""
        return queries, keys

    def heads_of(self, pooled: Tensor) -> Tensor:
        """What `pool` gives as `(batch, heads, n_queries, value_dim)`: of one head, unless a layer has several."""
        return pooled.reshape(-1, 1, *pooled.shape[-2:])

    def blanks(self, batch: int, n_queries: int, n_keys: int) -> tuple[Tensor, Tensor]:
        """Queries and keys of zeros that take no memory, in the sizes that a call would have: to tell what it keeps."""
        raise OptionError(
            f"{type(self).__name__} does not know the sizes of its queries and keys before it is called: what a "
            f"recording keeps cannot be told. Record with a budget= instead."
        )

    def extra_repr(self) -> str:
        # Score and rule are modules, which torch writes below by itself; a mask is not.
        told = [] if self.mask is None else [f"mask={self.mask!r}"]
        return ", ".join([*told, f"dropout={self.dropout}"] if self.dropout else told)

    def _dropped(self) -> float:
        return self.dropout if self.training else 0.0

    def _options(self, queries: Tensor, mask: Mask | None, bias: Tensor | None) -> dict[str, Any]:
        masks = [each for each in (self.own_mask(), mask) if each is not None]
        both = masks[0] & masks[1] if len(masks) == 2 else masks[0] if masks else None
        return {
            "score": self.score if bias is None else self.score + Bias(bias),
            "weights": self.weights,
            "mask": both.to(queries.device) if isinstance(both, Mask) else both,  # what is no mask is refused with it
        }
