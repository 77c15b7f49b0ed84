"""The room formula."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from regard.web.asked import Asked
from regard.web.settings import Settings


class FormulaRoom:
    """Computes for the room."""

    operations: ClassVar[Mapping[str, type[Asked]]] = {}

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
