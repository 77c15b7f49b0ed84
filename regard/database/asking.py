"""Asking: from queries to answers, through `weigh`."""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from regard.attention import weigh
from regard.database.answer import Answer, Row
from regard.database.bandwidth import Choice, choose
from regard.database.columns import CategoryColumn, Quantity, TimeColumn
from regard.database.encoding import UNKNOWN, Encoding
from regard.database.messages import no_similar_rows, unknown_categories
from regard.database.pairs import Pairs
from regard.database.parts import Similarity
from regard.database.queries import Query
from regard.database.similarity import ScoreLike, check_options, similarity
from regard.database.values import SUM_TO_ONE, Summary, ValuePool
from regard.errors import OptionError
from regard.scores import Equal
from regard.weights import Uniform, Weights

MATTERS = 1e-6
"""A row matters if it weighs at least this fraction of the heaviest."""


class Asker:
    """Answers queries about pairs. What every question needs (matrices, the bandwidth) is made once."""

    def __init__(self, pairs: Pairs) -> None:
        self.pairs = pairs
        self.encoding = Encoding(pairs.keys, pairs.complete)
        self.pool = ValuePool(pairs.values, pairs.complete)

    @cached_property
    def choice(self) -> Choice:
        """The widths that the data choose."""
        quantities = [place for place, column in enumerate(self.pairs.keys) if isinstance(column, Quantity)]
        categories = [place for place in range(len(self.pairs.keys)) if place not in quantities]
        places = self.encoding.places_of(quantities, categories)
        return choose(self.encoding.scaled, places, self.pool.targets)

    def ask(self, queries: list[Query], score: ScoreLike, weights: Weights | None, top: int) -> list[Answer]:
        """An answer to each query."""
        check_options(score, weights, self.pairs.keys)
        answers: dict[int, Answer] = {}
        groups: dict[tuple[int, ...], list[int]] = {}
        for place, query in enumerate(queries):
            groups.setdefault(tuple(column for column, entry in enumerate(query) if entry is not UNKNOWN), []).append(
                place
            )
        for asked, places in groups.items():
            chosen = similarity(self.encoding, asked, score, weights, lambda: self.choice)
            step = self.pool.block_size()
            for start in range(0, len(places), step):
                block = places[start : start + step]
                answers |= zip(block, self._answers([queries[each] for each in block], chosen, top), strict=True)
        return [answers[place] for place in range(len(queries))]

    def average(self, top: int) -> Answer:
        """The answer in which every row weighs the same."""
        rule = Uniform()
        every = Similarity(Equal(), rule, scaled=False, text=f"every row alike · {rule}")
        return self._answers([(UNKNOWN,) * len(self.pairs.keys)], every, top)[0]

    def _answers(self, queries: list[Query], chosen: Similarity, top: int) -> list[Answer]:
        """The answers to a block of queries that know the same columns."""
        if isinstance(top, bool) or not isinstance(top, int) or top < 1:
            raise OptionError(f"`top` must be a positive integer: got {top!r}.")
        self._check_rule(chosen.weights)
        encoded = self.encoding.encode(queries, scaled=chosen.scaled)
        n_rows = len(self.pairs.complete)
        if not n_rows:
            missing = "every row has a missing key or value" if len(self.pairs) else "the database is empty"
            return [self._nothing(query, chosen, f"No similar rows: {missing}.") for query in queries]
        keys = self.encoding.scaled if chosen.scaled else self.encoding.own
        with torch.no_grad():
            view = weigh(encoded, keys, self.pool.pooled_with(keys.dtype), score=chosen.score, weights=chosen.weights)
            summaries = self.pool.summaries(view)
            heaviest = view.top(min(top, n_rows))
            best = [0.0] * len(queries)
            if chosen.floor > -math.inf:
                nearest = keys[heaviest.indices[:, 0].clamp(min=0)]  # −1 where every weight is 0
                # Each query with its own best row alone: a batch of 1 × 1 scores.
                best = chosen.score(encoded.unsqueeze(1), nearest.unsqueeze(1)).flatten().tolist()
        answers = []
        for query, (total, summary), values, indices, score in zip(
            queries, summaries, heaviest.weights, heaviest.indices, best, strict=True
        ):
            rows = self._listed(values, indices)
            if total == 0 or not score > chosen.floor:
                answers.append(self._nothing(query, chosen, no_similar_rows(query, self.pairs.keys, rows)))
            else:
                answers.append(self._something(query, chosen, rows, summary, total))
        return answers

    def _something(
        self, query: Query, chosen: Similarity, rows: list[Row], summary: list[Summary], total: float
    ) -> Answer:
        remark = unknown_categories(query, self.pairs.keys)
        return Answer(
            query=self._named(query),
            found=True,
            value=self._by_name([each.value for each in summary]),
            std=self._by_name([each.std for each in summary]),
            probabilities=self._by_name([each.probabilities for each in summary]),
            rows=rows,
            rest=max(total - sum(row.weight for row in rows), 0.0),
            similarity=chosen.text,
            message=f"{remark[0].upper()}{remark[1:]}." if remark else "",
            **self._counts(),
        )

    def _nothing(self, query: Query, chosen: Similarity, message: str) -> Answer:
        return Answer(
            query=self._named(query),
            found=False,
            value=None,
            std=None,
            probabilities=None,
            rows=[],
            rest=0.0,
            similarity=chosen.text,
            message=message,
            **self._counts(),
        )

    def _counts(self) -> dict[str, Any]:
        n_rows = len(self.pairs.complete)
        return {"n_rows": n_rows, "n_left_out": len(self.pairs) - n_rows, "labels": self.pairs.labels}

    def _listed(self, weights: Tensor, indices: Tensor) -> list[Row]:
        """The rows that mattered, as the table knows them."""
        least = float(weights.abs().max()) * MATTERS
        kept = [
            (weight, place)
            for weight, place in zip(weights.tolist(), indices.tolist(), strict=True)
            if abs(weight) > least
        ]
        rows = self.pairs.complete[[place for _, place in kept]].tolist()
        return [
            Row(self.pairs.label(row), self.pairs.key(row), self.pairs.value(row), weight)
            for row, (weight, _) in zip(rows, kept, strict=True)
        ]

    def _named(self, query: Query) -> Any:
        """A query as the answer shows it: an entry, or a dict with the columns that it knows; None if it knows none."""
        known = {
            column.name: entry for column, entry in zip(self.pairs.keys, query, strict=True) if entry is not UNKNOWN
        }
        if len(self.pairs.keys) == 1 or not known:
            return next(iter(known.values()), None)
        return known

    def _by_name(self, parts: list[Any]) -> Any:
        """One part for each value column: itself where there is one column, else a dict of those that are there."""
        if len(parts) == 1:
            return parts[0]
        named = {column.name: part for column, part in zip(self.pairs.values, parts, strict=True) if part is not None}
        return named or None

    def _check_rule(self, rule: Weights) -> None:
        if rule.kind in SUM_TO_ONE:
            return
        for column in self.pairs.values:
            if isinstance(column, CategoryColumn | TimeColumn):
                raise OptionError(
                    f"Weights for {column.name!r} ({column.label}) must sum to 1, or there is no average and no "
                    f"probability: got {rule}. Use Softmax() or Proportional()."
                )
