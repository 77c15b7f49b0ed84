"""What the room of the formula is asked: points, and a score, a rule and a mask by name."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from regard.web.asked import Asked
from regard.web.rooms.formula_call import Call

Point = Annotated[list[float], Field(min_length=1, max_length=2)]
Positive = Annotated[float, Field(gt=0)]
PAIRS = 5_000_000  # of a query of the grid and a key: a few seconds, whatever the rule


class Formula(Asked):
    """Attention of one query over keys that are points of a line or of a plane.

    Args:
        query: Its coordinates.
        keys: A point each.
        values: A value each: one number, or a point.
        on: Whether each key takes part.
        score, bandwidth: How similar a query and a key are; `bandwidth` is the radius of kernels that end.
        rule, temperature, alpha, k: How scores become weights.
        mask, nearest: Which keys a query may attend to: all, those at its left, or so many that are nearest to it.
    """

    query: Point
    keys: Annotated[list[Point], Field(max_length=2000)]
    values: Annotated[list[Point], Field(max_length=2000)]
    on: Annotated[list[bool], Field(max_length=2000)]
    score: Literal["gaussian", "scaled", "dot", "cosine", "laplacian", "boxcar", "epanechnikov", "triangular"]
    bandwidth: Positive = 1.0
    rule: Literal[
        "softmax", "proportional", "sparsemax", "entmax", "topk", "onehot", "uniform", "sigmoid", "conic", "raw"
    ]
    temperature: Positive = 1.0
    alpha: Annotated[float, Field(ge=1, le=4)] = 1.5
    k: Annotated[int, Field(ge=1, le=2000)] = 3
    mask: Literal["all", "left", "nearest"] = "all"
    nearest: Annotated[int, Field(ge=1, le=2000)] = 3

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not len(self.keys) == len(self.values) == len(self.on):
            raise ValueError("there must be one value, and one entry of `on`, for each key")
        if not self.keys:
            raise ValueError("there must be a key")
        if any(len(each) != len(self.query) for each in self.keys):
            raise ValueError("query and keys must have as many coordinates as each other")
        if len({len(each) for each in self.values}) != 1:
            raise ValueError("values must have as many coordinates as each other")
        return self

    @property
    def is_masked(self) -> bool:
        """Whether there is a key that a query may not attend to."""
        return self.mask != "all" or not all(self.on)

    def scored(self) -> Call:
        """The score."""
        match self.score:
            case "gaussian" | "laplacian" | "boxcar" | "epanechnikov" | "triangular":
                return Call(self.score.capitalize(), (self.bandwidth,))
            case "scaled":
                return Call("ScaledDot")
            case "dot" | "cosine":
                return Call(self.score.capitalize())

    def ruled(self) -> Call:
        """The rule."""
        softmax = Call("Softmax", () if self.temperature == 1 else (self.temperature,))
        match self.rule:
            case "softmax":
                return softmax
            case "topk":
                return Call("TopK", (self.k, softmax))
            case "entmax":
                return Call("Entmax", (self.alpha,))
            case "onehot":
                return Call("OneHot")
            case "proportional" | "sparsemax" | "uniform" | "sigmoid" | "conic" | "raw":
                return Call(self.rule.capitalize())


class Grid(Asked):
    """Queries at equal distances, from one corner to the other: the rows of a picture, from its top.

    Args:
        low, high: The corners.
        shape: How many queries along each axis.
    """

    low: Point
    high: Point
    shape: Annotated[list[Annotated[int, Field(ge=1, le=512)]], Field(min_length=1, max_length=2)]

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not len(self.low) == len(self.high) == len(self.shape):
            raise ValueError("`low`, `high` and `shape` must have as many entries as each other")
        return self

    def queries(self) -> list[list[float]]:
        """The queries, in the middle of their cells."""
        axes = [
            [low + (high - low) * (place + 0.5) / count for place in range(count)]
            for low, high, count in zip(self.low, self.high, self.shape, strict=True)
        ]
        if len(axes) == 1:
            return [[x] for x in axes[0]]
        return [[x, y] for y in reversed(axes[1]) for x in axes[0]]


class Picture(Formula):
    """The same, with the outputs of a grid of queries."""

    field: Grid | None = None

    @model_validator(mode="after")
    def _check_field(self) -> Self:
        if self.field is None:
            return self
        if len(self.field.low) != len(self.query):
            raise ValueError("`field` must have as many coordinates as the query")
        cells = 1
        for count in self.field.shape:
            cells *= count
        if cells * len(self.keys) > PAIRS:
            raise ValueError(f"`field` must have at most {PAIRS:,} pairs of a query and a key")
        return self
