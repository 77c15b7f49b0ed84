"""What a random case is made of, as plain data: the definition and the library each read it in their own way."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Part:
    """A score, a rule or a mask: its kind, its numbers, and what is inside it.

    A number that is learned is a name (a string that begins with "@") among the case's parameters.
    """

    kind: str
    options: dict[str, Any] = field(default_factory=dict)
    inside: tuple[Part, ...] = ()

    def __str__(self) -> str:
        shown = [_shown(name, value) for name, value in self.options.items()] + [str(each) for each in self.inside]
        return f"{self.kind}({', '.join(shown)})" if shown else self.kind

    def kinds(self) -> set[str]:
        """The kinds of this part and of all that is inside it."""
        return {self.kind}.union(*(each.kinds() for each in self.inside))


def _shown(name: str, value: object) -> str:
    shape = getattr(value, "shape", None)
    return f"{name}={value!r}" if shape is None else f"{name}: {tuple(shape)}"
