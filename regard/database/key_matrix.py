"""Key columns side by side as one matrix: what a score compares."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from regard.database.columns import CategoryColumn, Column, Quantity, TextColumn, VectorColumn
from regard.database.leave_one_out import Places


class Encoding:
    """The keys of the rows that are complete, as a matrix `(n_rows, dim)`.

    A quantity takes as many coordinates as it has numbers; a category takes one, its code. `own` holds the numbers as
    they are. `scaled` holds quantities in standard deviations from their mean, so that columns with different units can
    be compared together; a constant column, which has no standard deviation, is only centred.
    """

    def __init__(self, columns: Sequence[Column], rows: Tensor) -> None:
        self.columns = tuple(columns)
        self.rows = rows
        self.coordinates: list[list[int]] = []
        self.dim = 0
        for column in columns:
            start, self.dim = self.dim, self.dim + (column.dim if isinstance(column, Quantity) else 1)
            self.coordinates.append(list(range(start, self.dim)))

    @cached_property
    def dtype(self) -> torch.dtype:
        """float64, so that a million rows sum without loss; but vectors that came in float32 stay in it."""
        narrow = bool(self.columns) and all(
            isinstance(column, VectorColumn | TextColumn) and column.numbers.dtype == torch.float32
            for column in self.columns
        )
        return torch.float32 if narrow else torch.float64

    @cached_property
    def own(self) -> Tensor:
        """Keys in their own units, `(n_rows, dim)`."""
        parts = [
            column.numbers if isinstance(column, Quantity) else _category(column).codes.unsqueeze(-1)
            for column in self.columns
        ]
        if not parts:
            return torch.zeros(len(self.rows), 0, dtype=self.dtype)
        whole = torch.cat([part.to(self.dtype) for part in parts], dim=-1)
        return whole if len(self.rows) == len(whole) else whole[self.rows]

    @cached_property
    def scaled(self) -> Tensor:
        """Quantities in standard deviations from their mean, categories as codes: `(n_rows, dim)`."""
        return self.in_deviations(self.own)

    def in_deviations(self, own: Tensor) -> Tensor:
        """Keys or queries in standard deviations, from their own units."""
        return (own / self.unit - self._centre) / self._scale

    @cached_property
    def unit(self) -> Tensor:
        """What each coordinate is counted in: 1, but for numbers so large or small that their squares do not fit."""
        unit = torch.ones(self.dim, dtype=self.dtype)
        for column, coordinates in zip(self.columns, self.coordinates, strict=True):
            if isinstance(column, Quantity):
                unit[coordinates] = safe_unit(self.own[:, coordinates])
        return unit

    @cached_property
    def _centre(self) -> Tensor:
        """The mean of each quantity in units, 0 for categories: `(dim,)`."""
        means = (self.own / self.unit).mean(dim=0) if len(self.rows) else torch.zeros(self.dim, dtype=self.dtype)
        return torch.where(self._is_quantity, means, 0)

    @property
    def scale(self) -> Tensor:
        """The standard deviation of each quantity, 1 for categories and constants: `(dim,)`.

        The coordinates of a vector share one scale: their directions and relative lengths mean something.
        """
        return self._scale * self.unit

    @cached_property
    def _scale(self) -> Tensor:
        scale = torch.ones(self.dim, dtype=self.dtype)
        for column, coordinates in zip(self.columns, self.coordinates, strict=True):
            if isinstance(column, Quantity) and len(self.rows):
                own = self.own[:, coordinates] / self.unit[coordinates]
                variance = own.var(dim=0, correction=0).mean()
                # A constant column's deviation may come out as rounding noise, a few units in the last place.
                noise = (8 * torch.finfo(self.dtype).eps) ** 2 * own.square().mean()
                scale[coordinates] = variance.sqrt() if variance > noise else torch.ones_like(variance)
        return scale

    @cached_property
    def _is_quantity(self) -> Tensor:
        flags = [
            isinstance(column, Quantity)
            for column, each in zip(self.columns, self.coordinates, strict=True)
            for _ in each
        ]
        return torch.tensor(flags, dtype=torch.bool)

    def places(self, columns: Sequence[int]) -> list[int]:
        """The coordinates of some columns."""
        return [coordinate for column in columns for coordinate in self.coordinates[column]]

    def places_of(self, quantities: Sequence[int], categories: Sequence[int]) -> Places:
        """Where some columns stand."""
        return Places(tuple(tuple(self.coordinates[each]) for each in quantities), tuple(self.places(categories)))

    def encode(self, entries: Sequence[Sequence[Any]], n_queries: int) -> Tensor:
        """Queries as rows of the matrix, in their own units: `(n_queries, dim)`.

        Args:
            entries: what the queries say of each column.
            n_queries: how many they are.
        """
        numbers = torch.zeros(n_queries, self.dim, dtype=self.dtype)
        for column, coordinates, each in zip(self.columns, self.coordinates, entries, strict=True):
            numbers[:, coordinates] = torch.tensor(column.encode_all(each), dtype=self.dtype)
        return numbers


def _category(column: Column) -> CategoryColumn:
    assert isinstance(column, CategoryColumn)  # Database refuses any other column as a key.
    return column


def safe_unit(numbers: Tensor) -> float:
    """1, or the power of two that brings numbers near 1 whose squares would be infinite or 0.

    Example:
        >>> safe_unit(torch.tensor([3.0, -4.0])), safe_unit(torch.tensor([1e200], dtype=torch.float64)) > 1e199
        (1.0, True)
    """
    peak = float(numbers.abs().max()) if numbers.numel() else 0.0
    limit = torch.finfo(numbers.dtype).max ** 0.25
    if peak == 0 or 1 / limit < peak < limit:
        return 1.0
    return float(2.0 ** (math.frexp(peak)[1] - 1))
