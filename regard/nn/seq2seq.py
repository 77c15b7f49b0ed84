"""A recurrent encoder-decoder with attention: each generated token attends to the source."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from regard.errors import ShapeError
from regard.masks import Allowed, Mask
from regard.nn.attention_layer import Attention
from regard.nn.decoding_step import State, check_source, check_token_numbers
from regard.scores import Additive, Score
from regard.weights import Weights


@dataclass
class _Memory:
    """The source as read, and where the writer stands."""

    keys: Tensor  # (batch, n, 2 · hidden)
    mask: Mask | None
    padding: Tensor | None
    hidden: tuple[Tensor, Tensor]  # (layers, batch, hidden) each
    context: Tensor  # (batch, 1, 2 · hidden): what was attended to last

    def reorder(self, index: Tensor) -> None:
        self.keys, self.context = self.keys.index_select(0, index), self.context.index_select(0, index)
        self.hidden = (self.hidden[0].index_select(1, index), self.hidden[1].index_select(1, index))
        if self.padding is not None:
            self.padding = self.padding.index_select(0, index)
            self.mask = _visible(self.padding)


class Seq2Seq(nn.Module):
    """A bidirectional LSTM encoder, and an LSTM decoder that attends to its states.

    Additive attention is Bahdanau's; `score=Multiplicative(hidden, 2 * hidden)` is Luong's. With either, the decoder
    attends with its new state, as Luong's does, and the context is fed to the next step.

    Args:
        source_vocabulary, target_vocabulary: How many tokens there are.
        hidden: The size of the decoder's state, and of the encoder's in each direction.
        embedding: The size of a token's vector; `hidden` if left out.
        layers: How many layers encoder and decoder have.
        dropout: The share that is dropped in training.
        score: a(state, memory); `Additive(hidden, 2 * hidden, hidden)` if left out.
        weights: How scores become weights; softmax if left out.

    Example:
        >>> import torch
        >>> from regard import nn
        >>> model = nn.Seq2Seq(source_vocabulary=10, target_vocabulary=8, hidden=16)
        >>> model(torch.randint(10, (2, 5)), torch.randint(8, (2, 3))).shape
        torch.Size([2, 3, 8])
    """

    def __init__(
        self,
        source_vocabulary: int,
        target_vocabulary: int,
        hidden: int,
        *,
        embedding: int | None = None,
        layers: int = 1,
        dropout: float = 0.0,
        score: Score | None = None,
        weights: Weights | None = None,
    ) -> None:
        super().__init__()
        embedding = hidden if embedding is None else embedding
        between = dropout if layers > 1 else 0.0
        self.source_embedding = nn.Embedding(source_vocabulary, embedding)
        self.target_embedding = nn.Embedding(target_vocabulary, embedding)
        self.reader = nn.LSTM(embedding, hidden, layers, batch_first=True, dropout=between, bidirectional=True)
        self.writer = nn.LSTM(embedding + 2 * hidden, hidden, layers, batch_first=True, dropout=between)
        self.first_hidden = nn.Linear(2 * hidden, hidden)
        self.first_cell = nn.Linear(2 * hidden, hidden)
        self.attention = Attention(Additive(hidden, 2 * hidden, hidden) if score is None else score, weights)
        self.mixed = nn.Linear(embedding + 3 * hidden, hidden)
        self.output = nn.Linear(hidden, target_vocabulary)
        self.dropout = nn.Dropout(dropout)

    @property
    def alignment(self) -> list[str]:
        """The names of the cross-attention layers."""
        return ["attention"]

    def forward(self, source: Tensor, target: Tensor, source_padding: Tensor | None = None) -> Tensor:
        """Logits of the token after each of the target's, `(batch, n_target, target_vocabulary)`.

        Args:
            source: Token numbers, `(batch, n)`.
            target: Token numbers, `(batch, n_target)`, the start before them.
            source_padding: `(batch, n)`, True where there is no token; every sequence has at least one.
        """
        memory = self.start(source, source_padding)
        check_token_numbers("target", target, self.target_embedding.num_embeddings)
        if target.shape[0] != source.shape[0]:
            raise ShapeError(
                f"`target` must be (batch, n_target) token ids, one sequence for each source: got "
                f"{tuple(target.shape)} for {source.shape[0]} sources."
            )
        if target.shape[1] == 0:
            return memory.keys.new_zeros(target.shape[0], 0, self.output.out_features)
        embedded = self.dropout(self.target_embedding(target))
        states, contexts = [], []
        for place in range(target.shape[1]):
            state = self._advance(embedded[:, place : place + 1], memory)
            states.append(state)
            contexts.append(memory.context)
        return self._scores(embedded, torch.cat(states, 1), torch.cat(contexts, 1))

    def start(self, source: Tensor, source_padding: Tensor | None = None) -> _Memory:
        """Encode the source."""
        check_source(source, source_padding, self.source_embedding.num_embeddings)
        if source.shape[1] == 0:
            raise ShapeError(
                f"Every sequence must have a token to be read: got a source of {tuple(source.shape)}. "
                f"Leave empty sequences out."
            )
        embedded = self.dropout(self.source_embedding(source))
        if source_padding is None:
            keys, (hidden, cell) = self.reader(embedded)
        else:
            lengths = (~source_padding).sum(-1).cpu()
            if bool((source_padding[:, :-1] & ~source_padding[:, 1:]).any()) or not bool(lengths.all()):
                raise ShapeError(
                    f"Padding must come after the tokens of a sequence, and every sequence must have a token: got "
                    f"{lengths.tolist()} tokens. Move padding to the end, and leave empty sequences out."
                )
            packed = pack_padded_sequence(embedded, lengths, batch_first=True, enforce_sorted=False)
            packed_keys, (hidden, cell) = self.reader(packed)
            keys, _ = pad_packed_sequence(packed_keys, batch_first=True, total_length=source.shape[1])
        # The last layer's states, one direction after the other, become the writer's first.
        first = (torch.tanh(self.first_hidden(_both(hidden))), self.first_cell(_both(cell)))
        return _Memory(
            self.dropout(keys),
            None if source_padding is None else _visible(source_padding),
            source_padding,
            first,
            keys.new_zeros(keys.shape[0], 1, keys.shape[2]),
        )

    def step(self, tokens: Tensor, state: State) -> Tensor:
        """Logits of the next token, `(batch, target_vocabulary)`, after `tokens`, `(batch,)`."""
        assert isinstance(state, _Memory)
        embedded = self.dropout(self.target_embedding(tokens[:, None]))
        hidden = self._advance(embedded, state)
        return self._scores(embedded, hidden, state.context).squeeze(1)

    def _advance(self, embedded: Tensor, memory: _Memory) -> Tensor:
        """The decoder's state after one more token."""
        state, memory.hidden = self.writer(torch.cat([embedded, memory.context], -1), memory.hidden)
        memory.context = self.attention(state, memory.keys, memory.keys, mask=memory.mask)
        return state  # type: ignore[no-any-return]

    def _scores(self, embedded: Tensor, states: Tensor, contexts: Tensor) -> Tensor:
        mixed = torch.tanh(self.mixed(torch.cat([embedded, states, contexts], -1)))
        return self.output(self.dropout(mixed))  # type: ignore[no-any-return]


def _both(state: Tensor) -> Tensor:
    """`(layers · 2, batch, hidden)` as `(layers, batch, 2 · hidden)`."""
    return torch.cat([state[0::2], state[1::2]], -1)


def _visible(padding: Tensor) -> Mask:
    return Allowed(~padding[:, None, :])
