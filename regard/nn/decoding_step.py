"""Generation: the model's interface, its result, and one decoding step, which every method shares."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from regard.errors import DtypeError, OptionError, ScoreError, ShapeError
from regard.modes import is_hidden
from regard.nn.recording import record

_WHOLE = frozenset({torch.int64, torch.int32})  # what an embedding looks up


class State(Protocol):
    """The state of a model between decoding steps."""

    def reorder(self, index: Tensor) -> None:
        """Take the sequences at these places of the batch, each as often as it is named."""
        ...


class Writer(Protocol):
    """A model that generates a sequence from a source, token by token: `Seq2Seq`, `Seq2SeqTransformer`, or yours."""

    @property
    def alignment(self) -> list[str]:
        """The names of the cross-attention layers."""
        ...

    def start(self, source: Tensor, source_padding: Tensor | None = None) -> State:
        """Encode the source, `(batch, n)`; True in `source_padding` where there is none."""
        ...

    def step(self, tokens: Tensor, state: State) -> Tensor:
        """Logits of the next token, `(batch, vocabulary)`, after `tokens`, `(batch,)`."""
        ...


@dataclass(frozen=True)
class Written:
    """A generated sequence, and its attention `(layers, heads, n_tokens, n_source)` if that was kept.

    Row i of the attention is what token i attended to, so `attention[-1, 0]` is n_tokens × n_source: the map of the
    last layer's first head. The start and the stop are neither among the tokens nor among the rows.

    Example:
        >>> import torch
        >>> from regard import nn
        >>> model, source = nn.Seq2SeqTransformer(10, 8, 16, heads=4, layers=2).eval(), torch.tensor([[3, 4, 5]])
        >>> (written,) = nn.generate(model, source, start=1, stop=2, max_length=6, attention=True)
        >>> written.attention.shape == (2, 4, len(written.tokens), 3)
        True
        >>> written.attention[-1, 0].shape == written.attention.mean((0, 1)).shape == (len(written.tokens), 3)
        True
    """

    tokens: list[int]  # without the ones that start and stop it
    score: float  # the log probability of all tokens, the stop included
    complete: bool  # whether it ends with the stop; one that reached the limit may not
    attention: Tensor | None  # (layers, heads, n_tokens, n_source)


def write_step(
    model: Writer, tokens: Tensor, state: State, attention: bool, live: Tensor
) -> tuple[Tensor, Tensor | None]:
    """The log probabilities of the next token, and `(batch, layers, heads, n_source)` weights if they are wanted.

    `live` has True where a sequence goes on: what the model gives for others is ignored.
    """
    if not attention:
        return _log_probabilities(model.step(tokens, state), live), None
    with record(model, layers=model.alignment, budget=None) as recording:  # type: ignore[arg-type]
        scores = model.step(tokens, state)
    looks = []
    for view in recording.views():
        weights = view.dense()[..., -1, :]  # (batch, heads, n_source), or without heads
        looks.append(weights if weights.ndim == 3 else weights.unsqueeze(1))
    return _log_probabilities(scores, live), torch.stack(looks, 1)


def _log_probabilities(scores: Tensor, live: Tensor) -> Tensor:
    """In float32 at least; 0 where a sequence has ended."""
    normalized = scores.log_softmax(-1, dtype=torch.promote_types(scores.dtype, torch.float32))
    normalized = normalized.masked_fill(~live[:, None], 0.0)
    if bool(normalized.isnan().any()):
        raise ScoreError(
            "The model's scores of the next token must be numbers, one of them above −inf and none +inf: got others, "
            "from which no token follows. Look for NaN in its parameters and its input."
        )
    return normalized


def finish(row: list[int], stop: int, max_length: int, score: float, looks: list[Tensor]) -> Written:
    """The sequence up to its stop or the limit; `looks` has the weights of every token, and maybe of one more."""
    complete = stop in row
    length = row.index(stop) if complete else min(len(row), max_length)
    kept = torch.stack(looks, -2)[..., :length, :] if looks else None
    return Written(row[:length], score, complete, kept)


def check_source(source: Tensor, padding: Tensor | None, vocabulary: int | None = None) -> None:
    """That a source is `(batch, n)` token ids, and its padding True or False for each."""
    check_token_numbers("source", source, vocabulary)
    if padding is None:
        return
    if not isinstance(padding, Tensor) or padding.dtype != torch.bool:
        is_tensor = isinstance(padding, Tensor)
        got, tensor = (padding.dtype, "source_padding") if is_tensor else (type(padding).__name__, "torch.tensor(...)")
        raise DtypeError(f"Padding must be bool, True where there is no token: got {got}. Use {tensor}.bool().")
    if padding.shape != source.shape:
        raise ShapeError(
            f"`source` must be (batch, n), and padding the same: got {tuple(source.shape)} with padding "
            f"{tuple(padding.shape)}. Padding has an entry for each token of the source."
        )


def check_token_numbers(name: str, tokens: Tensor, vocabulary: int | None = None) -> None:
    """That tokens are `(batch, n)` whole numbers; on a CPU also that a vocabulary has them."""
    if not isinstance(tokens, Tensor) or tokens.dtype not in _WHOLE:
        got = tokens.dtype if isinstance(tokens, Tensor) else type(tokens).__name__
        raise DtypeError(f"`{name}` must be a tensor of token ids, (batch, n): got {got}. Use torch.tensor(ids).")
    if tokens.ndim != 2:
        raise ShapeError(f"`{name}` must be (batch, n) token ids: got {tuple(tokens.shape)}. Use {name}[None].")
    # Elsewhere looking would wait for the device.
    if vocabulary is None or not tokens.numel() or not tokens.is_cpu or is_hidden(tokens):
        return
    least, most = (int(each) for each in tokens.aminmax())
    if least < 0 or most >= vocabulary:
        raise OptionError(
            f"Token numbers of `{name}` must be from 0 to {vocabulary - 1}, the size of the vocabulary less 1: got "
            f"{least if least < 0 else most}. Build the model with the vocabulary of the tokenizer."
        )
