"""Numbers, dates and times as people write them: a column of such texts as an Arrow array of what they say.

Each of `PARSERS` reads a column as one kind of value, if that is what all of its cells are.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, NamedTuple

import pyarrow as arrow
import pyarrow.compute as compute

from regard.database.csv_conventions import SIGNS

LONGEST = 40
"""How much of a cell is quoted."""

HEAD = 4096
"""How many cells are tried first."""

LONG = 2.0**63
"""From here on no integers are numbers: floats would take neighbours for equal, and so many digits are a name."""

INTEGER_WITH_ZERO = r"^[+-]?0[0-9]+$"
NUMBER = r"^[+-]?([0-9]+[.]?[0-9]*|[.][0-9]+)([eE][+-]?[0-9]+)?$"
WRITTEN_NUMBER = (
    rf"^(?P<minus>[(+-]?) ?(?P<before>[{SIGNS}]?) ?(?P<digits>[0-9][0-9.,]*) ?(?P<after>[%{SIGNS}]?)(?P<close>[)]?)$"
)
POINTS = r"^([1-9][0-9]{0,2}(,[0-9]{3})+|[0-9]+)([.][0-9]+)?$"  # 1,200.50
COMMAS = r"^([1-9][0-9]{0,2}([.][0-9]{3})+|[0-9]+)(,[0-9]+)?$"  # 1.200,50
THOUSANDS = r"^[+-]?[1-9][0-9]{0,2},[0-9]{3}$"  # or decimals, three of them
UNDERSTOOD = rf"^[(+-]? ?[{SIGNS}]? ?({POINTS[1:-1]}|{COMMAS[1:-1]}) ?[%{SIGNS}]?[)]?$"
MONEY = rf"([{SIGNS}]|USD|EUR|GBP|JPY|CHF|CNY|INR)"
LIKE_NUMBER = (
    rf"^[(+-]? ?{MONEY}? ?[(+-]?[0-9]+([., '][0-9]{{3}})*([.,][0-9]*)? ?(%|{MONEY})?[)-]?$"  # (500), 10%, 1 200
)
MONTH = r"(?i:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*[.]?"
LIKE_DATE = (
    rf"^({MONTH}[ -][0-9]{{1,2}},?[ -][0-9]{{2,4}}|[0-9]{{1,2}}[.]?[ -]?{MONTH}[ -]?[0-9]{{2,4}}"  # Jan 5, 2023
    r"|[0-9]{4}[/.-][0-9]{1,2}[/.-][0-9]{1,2}|[0-9]{1,2}[/.-][0-9]{1,2}[/.-][0-9]{4}|[0-9]{1,2}/[0-9]{1,2}/[0-9]{2})"
    r"([ T,].*)?$"
)
CLOCK = r"^(?P<clock>(?:[01]?[0-9]|2[0-3]):[0-5][0-9](?::[0-5][0-9](?:[.][0-9]{1,6})?)?)(?P<half>(?: ?[aApP][mM])?)$"
TIME = r"(?P<time>(?:[ T][0-2]?[0-9]:[0-5][0-9](?::[0-5][0-9])?)?)$"


@dataclass
class Said:
    """What is found out while a column is read: the fields of `Cells`."""

    notes: list[str] = field(default_factory=list)
    writing: str = ""


class Style(NamedTuple):
    """How a file writes numbers. Where its point is a comma, points are groups of digits, or no numbers."""

    delimiter: str
    point: str  # "." or ","

    @property
    def writing(self) -> str:
        """What `Cells.writing` says of numbers without groups of digits."""
        return "," if self.point == "," else ""


def clean(cells: Any, style: Style) -> Any:
    """Numbers or dates that need no second look, which are most; None if they do."""
    if cells.null_count == len(cells):
        return None
    array = _cast(cells, arrow.int64(), *[arrow.float64()] * (style.point == "."), arrow.date32())
    if array is None or (arrow.types.is_floating(array.type) and not all_match(compute.less(compute.abs(array), LONG))):
        return None  # NaN is less than nothing
    coded = arrow.types.is_integer(array.type) and compute.any(compute.starts_with(cells, "0")).as_py()
    return None if coded and compute.any(_with_zeros(cells.filter(compute.starts_with(cells, "0")))).as_py() else array


def _with_zeros(cells: Any) -> Any:
    """Which cells are digits that begin with a 0: codes, not numbers."""
    return compute.match_substring_regex(cells, INTEGER_WITH_ZERO)


def _coded(name: str, cells: Any) -> str:
    return f"{name} is text, not numbers: some begin with 0, such as {_first(cells)}"


def all_match(matches: Any) -> bool:
    """Whether all that is not missing matches."""
    return compute.all(matches).as_py() is not False


def _cast(array: Any, *kinds: Any) -> Any:
    """The array as the first kind that all of its cells are; None if there is no such kind."""
    for kind in kinds:
        try:
            compute.cast(array.slice(0, HEAD), kind)  # A cast that fails goes through every cell.
            return compute.cast(array, kind)
        except arrow.ArrowInvalid:
            continue
    return None


def _first(array: Any) -> str:
    """The first cell that is not missing, for a note."""
    cell: str = array.drop_null()[0].as_py()
    return repr(cell if len(cell) <= LONGEST else f"{cell[:LONGEST]}…")


def _first_but(cells: Any, pattern: str, shown: Any) -> str:
    """What is shown for the first cell that does not match a pattern."""
    return _first(shown.filter(compute.invert(compute.match_substring_regex(cells, pattern))))


def merged(name: str, texts: Any, array: Any) -> list[str]:
    """What has to be said where numbers of many digits are one float."""
    if not arrow.types.is_floating(array.type):
        return []
    large = compute.greater_equal(compute.abs(array), 2.0**53)
    if not compute.any(large).as_py():
        return []
    written, floats = compute.unique(texts.filter(large)), compute.unique(array.filter(large))
    equal = len(set(map(Decimal, written.to_pylist()))) - len(floats) if len(written) > len(floats) else 0
    near = "1 number is taken for another" if equal == 1 else f"{equal:,} numbers are taken for others"
    return [f"{name}: beyond 2⁵³ {near} nearby"] if equal else []


def _numbers(name: str, present: Any, style: Style, said: Said) -> Any:
    texts = present
    if style.point == ",":
        with_comma = present.filter(compute.match_substring(present, ","))
        thousands = len(with_comma) > 0 and all_match(compute.match_substring_regex(with_comma, THOUSANDS))
        if thousands or compute.any(compute.match_substring(present, ".")).as_py():
            return None  # for a note to say how they are read
        texts = compute.replace_substring(present, ",", ".")
    array = _cast(texts, arrow.int64(), arrow.float64())
    if array is None:
        return None
    if arrow.types.is_floating(array.type) and all_match(compute.match_substring_regex(present, "^[+-]?[0-9]+$")):
        long = compute.greater_equal(compute.abs(array), LONG)
        said.notes.append(
            f"{name} is text, not numbers: some have too many digits, such as {_first(present.filter(long))}"
        )
        return None
    coded = _with_zeros(present)
    if compute.any(coded).as_py():
        said.notes.append(_coded(name, present.filter(coded)))
        return None
    said.writing = style.writing
    said.notes += merged(name, texts, array)
    return array


def _yes_or_no(name: str, present: Any, style: Style, said: Said) -> Any:
    lower = compute.utf8_lower(present)
    known = arrow.array(["true", "false", "1", "0", None], arrow.string())
    if not all_match(compute.is_in(lower, value_set=known)):
        return None
    return compute.if_else(compute.is_null(lower), None, compute.is_in(lower, value_set=known[::2]))


def _iso_times(name: str, present: Any, style: Style, said: Said) -> Any:
    units = ("s", "us", "ns")
    naive, aware = ([arrow.timestamp(unit, zone) for unit in units] for zone in (None, "UTC"))
    return _cast(present, arrow.date32(), *naive, *aware)


def _clock_times(name: str, present: Any, style: Style, said: Said) -> Any:
    if not all_match(compute.match_substring_regex(present, CLOCK)):
        return None
    parts = compute.extract_regex(present, CLOCK)
    clock, half = (compute.struct_field(parts, part) for part in ("clock", "half"))
    clock = compute.replace_substring_regex(clock, r"^([0-9]):", r"0\1:")
    # Arrow reads times of the first of days, but not times alone.
    moment = _cast(compute.binary_join_element_wise("1970-01-01", clock, " "), arrow.timestamp("us"))
    if moment is None or not compute.any(compute.not_equal(half, "")).as_py():
        return None if moment is None else compute.cast(moment, arrow.time64("us"))
    if compute.any(compute.equal(half, "")).as_py():
        return None  # some with am or pm, some without
    hour = 3_600_000_000
    since = compute.cast(moment, arrow.int64())
    if compute.any(compute.or_(compute.less(since, hour), compute.greater_equal(since, 13 * hour))).as_py():
        return None
    since = compute.if_else(compute.greater_equal(since, 12 * hour), compute.subtract(since, 12 * hour), since)
    late = compute.match_substring(half, "p", ignore_case=True)
    return compute.cast(compute.if_else(late, compute.add(since, 12 * hour), since), arrow.time64("us"))


def _written_numbers(name: str, present: Any, style: Style, said: Said) -> Any:
    """Numbers with a sign of money, a percent sign, groups of three digits, or negative ones in parentheses."""
    if not all_match(compute.match_substring_regex(present, WRITTEN_NUMBER)):
        return None
    parts = compute.extract_regex(present, WRITTEN_NUMBER)
    minus, before, written, after, close = (
        compute.struct_field(parts, part) for part in ("minus", "before", "digits", "after", "close")
    )
    enclosed = compute.equal(minus, "(")
    if not all_match(compute.equal(enclosed, compute.equal(close, ")"))) or all_match(enclosed):
        return None
    units = compute.binary_join_element_wise(before, after, " ")
    unit = units.drop_null()[0].as_py()
    others = present.filter(compute.not_equal(units, unit))
    if len(others):
        said.notes.append(f"{name} is text, not numbers: a mix, such as {_first(present)} and {_first(others)}")
        return None
    unit = unit.strip()
    if len(unit) > 1 or (not unit and all_match(compute.match_substring_regex(present, "^[+-]? ?[0-9]+$"))):
        return None  # two units, or bare digits that are no numbers, such as 01234
    coded = _with_zeros(written)
    if not unit and compute.any(coded).as_py():
        said.notes.append(_coded(name, present.filter(coded)))
        return None
    points = _with_points(name, present, written, unit, style, said)
    if points is None:
        return None
    group, point = (",", ".") if points else (".", ",")
    said.writing = "" if points else ".,"
    digits = compute.replace_substring(compute.replace_substring(written, group, ""), point, ".")
    negative = compute.or_(enclosed, compute.equal(minus, "-"))
    digits = compute.if_else(negative, compute.binary_join_element_wise("-", digits, ""), digits)
    array = _cast(digits, arrow.int64(), arrow.float64())
    if array is not None:
        # Of negative ones in parentheses, those with groups, and all: one that looks least like the number it is.
        choices = (enclosed, compute.match_substring(written, group), compute.is_valid(present))
        shown = next(choice for choice in choices if compute.any(choice).as_py())
        number = array.filter(shown)[0].as_py()
        said.notes.append(f"{name}: read as numbers, {_first(present.filter(shown))} as {number:.15g}")
        said.notes += merged(name, digits, array)
    return array


def _with_points(name: str, present: Any, digits: Any, unit: str, style: Style, said: Said) -> bool | None:
    """Whether numbers have decimal points, and commas between groups of digits; None if that cannot be told."""
    points, commas = (all_match(compute.match_substring_regex(digits, pattern)) for pattern in (POINTS, COMMAS))
    has_comma, has_point = (compute.any(compute.match_substring(digits, mark)).as_py() for mark in ",.")
    if points and commas:  # 1,200 is a thousand or one, and so is 1.200
        if has_comma and unit in ("$", "£"):
            return True
        if style.point == ",":
            return False
        # Where the comma stands between cells, it is not within numbers too.
        if (has_comma and style.delimiter != ",") or (has_point and unit in ("€", "¥")):
            said.notes.append(
                f"{name} is text, not numbers: {_first_but(digits, '^[0-9]+$', present)} can be read in two ways. "
                f"Write it without groups of digits"
            )
            return None
        return True
    if points:
        if style.point == "," and not unit and not has_comma:
            said.notes.append(
                f"{name} is text, not numbers: {_first_but(digits, COMMAS, present)} has a decimal point, where other "
                f"columns have commas"
            )
            return None
        return True
    if commas:
        return False if unit or style.delimiter != "," else None
    if all_match(compute.match_substring_regex(digits, UNDERSTOOD)):
        mixed = " and ".join(_first_but(digits, pattern, present) for pattern in (POINTS, COMMAS))
        said.notes.append(f"{name} is text, not numbers: a mix, such as {mixed}")
    return None


def _written_dates(name: str, present: Any, style: Style, said: Said) -> Any:
    """Dates such as 7/4/2023, 04.07.2023 and 2023/07/04, in the one order of day and month that fits them all."""
    for mark in ("/", ".", "-"):
        year_first = rf"^(?P<year>[0-9]{{4}})[{mark}](?P<first>[0-9]{{1,2}})[{mark}](?P<second>[0-9]{{1,2}}){TIME}"
        year_last = rf"^(?P<first>[0-9]{{1,2}})[{mark}](?P<second>[0-9]{{1,2}})[{mark}](?P<year>[0-9]{{4}}){TIME}"
        for pattern in (year_first, year_last):
            if all_match(compute.match_substring_regex(present, pattern)):
                return _ordered_dates(name, present, compute.extract_regex(present, pattern), mark, pattern, said)
    return None


def _ordered_dates(name: str, present: Any, parts: Any, mark: str, pattern: str, said: Said) -> Any:
    first, second, year, time = (compute.struct_field(parts, part) for part in ("first", "second", "year", "time"))
    days = [compute.greater(compute.cast(each, arrow.int64()), 12) for each in (first, second)]
    beyond = [present.filter(each) for each in days]
    year_first = pattern.startswith("^(?P<year>")
    if year_first:
        month, day = first, second
    elif compute.any(compute.and_(*days)).as_py():
        said.notes.append(f"{name} is text, not dates: {_first(present.filter(compute.and_(*days)))} is none")
        return None
    elif len(beyond[0]) and len(beyond[1]):
        said.notes.append(
            f"{name} is text, not dates: {_first(beyond[0])} begins with the day, {_first(beyond[1])} with the month"
        )
        return None
    elif len(beyond[0]) or (mark == "." and not len(beyond[1])):
        month, day = second, first  # with points between them, the day is first everywhere
    elif len(beyond[1]):
        month, day = first, second
    else:
        said.notes.append(
            f"{name} is text, not dates: nothing in it says whether {_first(present)} begins with the day or the "
            f"month. Write dates as 2023-12-31"
        )
        return None
    said.writing = "" if year_first else "month" if month is first else "day"
    padded = [compute.utf8_lpad(each, 2, padding="0") for each in (month, day)]
    iso = compute.binary_join_element_wise(year, *padded, "-")
    kind = arrow.date32()
    if compute.any(compute.not_equal(time, "")).as_py():
        clock = compute.replace_substring_regex(time, r"^[ T]([0-9]):", r" 0\1:")
        iso, kind = compute.binary_join_element_wise(iso, clock, ""), arrow.timestamp("s")
    array = _cast(iso, kind)
    if array is not None:
        said.notes.append(f"{name}: read as dates, {_first(present)} as {array.drop_null()[0].as_py()}")
    else:
        said.notes.append(f"{name} is text, not dates: {_first(present.slice(_first_that_is_not(iso, kind)))} is none")
    return array


def _first_that_is_not(cells: Any, kind: Any) -> int:
    """Where the first cell is that is not of a kind, which not all are."""
    start, count = 0, len(cells)
    while count > 1:
        half = count // 2
        good = _cast(cells.slice(start, half), kind) is not None
        start, count = (start + half, count - half) if good else (start, half)
    return start


def almost(name: str, present: Any) -> list[str]:
    """Why a column is text though most of it look like numbers, or like dates."""
    count = len(present) - present.null_count
    kinds = (("numbers", NUMBER), ("numbers", UNDERSTOOD), ("numbers", LIKE_NUMBER), ("dates", LIKE_DATE))
    for kind, pattern in kinds:
        like = compute.fill_null(compute.match_substring_regex(present, pattern), True)
        others = present.filter(compute.invert(like))
        if len(others) > count / 2:
            continue
        if len(others):
            return [
                f"{name} is text, not {kind}: {len(others):,} of {count:,} cells are none, such as {_first(others)}"
            ]
        forms = compute.replace_substring_regex(present, "[0-9]+", "0")
        second = present.filter(compute.fill_null(compute.not_equal(forms, forms.drop_null()[0]), False))
        for moment in (arrow.timestamp("us", zone) for zone in (None, "UTC")):
            if _cast(present.drop_null().slice(0, 1), moment) is not None:
                second = present.slice(_first_that_is_not(present, moment))
        examples = _first(present) + (f" and {_first(second)}" if len(second) else "")
        return [f"{name} is text, not {kind}: cells such as {examples} are not understood"]
    return []


PARSERS = (_numbers, _yes_or_no, _iso_times, _clock_times, _written_numbers, _written_dates)
"""What a column may be, in the order in which it is tried: functions of its name, its cells, the file's style, and what
is to be said."""
