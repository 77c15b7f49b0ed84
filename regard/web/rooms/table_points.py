"""The rows of a table as a picture has them: points while they are few, else counted in cells."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from regard.database.columns import CategoryColumn, Column
from regard.web.rooms.table_columns import frequent, is_line, numbers_of, reach

POINTS = 2500
CELLS = (120, 68)  # across, and up
LANES = 16  # categories of a key that stand side by side
SHARES = 6  # categories of a value whose probabilities are shown


def points(across: Column, up: Column, rows: Tensor) -> dict[str, Any]:
    """The rows that are complete, `(n,)`, where keys lie across and values up; those far away from nearly all left out.

    Where the value is a category there is nothing up: `lanes` are then the categories whose probabilities are shown.
    """
    found: dict[str, Any] = {"n": len(rows), "lanes": None, "columns": None, "low": 0.0, "high": 1.0, "outside": 0}
    found |= {"points": None, "cells": None}
    shown = frequent(across, LANES) if isinstance(across, CategoryColumn) else None
    found["columns"] = shown
    if isinstance(up, CategoryColumn):
        return found | {"lanes": frequent(up, SHARES)}
    if not is_line(up):
        return found
    heights = numbers_of(up)[rows]
    low, high = reach(heights)
    if isinstance(across, CategoryColumn):
        assert shown is not None
        place_of = torch.full((len(across.categories),), -1, dtype=torch.int64)
        place_of[shown] = torch.arange(len(shown))
        widths = place_of[across.codes[rows]].double()
        first, last = -0.5, len(shown) - 0.5
    else:
        widths = numbers_of(across)[rows]
        first, last = reach(widths)
    inside = (widths >= first) & (widths <= last) & (heights >= low) & (heights <= high)
    found |= {"low": low, "high": high, "from": first, "to": last, "outside": int((~inside).sum())}
    widths, heights = widths[inside], heights[inside]
    if len(rows) <= POINTS:
        return found | {"points": [widths.tolist(), heights.tolist(), rows[inside].tolist()]}
    columns = CELLS[0] if shown is None else len(shown)
    cells = _counted(widths, first, last, columns) * CELLS[1] + _counted(heights, low, high, CELLS[1])
    counts = torch.bincount(cells, minlength=columns * CELLS[1]).view(columns, CELLS[1])
    return found | {"cells": {"shape": [columns, CELLS[1]], "counts": counts.flatten().tolist()}}


def _counted(numbers: Tensor, low: float, high: float, count: int) -> Tensor:
    """In which of so many equal parts each number lies."""
    return ((numbers - low) / ((high - low) or 1.0) * count).long().clamp(0, count - 1)
