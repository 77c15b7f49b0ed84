"""Autoregressive generation: greedy, sampling, beam search, with the attention of every token kept."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from regard.errors import DtypeError, OptionError, ShapeError
from regard.nn.beam_search import BeamSearch
from regard.nn.decoding_step import Writer, Written, check_source, finish, write_step
from regard.nn.transformer import Transformer

Method = Literal["greedy", "sample", "beam"]


@torch.no_grad()
def generate(
    model: Writer,
    source: Tensor,
    *,
    start: int,
    stop: int,
    max_length: int = 64,
    method: Method = "greedy",
    beams: int = 4,
    length_penalty: float = 1.0,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    source_padding: Tensor | None = None,
    attention: bool = False,
    generator: torch.Generator | None = None,
) -> list[Written]:
    """The sequences that a model generates, one for each source.

    Args:
        model: Who writes: `Seq2Seq`, `Seq2SeqTransformer` or another `Writer`; in eval mode, or dropout will act.
        source: Token numbers, `(batch, n)`.
        start: The token that comes before the first.
        stop: The token after which a sequence ends.
        max_length: How many tokens a sequence has at most, the stop not counted. There beam search, which compares
            whole sequences, gives the stop to all it has; others end without it unless it is what they take.
        method: "greedy" takes the likeliest token, "sample" draws one, "beam" keeps the likeliest `beams` sequences.
        beams: How many sequences beam search keeps.
        length_penalty: Beam search compares log probability / length^this: 0 favours short sequences.
        temperature: Sampling divides scores by it.
        top_k: Sampling draws among so many of the likeliest tokens.
        top_p: Sampling draws among the likeliest tokens whose probabilities come to this.
        source_padding: `(batch, n)`, True where there is no token.
        attention: Whether the weights with which each token attended to the source are kept (`Written.attention`).
        generator: What sampling draws from.

    Returns:
        A `Written` for each source; by beam search the best.

    Example:
        >>> import torch
        >>> from regard import nn
        >>> model = nn.Seq2Seq(10, 8, 16).eval()
        >>> written = nn.generate(model, torch.tensor([[3, 4, 5]]), start=1, stop=2, max_length=4, attention=True)
        >>> written[0].attention.shape[-2:] == (len(written[0].tokens), 3)
        True
    """
    _check_writes(model)
    _check(max_length, method, beams, length_penalty, temperature, top_k, top_p)
    check_source(source, source_padding)
    if source.shape[0] == 0:
        raise ShapeError("`source` must be (batch, n) token ids: got no sequence. Pass at least one.")
    if attention and not (isinstance(model, nn.Module) and len(getattr(model, "alignment", ())) > 0):
        raise OptionError(
            f"With `attention` the model must be a module whose `alignment` names its cross-attention layers: "
            f"got {type(model).__name__}, which names none. Leave attention=True out, or name them."
        )
    if method == "beam":
        search = BeamSearch(model, source, source_padding, start, stop, max_length, attention, beams, length_penalty)
        return search.run()
    drawing = None if method == "greedy" else _Drawing(temperature, top_k, top_p, generator)
    return _write_straight(model, source, source_padding, start, stop, max_length, attention, drawing)


@dataclass(frozen=True)
class _Drawing:
    temperature: float
    top_k: int | None
    top_p: float | None
    generator: torch.Generator | None

    def draw(self, log_probabilities: Tensor) -> Tensor:
        """A token for each sequence."""
        likely = torch.log_softmax(log_probabilities / self.temperature, -1)
        if self.top_k is not None:
            places = likely.argsort(descending=True, stable=True, dim=-1)  # of equal ones, the lowest come first
            likely = likely.scatter(-1, places[:, self.top_k :], -torch.inf)
        if self.top_p is not None:
            ordered, places = likely.softmax(-1).sort(descending=True, stable=True, dim=-1)
            before = ordered.cumsum(-1) - ordered  # the first is always kept
            dropped = torch.zeros_like(before, dtype=torch.bool).scatter(-1, places, before >= self.top_p)
            likely = likely.masked_fill(dropped, -torch.inf)
        return torch.multinomial(likely.softmax(-1), 1, generator=self.generator).squeeze(-1)


def _write_straight(
    model: Writer,
    source: Tensor,
    padding: Tensor | None,
    start: int,
    stop: int,
    max_length: int,
    attention: bool,
    drawing: _Drawing | None,
) -> list[Written]:
    batch = source.shape[0]
    state, tokens = model.start(source, padding), source.new_full((batch,), start)
    total = torch.zeros(batch, dtype=torch.float64, device=source.device)
    ended = torch.zeros(batch, dtype=torch.bool, device=source.device)
    columns: list[Tensor] = []
    looks: list[Tensor] = []
    for length in range(max_length + 1):
        log_probabilities, look = write_step(model, tokens, state, attention, ~ended)
        tokens = log_probabilities.argmax(-1) if drawing is None else drawing.draw(log_probabilities)
        gained = log_probabilities.gather(-1, tokens[:, None]).squeeze(-1)
        # After the last token that fits, only a stop counts.
        counts = ~ended if length < max_length else ~ended & (tokens == stop)
        total += torch.where(counts, gained, 0)
        tokens = torch.where(ended, stop, tokens)
        ended = ended | (tokens == stop)
        columns.append(tokens)
        if look is not None:
            looks.append(look)
        if bool(ended.all()):
            break
    return [
        finish(row, stop, max_length, float(total[place]), [look[place] for look in looks])
        for place, row in enumerate(torch.stack(columns, 1).tolist())
    ]


def _check_writes(model: object) -> None:
    if all(callable(getattr(model, method, None)) for method in ("start", "step")):
        return
    advice = (
        "It maps vectors to vectors and has no vocabulary: build Seq2SeqTransformer, which is one around tokens."
        if isinstance(model, Transformer | torch.nn.Transformer)
        else "Give it these methods, as `regard.nn.Writer` describes them."
    )
    raise DtypeError(
        f"`model` must write token by token, by `start` and `step`, as Seq2Seq and Seq2SeqTransformer do: got "
        f"{type(model).__name__}. {advice}"
    )


def _check(
    max_length: int,
    method: str,
    beams: int,
    length_penalty: float,
    temperature: float,
    top_k: int | None,
    top_p: float | None,
) -> None:
    if method not in ("greedy", "sample", "beam"):
        raise OptionError(f'`method` must be "greedy", "sample" or "beam": got {method!r}.')
    for name, value in (("max_length", max_length), ("beams", beams), ("top_k", top_k)):
        least = 0 if name == "max_length" else 1
        if value is not None and (not isinstance(value, int) or value < least):
            raise OptionError(f"`{name}` must be {least} or more, a whole number: got {value!r}.")
    if not 0 <= length_penalty < math.inf:
        # Below 0 a longer sequence would rank lower still, and the search could not tell when to stop.
        raise OptionError(f"`length_penalty` must be 0 or more: got {length_penalty}. 0 favours short sequences.")
    if not 0 < temperature < math.inf:
        raise OptionError(
            f'`temperature` must be above 0 and finite: got {temperature}. For the likeliest token use "greedy".'
        )
    if top_p is not None and not 0 < top_p <= 1:
        raise OptionError(f"`top_p` must be in (0, 1]: got {top_p}. It is a share of the probability.")
