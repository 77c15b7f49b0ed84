"""How well rows are predicted when they are hidden, by the widths that the data choose and by any others."""

from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property

import torch

from regard.database.attending import Rows
from regard.database.bandwidth import LEAST_MISMATCH, hidden
from regard.database.columns import CategoryColumn, NumberColumn, Quantity, TimeColumn
from regard.database.leave_one_out import LeaveOneOut
from regard.engines.torch_internals import use_one_core


class HiddenRows:
    """The error of leave-one-out, over the rows in which some key columns are complete.

    A width is the bandwidth of a quantity in the column's own units, or what a row weighs that differs in a category;
    None for a column that is ignored.

    Args:
        rows: the rows.
    """

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        encoding = rows.encoding
        places = range(len(encoding.columns))
        self._quantities = [place for place in places if isinstance(encoding.columns[place], Quantity)]
        self._categories = [place for place in places if place not in self._quantities]

    @property
    def method(self) -> str:
        """How the widths are chosen that a query is answered by."""
        return self._rows.choice.method if self._quantities else "equality"

    @property
    def best(self) -> list[float | None]:
        """The widths that a query is answered by, one for each column."""
        if not self._quantities:
            return [0.0] * len(self._categories)  # compared by equality alone: what differs weighs nothing
        widths = self._rows.choice.widths
        found: dict[int, float | None] = {}
        for place, width in zip(self._quantities, widths.bandwidths, strict=True):
            # Of numbers that are hardly any the product may be 0, which is no bandwidth.
            found[place] = max(width * self._scale(place), math.ulp(0.0)) if width < math.inf else None
        for place, mismatch in zip(self._categories, widths.mismatches, strict=True):
            found[place] = mismatch if mismatch < 1 else None
        return [found[place] for place in sorted(found)]

    @cached_property
    def _missed(self) -> tuple[LeaveOneOut | None, float]:
        """The error as a function, None where the values cannot be predicted; and its size in the value's units."""
        rows = self._rows
        targets = rows.pool.targets(torch.arange(len(rows.rows))) if len(rows.rows) > 1 else None
        if targets is None or not targets.shape[-1]:
            return None, math.nan
        places = rows.encoding.places_of(self._quantities, self._categories)
        return hidden(rows.encoding.scaled, places, targets, None), rows.pool.deviation

    @property
    def n_hidden(self) -> int:
        """How many rows are hidden, one at a time; 0 where nothing can be predicted."""
        missed, _ = self._missed
        return 0 if missed is None else len(missed.asked)

    @property
    def measure(self) -> str:
        """What the error is: the root of the mean square of what is missed, or the Brier score of categories."""
        (column,) = self._rows.pool.columns
        if isinstance(column, CategoryColumn):
            return "Brier score"
        return "root mean square" if isinstance(column, NumberColumn | TimeColumn) else "in standard deviations"

    def errors(self, widths: Sequence[Sequence[float | None]]) -> list[float]:
        """The error by each of some lists of widths; NaN where one is so small that scores would be no numbers."""
        missed, unit = self._missed
        if missed is None:
            return [math.nan] * len(widths)
        factors = torch.tensor([self._factors(each) for each in widths], dtype=torch.float64)
        with ThreadPoolExecutor(1, "regard", initializer=use_one_core) as pool:
            found = pool.submit(missed.errors, factors).result()
        if self.measure == "Brier score":
            return found.tolist()
        return (found.sqrt() * (unit if self.measure == "root mean square" else 1.0)).tolist()

    def _factors(self, widths: Sequence[float | None]) -> list[float]:
        factors = []
        for place in self._quantities:
            width = widths[place]
            ratio = 0.0 if width is None else self._scale(place) / width
            factors.append(ratio * ratio)  # infinite where ** would raise: the error is NaN then
        for place in self._categories:
            mismatch = widths[place]
            factors.append(0.0 if mismatch is None else -math.log(max(mismatch, LEAST_MISMATCH)))
        return factors

    def _scale(self, place: int) -> float:
        return float(self._rows.encoding.scale[self._rows.encoding.coordinates[place][0]])
