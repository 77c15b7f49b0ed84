"""Answer: a value, and the rows behind it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple, overload

import torch
from torch import Tensor

from regard.database.python_values import is_missing, plain

if TYPE_CHECKING:
    from rich.console import RenderableType


class Row(NamedTuple):
    """A row behind an answer: its label in the table, its key, its value and its weight."""

    index: Any
    key: Any
    value: Any
    weight: float


@dataclass(frozen=True)
class Labels:
    """What the columns of an answer are called."""

    keys: tuple[str, ...]
    values: tuple[str, ...]
    index: str = "row"
    ids: frozenset[str] = frozenset()  # the key columns whose numbers are names


@dataclass(frozen=True, repr=False, eq=False)
class Answer:
    """The attention-weighted value of rows similar to the query.

    Attributes:
        query: what was asked.
        found: False where no row is similar; `message` then says so, and `value` is None.
        value: of numbers, dates and vectors the weighted mean; of categories the likeliest; of anything else the
            heaviest row's. With several value columns, a dict with one for each.
        std: the weighted standard deviation, where the values are quantities and the weights sum to 1.
        probabilities: of each category, likeliest first (the 1,000 likeliest, if there are more).
        rows: the pairs that mattered, heaviest first.
        rest: the weight of the rows that are not listed.
        effective_rows: how many rows of equal weight would say as much: (Σα)² / Σα², Kish's number; 0 where nothing is
            found.
        similarity: the score and the weights that were used, in words.
        n_rows, n_left_out: how many rows were weighed, and how many were left out because a key or value is missing.
        message: what else there is to say; "" if nothing.
        notes: what was made of the table when it was read: marks taken for missing, texts for dates, and the like.
    """

    query: Any
    found: bool
    value: Any
    std: Any
    probabilities: Any
    rows: list[Row]
    rest: float
    similarity: str
    n_rows: int
    n_left_out: int
    message: str
    labels: Labels = field(default=Labels(("key",), ("value",)))
    notes: tuple[str, ...] = ()
    effective_rows: float = 0.0

    @property
    def weights(self) -> Tensor:
        """The weights of `rows`, heaviest first."""
        return torch.tensor([row.weight for row in self.rows], dtype=torch.float64)

    def as_dict(self) -> dict[str, Any]:
        """The answer in plain types that JSON can hold: dates as ISO text, durations in days, vectors as lists."""
        return {
            "query": jsonable(self.query),
            "found": self.found,
            "value": jsonable(self.value),
            "std": jsonable(self.std),
            "probabilities": jsonable(self.probabilities),
            "rows": [{name: jsonable(each) for name, each in row._asdict().items()} for row in self.rows],
            "rest": self.rest,
            "effective_rows": self.effective_rows,
            "similarity": self.similarity,
            "n_rows": self.n_rows,
            "n_left_out": self.n_left_out,
            "message": self.message,
            "notes": list(self.notes),
        }

    def __repr__(self) -> str:
        from regard.database.render import answer_report, as_text

        return as_text(answer_report(self))

    def __rich__(self) -> RenderableType:
        from regard.database.render import answer_report, as_rich

        return as_rich(answer_report(self))

    def _repr_html_(self) -> str:
        from regard.database.render import answer_report, as_html

        return as_html(answer_report(self))


class Answers(Sequence[Answer]):
    """One answer for each query, in order."""

    def __init__(self, answers: Sequence[Answer]) -> None:
        self._answers = list(answers)

    @property
    def values(self) -> list[Any]:
        """The value of each answer; None where nothing was found."""
        return [answer.value for answer in self]

    def __len__(self) -> int:
        return len(self._answers)

    @overload
    def __getitem__(self, place: int, /) -> Answer: ...
    @overload
    def __getitem__(self, place: slice, /) -> Answers: ...
    def __getitem__(self, place: int | slice, /) -> Answer | Answers:
        return Answers(self._answers[place]) if isinstance(place, slice) else self._answers[place]

    def __iter__(self) -> Iterator[Answer]:
        return iter(self._answers)

    def __repr__(self) -> str:
        from regard.database.render import answers_report, as_text

        return as_text(answers_report(self))

    def __rich__(self) -> RenderableType:
        from regard.database.render import answers_report, as_rich

        return as_rich(answers_report(self))

    def _repr_html_(self) -> str:
        from regard.database.render import answers_report, as_html

        return as_html(answers_report(self))


def jsonable(entry: Any) -> Any:
    """An entry in plain types that JSON can hold."""
    entry = plain(entry)
    if is_missing(entry) or (isinstance(entry, float) and not math.isfinite(entry)):
        return None  # JSON has no word for it
    if isinstance(entry, dict):
        return dict(zip(_json_names(entry), map(jsonable, entry.values()), strict=True))
    if isinstance(entry, list | tuple):
        return [jsonable(each) for each in entry]
    if isinstance(entry, date):
        return entry.isoformat()
    if isinstance(entry, timedelta):
        return entry / timedelta(days=1)
    if isinstance(entry, bool | int | float | str):
        return entry
    return str(entry)


def _json_names(entry: dict[Any, Any]) -> list[str]:
    """The keys of a dict as texts that are all different: where 1 and "1" are both there, the number is "int 1"."""
    taken = {key for key in entry if isinstance(key, str)}
    names = []
    for key in entry:
        name = key if isinstance(key, str) else str(jsonable(key))
        while not isinstance(key, str) and name in taken:
            name = f"{type(key).__name__} {name}"
        taken.add(name)
        names.append(name)
    return names
