"""What the library says of its arguments, said of the command's options."""

from __future__ import annotations

import re
from collections.abc import Callable

from regard.cli.names_of_choices import RULES

SPELLINGS = {class_name: spelling for spelling, (class_name, _) in RULES.items()}

# In the library's words -> in the command's. The columns of a table stand in backticks too: so whole phrases are named.
PHRASES: list[tuple[str, str | Callable[[re.Match[str]], str]]] = [
    (r"To reach it, pass a wider `score`\.", "To reach it, add a wider --score, as in --score gaussian:NUMBER."),
    (r"Pass a wider `score`, or other `weights`\.", "Add a wider --score, or other --weights."),
    (r"pass a kernel such as score=Boxcar\(radius\)", "add a kernel such as --score boxcar:NUMBER"),
    (r"^`part` must", "--attention must"),
    (r"^`target` must", "--target must"),
    (r"^`(layer|head)` must be from", r"--\1 must be from"),
    (r"^`head` 'telling' must", "--head telling must"),
    (r"^`query` must be a word", "--query must be a word"),
    (r"Pass query= to see", "Use --query to see"),
    (r"Pass specials=True to see it\.$", "Use --specials to see it."),
    (r"is hidden\. Pass specials=True\.$", "is hidden. Add --specials."),
    (r"Pass a shorter text, fewer layers=, or a larger budget=\.", "Take a shorter text."),
    (r"Pass a target\.$", "Add --target TEXT."),
    (r"Use \.average\(\)", "Use --average"),
    (r"use \.swap\(\)\.", "swap --key and --value."),
    (r"use \.attend\(.*\)\.$", "leave out --exact."),
    (r"`score` (must name|over columns)", r"--score \1"),
    (r"Equal\(\), or a Custom that compares codes", "equal"),
    (r"Leave `score` out", "Leave --score out"),
    (r"^`(key|value)` (must name)", r"--\1 \2"),
    (r"Pass (key|value)=\"column\"\.", r"Add --\1 COLUMN."),
    (r"Convert it, or pass a frame\.", "Convert it."),
    (r"(pip install \"regard\[tables\]\"), or pass keys and values in memory\.", r"\1."),
    (r"such as timedelta\(days=(\d+)\)", r"such as \1, in days"),
    (r"Ask with \.replace\(tzinfo=None\), in the zone", "Ask without a zone, in the one"),
    (
        rf"\b(Use|or) ({'|'.join(name for name, _ in RULES.values())})\(\)",
        lambda found: f"{found[1]} --weights {SPELLINGS[found[2]]}",
    ),
]


def in_options(message: str) -> str:
    """A message of the library in the words of the command line.

    Example:
        >>> in_options("A query must say something. Use .average() to average over every row.")
        'A query must say something. Use --average to average over every row.'
    """
    for phrase, words in PHRASES:
        message = re.sub(phrase, words, message)
    return message
