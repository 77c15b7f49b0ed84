"""Random command lines and damaged files: an answer, or an error in words, and nothing lost in silence."""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import random
import resource
import tempfile
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

from fuzz.comparing import Broken
from fuzz.damage import ODD, damage, stray
from fuzz.files import TABLES, encoder_files, repeated, rows_of, table_bytes, vector_bytes, write
from fuzz.runner import Outcome, outcome_of

Check: TypeAlias = Callable[[random.Random, Path], None]

MEMORY = 2 << 30  # bytes that a case may take beside what the process has
NAMES = ("name", "size", "kind", "day", "price")
FORMATS = ("png", "svg", "pdf", "html", "json", "npz")
SCORES = ("gaussian", "laplacian", "boxcar", "epanechnikov", "triangular", "equal", "dot", "scaled-dot", "cosine")
RULES = ("softmax", "proportional", "one-hot", "uniform", "sparsemax", "entmax", "top-k", "conic", "raw", "sigmoid")


def judge_command(seed: int) -> list[Outcome]:
    """What becomes of one command line or file."""
    _limit_memory()
    chooser = random.Random(seed)
    check = _check_of(seed, chooser)
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        here = os.getcwd()
        os.chdir(folder)
        try:
            return [outcome_of(check.__name__, lambda each: check(each, Path(folder)), chooser, _Never)]
        finally:
            os.chdir(here)


def describe_command(seed: int) -> str:
    """Which check a seed is of."""
    return str(_check_of(seed, random.Random(seed)).__doc__)


def _check_of(seed: int, chooser: random.Random) -> Check:
    # Every eighth number is of the checks that came later: the others mean what they meant.
    checks, weights = zip(*(CHECKS if seed % 8 else LATER_CHECKS).items(), strict=True)
    return chooser.choices(checks, weights)[0]


class _Never(Exception):
    """Nothing raises it: what a reader refuses is told apart here."""


@cache
def _limit_memory() -> None:
    """More memory is an error: the machine must not die of a file."""
    import regard.text
    from regard.cli import app  # noqa: F401  imported before the limit

    regard.text  # noqa: B018
    for _ in (_run(["--version"], ""), _first_reading()):
        pass
    with open("/proc/self/statm") as file:
        pages = int(file.read().split()[0])
    limit = pages * resource.getpagesize() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def _first_reading() -> None:
    """What is imported with the first table and the first question."""
    from regard import Database

    with tempfile.TemporaryDirectory() as folder:
        for kind in TABLES:
            path = write(Path(folder), f"t.{kind}", table_bytes(kind, rows_of(random.Random(0), 8)))
            Database.from_table(path, key="size", value="price").attend(3.0)


# Command lines --------------------------------------------------------------------------------------------------------


def answers_a_command_line(chooser: random.Random, folder: Path) -> None:
    """A whole table, and options that may be anything."""
    kind = chooser.choice(TABLES)
    path = write(folder, f"table.{kind}", table_bytes(kind, rows_of(chooser, chooser.choice((1, 2, 5, 30)))))
    arguments, entered = _question(chooser, str(path))
    _answered(arguments, entered)


def answers_about_odd_cells(chooser: random.Random, folder: Path) -> None:
    """A table whose cells and names may be anything that CSV can hold."""
    odd = [each for each in ODD if "\ud800" not in each]
    names = ["size", "price", *(f"{chooser.choice(odd)}{place}" for place in range(2))]
    rows = [
        {name: chooser.choice(odd) if chooser.random() < 0.4 else chooser.randint(0, 9) for name in names}
        for _ in range(chooser.choice((1, 4, 20)))
    ]
    path = write(folder, "odd.csv", table_bytes("csv", rows))
    key, value = chooser.sample(names, 2)
    query = chooser.choice([chooser.choice(odd), "3", str(rows[0][key])])
    arguments = ["ask", str(path), "--key", key, "--value", value, *chooser.choice(([], ["--json"]))]
    _answered([*arguments, "--", query], "")


def sees_and_pronounces(chooser: random.Random, folder: Path) -> None:
    """A sentence or words that may be anything, on the command line or standard input, printed or saved."""

    def text() -> str:
        return chooser.choice((*ODD, "dog", "the dog was happy, so it wagged its tail", "it's"))

    command = chooser.choice(("see", "pronounce", "pronounce"))
    arguments, entered = [command], text()
    if chooser.random() < 0.3:
        output = f"saved.{chooser.choice(FORMATS)}" if chooser.random() < 0.9 else chooser.choice(ODD)
        arguments += ["-o", output if chooser.random() < 0.9 else f"missing/{output}"]
    if command == "see":
        for option, usual in (("--layer", "2"), ("--head", "telling"), ("--query", "dog"), ("--query", "dog2")):
            if chooser.random() < 0.2:
                arguments += [option, usual if chooser.random() < 0.7 else chooser.choice(ODD)]
        if chooser.random() < 0.2:
            arguments.append("--specials")
    if chooser.random() < 0.8:
        arguments += ["--", *(text() for _ in range(chooser.choice((1, 1, 3))))]
    _answered(arguments, entered)


def takes_a_tour(chooser: random.Random, folder: Path) -> None:
    """The tour, with options that may not fit together."""
    options = [each for each in ("--no-page", "--json", "--plain") if chooser.random() < 0.5]
    if chooser.random() < 0.3:
        options += ["-o", chooser.choice(("page.html", "page.png", "missing/page.html", *ODD))]
    _answered(["tour", *options], "")


def _question(chooser: random.Random, path: str) -> tuple[list[str], str]:
    def number() -> str:
        return chooser.choice((*ODD, "0.5", "1", "3", "1e-3", "12", "2.5"))

    arguments = ["ask", path if chooser.random() < 0.97 else chooser.choice(ODD)]
    keys = chooser.sample(NAMES, chooser.choice((1, 1, 2)))
    for name in keys:
        arguments += ["--key", name if chooser.random() < 0.95 else chooser.choice(ODD)]
    for name in chooser.sample(NAMES, chooser.choice((1, 1, 2))):
        arguments += ["--value", name]
    if chooser.random() < 0.5:
        named = chooser.choice(SCORES) + (f":{number()}" if chooser.random() < 0.7 else "")
        arguments += ["--score", named if chooser.random() < 0.7 else f"{chooser.choice(keys)}={named}"]
    if chooser.random() < 0.5:
        arguments += ["--weights", chooser.choice(RULES) + (f":{number()}" if chooser.random() < 0.5 else "")]
    for option in ("--json", "--exact", "--average"):
        if chooser.random() < 0.12:
            arguments.append(option)
    if chooser.random() < 0.2:
        arguments += ["--top", number()]
    if chooser.random() < 0.2:
        arguments += ["--index", chooser.choice((*NAMES, *ODD))]
    if "--average" not in arguments:
        values = {"name": "row1", "size": "3.1", "kind": "red", "day": "2024-01-11", "price": "100"}
        whole = ",".join(values[name] for name in keys)
        arguments += [chooser.choice((whole, whole, whole, "-", chooser.choice(ODD)))]
    return arguments, "\n".join(chooser.choice((*ODD, "3.1", "row1")) for _ in range(chooser.randrange(5)))


def _answered(arguments: list[str], entered: str) -> None:
    """Run a command line, which must answer or say in words what is wrong."""
    result = _run(arguments, entered)
    shown = " ".join(repr(each[:60]) for each in arguments)
    error = result.exception
    if error is not None and not isinstance(error, SystemExit):
        raise Broken(f"{type(error).__name__} {str(error)[:150]} for {shown}")
    if result.exit_code not in (0, 1, 2):
        raise Broken(f"exit code {result.exit_code} for {shown}")
    output, said = result.stdout, result.stderr
    options = arguments[: arguments.index("--")] if "--" in arguments else arguments
    if result.exit_code and not said.strip():
        raise Broken(f"exit code {result.exit_code} and not a word for {shown}")
    silent = not result.exit_code and not output.strip() and "-o" not in options
    if silent and "--exact" not in options and "-" not in options:
        raise Broken(f"exit code 0 and no answer for {shown}")
    if "Traceback" in said:
        raise Broken(f"a traceback for {shown}")
    if "--json" in options and result.exit_code == 0:
        json.loads(output)
    elif "--exact" not in options and stray(output):  # what is looked up is for the next program, as it is
        raise Broken(f"{stray(output)} on standard output for {shown}")
    if stray(said):
        raise Broken(f"{stray(said)} on standard error for {shown}")


def _run(arguments: list[str], entered: str) -> Any:
    from typer.testing import CliRunner

    from regard.cli import app

    encodable = [
        each.encode("utf-8", "surrogateescape" if "\udc80" in each else "replace").decode() for each in arguments
    ]
    without_zeros = [each.replace("\0", "") for each in encodable]  # no shell can pass them
    return CliRunner().invoke(app, without_zeros, input=entered.encode("utf-8", "replace"))


# Files ----------------------------------------------------------------------------------------------------------------


def reads_a_damaged_table(chooser: random.Random, folder: Path) -> None:
    """A table with random damage is answered from or refused in words."""
    kind = chooser.choice(TABLES)
    content, _ = damage(table_bytes(kind, rows_of(chooser, chooser.choice((1, 5, 40)))), chooser)
    path = write(folder, f"table.{kind}", content)
    key, value = chooser.sample(NAMES, 2)
    _answered(["ask", str(path), "--key", key, "--value", value, "3"], "")


def loses_no_row(chooser: random.Random, folder: Path) -> None:
    """As many rows as Python's csv finds; with a stray quote, that many or an error."""
    from regard import Database
    from regard.errors import RegardError

    rows = rows_of(chooser, chooser.choice((1, 3, 50)))
    text = table_bytes("csv", rows).decode()
    whole = list(csv.DictReader(io.StringIO(text)))
    if chooser.random() < 0.5:
        lines = text.split("\n")
        place = chooser.randrange(1, len(rows) + 1)
        cells = lines[place].split(",")
        cells[chooser.choice((0, -1))] = chooser.choice(('"y', 'y"', '"', 'a"b'))
        lines[place] = ",".join(cells)
        text = "\n".join(lines)
    path = write(folder, "rows.csv", text.encode())
    try:
        database = Database.from_table(path, key="name", value="price")
    except RegardError:
        return
    if len(database) != len(whole):
        raise Broken(f"{len(database)} of {len(whole)} rows")


def reads_damaged_vectors(chooser: random.Random, folder: Path) -> None:
    """Word vectors with random damage are read or refused in words; a lost newline loses no word in silence."""
    from regard.errors import RegardError
    from regard.text import WordVectors

    kind = chooser.choice(("glove", "word2vec", "binary", "glove.gz"))
    content = vector_bytes(kind, chooser)
    n_words = None
    if kind == "glove" and content.count(b"\n") > 2 and chooser.random() < 0.4:
        n_words = content.count(b"\n")
        place = chooser.choice([place for place, each in enumerate(content) if each == 10][:-1])
        content = content[:place] + chooser.choice((b"", b" ")) + content[place + 1 :]
    else:
        content, _ = damage(content, chooser)
    path = write(folder, f"vectors.{kind}", content)
    try:
        found = WordVectors.read(
            path, on_bad=chooser.choice(("raise", "raise", "skip")) if n_words is None else "raise"
        )
    except RegardError as error:
        _in_words(error)
        return
    if n_words is not None and len(found) != n_words:
        raise Broken(f"{len(found)} of {n_words} words, in silence")


def reads_a_damaged_model(chooser: random.Random, folder: Path) -> None:
    """The folder of an encoder with random damage, or with odd values in its configuration."""
    from regard.errors import RegardError
    from regard.text import SentenceEncoder

    files = dict(encoder_files())
    name = chooser.choice(list(files))
    if name == "config.json" and chooser.random() < 0.7:
        config = json.loads(files[name])
        for _ in range(chooser.choice((1, 1, 3))):
            odd = chooser.choice((None, "8", -1, 0, 1e300, 8.5, [8], {}, True, 10**12, "x", float("nan")))
            config[chooser.choice(list(config))] = odd
        files[name] = json.dumps(config).encode()
    else:
        files[name], _ = damage(files[name], chooser)
    if chooser.random() < 0.05:
        del files[name]
    for each, content in files.items():
        write(folder, each, content)
    try:
        SentenceEncoder.load(folder).embed(["the dog was happy"])
    except RegardError as error:
        _in_words(error)


def reads_a_damaged_pronouncer(chooser: random.Random, folder: Path) -> None:
    """A pronouncer's file with damage in its header, or cut."""
    from regard.errors import RegardError
    from regard.text import Pronouncer
    from regard.text.pronouncer import MODEL

    content = Path(MODEL).read_bytes()
    size = 8 + int.from_bytes(content[:8], "little")
    head, _ = damage(content[: chooser.choice((8, size, size))], chooser)
    path = write(folder, "said.safetensors", head + content[size:] if chooser.random() < 0.9 else head)
    try:
        Pronouncer.load(path).say("dog")
    except RegardError as error:
        _in_words(error)


def survives_a_bomb(chooser: random.Random, folder: Path) -> None:
    """A small gzipped file that unpacks to gigabytes is refused in words before it takes them."""
    from regard import Database
    from regard.errors import RegardError
    from regard.text import WordVectors

    block = chooser.choice((b"0" * (1 << 20), b"1,2\n" * (1 << 18), b"\n" * (1 << 20), b" " * (1 << 20)))
    table = chooser.random() < 0.5
    path = folder / ("bomb.csv.gz" if table else "bomb.txt.gz")
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(b"a,b\n1,2\n" if table else b"dog 1 2\n")
        for _ in range(3 << 10):
            file.write(block)
    try:
        if table:
            Database.from_table(path, key="a", value="b")
        else:
            WordVectors.read(path)
    except RegardError as error:
        _in_words(error)


def survives_what_is_repeated(chooser: random.Random, folder: Path) -> None:
    """A small file in which something stands for many rows: read, or refused in words before it takes that memory."""
    kind = chooser.choice(("arrow", "parquet"))
    path = write(folder, f"table.{kind}", repeated(kind, chooser))
    _answered(["ask", str(path), "--key", "a", "--value", "b", "3"], "")


def reads_a_damaged_kernel(chooser: random.Random, folder: Path) -> None:
    """Machine code on disk is read whole or not at all, whatever is where it should be."""
    from regard.engines.cpu.runtime import kernel_cache

    before = os.environ.get("NUMBA_CACHE_DIR")
    odd = [each for each in ODD if "\0" not in each and "\ud800" not in each]
    content = chooser.randbytes(chooser.choice((1, 31, 32, 33, 4000)))
    try:
        os.environ["NUMBA_CACHE_DIR"] = chooser.choice(odd) if chooser.random() < 0.2 else str(folder)
        kernel_cache.folders.cache_clear()
        if kernel_cache.folders()[-1].parent != folder:
            return
        kernel_cache.write("kernel", content)
        (path,) = kernel_cache.folders()[-1].iterdir()
        if kernel_cache.read("kernel") != content:
            raise Broken("what was kept is not there")
        damaged, what = damage(path.read_bytes(), chooser)
        path.unlink()
        if chooser.random() < 0.1:
            path.mkdir()
        else:
            path.write_bytes(damaged)
        if kernel_cache.read("kernel") not in (None, content):
            raise Broken(f"machine code with {what} would be run")
        kernel_cache.write("kernel", content)
        if path.is_file() and kernel_cache.read("kernel") != content:
            raise Broken(f"machine code with {what} is not made again")
    finally:
        os.environ.pop("NUMBA_CACHE_DIR")
        if before is not None:
            os.environ["NUMBA_CACHE_DIR"] = before
        kernel_cache.folders.cache_clear()


def _in_words(error: Exception) -> None:
    text = str(error)
    if len(text) < 10 or "object at 0x" in text:
        raise Broken(f"an error without words: {text!r}")


CHECKS: dict[Check, float] = {
    answers_a_command_line: 30,
    answers_about_odd_cells: 15,
    reads_a_damaged_table: 25,
    loses_no_row: 10,
    reads_damaged_vectors: 15,
    reads_a_damaged_model: 10,
    reads_a_damaged_pronouncer: 2,
    survives_a_bomb: 0.1,
}

LATER_CHECKS: dict[Check, float] = {
    sees_and_pronounces: 10,
    takes_a_tour: 0.3,
    survives_what_is_repeated: 20,
    reads_a_damaged_kernel: 10,
    survives_a_bomb: 0.3,
}
