"""What the room of a table is asked: columns by their places, queries by numbers, and widths."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from regard.web.asked import AboutTable

MOST_KEYS = 8
MOST_LISTED = 400

Place = Annotated[int, Field(ge=0)]
Entry = float | Annotated[str, Field(max_length=1000)] | None
Width = Annotated[float, Field(gt=0)] | None


class AboutColumns(AboutTable):
    """A question about some columns: the keys, and the value that they lead to."""

    keys: Annotated[list[Place], Field(min_length=1, max_length=MOST_KEYS)]
    value: Place

    @model_validator(mode="after")
    def _check(self) -> Self:
        if len(set(self.keys)) < len(self.keys):
            raise ValueError("`keys` must name each column once")
        return self


class AboutWidths(AboutColumns):
    """A question by widths: of each key its bandwidth, or what a row weighs that differs; None as the table chooses.

    Args:
        counts: which keys the query knows; all of them, if left out.
    """

    widths: Annotated[tuple[Width, ...], Field(max_length=MOST_KEYS)] = ()
    counts: Annotated[tuple[bool, ...], Field(max_length=MOST_KEYS)] = ()

    @model_validator(mode="after")
    def _check_lengths(self) -> Self:
        for name, given in (("widths", self.widths), ("counts", self.counts)):
            if given and len(given) != len(self.keys):
                raise ValueError(f"`{name}` must have an entry for each key")
        if self.counts and not any(self.counts):
            raise ValueError("`counts` must name at least one key")
        return self

    def width(self, place: int) -> float | None:
        """The width of a key."""
        return self.widths[place] if self.widths else None

    @property
    def known(self) -> list[int]:
        """The keys that the query knows."""
        return [place for place in range(len(self.keys)) if not self.counts or self.counts[place]]


class AboutBest(AboutWidths):
    """The widths that predict hidden rows best.

    Args:
        aside: whether answers shall not wait for them, while they are searched.
    """

    aside: bool = False

    def subject(self) -> str:
        return f"errors of {self.table}" if self.aside else super().subject()


class AboutQuery(AboutWidths):
    """A question by a query: of each key a number, the place of a category, or a text as a table writes it.

    Args:
        along: the key that lies across.
        label: the column that names the rows, if there is one.
        top: how many rows are wanted, and how many of them in words.
    """

    query: Annotated[list[Entry], Field(max_length=MOST_KEYS)]
    along: Place = 0
    label: Place | None = None
    top: Annotated[int, Field(ge=1, le=MOST_LISTED)] = 40
    told: Annotated[int, Field(ge=1, le=100)] = 10

    @model_validator(mode="after")
    def _check_query(self) -> Self:
        if len(self.query) != len(self.keys):
            raise ValueError("`query` must have an entry for each key")
        if any(self.query[place] is None for place in self.known):
            raise ValueError("`query` must say something about each key that counts")
        return self


class AboutCurve(AboutQuery):
    """The outputs of many queries, which differ in one key alone.

    Args:
        at: its entries.
    """

    at: Annotated[list[float], Field(min_length=1, max_length=400)]


class AboutPoints(AboutColumns):
    """The rows as points: across, one of the keys."""

    along: Place = 0


class AboutErrors(AboutWidths):
    """The error of leave-one-out while one key's width changes and the others stay.

    Args:
        along: which key.
        tried: its widths.
    """

    along: Place = 0
    tried: Annotated[list[Annotated[float, Field(gt=0)]], Field(min_length=1, max_length=64)]

    def subject(self) -> str:
        return f"errors of {self.table}"  # not in the way of answers


class AboutLines(AboutQuery):
    """The lines of Python that compute an answer.

    Args:
        name: what the table's file is called.
    """

    name: Annotated[str, Field(max_length=300)]
