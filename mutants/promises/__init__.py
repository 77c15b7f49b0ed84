"""Every promise with the text that keeps it, found once: where the library changes, so must the entry."""

from __future__ import annotations

from mutants.promises.door import DOOR
from mutants.promises.engines import ENGINES
from mutants.promises.formula_room import FORMULA_ROOM
from mutants.promises.house import HOUSE
from mutants.promises.integrations import INTEGRATIONS
from mutants.promises.kernels import KERNELS
from mutants.promises.masks import MASKS
from mutants.promises.rules import RULES
from mutants.promises.scores import SCORES
from mutants.promises.sentence_room import SENTENCE_ROOM
from mutants.promises.table_room import TABLE_ROOM
from mutants.promises.views import VIEWS

ROOMS = (*FORMULA_ROOM, *TABLE_ROOM, *SENTENCE_ROOM)
PROMISES = (*SCORES, *RULES, *MASKS, *ENGINES, *KERNELS, *DOOR, *VIEWS, *HOUSE, *INTEGRATIONS, *ROOMS)
