"""Where commands save what they show: the kind of a file is in its name."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import typer

from regard.cli.console import log
from regard.errors import OptionError

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def extension_of(path: Path, known: Sequence[str]) -> str:
    """The kind of file that a path names, one of those known."""
    kind = path.suffix.casefold().removeprefix(".")
    if kind not in known:
        raise typer.BadParameter(
            f"--output must end in one of {', '.join(f'.{each}' for each in known)}: got {path.name!r}."
        )
    return kind


@contextmanager
def saving(path: Path) -> Iterator[Path]:
    """Where to write what belongs at `path`; then say what was saved and what it replaced, or why it could not be.

    A file takes its place once it is whole: a failure leaves what was there, and a link is replaced, not followed.
    """
    try:
        replaced = "a link" if path.is_symlink() else "the file" if path.exists() else ""
        with TemporaryDirectory(dir=path.parent, prefix=".regard-") as folder:
            unfinished = Path(folder) / f"unfinished{path.suffix}"
            yield unfinished
            unfinished.replace(path)
    except OSError as error:
        hint = "" if os.path.isdir(path.parent) else f" There is no folder {str(path.parent)!r}: make it first."
        raise OptionError(
            f"--output must be a file that can be written: {path} ({error.strerror or error}).{hint}"
        ) from None
    instead = f", in place of {replaced} that was there" if replaced else ""
    log.print(f"saved {path}{instead}", style="dim", markup=False, soft_wrap=True)


def save_text(text: str, path: Path) -> None:
    path.write_text(text, encoding="utf-8")


def save_json(data: Any, path: Path) -> None:
    save_text(json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False) + "\n", path)


def save_figure(figure: Figure, path: Path) -> None:
    """Save a figure, the same bytes for the same figure: files carry no date."""
    import warnings

    import matplotlib

    dates = {"png": {}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}
    with warnings.catch_warnings(), matplotlib.rc_context({"svg.hashsalt": "regard"}):
        # A letter that no font has is drawn as an empty box, and the file is good without it.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        figure.savefig(path, metadata=dates.get(path.suffix.casefold().removeprefix("."), {}))
