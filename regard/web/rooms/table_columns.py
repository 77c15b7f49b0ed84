"""The columns of a table as the page shows them: what they are, how far they reach, and which to begin with."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from regard.database.answer import jsonable
from regard.database.columns import CategoryColumn, Column, NumberColumn, Quantity, TimeColumn, as_key
from regard.database.render import entry_text
from regard.database.text_queries import entry_from
from regard.database.whole_table import WholeTable
from regard.errors import OptionError
from regard.printable import short_name

MOST_CATEGORIES = 300  # that can be chosen from; the most frequent ones
LONGEST_NAME = 80
SAMPLE = 1 << 17  # rows by which it is judged how far a column reaches
FAR = 4.0  # how many times as far as nearly all rows a few may reach before they are left out of the picture
FEW_KINDS = 50  # of a category that may say something beside others
MOST_JUDGED = 200  # columns
JUDGED = 1 << 13  # rows by which columns are compared, to find some to begin with


def is_line(column: Column) -> bool:
    """Whether its entries lie on a line: numbers, dates and times."""
    return isinstance(column, NumberColumn | TimeColumn)


def numbers_of(column: Column) -> Tensor:
    """Where the entries lie on a line, NaN where one is missing: `(n_rows,)`."""
    assert isinstance(column, Quantity)
    return torch.where(column.missing, torch.nan, column.numbers[:, 0])


def described(column: Column) -> dict[str, Any]:
    """One column, as it is where it is a key."""
    column = as_key(column)
    found: dict[str, Any] = {
        "name": short_name(column.name, LONGEST_NAME),
        "kind": column.kind if isinstance(column, TimeColumn) else column.label,
        "missing": int(column.missing.sum()),
        "role": _role(column),
    }
    if found["role"] == "line":
        low, high = reach(numbers_of(column))
        whole = isinstance(column, NumberColumn) and _are_whole(column)
        return found | {"low": low, "high": high, "whole": whole or column.kind == "date", "unit": column.unit}  # type: ignore[attr-defined]
    if found["role"] == "category":
        assert isinstance(column, CategoryColumn)
        common = frequent(column, MOST_CATEGORIES)
        names = [short_name(entry_text(column.categories[code]), LONGEST_NAME) for code in common]
        return found | {
            "categories": [list(each) for each in zip(common, names, strict=True)],
            "n": len(column.categories),
        }
    return found


def frequent(column: CategoryColumn, most: int) -> list[int]:
    """The codes of the most frequent categories, the first ones where some are as frequent."""
    counts = torch.bincount(column.codes[column.codes >= 0], minlength=len(column.categories))
    codes: list[int] = counts.sort(descending=True, stable=True).indices[:most].tolist()
    return codes


def reach(numbers: Tensor) -> tuple[float, float]:
    """The least and the largest number, without the few that are far away from nearly all."""
    finite = numbers[torch.isfinite(numbers)]
    if not len(finite):
        return 0.0, 1.0
    low, high = float(finite.min()), float(finite.max())
    sample = finite[:: max(len(finite) // SAMPLE, 1)]
    if len(sample) >= 100:
        near = torch.quantile(sample, torch.tensor([0.005, 0.995], dtype=sample.dtype)).tolist()
        if high - low > FAR * (near[1] - near[0]) > 0:
            margin = 0.05 * (near[1] - near[0])
            return max(low, near[0] - margin), min(high, near[1] + margin)
    return low, high


def entry_of(column: Column, given: float | str | None) -> Any:
    """An entry of a query as the table has it: of a number on its line, of a category's place, or as it is written."""
    if given is None:
        return None
    if isinstance(given, str):
        entry = entry_from(given, column)
        if entry is None:
            raise OptionError(f"`{short_name(column.name)}` must be said by the query: got {short_name(given)!r}.")
        return entry
    if isinstance(column, CategoryColumn):
        if not (given == int(given) and 0 <= given < len(column.categories)):
            raise OptionError(f"A category must be from 0 to {len(column.categories) - 1}: got {given:g}.")
        return column.categories[int(given)]
    if isinstance(column, TimeColumn):
        try:
            return column.mean(torch.tensor(given, dtype=torch.float64))
        except (OverflowError, ValueError):
            raise OptionError(
                f"`{short_name(column.name)}` must be a {column.kind} that there is: got {given:g}."
            ) from None
    whole = isinstance(column, NumberColumn) and given == int(given) and abs(given) < 2**53 and _are_whole(column)
    return int(given) if whole else given


def number_in(column: Column, entry: Any) -> float | None:
    """Where an entry, or an output, lies on its column's line; None where it does not."""
    if entry is None or not isinstance(column, Quantity) or not is_line(column):
        return None
    (number,) = column.encode(entry)
    return number


def written(column: Column, entry: Any) -> Any:
    """An entry of a query as a control has it: a number, ISO text of a date, or the place of a category."""
    if isinstance(column, CategoryColumn):
        return column.code(entry)
    return jsonable(entry)


def suggested(whole: WholeTable) -> dict[str, Any]:
    """Columns to begin with: the value is the last number, the key what goes with it most; labels are all different."""
    columns = whole.columns
    places = range(len(columns))
    every = [place for place in places if _role(columns[place]) == "line"]
    counting = [place for place in every if _counts_rows(columns[place])]
    lines = [place for place in every if place not in counting] or every
    names = [place for place in places if _role(columns[place]) == "category"]
    numbers = [place for place in lines if isinstance(columns[place], NumberColumn)]
    labels = [place for place in names if _names_rows(columns[place])]
    few = [place for place in names if 1 < len(columns[place].categories) <= MOST_CATEGORIES and place not in labels]  # type: ignore[attr-defined]
    label = next(iter(labels), None)
    value = next(iter([*reversed(numbers), *reversed(lines), *reversed(few), *reversed(names)]), None)
    others = [place for place in (*lines, *few, *counting, *names) if place != value]
    if value is None or not others:
        usable = [place for place in places if _role(columns[place]) != "none"]
        key = next((place for place in usable if place != value), None)
        value = value if value is not None else next((place for place in usable if place != key), None)
        return {"key": key, "value": value, "label": None}
    along = [place for place in lines if place != value]
    key = max(along, key=lambda place: _goes_with(columns[place], columns[value])) if along else others[0]
    return {"key": key, "value": value, "label": None if label in (key, value) else label}


def _role(column: Column) -> str:
    if is_line(column):
        return "line" if not bool(column.missing.all()) else "none"
    return "category" if isinstance(column, CategoryColumn) and len(column.categories) else "none"


def _are_whole(column: NumberColumn) -> bool:
    numbers = column.numbers[~column.missing][:SAMPLE]
    return bool((numbers == numbers.round()).all())


def _counts_rows(column: Column) -> bool:
    """Whether it is no more than the rows' own numbers."""
    numbers = numbers_of(column)
    return isinstance(column, NumberColumn) and len(numbers) > 2 and bool((numbers.diff() == 1).all())


def _names_rows(column: Column) -> bool:
    n_rows = len(column) - int(column.missing.sum())
    return isinstance(column, CategoryColumn) and n_rows > 1 and len(column.categories) == n_rows


def _goes_with(column: Column, value: Column) -> float:
    """How much of the value a straight line through the column says: the square of their correlation."""
    if not is_line(value):
        return 0.0
    step = max(len(column) // JUDGED, 1)
    both = torch.stack([numbers_of(column)[::step], numbers_of(value)[::step]])
    both = both[:, torch.isfinite(both).all(0)]
    if both.shape[1] < 3:
        return 0.0
    found = float(torch.corrcoef(both)[0, 1])
    return found**2 if math.isfinite(found) else 0.0


def telling_most(whole: WholeTable, keys: list[int], value: int) -> int | None:
    """The free column that says most of what some keys leave open of a value; None where none is free."""
    free = [
        place for place, column in enumerate(whole.columns) if place not in (*keys, value) and _role(column) != "none"
    ]
    step = max(len(whole) // JUDGED, 1)
    left = _targets(whole.columns[value], step)
    for key in keys:
        left = left - _explained(whole.columns[key], left, step)
    said = {place: _share(whole.columns[place], left, step) for place in free[:MOST_JUDGED]}
    # Where nothing can be judged: small categories, then lines, then names that hardly come twice.
    return max(free, key=lambda place: (said.get(place, 0.0), -_order(whole.columns[place]), -place), default=None)


def _order(column: Column) -> int:
    return 1 if is_line(column) else 2 - (len(_as_category(column).categories) <= FEW_KINDS) * 2


def _as_category(column: Column) -> CategoryColumn:
    assert isinstance(column, CategoryColumn)
    return column


def _targets(value: Column, step: int) -> Tensor:
    """What is predicted, `(n, n_targets)`, less its mean: a number, or of frequent categories whether each is there."""
    if is_line(value):
        targets = numbers_of(value)[::step, None]
    elif isinstance(value, CategoryColumn):
        codes = value.codes[::step, None]
        targets = (codes == torch.tensor(frequent(value, FEW_KINDS))).double()
        targets[codes[:, 0] < 0] = torch.nan
    else:
        return torch.zeros(len(range(0, len(value), step)), 1, dtype=torch.float64)
    return targets - targets.nanmean(0)


def _explained(column: Column, targets: Tensor, step: int) -> Tensor:
    """What a column says of targets: a parabola of a line, the means of a category's kinds; 0 where it says nothing."""
    found = torch.zeros_like(targets)
    if is_line(column):
        at = numbers_of(column)[::step]
        rows = torch.isfinite(at) & torch.isfinite(targets).all(1)
        spread = at[rows].std() if int(rows.sum()) > 4 else torch.tensor(0.0)
        if not (spread > 0 and math.isfinite(float(spread))):
            return found
        scaled = (at[rows] - at[rows].mean()) / spread
        terms = torch.stack([torch.ones_like(scaled), scaled, scaled**2], 1)
        found[rows] = terms @ (torch.linalg.pinv(terms) @ targets[rows])
    elif isinstance(column, CategoryColumn) and len(column.categories) <= FEW_KINDS:
        codes = column.codes[::step]
        for kind in range(len(column.categories)):
            rows = (codes == kind) & torch.isfinite(targets).all(1)
            if rows.any():
                found[rows] = targets[rows].mean(0)
    return found


def _share(column: Column, targets: Tensor, step: int) -> float:
    """What part of the targets' variance a column says, less what as many numbers would say by chance."""
    rows = torch.isfinite(targets).all(1)
    whole = float((targets[rows] ** 2).sum())
    n_rows, n_numbers = int(rows.sum()), 3 if is_line(column) else len(_as_category(column).categories)
    if not (0 < whole < math.inf and n_rows > n_numbers):
        return 0.0
    left = float(((targets - _explained(column, targets, step))[rows] ** 2).sum())
    return max(1 - left / whole * (n_rows - 1) / (n_rows - n_numbers), 0.0) if math.isfinite(left) else 0.0
