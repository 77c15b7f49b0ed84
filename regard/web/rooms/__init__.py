"""One file for each room of the page: what may be asked there, and how it is computed."""

from __future__ import annotations

from collections.abc import Mapping

from regard.web import asked
from regard.web.rooms.formula import FormulaRoom
from regard.web.rooms.sentence import SentenceRoom
from regard.web.rooms.sounds import SoundsRoom
from regard.web.rooms.table import TableRoom

__all__ = ["ROOMS", "FormulaRoom", "SentenceRoom", "SoundsRoom", "TableRoom"]

ROOMS: Mapping[str, type[asked.Room]] = {
    "formula": FormulaRoom,
    "table": TableRoom,
    "sentence": SentenceRoom,
    "sounds": SoundsRoom,
}
