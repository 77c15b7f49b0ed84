"""Writing token by token: greedy, by sampling, by beam search, with the attention of every token kept."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, Protocol

import torch
from torch import Tensor

from regard.errors import OptionError
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
    complete: bool  # whether it was stopped by the model, not by the limit
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
        max_length: How many tokens a sequence has at most, the stop not counted.
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
    _check(source, max_length, method, beams, length_penalty, temperature, top_k, top_p)
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
            least = likely.topk(min(self.top_k, likely.shape[-1])).values[:, -1:]
            likely = likely.masked_fill(likely < least, -torch.inf)
        if self.top_p is not None:
            ordered, places = likely.softmax(-1).sort(descending=True, dim=-1)
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
        log_probabilities, look = _step(model, tokens, state, attention)
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
    table = torch.stack(columns, 1).tolist() if columns else [[] for _ in range(batch)]
    return [
        _finish(row, stop, max_length, float(total[place]), [look[place] for look in looks])
        for place, row in enumerate(table)
    ]


def _step(model: Writer, tokens: Tensor, state: State, attention: bool) -> tuple[Tensor, Tensor | None]:
    """The log probabilities of the next token, and `(batch, layers, heads, n_source)` weights if they are wanted."""
    if not attention:
        return _log_probabilities(model.step(tokens, state)), None
    with record(model, layers=model.alignment, budget=None) as recording:  # type: ignore[arg-type]
        scores = model.step(tokens, state)
    looks = []
    for view in recording.views():
        weights = view.dense()[..., -1, :]  # (batch, heads, n_source), or without heads
        looks.append(weights if weights.ndim == 3 else weights.unsqueeze(1))
    return _log_probabilities(scores), torch.stack(looks, 1)


def _log_probabilities(scores: Tensor) -> Tensor:
    """In float32 at least."""
    return scores.log_softmax(-1, dtype=torch.promote_types(scores.dtype, torch.float32))


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
        for length in range(self.max_length + 1):
            if not self._advance(length):
                break
        return [self._best(place) for place in range(self.batch)]

    def _advance(self, length: int) -> bool:
        """Write one more token; returns whether any source is still open."""
        log_probabilities, look = _step(self.model, self.tokens, self.state, self.attention)
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
                if score == -float("inf"):
                    continue
                before = self.open[b][parent]
                looks = before.looks if look is None else [*before.looks, look[b * self.beams + parent]]
                if token == self.stop or length == self.max_length:
                    if len(following) < self.beams and token == self.stop:
                        self.closed[b].append(_Hypothesis([*before.tokens, token], score, looks))
                    continue
                if len(following) < self.beams:
                    following.append(_Hypothesis([*before.tokens, token], score, looks))
                    rows.append(parent)
            done = self._is_done(b, following)
            any_open |= not done
            if not following and self.open[b] and not self.closed[b]:
                following, rows = self.open[b], list(range(len(self.open[b])))  # the limit: what there is
                if look is not None:
                    for row, each in enumerate(following):
                        each.looks = [*each.looks, look[b * self.beams + row]]
                done = True
            while len(following) < self.beams:
                following.append(_Hypothesis([], -float("inf"), []))
                rows.append(0)
            self.open[b] = following
            chosen += [b * self.beams + row for row in rows]
            next_tokens += [each.tokens[-1] if each.tokens else 0 for each in following]  # 0 is a token of any model
            next_scores.append([-float("inf") if done else each.score for each in following])
        if not any_open:
            return False
        self.state.reorder(torch.tensor(chosen, device=self.device))
        self.tokens = torch.tensor(next_tokens, device=self.device)
        self.scores = torch.tensor(next_scores, dtype=torch.float64, device=self.device)
        return True

    def _is_done(self, place: int, following: list[_Hypothesis]) -> bool:
        """Whether no open sequence can become better than the finished ones."""
        closed = self.closed[place]
        if len(closed) < self.beams or not following:
            return not following
        worst = min(self._rank(each) for each in sorted(closed, key=self._rank)[-self.beams :])
        # A score only falls; the longest sequence divides it by most.
        longest = math.pow(self.max_length + 1, self.penalty)
        return max(each.score for each in following) / longest <= worst

    def _rank(self, each: _Hypothesis) -> float:
        return each.score / math.pow(max(len(each.tokens), 1), self.penalty)

    def _best(self, place: int) -> Written:
        found = self.closed[place] or [each for each in self.open[place] if each.score > -float("inf")]
        best = max(found, key=self._rank)
        return _finish(best.tokens, self.stop, self.max_length, best.score, best.looks)


def _check(
    source: Tensor,
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
    if source.ndim != 2 or source.shape[0] == 0:
        raise OptionError(f"`source` must be (batch, n) token numbers: got {tuple(source.shape)}. Use source[None].")
    for name, value in (("max_length", max_length), ("beams", beams), ("top_k", top_k)):
        least = 0 if name == "max_length" else 1
        if value is not None and value < least:
            raise OptionError(f"`{name}` must be {least} or more: got {value}.")
    if not 0 <= length_penalty < math.inf:
        # Below 0 a longer sequence would rank lower still, and the search could not tell when to stop.
        raise OptionError(f"`length_penalty` must be 0 or more: got {length_penalty}. 0 favours short sequences.")
    if not temperature > 0:
        raise OptionError(f'`temperature` must be above 0: got {temperature}. For the likeliest token use "greedy".')
    if top_p is not None and not 0 < top_p <= 1:
        raise OptionError(f"`top_p` must be in (0, 1]: got {top_p}. It is a share of the probability.")
