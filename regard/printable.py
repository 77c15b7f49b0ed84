"""What may be printed: text from a table, a file or a name, without what a terminal would take for a command."""

from __future__ import annotations

import unicodedata

JOINERS = "\u200c\u200d"
"""The zero-width non-joiner and joiner: Persian and many emoji are spelled with them."""

LONGEST_NAME = 24  # letters of a word in a picture

LAYOUT = "\n\t"
"""Control characters that only place what stands beside them."""

HIDDEN = ("Cc", "Cf", "Cs", "Zl", "Zp")
"""Unicode's controls (ESC, CSI, BEL …), formats (the direction of text …), lone surrogates and separators of lines."""


def printable(text: str) -> str:
    """A text in which every character that could steer a terminal is a �; line breaks and tabs stay.

    Example:
        >>> printable("\\x1b[2J and \\u202e")
        '�[2J and �'
    """
    if text.strip(LAYOUT).isprintable():
        return text
    return "".join(each if is_printable(each) else "�" for each in text)


def is_printable(character: str) -> bool:
    """Whether a terminal shows a character, or only moves on for it."""
    return character in JOINERS or character in LAYOUT or unicodedata.category(character) not in HIDDEN


def on_one_line(text: str) -> str:
    """A text in which every run of blanks and line breaks is one space, and the rest is printable.

    Example:
        >>> on_one_line("New\\n York\\x07")
        'New York�'
    """
    line = " ".join(text.split())
    return line if line.isprintable() else printable(line)


def short_name(name: str, longest: int = LONGEST_NAME) -> str:
    """A name on one line, not too long, and without what a terminal would take for a command.

    The signs that join letters, or keep them apart, stay: Persian and many emoji are spelled with them.

    Example:
        >>> short_name("line\\nbreak"), short_name("incomprehensibilities", longest=8)
        ('line break', 'incompr…')
    """
    line = on_one_line(name) or "␣"
    return line if len(line) <= longest else line[: longest - 1] + "…"


def escaped(text: str) -> str:
    """JSON whose strings spell what is not printable as \\\\uXXXX: the same data, and nothing that steers a terminal.

    Example:
        >>> escaped('"\\x9b2J"')
        '"\\\\u009b2J"'
    """
    if text.isprintable():
        return text
    return "".join(each if is_printable(each) else _escape(each) for each in text)


def _escape(character: str) -> str:
    code = ord(character)
    if code < 0x10000:
        return f"\\u{code:04x}"
    code -= 0x10000
    return f"\\u{0xD800 + (code >> 10):04x}\\u{0xDC00 + (code & 0x3FF):04x}"
