"""Numbers that stand for forms, steps, rules and masks in compiled code, which cannot hold classes."""

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
LINE_DISTANCE: Final = 16

SOFTMAX: Final = 0
PROPORTIONAL: Final = 1
CONIC: Final = 2
RAW: Final = 3
SIGMOID: Final = 4
UNIFORM: Final = 5
ENTMAX: Final = 6

ORDERED: Final = frozenset({SOFTMAX, PROPORTIONAL, CONIC, SIGMOID})  # under which a larger score weighs no less

# On a GPU: 1 for each key that a row lists. And no rule at all, but the scores as they are, for who chooses by them.
ONE_HOT: Final = 7
SCORES: Final = 8
# On a GPU: entmax, by its exponent 1/(alpha − 1): any, 1, and 2. No code of another rule is as large.
ENTMAX_ANY: Final = 32
ENTMAX_ONE: Final = 33
ENTMAX_TWO: Final = 34

# On a GPU: what a step's parameter gets of each pair, not summed, in place of True.
BY_PAIR: Final = 2

# On a GPU: forms.
DOT: Final = 0
SQUARE: Final = 1  # sums over channels: of squared differences, tanh(l + r), |l − r|, [l ≠ r]
TANH: Final = 2
ABSOLUTE: Final = 3
DIFFER: Final = 4
CHANNELS: Final = 5  # any of them: a number says which

# On a GPU: how a mask is given, as places in a tuple that says of what it is made. A line: the bounds of row 0, which
# go on by one column from row to row. The first column of each row and the one after its last. A byte for each pair,
# not 0 where it is allowed. The document of each row and column.
LINE: Final = 0
BOUNDS: Final = 1
PAIRS: Final = 2
DOCUMENTS: Final = 3
