"""Negative numbers as arguments."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Any

import typer.core

NEGATIVE = re.compile(r"-\.?\d")


class CommandWithNumbers(typer.core.TyperCommand):
    """A command to which -3 is a number and not an option."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        takes_value = {name for option in self.params for name in option.opts if not getattr(option, "is_flag", True)}
        return super().parse_args(ctx, numbers_last(args, takes_value))


def numbers_last(arguments: Sequence[str], takes_value: Collection[str]) -> list[str]:
    """The arguments with what are no options after two dashes, if there are negative numbers among them.

    Example:
        >>> numbers_last(["t.csv", "-3", "--key", "gpa", "3"], {"--key"})
        ['--key', 'gpa', '--', 't.csv', '-3', '3']
    """
    options: list[str] = []
    others: list[str] = []
    rest = iter(arguments)
    for argument in rest:
        if argument == "--":
            others += rest
        elif argument == "-" or not argument.startswith("-") or NEGATIVE.match(argument):
            others.append(argument)
        else:
            options.append(argument)
            if argument in takes_value:
                options += [value for value in [next(rest, None)] if value is not None]
    return [*options, "--", *others] if any(map(NEGATIVE.match, others)) else list(arguments)
