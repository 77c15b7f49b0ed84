"""Attending: from queries to answers, through `weigh`; few rows by its definition, α = rule(score(queries, keys))."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor

from regard.attention import weigh
from regard.database.answer import Answer, Row
from regard.database.bandwidth import Choice, choose_widths
from regard.database.columns import CategoryColumn, NumberColumn, Quantity, TimeColumn
from regard.database.combining import Similarity, ranks
from regard.database.key_matrix import Encoding
from regard.database.messages import missing_query, no_similar_rows, same_floats, unknown_categories
from regard.database.near_rows import heaviest, near_rows
from regard.database.pairs import Pairs
from regard.database.precision import WORTHWHILE, Factors, Narrow, in_float32, is_possible
from regard.database.python_values import plain
from regard.database.queries import UNKNOWN, Query
from regard.database.similarity import IGNORED, ScoreLike, check_options, ignored, similarity, without_quantities
from regard.database.value_pool import SUM_TO_ONE, Summary, ValuePool, Weighed, WeightSums, weights_of_blocks
from regard.errors import OptionError
from regard.scores import Equal
from regard.view.readings import Top
from regard.weights import Uniform, Weights

FEW_ELEMENTS = 2**16
"""Up to how many queries × numbers of keys the scores are held at once."""

MATTERS = 1e-6
"""A row matters if it weighs at least this fraction of the heaviest."""

BEYOND = 0.05
"""By how much of the distance from the first row to the last a query may be outside of them without a remark."""


class Rows:
    """The rows in which some key columns, and the values, are complete: ready to be weighed.

    What every question needs (matrices, the widths) is made once.

    Args:
        pairs: keys and values.
        columns: the places of the key columns that are asked for.
    """

    def __init__(self, pairs: Pairs, columns: Sequence[int]) -> None:
        self.columns = tuple(columns)
        self.rows = pairs.complete_in(columns)
        self.encoding = Encoding([pairs.keys[place] for place in columns], self.rows)
        self.pool = ValuePool(pairs.values, self.rows)
        self._ends: dict[int, tuple[int, ...]] = {}
        self._narrowed: dict[tuple[bool, ...], Narrow] = {}

    @cached_property
    def choice(self) -> Choice:
        """The widths that the data choose."""
        places = range(len(self.columns))
        quantities = [place for place in places if isinstance(self.encoding.columns[place], Quantity)]
        categories = [place for place in places if place not in quantities]
        return choose_widths(self.encoding.scaled, self.encoding.places_of(quantities, categories), self.pool.targets)

    def similarity(self, asked: Sequence[int], score: ScoreLike, weights: Weights | None) -> Similarity:
        """The similarity for queries that know the columns `asked`."""
        places = [self.columns.index(place) for place in asked]
        return similarity(self.encoding, places, score, weights, lambda: self.choice)

    def encode(self, queries: Sequence[Query]) -> Tensor:
        """Queries as rows of the keys' matrix, in their own units."""
        return self.encoding.encode([[query[place] for query in queries] for place in self.columns], len(queries))

    def weigh(self, queries: Tensor, chosen: Similarity, top: int) -> tuple[Weighed, list[float]]:
        """The weights of the rows for queries in their own units, and the best score of each, if there is a floor."""
        keys = self.encoding.scaled if chosen.scaled else self.encoding.own
        queries = self.encoding.in_deviations(queries) if chosen.scaled else queries
        top = min(top, len(keys))
        if chosen.usual and keys.dtype == torch.float64 and len(queries) * keys.numel() <= FEW_ELEMENTS:
            # The definition: Gaussians, equalities and Softmax need nothing else, and all is read from one matrix.
            scores = chosen.score(queries, keys)
            weights = chosen.weights(scores)
            heaviest = Top(*(each[:, :top] for each in weights.sort(dim=-1, descending=True, stable=True)))
            return Weighed(chosen.weights.kind, lambda: [(slice(None), weights)], heaviest), scores.amax(-1).tolist()
        weighed = self._through_view(queries, keys, chosen, top)
        if chosen.floor == -math.inf:
            return weighed, [0.0] * len(queries)
        nearest = keys[weighed.top.indices[:, 0].clamp(min=0)]  # −1 where every weight is 0
        # Each query with its own best row alone: a batch of 1 × 1 scores.
        return weighed, chosen.score(queries.unsqueeze(1), nearest.unsqueeze(1)).flatten().tolist()

    def _through_view(self, queries: Tensor, keys: Tensor, chosen: Similarity, top: int) -> Weighed:
        """Weights that are computed again where they are read: of many rows in float32, where that is as exact."""
        score, rule, sums = chosen.score, chosen.weights, None
        many = keys.dtype == torch.float64 and len(queries) * len(keys) >= WORTHWHILE
        factors = Factors.of(score, rule, self.encoding.dim) if many else None
        if factors is not None and len(queries) == 1:
            near = near_rows(queries[0], keys, factors)
            if near is not None:
                rows, weights = near
                whole = [(rows, weights.unsqueeze(0))]
                return Weighed(rule.kind, lambda: whole, heaviest(rows, weights, top, len(keys)))
        if factors is not None and is_possible():
            narrow = self._narrow(keys, factors, scaled=chosen.scaled)
            rounded = narrow.queries(queries, factors)
            if rounded is not None:
                sums = narrow.pooled(rounded, factors, self.pool.narrow)
                queries, keys, score = rounded, narrow.keys, in_float32(score)
        view = weigh(queries, keys, keys.new_ones(len(keys), 1), score=score, weights=rule)
        return Weighed(view.kind, partial(weights_of_blocks, view), view.top(top), sums)

    def beyond(self, encoded: Tensor, place: int) -> str:
        """A remark on a query that is far outside of the rows in a column of numbers or times; "" otherwise."""
        own = self.columns.index(place)
        column = self.encoding.columns[own]
        if not isinstance(column, NumberColumn | TimeColumn):
            return ""
        if place not in self._ends:
            numbers = column.numbers[self.rows].flatten()
            self._ends[place] = tuple(int(self.rows[end]) for end in (numbers.argmin(), numbers.argmax()))
        first, last = self._ends[place]
        low, high = float(column.numbers[first]), float(column.numbers[last])
        number, margin = float(encoded[self.encoding.coordinates[own][0]]), BEYOND * (high - low)
        if low - margin <= number <= high + margin:
            return ""
        verb, end = ("begin", first) if number < low else ("end", last)
        return f"the rows {verb} at {column.name} = {plain(column.entries[end])}, far from the query"

    def _narrow(self, keys: Tensor, factors: Factors, *, scaled: bool) -> Narrow:
        matched = factors.matches > 0
        kind = (scaled, *matched.tolist())
        if kind not in self._narrowed:
            self._narrowed = {kind: Narrow.of(keys, matched)}  # the last one alone: keys are large
        return self._narrowed[kind]


class Attender:
    """Attends to pairs: answers queries about them."""

    def __init__(self, pairs: Pairs) -> None:
        self.pairs = pairs
        self._rows: dict[tuple[int, ...], Rows] = {}
        self._usual: dict[tuple[int, ...], tuple[Rows, Similarity]] = {}

    def rows(self, asked: Sequence[int]) -> Rows:
        """The rows that can answer queries that know the columns `asked`, with widths of their own.

        What a column is worth depends on which others are known: weight may say all that height does, until only the
        height is known.
        """
        known = tuple(asked)
        if known not in self._rows:
            self._rows[known] = Rows(self.pairs, known)
        return self._rows[known]

    def ask(self, queries: list[Query], score: ScoreLike, weights: Weights | None, top: int) -> list[Answer]:
        """An answer to each query, also to those that say nothing."""
        check_options(score, weights, self.pairs.keys)
        answers: dict[int, Answer] = {}
        groups: dict[tuple[int, ...], list[int]] = {}
        for place, query in enumerate(queries):
            known = tuple([column for column, entry in enumerate(query) if entry is not UNKNOWN])
            groups.setdefault(known, []).append(place)
        for asked, places in groups.items():
            if not asked:
                answers |= {place: missing_query(self.pairs) for place in places}
                continue
            rows, chosen = self._chosen(asked, score, weights)
            if rows.columns != asked:  # what a query says of a column that is ignored must still be an entry of it
                self.rows(asked).encode([queries[each] for each in places])
            step = rows.pool.block_size
            for start in range(0, len(places), step):
                block = places[start : start + step]
                answers |= zip(block, self._answers([queries[each] for each in block], rows, chosen, top), strict=True)
        return [answers[place] for place in range(len(queries))]

    def _chosen(self, asked: tuple[int, ...], score: ScoreLike, weights: Weights | None) -> tuple[Rows, Similarity]:
        """The rows and the similarity that answer; where nothing is asked of it, the same for all queries."""
        if score is not None or weights is not None:
            return self._similar(asked, score, weights)  # anew: what is learned in them may have changed
        if asked not in self._usual:
            self._usual[asked] = self._similar(asked, None, None)
        return self._usual[asked]

    def _similar(self, asked: tuple[int, ...], score: ScoreLike, weights: Weights | None) -> tuple[Rows, Similarity]:
        """The rows that can answer queries that know the columns `asked`, and how.

        A column that the data choose to ignore costs no rows: those without it are asked, too, as if nobody knew it.
        """
        rows = self.rows(asked)
        chosen = rows.similarity(asked, score, weights)
        off = [asked[place] for place in ignored(rows.encoding, score, lambda: rows.choice)]
        heard = tuple(place for place in asked if place not in off)
        categories = not any(isinstance(self.pairs.keys[place], Quantity) for place in heard)
        given = score if isinstance(score, Mapping) else {}
        # Beside quantities alone a mismatch gets a weight, and one that was chosen is not given up for rows.
        lost = categories and score is not None and any(self.pairs.keys[place].name not in given for place in heard)
        if not off or lost or len(self.pairs.complete_in(heard)) == len(rows.rows):
            return rows, replace(chosen, compared=heard)
        if categories and score is None:
            more = self.rows(heard)
            chosen = without_quantities(more.encoding, rows.encoding, chosen, rows.choice)
            return more, replace(chosen, compared=heard)
        more, chosen = self._similar(heard, score, weights)
        said = (f"{self.pairs.keys[place].name}: {IGNORED}" for place in off)
        return more, replace(chosen, parts=(*chosen.parts, *said))

    def average(self, top: int) -> Answer:
        """The answer in which every row weighs the same; it needs no keys."""
        rule = Uniform()
        every = Similarity(Equal(), rule, scaled=False, parts=("every row alike",))
        return self._answers([(UNKNOWN,) * len(self.pairs.keys)], self.rows(()), every, top)[0]

    def _answers(self, queries: list[Query], asked: Rows, chosen: Similarity, top: int) -> list[Answer]:
        """The answers to a block of queries that know the same columns."""
        if isinstance(top, bool) or not isinstance(top, int) or top < 1:
            raise OptionError(f"`top` must be a positive integer: got {top!r}. Pass how many rows to list, such as 10.")
        self._check_rule(chosen.weights)
        encoded = asked.encode(queries)
        if not len(asked.rows):
            missing = "every row has a missing key or value" if len(self.pairs) else "the database is empty"
            return [self._nothing(query, asked, chosen, f"No similar rows: {missing}.") for query in queries]
        with torch.no_grad():
            weighed, best = asked.weigh(encoded, chosen, top)
            summaries = asked.pool.summaries(weighed)
        answers = []
        for query, numbers, (sums, summary), values, indices, score in zip(
            queries, encoded, summaries, weighed.top.weights, weighed.top.indices, best, strict=True
        ):
            if not math.isfinite(sums.total):
                raise OptionError(
                    f"`score` must give every row a number: {chosen.text} gives one that is not finite for "
                    f"{self._named(query)!r}. Pass a score whose numbers are smaller."
                )
            rows = self._listed(asked, values, indices)
            if sums.total == 0 or not score > chosen.floor:
                answers.append(self._nothing(query, asked, chosen, no_similar_rows(query, self.pairs.keys, rows)))
            else:
                answers.append(self._something(query, numbers, asked, chosen, rows, summary, sums))
        return answers

    def _something(
        self,
        query: Query,
        encoded: Tensor,
        asked: Rows,
        chosen: Similarity,
        rows: list[Row],
        summary: tuple[Summary, ...],
        sums: WeightSums,
    ) -> Answer:
        remarks = [unknown_categories(query, self.pairs.keys)]
        if ranks(chosen.weights):
            remarks += [asked.beyond(encoded, place) for place in chosen.compared]
        if rows:
            remarks.append(same_floats(query, self.pairs.keys, rows[0].key))
        remark = "; ".join(filter(None, remarks))
        value, std, probabilities = map(self._by_name, zip(*summary, strict=True))
        return Answer(
            query=self._named(query),
            found=True,
            value=value,
            std=std,
            probabilities=probabilities,
            rows=rows,
            rest=_remainder(sums.total, rows),
            effective_rows=sums.effective_rows,
            similarity=chosen.text,
            message=f"{remark[0].upper()}{remark[1:]}." if remark else "",
            **self._counts(asked),
        )

    def _nothing(self, query: Query, asked: Rows, chosen: Similarity, message: str) -> Answer:
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
            **self._counts(asked),
        )

    def _counts(self, asked: Rows) -> dict[str, Any]:
        n_rows, pairs = len(asked.rows), self.pairs
        return {"n_rows": n_rows, "n_left_out": len(pairs) - n_rows, "labels": pairs.labels, "notes": pairs.notes}

    def _listed(self, asked: Rows, weights: Tensor, indices: Tensor) -> list[Row]:
        """The rows that mattered, as the table knows them."""
        least = float(weights.abs().max()) * MATTERS
        kept = [
            (weight, place)
            for weight, place in zip(weights.tolist(), indices.tolist(), strict=True)
            if abs(weight) > least
        ]
        # Rows as far above the query as others below weigh the same but for rounding: then in the table's order.
        kept.sort(key=lambda pair: (-float(f"{pair[0]:.5g}"), pair[1]))
        rows = asked.rows[[place for _, place in kept]].tolist()
        return [Row(*each, weight) for each, (weight, _) in zip(self.pairs.listed(rows), kept, strict=True)]

    def _named(self, query: Query) -> Any:
        """A query as the answer shows it: an entry, or a dict with the columns that it knows; None if it knows none."""
        known = {
            column.name: entry for column, entry in zip(self.pairs.keys, query, strict=True) if entry is not UNKNOWN
        }
        if len(self.pairs.keys) == 1 or not known:
            return next(iter(known.values()), None)
        return known

    def _by_name(self, parts: Sequence[Any]) -> Any:
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


def _remainder(total: float, rows: list[Row]) -> float:
    """The weight of the rows that are not listed; 0 where only rounding is left. A rule may give negative weights."""
    rest = total - sum(row.weight for row in rows)
    return rest if abs(rest) > 1e-6 * max(abs(total), 1.0) else 0.0
