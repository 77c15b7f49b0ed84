"""What tables of text are written with: what stands between cells, and what says that nothing is in one."""

from __future__ import annotations

DELIMITERS = ",;\t|"

SIGNS = "$€£¥"
"""What stands before or after an amount of money."""

TEXT_MARKS = ("NA", "N/A", "n/a", "#N/A", "#N/A N/A", "#NA", "<NA>", "NaN", "nan", "-NaN", "-nan", "NULL", "null")
"""What is missing among text. None is not: it may be an answer."""

MARKS = frozenset((*TEXT_MARKS, "None", "none", "NONE", "Null", "na", "Nan", "NAN", "-", "--", "–", "—", "?", "."))
"""What is missing among numbers, dates and times."""

WRITING = b"regard.writing"
"""Under this name the metadata of a column say how its cells are written, where a query may be written like that."""
