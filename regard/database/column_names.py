"""Names of columns: that each one asked for is there, once; and the nearest spelling of one that is not."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from pathlib import Path

from regard.errors import TableError


def closest(name: str, known: Iterable[str], count: int = 1) -> list[str]:
    """The known names that are spelled most like this one, in upper case or lower.

    Example:
        >>> closest("GPAs", ["name", "gpa"])
        ['gpa']
    """
    folded: dict[str, str] = {}
    for each in known:
        folded.setdefault(each.casefold(), each)
    return [folded[each] for each in difflib.get_close_matches(name.casefold(), folded, n=count, cutoff=0.6)]


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A question to end an error with; "" where nothing is spelled like the name.

    Example:
        >>> did_you_mean("salry", ["gpa", "salary"])
        " Did you mean 'salary'?"
    """
    near = closest(name, known)
    return f" Did you mean {near[0]!r}?" if near else ""


def check_names(
    wanted: Sequence[str], available: Sequence[str], rule: str = "A key or a value must be a column of the table"
) -> None:
    """Raise, with the nearest spelling, unless every name is there; `rule` says what must hold."""
    for name in wanted:
        if name not in available:
            shown = ", ".join(available[:20]) + (f", … ({len(available)} in all)" if len(available) > 20 else "")
            raise TableError(f"{rule}: got {name!r}.{did_you_mean(name, available)} The columns are: {shown}.")


def check_columns(path: Path, wanted: list[str], names: list[str]) -> None:
    """Raise unless each wanted column is in the file, once."""
    check_names(wanted, names)
    for name in wanted:
        if names.count(name) > 1:
            raise TableError(
                f"A key or a value must be one column: {path.name} has {names.count(name)} called {name!r}. "
                f"Rename them."
            )


def check_count(path: Path, count: int, most: int, *, at_least: bool = False) -> None:
    """Raise if a file has more columns than may be looked at together."""
    if count > most:
        raise TableError(
            f"{path.name} must have at most {most:,} columns to be looked at as a whole: it has "
            f"{'at least ' * at_least}{count:,}. "
            f"Save those that matter as a table of their own."
        )
