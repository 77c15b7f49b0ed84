"""Numbers that stand for steps and rules in compiled code, which cannot hold classes."""

from __future__ import annotations

from typing import Final

SCALE: Final = 0
GATE: Final = 1
GATE_FAR: Final = 2
CAP: Final = 3
ADD_ROW: Final = 4
ADD_COLUMN: Final = 5
ADD_PAIRS: Final = 6
DISTANCE: Final = 7
RELATIVE: Final = 8
INDICATOR: Final = 9
PARABOLA: Final = 10
TENT: Final = 11
EXCLUDE_ROW: Final = 12
EXCLUDE_COLUMN: Final = 13
EXCLUDE_PAIRS: Final = 14
EXCLUDE_RELATIVE: Final = 15

SOFTMAX: Final = 0
PROPORTIONAL: Final = 1
CONIC: Final = 2
RAW: Final = 3
SIGMOID: Final = 4
UNIFORM: Final = 5
ENTMAX: Final = 6
