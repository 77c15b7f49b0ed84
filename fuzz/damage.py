"""Ways to damage a file, and texts that programs trip over."""

from __future__ import annotations

import random

ODD = (
    *("", " ", "nan", "inf", "-inf", "1e308", "-1e308", "1e-200", "0", "-0", "007", "99999999999", "9" * 400, "½", "٣"),
    *("\x1b[31mred", "\x1b]0;title\x07", "\x9b2J", "a\rb", "a\x00b", "\u202eabc", "\ufeff", "\ud800", "a\tb", "a\nb"),
    *('"', '""', "'", "`", ",", ";", "=", ":", "--", "-", "-1", "--json", "%s%n", "[bold]x[/bold]", ":smile:"),
    *("NA", "N/A", "null", "None", "?", "1,200", "$1", "10%", "7/4/2023", "2023-07-04", "12:30", "2023-07-04T12:30Z"),
    *("é" * 40, "x" * 5000, "/" * 300, "..", "~", "/dev/null", "日本語", "👩‍👩‍👧", "true", "False"),
)


def damage(content: bytes, chooser: random.Random) -> tuple[bytes, str]:
    """The bytes, damaged in one way or several, and what was done."""
    done = []
    for _ in range(chooser.choice((1, 1, 2, 4))):
        content, what = _once(content, chooser)
        done.append(what)
    return content, ", ".join(done)


def _once(content: bytes, chooser: random.Random) -> tuple[bytes, str]:
    if not content:
        return bytes(chooser.randrange(256) for _ in range(chooser.randrange(50))), "random bytes"
    place = chooser.randrange(len(content))
    length = chooser.choice((1, 1, 4, 32, 400))
    match chooser.randrange(9):
        case 0:
            return content[:place], f"cut at {place}"
        case 1:
            return content[place:], f"begins at {place}"
        case 2:
            flipped = content[place] ^ (1 << chooser.randrange(8))
            return content[:place] + bytes([flipped]) + content[place + 1 :], f"a bit of byte {place}"
        case 3:
            noise = bytes(chooser.randrange(256) for _ in range(length))
            return content[:place] + noise + content[place + length :], f"{length} random bytes at {place}"
        case 4:
            other = chooser.randrange(len(content))
            low, high = sorted((place, other))
            one, two = content[low : low + length], content[high : high + length]
            return content[:low] + two + content[low + length : high] + one + content[high + length :], "a swap"
        case 5:
            return content[:place] + content[place + length :], f"{length} bytes lost at {place}"
        case 6:
            return content[:place] + content[place : place + length] * 3 + content[place + length :], "a repetition"
        case 7:
            odd = chooser.choice(ODD).encode("utf-8", "surrogatepass")
            return content[:place] + odd + content[place:], f"{odd[:20]!r} at {place}"
    zeros = bytes(length)
    return content[:place] + zeros + content[place + length :], f"{length} zeros at {place}"


def stray(text: str) -> str | None:
    """The first character of a text that a terminal would take for a command; None if there is none."""
    for each in text:
        if (ord(each) < 32 and each not in "\n\t") or 127 <= ord(each) < 160:
            return repr(each)
    return None
