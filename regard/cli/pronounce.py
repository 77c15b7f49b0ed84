"""`regard pronounce`: how a word is said, and which letters each sound attends to."""

from __future__ import annotations

import sys
import unicodedata
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.console import has_colour, log, out
from regard.cli.saving import extension_of, save_figure, save_json, save_text, saving
from regard.cli.standard_input import standard_text
from regard.errors import CheckpointError, OptionError
from regard.printable import short_name
from regard.wording import listed, told_apart

if TYPE_CHECKING:
    from regard.text import Pronouncer, Pronunciation

EXAMPLES = """\
[bold]Examples[/bold]
  regard pronounce attention
  regard pronounce cough though through
  regard pronounce attention -o attention.png
"""

FORMATS = ("png", "svg", "pdf", "html", "json")


def pronounce(
    words: Annotated[
        list[str] | None,
        typer.Argument(help="English words; from standard input if left out.", show_default=False),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help=f"Save the alignment to a file: {', '.join(FORMATS)}.", show_default=False),
    ] = None,
    model: Annotated[
        Path | None,
        typer.Option(help="A model that examples/pronounce wrote; regard's own if left out."),
    ] = None,
) -> None:
    """Transcribe English words to phonemes (ARPAbet: SH as in she), with the letters that each one attends to."""
    words = words if words and words != ["-"] else _standard_words()
    if output is not None and extension_of(output, FORMATS) not in ("html", "json") and len(words) > 1:
        raise typer.BadParameter(
            f"a picture is of one word: got {len(words)}. Save them as .html or .json, or one at a time."
        )
    with log.status("loading the model"):
        said = _load(model).say(words)
    if output is None:
        _print(said)
    else:
        with saving(output) as file:
            _save(said, "regard's pronouncer" if model is None else model.name, file)


def _standard_words() -> list[str]:
    words = [] if sys.stdin.isatty() else [bare for word in standard_text().split() if (bare := _bare(word))]
    if not words:
        raise typer.BadParameter("name a word, or write words to standard input.", param_hint="WORDS")
    return words


def _bare(word: str) -> str:
    """A word of a running text without the punctuation around it; apostrophes may be its own."""
    marks = "".join({mark for mark in word if unicodedata.category(mark)[0] == "P"} - set("'‘’"))
    return word.strip(marks)


def _load(model: Path | None) -> Pronouncer:
    from regard.text import Pronouncer
    from regard.text.pronouncer import MODEL

    path = MODEL if model is None else model
    if not path.is_file():
        raise CheckpointError(
            "This copy of regard has no pronouncer in it. Train one with examples/pronounce/train.py, and name it with "
            "--model PATH."
            if model is None
            else f"--model must be a file that examples/pronounce wrote: there is none at {model}."
        )
    return Pronouncer.load(path)


def _print(said: Sequence[Pronunciation]) -> None:
    from regard.plots.terminal import draw_matrix

    colour = has_colour(out)
    for place, each in enumerate(said):
        if place:
            out.print()
        if not each.phonemes:
            out.print(f"{each.word}  (the model says nothing)", style="bold", markup=False, soft_wrap=True)
            continue
        out.print(f"{each.word}  {each}", style="bold", markup=False, soft_wrap=True)
        out.print(_read(each), style="dim", markup=False)
        out.print("rows are sounds, columns are letters", style="dim")
        picture = draw_matrix(each.alignment, each.phonemes, list(each.letters), width=out.width, colour=colour)
        out.print(picture, soft_wrap=True)
        if beyond := _beyond(each):
            out.print(beyond, style="dim")


def _read(said: Pronunciation) -> str:
    """How confident the model is, and what it read if that is not what was written."""
    read = "" if said.letters == said.word.lower() else f"read as {said.letters}; "
    # Trained with label smoothing of 0.1, a model learns to give what is right a probability of about 0.9.
    return f"{read}probability {said.certainty:.0%} per sound; with label smoothing, 90% is confident"


def _beyond(said: Pronunciation) -> str:
    """Where the rest of the sounds' weight is, if the letters do not have all of it."""
    shares = zip(told_apart(said.phonemes), _at_the_end(said), strict=True)
    parts = [f"{share:.0%} of {sound}" for sound, share in shares if share >= 0.01]
    return f"the end of the word, which has no column, takes {listed(parts)}" if parts else ""


def _at_the_end(said: Pronunciation) -> list[float]:
    """Of each sound's weight, the share that goes past the last letter."""
    shares: list[float] = (1 - said.alignment.sum(-1)).clamp_min(0).tolist()
    return shares


def _note(said: Pronunciation) -> str:
    return "; ".join(part for part in (_read(said), _beyond(said)) if part)


def _save(said: Sequence[Pronunciation], by: str, output: Path) -> None:
    from regard.plots import Picture, alignment, page

    kind = extension_of(output, FORMATS)
    silent = [each.word for each in said if not each.phonemes]
    if silent and kind != "json":
        raise OptionError(
            f"A picture must be of a word that the model says: it says nothing for {', '.join(map(repr, silent))}. "
            f"Leave it out, or save as .json."
        )
    titles = [f"“{short_name(each.word)}”: {each}, by {by}" for each in said]
    if kind == "html":
        pictures = [
            Picture(each.alignment, each.phonemes, list(each.letters), title, _note(each))
            for each, title in zip(said, titles, strict=True)
        ]
        save_text(page(pictures, "From letters to sounds"), output)
    elif kind == "json":
        save_json(
            [
                {
                    "word": each.word,
                    "letters": each.letters,
                    "phonemes": each.phonemes,
                    "probability": each.probability,
                    "certainty": each.certainty,
                    "alignment": each.alignment.tolist(),
                    "end": _at_the_end(each),
                }
                for each in said
            ],
            output,
        )
    else:
        each = said[0]
        figure = alignment(
            each.alignment,
            each.phonemes,
            list(each.letters),
            title=titles[0],
            note=_note(each),
            row_name="sounds (queries)",
            column_name="letters (keys)",
        )
        save_figure(figure, output)
