"""What researchers ask of a model's attention: rollout, entropies, distances and importances of heads.

All are computed from what `nn.record` kept, or from what heads pool and its gradient, by tiles: memory grows with the
number of tokens, not with its square. They hold for layers of `regard.nn`, for converted ones, and for models of
transformers that run on regard.

- `rollout`: S. Abnar and W. Zuidema, Quantifying Attention Flow in Transformers, ACL 2020.
- `mean_entropies`: K. Clark, U. Khandelwal, O. Levy and C. D. Manning, What Does BERT Look At?, BlackboxNLP 2019.
- `mean_distances`: J. Vig and Y. Belinkov, Analyzing the Structure of Attention in a Transformer Language Model,
  BlackboxNLP 2019.
- `head_importance`: P. Michel, O. Levy and G. Neubig, Are Sixteen Heads Really Better than One?, NeurIPS 2019.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import Lock
from types import TracebackType
from typing import Self

import torch
from torch import Tensor, nn

from regard.errors import MissingKey, OptionError, ShapeError
from regard.nn.layer_names import Layers, choose_layers, find_layers, one_of
from regard.nn.pooled_outputs import unwatch, watch
from regard.nn.recording import Recording
from regard.view.readings import WeightTotals
from regard.view.weighted import Distances, Mixtures, gather
from regard.view.weights_view import WeightsView

__all__ = ["HeadImportance", "head_importance", "mean_distances", "mean_entropies", "rollout"]


@torch.no_grad()
def rollout(seen: Recording | Sequence[WeightsView], tokens: Sequence[int]) -> Tensor:
    """How much of each input position reaches some tokens through all layers, `(batch, len(tokens), n)`.

    Attention rollout (Abnar and Zuidema, 2020): R = Ã_L ⋯ Ã₂ Ã₁, where Ã = (A + I) / 2 and A is the mean of a layer's
    heads; I stands for the residual connection. Rows of A + I are divided by their sum, which is 2 unless a query
    attends to nothing or to a sink. Each result is a row of R, and sums to 1.

    For a token the row eᵗ Ã_L ⋯ Ã₁ is a vector carried from the last layer to the first, so that no product of n × n
    matrices is formed: each layer takes two passes over its tiles, whatever the number of tokens.

    Args:
        seen: What `nn.record` kept of one pass through the layers of self-attention, in the order of the calls; or
            their views. Of a model that reads and writes record one side, as `layers="encoder"`.
        tokens: Positions behind the last of those layers; negative ones count from the end.

    Example:
        >>> import torch
        >>> from regard import nn
        >>> from regard.analysis import rollout
        >>> model = nn.Encoder(nn.EncoderLayer(16, 4, 32, batch_first=True), 3)
        >>> with nn.record(model) as seen, torch.no_grad():
        ...     output = model(torch.rand(2, 9, 16))
        >>> found = rollout(seen, [0, -1])
        >>> found.shape, torch.allclose(found.sum(-1), torch.ones(2, 2))
        (torch.Size([2, 2, 9]), True)
    """
    views = _square_views(seen, "rollout")
    for view in views:
        if view.kind not in ("convex", "one-hot", "uniform"):
            raise OptionError(
                f"rollout() must have weights that sum to 1: got {view.kind} ones. Use a rule such as Softmax()."
            )
    shapes = {view.shape[:-3] + view.shape[-2:] for view in views}
    if len(shapes) > 1:
        raise ShapeError(
            f"The layers of rollout() must attend among the same tokens: got weights {sorted(shapes)} besides heads. "
            f"Record one pass, of one side of the model: record(model, layers=...)."
        )
    n = views[0].shape[-1]
    places = torch.tensor(_places(tokens, n), dtype=torch.long)
    state = nn.functional.one_hot(places, n).float()  # (len(tokens), n)
    for view in reversed(views):
        total = gather(view, WeightTotals())[1].mean(-2)[..., None, :]  # Σ of each row, (*batch, 1, n)
        state = state.to(total.device) / (1 + total)
        state = state + gather(view, Mixtures(state[..., None, :, :])).mean(-3)
    return state


@torch.no_grad()
def mean_entropies(seen: Recording | Sequence[WeightsView], attention_mask: Tensor | None = None) -> Tensor:
    """The mean entropy of each head's rows in nats, `(layers, heads)`: from 0, one key, to ln n, all keys alike.

    The mean over queries of −Σ α ln α (Clark et al., 2019).

    Args:
        seen: What `nn.record` kept, or views. Rows are calls, in the order of `[name for name, _ in seen]`: a layer
            that was called several times, as by `generate`, has as many, and alone `mean_entropies(seen.views(name))`.
        attention_mask: `(batch, n_queries)`, 1 or True for tokens that are no padding, as a tokenizer gives it: those
            queries count; all if left out.

    Example:
        >>> import torch
        >>> from regard import weigh
        >>> from regard.analysis import mean_entropies
        >>> alike = torch.zeros(1, 2, 8, 4)
        >>> mean_entropies([weigh(alike, alike, alike)]).exp()
        tensor([[8.0000, 8.0000]])
    """
    found = []
    for view in _views(seen, "mean_entropies"):
        entropy = view.entropy().double()  # (*batch, heads, n_queries)
        counted = _counted(attention_mask, view)
        counted = torch.ones_like(entropy) if counted is None else counted.expand_as(entropy)
        sums, count = (each.sum(-1).flatten(0, -2).sum(0) for each in (entropy * counted, counted.double()))
        found.append((sums / count).float())
    return _stacked(found)


@torch.no_grad()
def mean_distances(seen: Recording | Sequence[WeightsView], attention_mask: Tensor | None = None) -> Tensor:
    """How many tokens away each head attends on average, `(layers, heads)`.

    Σ α(i, j) · |i − j| / Σ α(i, j), both over every query i and key j of every sequence (Vig and Belinkov, 2019).

    Args:
        seen: What `nn.record` kept of self-attention, every query of it; or views.
        attention_mask: As for `mean_entropies`.

    Example:
        >>> import torch
        >>> from regard import Causal, weigh
        >>> from regard.analysis import mean_distances
        >>> alike = torch.zeros(1, 1, 3, 4)
        >>> mean_distances([weigh(alike, alike, alike, mask=Causal())])  # 0, (0 + 1) / 2, (0 + 1 + 2) / 3, over 3 rows
        tensor([[0.5000]])
    """
    found = []
    for view in _square_views(seen, "mean_distances"):
        far, mass = gather(view, Distances(_counted(attention_mask, view)))
        far, mass = (each.flatten(0, -2).sum(0) for each in (far, mass))  # over sequences: (heads,)
        found.append((far / mass).float())
    return _stacked(found)


def head_importance(model: nn.Module, layers: Layers = None) -> HeadImportance:
    """How much a loss depends on each head, from calls and backward passes inside a `with`.

    The importance of Michel et al. (2019), I = E_x |∂L(x)/∂ξ|, where ξ = 1 is a factor on what the head pools: to first
    order, how much the loss of a text x changes if the head is left out. It is the sum of α · ∂L/∂α over all pairs,
    too: with o = Σⱼ αᵢⱼ vⱼ, what the head pools,

        Σⱼ αᵢⱼ ∂L/∂αᵢⱼ = Σⱼ αᵢⱼ (∂L/∂oᵢ · vⱼ) = oᵢ · ∂L/∂oᵢ,

    so that one backward pass gives it for all heads, without any n × m. (α here is what dropout left.)

    Args:
        model: Any module with layers of `regard.nn` in it, or a model of transformers that runs on regard.
        layers: Names or numbers of layers, as for `nn.record`; all if left out.

    A batch is that many texts, whose losses must be added, or one text a batch: under a mean over the batch each
    importance is that mean's share, and all are smaller by the same factor. Every call of the model counts, of every
    thread; calls that `torch.compile` traces do not.

    Example:
        >>> import torch
        >>> from regard import nn
        >>> from regard.analysis import head_importance
        >>> model = nn.Encoder(nn.EncoderLayer(16, 4, 32, batch_first=True), 2)
        >>> with head_importance(model) as importance:
        ...     model(torch.rand(3, 9, 16)).square().sum().backward()
        >>> importance.scores.shape
        torch.Size([2, 4])
    """
    return HeadImportance(model, layers)


class HeadImportance:
    """What `head_importance` found: `scores`, or `importance[layer]` for one layer by its name or number."""

    def __init__(self, model: nn.Module, layers: Layers) -> None:
        modules = choose_layers(model, layers, "watch")
        self._every = list(find_layers(model))
        self._names = {id(module): name for name, module in modules.items()}
        self._modules = modules  # kept alive: their ids are theirs while they live
        self._sums: dict[str, Tensor] = {}
        self._counts: dict[str, int] = dict.fromkeys(modules, 0)
        self._adding = Lock()  # gradients come from threads of autograd's

    @property
    def layers(self) -> list[str]:
        """The names of the layers."""
        return list(self._modules)

    @property
    def scores(self) -> Tensor:
        """The importance of every head, `(layers, heads)`, the mean over texts; of a layer called again, over calls."""
        return _stacked([self[name] for name in self.layers])

    def __getitem__(self, layer: str | int) -> Tensor:
        """The importance of the heads of one layer, `(heads,)`."""
        name = one_of(layer, self._counts, self._every)
        if not self._counts[name]:
            raise MissingKey(
                f"{name} must have been called, and a loss been differentiated, inside the `with`: got no gradient of "
                f"it. Call loss.backward() there, with parameters or inputs that require a gradient."
            )
        return self._sums[name] / self._counts[name]

    def see(self, owner: nn.Module, pooled: Tensor, heads_of: Callable[[Tensor], Tensor]) -> None:
        """Wait for the gradient of what a call pooled."""
        name = self._names.get(id(owner))
        if name is None or not pooled.requires_grad:
            return
        values = pooled.detach()

        def add(gradient: Tensor) -> None:
            with torch.no_grad():
                own, slope = (heads_of(each).float() for each in (values, gradient.detach()))
                found = (own * slope).sum((-2, -1)).abs()  # (batch, heads)
                with self._adding:
                    self._counts[name] += len(found)
                    self._sums[name] = found.sum(0) + self._sums.get(name, 0)

        pooled.register_hook(add)

    def __enter__(self) -> Self:
        watch(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        unwatch(self)

    def __repr__(self) -> str:
        told = sum(count > 0 for count in self._counts.values())
        return f"<HeadImportance of {len(self.layers)} layers: gradients of {told}>"


def _views(seen: Recording | Sequence[WeightsView], asked_by: str) -> list[WeightsView]:
    views = seen.views() if isinstance(seen, Recording) else list(seen)
    if not views or not all(isinstance(view, WeightsView) for view in views):
        got = "no call" if not views else ", ".join(sorted({type(view).__name__ for view in views}))
        raise OptionError(
            f"{asked_by}() must have a recording of calls, or views: got {got}. Pass what nn.record kept."
        )
    for view in views:
        if len(view.shape) < 3:
            raise ShapeError(
                f"{asked_by}() must have weights of heads, (..., heads, n_queries, n_keys): got {view.shape}. Give "
                f"queries, keys and values an axis of 1 for the head."
            )
    return views


def _square_views(seen: Recording | Sequence[WeightsView], asked_by: str) -> list[WeightsView]:
    views = _views(seen, asked_by)
    for view in views:
        if view.shape[-1] != view.shape[-2]:
            raise ShapeError(
                f"{asked_by}() must have weights of self-attention, every query of it: got {view.shape[-2]} queries "
                f"and {view.shape[-1]} keys. Record layers of self-attention, without rows=, in one call of the model."
            )
    return views


def _counted(attention_mask: Tensor | None, view: WeightsView) -> Tensor | None:
    """`(batch, 1, n_queries)`: 1 where a query counts."""
    if attention_mask is None:
        return None
    *batch, _, n_queries, _ = view.shape
    if tuple(attention_mask.shape) != (*batch, n_queries):
        raise ShapeError(
            f"`attention_mask` must be {(*batch, n_queries)} for weights {view.shape}: got "
            f"{tuple(attention_mask.shape)}. Pass 1 for each token and 0 for padding."
        )
    return (attention_mask != 0)[..., None, :]


def _places(tokens: Sequence[int], n: int) -> list[int]:
    if isinstance(tokens, int):
        raise OptionError(f"`tokens` must be a list of positions: got {tokens}. Use [{tokens}].")
    places = [int(place) for place in tokens]
    if not all(-n <= place < n for place in places):
        raise OptionError(f"`tokens` must be from {-n} to {n - 1}: got {places}.")
    return [place % n for place in places]


def _stacked(found: list[Tensor]) -> Tensor:
    """A row for each layer."""
    if len({each.shape for each in found}) > 1:
        raise ShapeError(
            f"Layers must have as many heads each to make one table: got {[len(each) for each in found]}. Name layers "
            f"of one kind."
        )
    return torch.stack(found)
