"""A column as numbers: what a score can compare, and what weights can pool.

- `NumberColumn`, `TimeColumn`, `VectorColumn` are quantities: they have a distance and a mean.
- `TextColumn` is one too, as a key: its texts are compared by their vectors.
- `CategoryColumn` has neither: its entries are equal or they are not.
- `OtherColumn` holds what cannot be compared at all. It may be a value, never a key.

A missing entry is None, NaN, NaT or an infinity. The rule for missing entries is the database's: the row is left out.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, time, timedelta, tzinfo
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from regard.database.python_values import DAY, EPOCH, Entries, days_of, hashable, hours_of, is_missing, plain
from regard.errors import OptionError

DATE = re.compile(r"(\d{1,2}|\d{4})[/.-](\d{1,2})[/.-](\d{1,2}|\d{4})(?:[ T](\d{1,2})(:\d\d(?::\d\d)?))?")

TimeKind = Literal["date", "moment", "duration", "clock"]


class Column:
    """One column: its name, its entries as they were given, and which of them are missing."""

    kind: ClassVar[str]
    writing = ""  # How a table writes its entries, as `regard.database.cells.Cells` says it.

    def __init__(self, name: str, entries: Entries, missing: Tensor) -> None:
        self.name = name
        self.entries = entries
        self.missing = missing  # (n_rows,) bool

    def __len__(self) -> int:
        return len(self.entries)

    @property
    def label(self) -> str:
        """The kind of this column, in a word or two."""
        return self.kind

    def encode_all(self, entries: Sequence[Any]) -> list[list[float]]:
        """Entries, or queries, as numbers, where this column may be a key."""
        raise NotImplementedError  # pragma: no cover

    def notes(self, *, compared: bool) -> list[str]:
        """What has to be said of its entries where they are keys, which are compared, or values."""
        return []


class Quantity(Column):
    """A column with a distance and a mean."""

    unit = ""

    def __init__(self, name: str, entries: Entries, numbers: Tensor) -> None:
        finite = torch.isfinite(numbers).all(dim=-1)
        super().__init__(name, entries, ~finite)
        self.numbers = numbers  # (n_rows, dim)
        self.dim = int(numbers.shape[-1])

    def notes(self, *, compared: bool) -> list[str]:
        infinite = int(self.numbers.isinf().any(dim=-1).sum())
        said = f"{self.name}: {infinite:,} {'is' if infinite == 1 else 'are'} infinite, taken as missing"
        return [said] if infinite else []

    def encode(self, entry: Any) -> list[float]:
        """An entry, or a query, as numbers."""
        raise NotImplementedError  # pragma: no cover

    def encode_all(self, entries: Sequence[Any]) -> list[list[float]]:
        return list(map(self.encode, entries))

    def mean(self, numbers: Tensor) -> Any:
        """A pooled entry, from its numbers `(dim,)`."""
        raise NotImplementedError  # pragma: no cover

    def spread(self, numbers: Tensor) -> Any:
        """A standard deviation, from its numbers `(dim,)`."""
        raise NotImplementedError  # pragma: no cover


class NumberColumn(Quantity):
    """Numbers, in float64 whatever they came in.

    Args:
        given: the dtype that they came in. A query is rounded to it, so that 3.4 finds the key 3.4 of a float32 tensor.
    """

    kind = "number"

    def __init__(self, name: str, entries: Entries, numbers: Tensor, given: torch.dtype = torch.float64) -> None:
        super().__init__(name, entries, numbers.double())
        self.given = given

    def encode(self, entry: Any) -> list[float]:
        entry = plain(entry)
        if isinstance(entry, str):
            entry = _number_in(entry)
        try:
            number = float(entry)
        except (TypeError, ValueError, OverflowError):
            number = math.nan
        if not math.isfinite(number):
            advice = "; .parse() reads text as the column is written" if isinstance(entry, str) else ""
            raise OptionError(
                f"`{self.name}` must be a finite number: got {entry!r}. "
                f"Ask with a number, such as {self._example()!r}{advice}."
            )
        return [number if self.given == torch.float64 else float(torch.tensor(number, dtype=self.given))]

    def mean(self, numbers: Tensor) -> float:
        return float(numbers)

    spread = mean

    def notes(self, *, compared: bool) -> list[str]:
        found = super().notes(compared=compared)
        rounded = [] if compared else self._rounded()
        if rounded:
            said = "1 number is" if len(rounded) == 1 else f"{len(rounded):,} numbers are"
            found.append(f"{self.name}: beyond 2⁵³ {said} rounded in an average, such as {rounded[0]}")
        return found

    def confused(self) -> tuple[Any, Any] | None:
        """Two entries that differ and are the same float; None if there are none."""
        rows, entry_of = self._beyond(), dict[float, Any]()
        if len(self.numbers[rows].unique()) < len(rows):
            for row in rows:
                entry = self._entry(row)
                other = entry_of.setdefault(float(self.numbers[row]), entry)
                if other != entry:
                    return other, entry
        return None

    def _beyond(self) -> list[int]:
        """The rows of numbers from which on floats are further apart than integers."""
        rows: list[int] = ((self.numbers.abs() >= 2**53).flatten() & ~self.missing).nonzero().flatten().tolist()
        return rows

    def _entry(self, row: int) -> Any:
        return plain(self.entries[row])

    def _rounded(self) -> list[int]:
        """The integers that are no floats."""
        rows = self._beyond()
        if not rows or not isinstance(self._entry(rows[0]), int):
            return []
        return [entry for row in rows if (entry := self._entry(row)) != float(self.numbers[row])]

    def _example(self) -> Any:
        shown = [self.entries[row] for row in (~self.missing).nonzero()[:1].flatten().tolist()]
        return plain(shown[0]) if shown else 1.0


class TimeColumn(Quantity):
    """Dates, moments (date and time) or durations, which count in days; or clock times, in hours since midnight.

    A clock does not come round: 23:59 and 0:01 are almost a day apart.
    """

    def __init__(
        self, name: str, entries: Entries, numbers: Tensor, time_kind: TimeKind, zone: tzinfo | None = None
    ) -> None:
        super().__init__(name, entries, numbers)
        self.time_kind = time_kind
        self.zone = zone
        self.unit = "hours" if time_kind == "clock" else "days"

    @property
    def kind(self) -> str:  # type: ignore[override]
        return self.time_kind

    def encode(self, entry: Any) -> list[float]:
        entry = plain(entry)
        if isinstance(entry, str):
            entry = self._parse(entry)
        if self.time_kind == "clock" and isinstance(entry, time):
            return [hours_of(entry)]
        days = days_of(entry, self.zone) if not is_missing(entry) else None
        if isinstance(entry, datetime) and entry.tzinfo is not None and self.zone is None:
            raise OptionError(
                f"`{self.name}` must be a {self.time_kind} without a time zone, as the others are: got {entry} in "
                f"{entry.tzinfo}. Ask with .replace(tzinfo=None), in the zone that the column is in."
            )
        if days is None or isinstance(entry, timedelta) != (self.time_kind == "duration") or self.time_kind == "clock":
            examples = {"date": "2024-01-31", "moment": "2024-01-31T12:00:00", "duration": "timedelta(days=2)"}
            example = examples.get(self.time_kind, "13:30")
            raise OptionError(
                f"`{self.name}` must be a {self.time_kind}{' time' * (self.time_kind == 'clock')}: got {entry!r}. "
                f"Ask with one, such as {example}."
            )
        return [days]

    def mean(self, numbers: Tensor) -> Any:
        days = float(numbers)
        if not math.isfinite(days):  # the weights are no numbers, which who asks is told
            return None
        if self.time_kind == "clock":
            # Rounded to what Python's times hold; the last of a day stays in it.
            return (EPOCH + min(timedelta(hours=days), DAY - timedelta.resolution)).time()
        if self.time_kind == "duration":
            return timedelta(days=days)
        if self.time_kind == "date":
            return (EPOCH + timedelta(days=round(days))).date()
        moment = EPOCH + timedelta(days=days)
        return moment if self.zone is None else moment.replace(tzinfo=UTC).astimezone(self.zone)

    def spread(self, numbers: Tensor) -> timedelta | None:
        length = float(numbers)
        return timedelta(**{self.unit: length}) if math.isfinite(length) else None

    def _parse(self, text: str) -> Any:
        try:
            if self.time_kind == "duration":
                return timedelta(days=float(text))
            if self.time_kind == "clock":
                return _clock_time(text.strip())
            return datetime.fromisoformat(self._iso(text.strip()))
        except (OverflowError, ValueError):
            return text

    def _iso(self, text: str) -> str:
        """A date as ISO writes it, from what has the year first, or is written as the table writes dates."""
        found = DATE.fullmatch(text)
        if found is None:
            return text
        first, second, third, hour, rest = found.groups()
        if len(first) == 4:
            year, month, day = first, second, third
        elif self.writing:
            day, month, year = (first, second, third) if self.writing == "day" else (second, first, third)
        else:
            return text
        return f"{year}-{month:0>2}-{day:0>2}" + (f" {hour:0>2}{rest}" if hour else "")


def _clock_time(text: str) -> time:
    """13:30, or 1:30 pm."""
    half = re.search(r" ?([ap])m$", text, flags=re.IGNORECASE)
    clock = text[: half.start()] if half else text
    read = time.fromisoformat(f"0{clock}" if clock[1:2] == ":" else clock)
    if half is None:
        return read
    if not 1 <= read.hour <= 12:
        raise ValueError(text)
    return read.replace(hour=read.hour % 12 + 12 * (half[1] in "pP"))


class VectorColumn(Quantity):
    """Vectors of one length."""

    kind = "vector"

    @property
    def label(self) -> str:
        return f"vector of {self.dim}"

    def encode(self, entry: Any) -> list[float]:
        numbers = plain(entry)
        try:
            vector = [float(number) for number in numbers]
        except (TypeError, ValueError, OverflowError):
            vector = []
        if len(vector) != self.dim or not all(map(math.isfinite, vector)):
            raise OptionError(
                f"`{self.name}` must be a vector of {self.dim} finite numbers: got {entry!r}. "
                f"Ask with one of that length."
            )
        return [float(number) for number in torch.tensor(vector, dtype=self.numbers.dtype).tolist()]

    def mean(self, numbers: Tensor) -> Tensor:
        return numbers

    spread = mean


class TextColumn(Quantity):
    """Texts that are compared by what they mean: an encoder gives each its vector. It may be a key, never a value.

    Args:
        embed: from n texts to their vectors, `(n, dim)`.
    """

    kind = "text"

    def __init__(self, name: str, entries: Entries, numbers: Tensor, embed: Callable[[list[str]], Tensor]) -> None:
        super().__init__(name, entries, numbers)
        self.embed = embed

    @property
    def label(self) -> str:
        return f"text by meaning, in {self.dim} numbers"

    def encode(self, entry: Any) -> list[float]:
        return self.encode_all([entry])[0]

    def encode_all(self, entries: Sequence[Any]) -> list[list[float]]:
        texts = [plain(entry) for entry in entries]
        for text in texts:
            if not isinstance(text, str):
                raise OptionError(f"`{self.name}` must be a text: got {text!r}. Ask with a text.")
        vectors: list[list[float]] = self.embed(texts).tolist() if texts else []
        return vectors


class CategoryColumn(Column):
    """Entries that are equal or not: text, yes/no, or anything that can be hashed."""

    kind = "category"

    def __init__(self, name: str, entries: Entries, codes: Tensor, categories: Sequence[Any]) -> None:
        super().__init__(name, entries, codes < 0)
        self.codes = codes  # (n_rows,) int64: a place in `categories`, or −1 where missing
        self.categories = categories
        self._code_of: dict[Any, int] | None = None

    @property
    def label(self) -> str:
        kinds = {type(category) for category in self.categories[:1000]}
        return {frozenset({str}): "text", frozenset({bool}): "yes/no"}.get(frozenset(kinds), "category")

    def encode_all(self, entries: Sequence[Any]) -> list[list[float]]:
        return [[float(self.code(entry))] for entry in entries]

    def code(self, entry: Any) -> int:
        """The place of an entry among the categories; −1 for one that no row has."""
        if self._code_of is None:
            self._code_of = {category: code for code, category in enumerate(self.categories)}
        try:
            return self._code_of.get(hashable(entry), -1)
        except TypeError:
            return -1


class IdColumn(CategoryColumn):
    """Numbers that are equal or not, as a key: those of which some are the same float, and mean different rows.

    Args:
        given: the column as numbers, which it is as a value.
        confused: two entries that are the same float.
    """

    label = "number by equality"

    def __init__(self, given: NumberColumn, confused: tuple[Any, Any]) -> None:
        code_of: dict[Any, int] = {}
        rows = zip(given.entries, given.missing.tolist(), strict=True)
        codes = [-1 if missing else code_of.setdefault(plain(entry), len(code_of)) for entry, missing in rows]
        super().__init__(given.name, given.entries, torch.tensor(codes, dtype=torch.int64), list(code_of))
        self.given, self.confused = given, confused
        self.writing = given.writing

    def notes(self, *, compared: bool) -> list[str]:
        one, other = self.confused
        said = f"compared by equality, since beyond 2⁵³ numbers are taken for others nearby, such as {other} for {one}"
        return [*self.given.notes(compared=compared), f"{self.name}: {said}"]


def as_key(column: Column) -> Column:
    """A column as a key: numbers by equality, where some that differ are the same float."""
    confused = column.confused() if isinstance(column, NumberColumn) else None
    return IdColumn(column, confused) if isinstance(column, NumberColumn) and confused else column


class OtherColumn(Column):
    """Entries that can be neither compared nor pooled: they can only be ranked."""

    kind = "other"


def _number_in(text: str) -> Any:
    try:
        return float(text)
    except ValueError:
        return text


def names(columns: Iterable[Column]) -> list[str]:
    """The names of columns."""
    return [column.name for column in columns]
