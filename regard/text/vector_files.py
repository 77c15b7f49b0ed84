"""Files of word vectors: GloVe's text, word2vec's text, word2vec's binary; plain or gzipped, read as a stream."""

from __future__ import annotations

import codecs
import gzip
import math
import sys
import warnings
import zlib
from array import array
from collections.abc import Iterator
from io import BufferedIOBase
from pathlib import Path
from typing import Literal, get_args

import torch
from torch import Tensor

from regard.errors import OptionError, TableError

Format = Literal["auto", "glove", "word2vec", "binary"]
OnBad = Literal["raise", "skip"]

SHOWN = 5
"""How many of the bad lines a warning names."""

LONGEST_WORD = 4096
"""A word of more bytes than this means that a binary file is damaged, or none."""

LONGEST_NUMBER = 64
"""No number of a text has more digits: a longer line is not read into memory."""

MOST_EMPTY = 1 << 10
"""More empty lines than this one after the other are no part of a file of vectors, and may be billions."""

LARGEST_DIM = 1 << 20
"""No vectors have more numbers: a first line that says so is no header."""

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
"""Some editors put it before a text in UTF-8; it belongs to no word."""

Entry = tuple[int, str, "array[float]"]
"""The number of a line, a word, its vector."""


class BadLines:
    """What to do with lines that are no word and its vector: raise at the first, or skip and count them."""

    def __init__(self, name: str, unit: str, on_bad: OnBad) -> None:
        self.name, self.unit, self.on_bad = name, unit, on_bad
        self.found: list[int] = []
        self.miscount = ""
        self.end = ""

    def report(self, number: int, problem: str) -> None:
        """A bad line: what must hold and what was got."""
        if self.on_bad == "raise":
            raise TableError(
                f"{self.name}, {self.unit} {number}: {problem}. Repair the file, or leave out what is bad with "
                f'on_bad="skip".'
            )
        self.found.append(number)

    def miscounted(self, promised: int, got: str) -> None:
        """The file has not as many words as its first line says."""
        self.miscount = f"its first line says {promised:,} words, and there are {got}"
        if self.on_bad == "raise":
            raise TableError(
                f"{self.name} must be whole: {self.miscount}. Download it again, or take what is there with "
                f'on_bad="skip".'
            )

    def unfinished(self) -> None:
        """The last line has no end: it may be a whole one, or cut off within a number."""
        self.end = "its last line has no line break, so that it may be cut off; its last number is read as it stands"

    def warn(self) -> None:
        """Say how many were skipped, if any were, and what else may be wrong."""
        said = []
        if self.found:
            shown = ", ".join(map(str, self.found[:SHOWN])) + (", …" if len(self.found) > SHOWN else "")
            said.append(f"{len(self.found)} bad {self.unit}{'s' if len(self.found) > 1 else ''} skipped ({shown})")
        said += [each for each in (self.miscount, self.end) if each]
        if said:
            warnings.warn(f"{self.name}: {'; '.join(said)}.", UserWarning, stacklevel=5)  # where the user reads


def read_vectors(
    path: str | Path, file_format: Format = "auto", limit: int | None = None, on_bad: OnBad = "raise"
) -> tuple[list[str], Tensor]:
    """The words of a file and their vectors, `(n_words, dim)` in float32.

    Args:
        path: The file; gzipped if it begins as gzipped files do, whatever its name.
        file_format: "glove" (`word 0.1 0.2 …` in each line), "word2vec" (the same after a line with the number of
            words and the dimension), "binary" (word2vec's, with float32 numbers), or "auto" to see which it is.
        limit: How many words to read at most; files have the most frequent first.
        on_bad: "raise" at the first bad line, or "skip" them with a warning that counts them.

    Raises:
        TableError: A line is bad; the text says which and why.
    """
    _check_options(file_format, limit, on_bad)
    path = Path(path)
    with path.open("rb") as file:
        zipped = file.read(2) == b"\x1f\x8b"
    with gzip.open(path, "rb") if zipped else path.open("rb") as stream:
        try:
            return _read(stream, path.name, file_format, limit, on_bad)
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise TableError(
                f"{path.name} must be a whole gzipped file: it cannot be unpacked ({error}). Download it again."
            ) from None


def _check_options(file_format: str, limit: int | None, on_bad: str) -> None:
    for name, given, allowed in (("format", file_format, get_args(Format)), ("on_bad", on_bad, get_args(OnBad))):
        if given not in allowed:
            raise OptionError(f"`{name}` must be one of {', '.join(map(repr, allowed))}: got {given!r}.")
    if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 1):
        raise OptionError(f"`limit` must be a positive integer, or None for every word: got {limit!r}.")


def _read(
    stream: BufferedIOBase, name: str, file_format: Format, limit: int | None, on_bad: OnBad
) -> tuple[list[str], Tensor]:
    first = stream.readline(1 << 24).removeprefix(BYTE_ORDER_MARK)
    header = None if file_format == "glove" else _header(first)
    if file_format in ("word2vec", "binary") and header is None:
        raise TableError(
            f"{name}, line 1: must be the number of words and the dimension, such as 400000 100: got {_shown(first)}. "
            f'GloVe\'s files have no such line: read them with format="glove".'
        )
    buffered = _Peekable(stream)
    if header is None:
        dim = len(first.split()) - 1
        if dim < 1:
            raise TableError(
                f"{name}, line 1: must be a word and its numbers, with spaces between them: got {_shown(first)}. "
                f"Pass a file of GloVe's or word2vec's."
            )
        bad = BadLines(name, "line", on_bad)
        entries = _text_entries(buffered, first, 1, dim, bad)
        promised = None
    else:
        promised, dim = header
        binary = file_format == "binary" or (file_format == "auto" and _looks_binary(buffered.peek(1 << 16), dim))
        bad = BadLines(name, "word" if binary else "line", on_bad)
        entries = _binary_entries(buffered, promised, dim, bad) if binary else _text_entries(buffered, b"", 2, dim, bad)
    words, vectors = _collected(entries, dim, limit, bad)
    at_end = limit is None or len(words) < limit
    if promised is not None and at_end:
        found = len(words) + len(bad.found)
        if found != promised:
            bad.miscounted(promised, f"{found:,}")
        elif buffered.read(LONGEST_WORD).strip():  # of a binary file, where no more was read than was promised
            bad.miscounted(promised, "more")
    bad.warn()
    if not words:
        raise TableError(f"{name} must have at least one word with its vector: got none.")
    return words, vectors


def _collected(entries: Iterator[Entry], dim: int, limit: int | None, bad: BadLines) -> tuple[list[str], Tensor]:
    line_of: dict[str, int] = {}
    numbers: array[float] = array("f")
    for number, word, vector in entries:
        if word in line_of:
            bad.report(number, f"a word must be there once: {word!r} is in {bad.unit} {line_of[word]} already")
            continue
        if not math.isfinite(sum(vector)):  # in double precision, where finite float32 numbers cannot overflow
            bad.report(number, f"the vector of {word!r} must have finite numbers: got NaN or an infinity")
            continue
        line_of[word] = number
        numbers.extend(vector)
        if limit is not None and len(line_of) == limit:
            break
    if not line_of:
        return [], torch.empty(0, dim)
    # The tensor keeps the array alive, and nobody else has it.
    return list(line_of), torch.frombuffer(numbers, dtype=torch.float32).view(-1, dim)


def _text_entries(stream: _Peekable, first: bytes, number: int, dim: int, bad: BadLines) -> Iterator[Entry]:
    """The entries of lines of text; `first` is a line that was read already, the one with that number."""
    longest = LONGEST_WORD + dim * LONGEST_NUMBER
    before = line = first or stream.readline(longest)
    empty = 0
    while line:
        # From the right: some of GloVe's words have a space in them, as ". . ." has.
        parts = line.rstrip().rsplit(b" ", dim)
        entry = _text_entry(number, parts, dim)
        if entry is not None:
            yield entry
            empty = 0
        elif parts == [b""]:  # an empty line does no harm
            empty += 1
            if empty > MOST_EMPTY:
                raise TableError(
                    f"{bad.name} must be words with their vectors: line {number} and the {empty - 1:,} before it are "
                    f"empty. Download it again."
                )
        else:
            decodes = parts[0].decode("utf-8", errors="replace").encode() == parts[0]
            wanted = f"a word and {dim} numbers" if decodes else "a word in UTF-8"
            bad.report(number, f"must have {wanted}: got {_shown(line)}")
        number += 1
        before, line = line, stream.readline(longest)
    if before and not before.endswith(b"\n"):
        bad.unfinished()


def _text_entry(number: int, parts: list[bytes], dim: int) -> Entry | None:
    before, _, last = parts[0].rpartition(b" ")
    if before and _is_number(last):  # a number too many is no part of the word
        return None
    # Two lines, if a line break was lost. With one or two numbers it cannot be told from a word with a space.
    if before and (dim < 3 or sum(map(_is_number, parts[0].split(b" "))) >= dim - 1):
        return None
    try:
        vector = array("f", map(float, parts[1:]))
        word = parts[0].decode("utf-8")
    except ValueError:  # UnicodeDecodeError is one
        return None
    if b"_" in b"".join(parts[1:]):  # Python reads 1_0 as 10, and nobody else does
        return None
    return (number, word, vector) if word and len(vector) == dim else None


def _is_number(text: bytes) -> bool:
    """Whether it is a number in digits: "nan" and "infinity" are words too."""
    try:
        float(text)
    except ValueError:
        return False
    return any(b"0"[0] <= byte <= b"9"[0] for byte in text)


def _binary_entries(stream: _Peekable, count: int, dim: int, bad: BadLines) -> Iterator[Entry]:
    for number in range(1, count + 1):
        word = stream.until(b" ", LONGEST_WORD)
        data = stream.read(4 * dim)
        if word is None or len(data) < 4 * dim:
            # Where the next word begins is not known: nothing after this can be read.
            if word is not None or data.strip():
                bad.report(
                    number, f"must be a word, a space and {4 * dim} bytes of numbers: the file ends or is damaged"
                )
            return
        vector = array("f", data)
        if sys.byteorder == "big":
            vector.byteswap()
        try:
            name = word.lstrip(b"\n").decode("utf-8")
        except UnicodeDecodeError:
            bad.report(number, f"a word must be in UTF-8: got {word[:40]!r}")
            continue
        if name:
            yield number, name, vector
        else:
            bad.report(number, "there must be a word before its numbers: got none")


def _header(line: bytes) -> tuple[int, int] | None:
    parts = line.split()
    if len(parts) != 2 or not all(part.isdigit() and len(part) < 16 for part in parts):
        return None
    count, dim = map(int, parts)
    return (count, dim) if 1 <= dim <= LARGEST_DIM else None


def _looks_binary(start: bytes, dim: int) -> bool:
    """Whether what follows the first word is float32 numbers, not their digits. These may have any byte among them."""
    start = start.lstrip(b"\r\n")
    if _text_entry(0, start.partition(b"\n")[0].rstrip().rsplit(b" ", dim), dim) is not None:
        return False
    after = start.partition(b" ")[2][: 4 * dim]
    if any(byte < 32 and byte not in b"\t\r\n" for byte in after):
        return True
    try:
        codecs.getincrementaldecoder("utf-8")().decode(after)  # which may break off within a letter
    except UnicodeDecodeError:
        return True
    return False


def _shown(line: bytes) -> str:
    text = line.decode("utf-8", errors="replace").rstrip("\r\n")
    return repr(text if len(text) <= 40 else text[:40] + "…")


class _Peekable:
    """A stream of bytes whose beginning can be seen before it is read."""

    def __init__(self, stream: BufferedIOBase) -> None:
        self.stream = stream
        self.held = b""

    def peek(self, size: int) -> bytes:
        self._hold(size)
        return self.held[:size]

    def read(self, size: int) -> bytes:
        self._hold(size)
        taken, self.held = self.held[:size], self.held[size:]
        return taken

    def readline(self, longest: int) -> bytes:
        """The next line; of one that is longer, so much of it alone, and a line break."""
        if self.held:
            line, newline, self.held = self.held.partition(b"\n")
            line += newline or self.stream.readline(longest)
        else:
            line = self.stream.readline(longest)
        if len(line) < longest or line.endswith(b"\n"):
            return line
        rest = line
        while rest and not rest.endswith(b"\n"):
            rest = self.stream.readline(1 << 20)
        return line + b"\n"

    def until(self, mark: bytes, longest: int) -> bytes | None:
        """What stands before the mark; the mark is read too. None if it is not there."""
        self._hold(longest)
        word, found, _ = self.held[:longest].partition(mark)
        if not found:
            return None
        self.held = self.held[len(word) + 1 :]
        return word

    def _hold(self, size: int) -> None:
        if len(self.held) < size:
            self.held += self.stream.read(size - len(self.held))
