"""Multi-head attention."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn.functional import pad

from regard.masks import Mask
from regard.masks.extended import Followed
from regard.nn.cache import LayerCache
from regard.nn.input_checks import check_tensors, refuse_nested
from regard.nn.multi_head_checks import check_added_keys, check_masks, check_result, check_tokens
from regard.nn.nested_tensors import check_nested, nest, pad_nested
from regard.nn.positional_encoding import Rotary
from regard.nn.projected_heads import ProjectedHeads
from regard.nn.torch_masks import Restriction, read_masks
from regard.scores import Dot, ScaledDot, Score
from regard.view.weights_view import WeightsView
from regard.weights import Weights


class MultiHeadAttention(ProjectedHeads):
    """A drop-in for `torch.nn.MultiheadAttention`, for every score, rule and mask.

    Constructor, parameters (names, shapes, seeded initialisation), `forward` and what it returns are PyTorch's, and so
    is the meaning of its masks: True in `attn_mask` and `key_padding_mask` means "may not attend". (In `mask=`, as in
    all masks of regard, True means "may attend".) Two things differ. A fully masked query gets zeros before the output
    projection, with weights and without, where PyTorch returns NaN. And eval mode takes no fast path of its own.

    NaN in a token that is padding reaches no output but its own, and yet the gradient of the projections, as in
    PyTorch, since 0 · NaN is NaN: fill padding with numbers.

    It runs inside PyTorch's own layers too (`torch_layer.self_attn = ...`): their fused path for eval mode, which reads
    parameters and nothing else, is not taken, and nested tensors that their encoder makes are padded again.

    Args:
        embed_dim: The size of a token.
        num_heads: How many heads; each works on `embed_dim / num_heads` numbers.
        dropout: The share of weights that are dropped in training.
        bias: Whether projections add a bias.
        add_bias_kv: Whether a learned key and value follow those of every sequence.
        add_zero_attn: Whether a key and value of zeros follow them.
        kdim: The size of a key; `embed_dim` if left out.
        vdim: The size of a value; `embed_dim` if left out.
        batch_first: Whether tensors are `(batch, length, dim)`, not `(length, batch, dim)`.
        device: Where parameters are made.
        dtype: Their dtype.
        score: a(q, k) of each head; qᵀk/√d if left out.
        weights: How scores become weights; softmax if left out.
        mask: Which keys a query may attend to, in every call; a list of masks gives each head its own scope, None
            every key. It speaks of the sequence: keys that follow it are always seen.
        num_kv_heads: How many heads keys and values have, each shared by as many heads of queries; `num_heads` if left
            out.
        rotary: Turns queries and keys by their positions.

    Example:
        >>> import torch
        >>> from regard import Causal, Window, nn
        >>> layer = nn.MultiHeadAttention(16, 2, batch_first=True, mask=[Causal(), Window(before=2, after=2)])
        >>> x = torch.rand(3, 10, 16)
        >>> output, weights = layer(x, x, x)
        >>> output.shape, weights.shape
        (torch.Size([3, 10, 16]), torch.Size([3, 10, 10]))
        >>> layer.weigh(x, x, x).top(3).indices.shape
        torch.Size([3, 2, 10, 3])
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        score: Score | None = None,
        weights: Weights | None = None,
        mask: Mask | Sequence[Mask | None] | None = None,
        num_kv_heads: int | None = None,
        rotary: Rotary | None = None,
    ) -> None:
        super().__init__(
            embed_dim,
            num_heads,
            num_kv_heads=num_kv_heads,
            kdim=kdim,
            vdim=vdim,
            bias=bias,
            add_bias_kv=add_bias_kv,
            kind={"device": device, "dtype": dtype},
            score=score,
            weights=weights,
            mask=mask,
            dropout=dropout,
        )
        self.batch_first, self.add_zero_attn = batch_first, add_zero_attn
        self.rotary = rotary
        check_added_keys(self.score, self._n_added)

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
        *,
        mask: Mask | None = None,
        cache: LayerCache | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """The output, and the weights if they are needed.

        Args:
            query: `(length, batch, dim)`; `(batch, length, dim)` with `batch_first`; `(length, dim)` without a batch.
            key, value: Likewise, in their own length and size.
            key_padding_mask: `(batch, n_keys)`, True where a key is padding; numbers are added to scores.
            need_weights: Whether weights are returned: n × m numbers for each sequence. `weigh` reads them for less.
            attn_mask: `(n_queries, n_keys)` or `(batch · heads, n_queries, n_keys)`, True where a query may not attend;
                numbers are added to scores.
            average_attn_weights: Whether weights are averaged over heads.
            is_causal: A promise that `attn_mask` is the causal one.
            mask: One of regard's masks for this call, in which True means "may attend".
            cache: Keys and values of earlier calls, which these join; a fixed one keeps those of the first.

        Returns:
            (output in the layout of `query`, weights `(batch, n_queries, n_keys)` or None); weights that are not
            averaged have an axis of heads after the batch. In training they are those that dropout left, scaled up.
        """
        check_tensors(query=query, key=key, value=value)
        if query.is_nested or key.is_nested or value.is_nested:
            alone = not need_weights and all(each is None for each in (attn_mask, key_padding_mask, mask, cache))
            return self._forward_nested(query, key, value, alone), None
        batched = query.ndim == 3
        queries, keys, values, restriction = self._prepare(
            query,
            key,
            value,
            key_padding_mask,
            attn_mask,
            is_causal,
            cache,
            mask,
            trusted=not need_weights,
            view=need_weights,
        )
        mask = restriction.mask
        weights: Tensor | None = None
        if need_weights:
            pooled, weights = self.pool_and_weigh(queries, keys, values, mask=mask, bias=restriction.bias)
            weights = weights.mean(1) if average_attn_weights else weights
            weights = weights if batched else weights.squeeze(0)
        else:
            pooled = self.pool(queries, keys, values, mask=mask, bias=restriction.bias)
        check_result(pooled.shape, queries.shape)
        return self._restore(pooled, batched), weights

    def _forward_nested(self, query: Tensor, key: Tensor, value: Tensor, alone: bool) -> Tensor:
        """The output for what PyTorch's TransformerEncoder makes of sequences with padding."""
        learning = self.training and torch.is_grad_enabled()
        check_nested(query, key, value, alone=alone, learning=learning, batch_first=self.batch_first, mask=self.mask)
        tokens, lengths = pad_nested(query)
        padding = torch.arange(tokens.shape[1]) >= torch.tensor(lengths)[:, None]
        output, _ = self.forward(tokens, tokens, tokens, padding.to(tokens.device), need_weights=False)
        return nest(output, lengths)

    def weigh(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        attn_mask: Tensor | None = None,
        is_causal: bool = False,
        *,
        mask: Mask | None = None,
        cache: LayerCache | None = None,
    ) -> WeightsView:
        """The weights of every head, `(batch, num_heads, n_queries, n_keys)`, read without storing n × m of them.

        Arguments as `forward`. `view.output` is what heads pooled, before the output projection.
        """
        refuse_nested(query=query, key=key, value=value)
        queries, keys, values, restriction = self._prepare(
            query, key, value, key_padding_mask, attn_mask, is_causal, cache, mask, view=True
        )
        view = self.view(queries, keys, values, mask=restriction.mask, bias=restriction.bias)
        check_result(view.shape, queries.shape)
        return view

    def attend_and_weigh(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        attn_mask: Tensor | None = None,
        is_causal: bool = False,
        *,
        mask: Mask | None = None,
        cache: LayerCache | None = None,
        top: int | None = None,
    ) -> tuple[Tensor, WeightsView]:
        """The output as `forward` gives it, and a view of the weights in place of a tensor; arguments as `forward`.

        Args:
            top: How many of the heaviest weights of each query `view.top` will be asked for. Without a gradient they
                are found while the output is computed, which is nearly as fast as the output alone.

        Example:
            >>> import torch
            >>> from regard import nn
            >>> layer, x = nn.MultiHeadAttention(16, 2, batch_first=True), torch.rand(3, 100, 16)
            >>> output, view = layer.attend_and_weigh(x, x, x, top=8)
            >>> output.shape, view.top(8).weights.shape
            (torch.Size([3, 100, 16]), torch.Size([3, 2, 100, 8]))
        """
        view = self.weigh(query, key, value, key_padding_mask, attn_mask, is_causal, mask=mask, cache=cache)
        if top is not None:
            view.collect(top=top, output=True)
        return self._restore(view.output, batched=query.ndim == 3), view

    def _prepare(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None,
        attn_mask: Tensor | None,
        is_causal: bool,
        cache: LayerCache | None,
        mask: Mask | None,
        *,
        trusted: bool = True,
        view: bool = False,
    ) -> tuple[Tensor, Tensor, Tensor, Restriction]:
        """Queries, keys and values of every head, `(batch, heads, n, head_dim)`, and what masks come to."""
        sizes, dtype = (self.embed_dim, self.kdim, self.vdim), self._dtype
        check_tokens(query, key, value, sizes=sizes, batch_first=self.batch_first, dtype=dtype)
        batched = query.ndim == 3
        if not batched:
            query, key, value = _each_once(lambda x: x.unsqueeze(0), query, key, value)
        elif not self.batch_first:
            query, key, value = _each_once(lambda x: x.transpose(0, 1), query, key, value)
        batch, n_queries, _ = query.shape
        n_keys = key.shape[1] + (0 if cache is None or cache.is_fixed else cache.length)
        # Before the cache takes anything: what is refused must leave it as it was.
        check_masks(
            key_padding_mask,
            attn_mask,
            batch=batch if batched else None,
            heads=self.num_heads,
            n_queries=n_queries,
            n_keys=n_keys,
            is_causal=is_causal,
        )
        start = 0 if cache is None else cache.position
        if cache is not None and cache.has_memory:
            queries, (keys, values) = self._projected_query(query), cache.recall(*key.shape[:2])
        else:
            queries, keys, values = self._project(query, key, value)
            keys = keys if self.rotary is None else self.rotary(keys, start)
            if cache is not None:
                keys, values = cache.extend(keys, values)
                if view:
                    # A cache writes behind what is seen here: for a view that is no change, so it is not counted.
                    keys, values = (each if each.requires_grad else each.data for each in (keys, values))
        queries = queries if self.rotary is None else self.rotary(queries, start)
        if cache is not None:
            cache.advance(queries.shape[-2])
        n_added = self._n_added
        if n_added:  # after the cache, which has the sequence alone: what follows it follows every step
            keys, values = self._with_added(keys, values)
        restriction = read_masks(
            attn_mask,
            key_padding_mask,
            batch=batch,
            heads=self.num_heads,
            added_keys=n_added,
            is_causal=is_causal and trusted and key_padding_mask is None,
        )
        if self.num_kv_heads != self.num_heads:
            by_head = view or self._has_heads(restriction, mask)
            queries, keys, values = self._share_keys(queries, keys, values, by_head)
        joined = _joined(restriction.mask, self._over_added(mask))
        return queries, keys, values, Restriction(joined, restriction.bias)

    def _has_heads(self, restriction: Restriction, mask: Mask | None) -> bool:
        """Whether anything but queries, keys and values has batch axes, which must line up with `(batch, heads)`."""
        return (
            restriction.mask is not None
            or restriction.bias is not None
            or not isinstance(self.score, Dot | ScaledDot)
            or bool(self.weights.batch_shape)
            or any(bool(each.batch_axes().batch_shape) for each in (self.mask, mask) if each is not None)
        )

    def _share_keys(
        self, queries: Tensor, keys: Tensor, values: Tensor, by_head: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Each head of keys for several of queries: by an axis of one that broadcasts, or copied for each head."""
        repeat = self.num_heads // self.num_kv_heads
        if by_head:
            return queries, keys.repeat_interleave(repeat, 1), values.repeat_interleave(repeat, 1)
        return queries.unflatten(1, (self.num_kv_heads, repeat)), keys.unsqueeze(2), values.unsqueeze(2)

    @property
    def _n_added(self) -> int:
        """How many keys follow those of every sequence."""
        return (self.bias_k is not None) + self.add_zero_attn

    def _with_added(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values with those that follow every sequence: the learned one, and the one of zeros."""
        if self.bias_k is not None and self.bias_v is not None:
            keys, values = (
                torch.cat([each, self._heads(bias).expand(each.shape[0], -1, -1, -1)], -2)
                for each, bias in ((keys, self.bias_k), (values, self.bias_v))
            )
        if self.add_zero_attn:
            keys, values = pad(keys, (0, 0, 0, 1)), pad(values, (0, 0, 0, 1))
        return keys, values

    def _over_added(self, mask: Mask | None) -> Mask | None:
        """A mask of the sequence, over the keys that follow it too: those are always seen."""
        return Followed(mask, self._n_added) if mask is not None and self._n_added else mask

    def own_mask(self) -> Mask | None:
        return self._over_added(self.mask)

    def _restore(self, pooled: Tensor, batched: bool) -> Tensor:
        """The heads' outputs side by side, projected, in the layout that came in."""
        output: Tensor = self.out_proj(self.heads_of(pooled).transpose(1, 2).flatten(2))
        if not batched:
            return output.squeeze(0)
        return output if self.batch_first else output.transpose(0, 1)

    def by_head(self, queries: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
        if queries.ndim == 4:
            return queries, keys
        return queries.flatten(1, 2), keys.expand(-1, -1, queries.shape[2], -1, -1).flatten(1, 2)

    def heads_of(self, pooled: Tensor) -> Tensor:
        return pooled if pooled.ndim == 4 else pooled.flatten(1, 2)  # heads that share keys have an axis of their own

    def blanks(self, batch: int, n_queries: int, n_keys: int) -> tuple[Tensor, Tensor]:
        queries, keys = (
            self.out_proj.weight.new_zeros(()).expand(batch, self.num_heads, n, self.head_dim)
            for n in (n_queries, n_keys + self._n_added)
        )
        return queries, keys

    def extra_repr(self) -> str:
        shared = "" if self.num_kv_heads == self.num_heads else f", num_kv_heads={self.num_kv_heads}"
        own = f"{self.embed_dim}, {self.num_heads}{shared}, batch_first={self.batch_first}"
        return ", ".join(filter(None, (own, super().extra_repr())))


def _each_once(change: Callable[[Tensor], Tensor], *tensors: Tensor) -> list[Tensor]:
    """Change tensors such that those which are one stay one: what is projected together is found by that."""
    changed = {id(each): change(each) for each in tensors}
    return [changed[id(each)] for each in tensors]


def _joined(first: Mask | None, second: Mask | None) -> Mask | None:
    if first is None or second is None:
        return second if first is None else first
    return first & second
