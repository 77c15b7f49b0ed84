"""Beam search: the likeliest sequences, several of every source at once."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.nn.decoding_step import Writer, Written, finish, write_step


@dataclass
class _Hypothesis:
    tokens: list[int]
    score: float
    looks: list[Tensor]


class BeamSearch:
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
        return write_step(self.model, self.tokens, self.state, self.attention, self.scores.flatten() > -math.inf)

    def _is_done(self, place: int, following: list[_Hypothesis]) -> bool:
        """Whether no open sequence can become better than the best finished one."""
        closed = self.closed[place]
        if not closed or not following:
            return not following
        # A score only falls; the longest sequence divides it by most.
        reachable = self._rank(max(each.score for each in following), self.max_length + 1)
        return reachable <= max(self._rank_of(each) for each in closed)

    def _rank_of(self, each: _Hypothesis) -> float:
        return self._rank(each.score, max(len(each.tokens), 1))

    def _rank(self, score: float, length: int) -> float:
        """What sequences are compared by: −log(−score / length^penalty), which no penalty takes out of range."""
        return math.inf if score >= 0 else self.penalty * math.log(length) - math.log(-score)

    def _best(self, place: int) -> Written:
        found = self.closed[place] or [each for each in self.open[place] if each.score > -math.inf]
        best = max(found, key=self._rank_of)
        return finish(best.tokens, self.stop, self.max_length, best.score, best.looks)
