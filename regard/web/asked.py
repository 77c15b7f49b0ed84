"""What a browser may ask: the bodies of requests, checked before anything is computed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Protocol

from pydantic import BaseModel, ConfigDict, ValidationError

from regard.printable import on_one_line


class Asked(BaseModel):
    """The body of a request. A field that is unknown, of another type or not finite is refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    def subject(self) -> str:
        """What is asked about: questions about the same go to the worker that has it in memory. "" for anything."""
        return ""


class AboutTable(Asked):
    """A question about a table, which the page names by the number it was given when it was opened."""

    table: str

    def subject(self) -> str:
        return f"table {self.table}"


class Room(Protocol):
    """What computes for one room of the page. It lives in a worker, and keeps there what it has read.

    An operation is a method of the same name: it takes what was asked, and about a table also the file, and returns
    what JSON can hold; numbers that are not finite arrive as null.
    """

    operations: ClassVar[Mapping[str, type[Asked]]]


def mistake(error: ValidationError) -> str:
    """What is wrong with a request, in one line: the first mistake in it."""
    first = error.errors(include_url=False, include_context=False)[0]
    place = ".".join(map(str, first["loc"]))
    said: Any = first["msg"]
    return on_one_line(f"`{place}`: {said}" if place else f"{said}")[:300]
