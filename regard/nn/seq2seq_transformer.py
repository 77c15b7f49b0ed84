"""A sequence-to-sequence Transformer: embeddings, positions, encoder, decoder, and logits of the next token."""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor, nn

from regard.masks import Causal
from regard.nn.base_layer import AttentionLayer
from regard.nn.cache import KeyValueCache
from regard.nn.decoder import Decoder
from regard.nn.decoding_step import State, check_source, check_token_numbers
from regard.nn.multi_head import MultiHeadAttention
from regard.nn.positional_encoding import Rotary, SinusoidalPositions
from regard.nn.transformer import Transformer
from regard.scores import Score
from regard.weights import Weights


@dataclass
class _Memory:
    """The source as read, and the keys and values of what was written."""

    memory: Tensor  # (batch, n, dim)
    padding: Tensor | None
    cache: KeyValueCache

    def reorder(self, index: Tensor) -> None:
        self.memory = self.memory.index_select(0, index)
        self.padding = None if self.padding is None else self.padding.index_select(0, index)
        self.cache.reorder(index)


class Seq2SeqTransformer(nn.Module):
    """The Transformer of "Attention is all you need" from token ids to logits, pre-norm by default.

    Args:
        source_vocabulary, target_vocabulary: How many tokens there are.
        dim: The size of a token's vector; even.
        heads: How many heads.
        layers: How many layers encoder and decoder have.
        feed_forward: The hidden size of the feed-forward parts; 4 · dim if left out.
        dropout: The share that is dropped in training.
        attention_dropout: The share of attention weights that are dropped; `dropout` if left out.
        norm_first: Pre-norm; post-norm if False.
        rotary: Whether every attention also goes by distance (`Rotary`), cross-attention too: for sequences
            that run alongside each other, as letters and sounds do.
        score, weights: Of every attention.

    Example:
        >>> import torch
        >>> from regard import nn
        >>> model = nn.Seq2SeqTransformer(source_vocabulary=10, target_vocabulary=8, dim=16, heads=4, layers=2)
        >>> model(torch.randint(10, (2, 5)), torch.randint(8, (2, 3))).shape
        torch.Size([2, 3, 8])
    """

    def __init__(
        self,
        source_vocabulary: int,
        target_vocabulary: int,
        dim: int,
        heads: int,
        layers: int,
        *,
        feed_forward: int | None = None,
        dropout: float = 0.1,
        attention_dropout: float | None = None,
        norm_first: bool = True,
        rotary: bool = False,
        score: Score | None = None,
        weights: Weights | None = None,
    ) -> None:
        super().__init__()
        self.source_embedding = nn.Embedding(source_vocabulary, dim)
        self.target_embedding = nn.Embedding(target_vocabulary, dim)
        self.positions = SinusoidalPositions(dim)
        self.dropout = nn.Dropout(dropout)
        self.transformer = Transformer(
            dim,
            heads,
            layers,
            layers,
            4 * dim if feed_forward is None else feed_forward,
            dropout,
            batch_first=True,
            norm_first=norm_first,
            score=score,
            weights=weights,
        )
        if attention_dropout is not None:
            for module in self.transformer.modules():
                if isinstance(module, AttentionLayer):
                    module.dropout = attention_dropout
        if rotary:
            for module in self.transformer.modules():
                if isinstance(module, MultiHeadAttention):
                    module.rotary = Rotary(dim // heads)
        self.output = nn.Linear(dim, target_vocabulary)
        self.scale = math.sqrt(dim)
        for embedding in (self.source_embedding, self.target_embedding):
            nn.init.normal_(embedding.weight, std=dim**-0.5)

    @property
    def alignment(self) -> list[str]:
        """The names of the cross-attention layers."""
        return [f"transformer.decoder.layers.{place}.multihead_attn" for place in range(len(self._decoder.layers))]

    @property
    def _decoder(self) -> Decoder:
        decoder = self.transformer.decoder
        assert isinstance(decoder, Decoder)
        return decoder

    def forward(self, source: Tensor, target: Tensor, source_padding: Tensor | None = None) -> Tensor:
        """Logits of the token after each of the target's, `(batch, n_target, target_vocabulary)`.

        Args:
            source: Token numbers, `(batch, n)`.
            target: Token numbers, `(batch, n_target)`, the start before them.
            source_padding: `(batch, n)`, True where there is no token.
        """
        check_source(source, source_padding, self.source_embedding.num_embeddings)
        check_token_numbers("target", target, self.target_embedding.num_embeddings)
        decoded = self.transformer(
            self._embed(self.source_embedding, source),
            self._embed(self.target_embedding, target),
            tgt_mask=Causal(),
            src_key_padding_mask=source_padding,
            memory_key_padding_mask=source_padding,
        )
        return self.output(decoded)  # type: ignore[no-any-return]

    def start(self, source: Tensor, source_padding: Tensor | None = None) -> _Memory:
        """Encode the source."""
        check_source(source, source_padding, self.source_embedding.num_embeddings)
        embedded = self._embed(self.source_embedding, source)
        memory = self.transformer.encoder(embedded, src_key_padding_mask=source_padding)
        return _Memory(memory, source_padding, KeyValueCache(len(self._decoder.layers)))

    def step(self, tokens: Tensor, state: State) -> Tensor:
        """Logits of the next token, `(batch, target_vocabulary)`, after `tokens`, `(batch,)`."""
        assert isinstance(state, _Memory)
        embedded = self._embed(self.target_embedding, tokens[:, None], state.cache.length)
        decoded = self._decoder(embedded, state.memory, memory_key_padding_mask=state.padding, cache=state.cache)
        return self.output(decoded).squeeze(1)  # type: ignore[no-any-return]

    def _embed(self, embedding: nn.Module, tokens: Tensor, start: int = 0) -> Tensor:
        return self.dropout(self.positions(embedding(tokens) * self.scale, start))  # type: ignore[no-any-return]
