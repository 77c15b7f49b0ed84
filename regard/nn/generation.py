"""Writing token by token: greedy, by sampling, by beam search, with the attention of every token kept."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, Protocol

import torch
from torch import Tensor, nn

from regard.errors import DtypeError, OptionError, ScoreError, ShapeError
from regard.nn.recording import record

Method = Literal["greedy", "sample", "beam"]


class State(Protocol):
    """What a model keeps between two tokens."""

    def reorder(self, index: Tensor) -> None:
        """Take the sequences at these places of the batch, each as often as it is named."""
        ...


class Writer(Protocol):
    """A model that writes a sequence about a source, token by token: `Seq2Seq`, `Seq2SeqTransformer`, or yours."""

    @property
    def alignment(self) -> list[str]:
        """The names of the attention layers that look at the source."""
        ...

    def start(self, source: Tensor, source_padding: Tensor | None = None) -> State:
        """Read the source, `(batch, n)`; True in `source_padding` where there is none."""
        ...

    def step(self, tokens: Tensor, state: State) -> Tensor:
        """Scores of the next token, `(batch, vocabulary)`, after `tokens`, `(batch,)`."""
        ...


@dataclass(frozen=True)
class Written:
    """A sequence that was written."""

    tokens: list[int]  # without the ones that start and stop it
    score: float  # the log probability of all tokens, the stop included
    complete: bool  # whether it ends with the stop; one that reached the limit may not
    attention: Tensor | None  # (layers, heads, tokens, n_source): one row for each token, also for the stop


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
    """What a model writes about each source.

    Args:
        model: Who writes; in eval mode, or dropout will act.
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
        attention: Whether the weights with which each token looked at the source are kept.
        generator: What sampling draws from.

    Returns:
        A `Written` for each source; by beam search the best.

    Example:
        >>> import torch
        >>> from regard import nn
        >>> model = nn.Seq2Seq(10, 8, 16).eval()
        >>> written = nn.generate(model, torch.tensor([[3, 4, 5]]), start=1, stop=2, max_length=4, attention=True)
        >>> len(written), written[0].attention.shape[-1]
        (1, 3)
    """
    _check(max_length, method, beams, length_penalty, temperature, top_k, top_p)
    check_source(source, source_padding)
    if source.shape[0] == 0:
        raise ShapeError("`source` must be (batch, n) token numbers: got no sequence. Pass at least one.")
    if attention and not (isinstance(model, nn.Module) and len(model.alignment) > 0):
        raise OptionError(
            f"With `attention` the model must be a module whose `alignment` names the layers that look at the source: "
            f"got {type(model).__name__}, which names none. Leave attention=True out, or name them."
        )
    if method == "beam":
        search = _Beams(model, source, source_padding, start, stop, max_length, attention, beams, length_penalty)
        return search.run()
    drawing = None if method == "greedy" else _Drawing(temperature, top_k, top_p, generator)
    return _write_straight(model, source, source_padding, start, stop, max_length, attention, drawing)


# One token at a time --------------------------------------------------------------------------------------------------


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
        log_probabilities, look = _step(model, tokens, state, attention, ~ended)
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
        _finish(row, stop, max_length, float(total[place]), [look[place] for look in looks])
        for place, row in enumerate(torch.stack(columns, 1).tolist())
    ]


def _step(model: Writer, tokens: Tensor, state: State, attention: bool, live: Tensor) -> tuple[Tensor, Tensor | None]:
    """The log probabilities of the next token, and `(batch, layers, heads, n_source)` weights if they are wanted.

    `live` has True where a sequence goes on: what the model says of others is not looked at.
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


def _finish(row: list[int], stop: int, max_length: int, score: float, looks: list[Tensor]) -> Written:
    """The sequence up to its stop or the limit; `looks` has the weights of every token, and maybe of one more."""
    complete = stop in row
    length = row.index(stop) if complete else min(len(row), max_length)
    kept = torch.stack(looks, -2)[..., : length + complete, :] if looks else None
    return Written(row[:length], score, complete, kept)


# The likeliest sequences ----------------------------------------------------------------------------------------------


@dataclass
class _Hypothesis:
    tokens: list[int]
    score: float
    looks: list[Tensor]


class _Beams:
    """Beam search: of every source the likeliest unfinished sequences, and the finished ones so far."""

    def __init__(
        self,
        model: Writer,
        source: Tensor,
        padding: Tensor | None,
        start: int,
        stop: int,
        max_length: int,
        attention: bool,
        beams: int,
        length_penalty: float,
    ) -> None:
        self.model, self.stop, self.max_length, self.attention = model, stop, max_length, attention
        self.beams, self.penalty, self.batch = beams, length_penalty, source.shape[0]
        self.device = source.device
        self.state = model.start(source, padding)
        # Row b · beams + i of the model's batch is the ith sequence of source b.
        self.state.reorder(torch.arange(self.batch, device=self.device).repeat_interleave(beams))
        self.tokens = source.new_full((self.batch * beams,), start)
        # At first all sequences of a source are the same: only one of them counts.
        self.scores = torch.full((self.batch, beams), -torch.inf, dtype=torch.float64, device=self.device)
        self.scores[:, 0] = 0
        self.open: list[list[_Hypothesis]] = [
            [_Hypothesis([], 0.0, []) for _ in range(beams)] for _ in range(self.batch)
        ]
        self.closed: list[list[_Hypothesis]] = [[] for _ in range(self.batch)]

    def run(self) -> list[Written]:
        for _ in range(self.max_length):
            if not self._advance():
                break
        else:
            self._end()
        return [self._best(place) for place in range(self.batch)]

    def _advance(self) -> bool:
        """Write one more token; returns whether any source is still open."""
        log_probabilities, look = self._step()
        vocabulary = log_probabilities.shape[-1]
        totals = self.scores[..., None] + log_probabilities.double().reshape(self.batch, self.beams, vocabulary)
        count = min(2 * self.beams, self.beams * vocabulary)  # at most one token of each sequence is the stop
        best, flat = totals.reshape(self.batch, -1).topk(count, -1)
        parents, tokens = (flat // vocabulary).tolist(), (flat % vocabulary).tolist()
        scores = best.tolist()
        chosen, next_tokens, next_scores = [], [], []
        any_open = False
        for b in range(self.batch):
            following: list[_Hypothesis] = []
            rows: list[int] = []
            for parent, token, score in zip(parents[b], tokens[b], scores[b], strict=True):
                if score == -math.inf or len(following) == self.beams:
                    break  # they come best first
                before = self.open[b][parent]
                looks = before.looks if look is None else [*before.looks, look[b * self.beams + parent]]
                longer = _Hypothesis([*before.tokens, token], score, looks)
                if token == self.stop:
                    self.closed[b].append(longer)
                else:
                    following.append(longer)
                    rows.append(parent)
            done = self._is_done(b, following)
            any_open |= not done
            while len(following) < self.beams:
                following.append(_Hypothesis([], -math.inf, []))
                rows.append(0)
            self.open[b] = following
            chosen += [b * self.beams + row for row in rows]
            next_tokens += [each.tokens[-1] if each.tokens else 0 for each in following]  # 0 is a token of any model
            next_scores.append([-math.inf if done else each.score for each in following])
        if not any_open:
            return False
        self.state.reorder(torch.tensor(chosen, device=self.device))
        self.tokens = torch.tensor(next_tokens, device=self.device)
        self.scores = torch.tensor(next_scores, dtype=torch.float64, device=self.device)
        return True

    def _end(self) -> None:
        """The limit: every open sequence gets its stop, however unlikely, and is compared as a whole one."""
        log_probabilities, look = self._step()
        vocabulary = log_probabilities.shape[-1]
        totals = self.scores.reshape(-1, 1) + log_probabilities.double()
        stops = totals[:, self.stop].tolist() if 0 <= self.stop < vocabulary else [-math.inf] * len(totals)
        for b in range(self.batch):
            for i, each in enumerate(self.open[b]):
                row = b * self.beams + i
                if look is not None:
                    each.looks = [*each.looks, look[row]]
                if stops[row] > -math.inf:
                    self.closed[b].append(_Hypothesis([*each.tokens, self.stop], stops[row], each.looks))

    def _step(self) -> tuple[Tensor, Tensor | None]:
        return _step(self.model, self.tokens, self.state, self.attention, self.scores.flatten() > -math.inf)

    def _is_done(self, place: int, following: list[_Hypothesis]) -> bool:
        """Whether no open sequence can become better than the best finished one."""
        closed = self.closed[place]
        if not closed or not following:
            return not following
        # A score only falls; the longest sequence divides it by most.
        longest = math.pow(self.max_length + 1, self.penalty)
        return max(each.score for each in following) / longest <= max(self._rank(each) for each in closed)

    def _rank(self, each: _Hypothesis) -> float:
        return each.score / math.pow(max(len(each.tokens), 1), self.penalty)

    def _best(self, place: int) -> Written:
        found = self.closed[place] or [each for each in self.open[place] if each.score > -math.inf]
        best = max(found, key=self._rank)
        return _finish(best.tokens, self.stop, self.max_length, best.score, best.looks)


# What is checked ------------------------------------------------------------------------------------------------------


def check_source(source: Tensor, padding: Tensor | None) -> None:
    """That a source is `(batch, n)` whole numbers, and its padding True or False for each."""
    if not isinstance(source, Tensor) or source.is_floating_point() or source.is_complex():
        got = source.dtype if isinstance(source, Tensor) else type(source).__name__
        raise DtypeError(
            f"`source` must be a tensor of token numbers, (batch, n): got {got}. Use torch.tensor(numbers)."
        )
    if source.ndim != 2:
        raise ShapeError(f"`source` must be (batch, n) token numbers: got {tuple(source.shape)}. Use source[None].")
    if padding is None:
        return
    if padding.shape != source.shape:
        raise ShapeError(
            f"`source` must be (batch, n), and padding the same: got {tuple(source.shape)} with padding "
            f"{tuple(padding.shape)}. Padding has an entry for each token of the source."
        )
    if padding.dtype != torch.bool:
        raise DtypeError(
            f"Padding must be bool, True where there is no token: got {padding.dtype}. Use source_padding.bool()."
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
