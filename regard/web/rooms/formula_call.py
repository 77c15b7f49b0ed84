"""A part of the library by its name and arguments: as an object to compute with, and as the Python that makes it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import regard


@dataclass(frozen=True)
class Call:
    """A score or a rule: what is computed and what is shown are made of the same.

    Example:
        >>> print(Call("TopK", (3, Call("Softmax", (0.5,)))))
        TopK(3, Softmax(0.5))
    """

    name: str
    arguments: tuple[Call | float, ...] = ()

    def made(self) -> Any:
        """The object."""
        given = (each.made() if isinstance(each, Call) else each for each in self.arguments)
        return getattr(regard, self.name)(*given)

    def names(self) -> Iterator[str]:
        """What has to be imported from regard for it."""
        yield self.name
        for each in self.arguments:
            if isinstance(each, Call):
                yield from each.names()

    def __str__(self) -> str:
        return f"{self.name}({', '.join(str(each) for each in self.arguments)})"
