"""`regard see`: what each word of a sentence attends to, in a real model."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.console import has_colour, log, out
from regard.cli.saving import extension_of, save_figure, save_json, save_text, saving
from regard.cli.sentence_picture import Seen, choose_maps
from regard.cli.standard_input import standard_text
from regard.errors import OptionError
from regard.plots.bounded import short_name

if TYPE_CHECKING:
    from regard.text import Look

EXAMPLES = """\
[bold]Examples[/bold]
  regard see "When he saw his owner, the dog was happy, so he wagged his tail"
  regard see "the dog was happy" --query happy
  regard see "the dog was happy" --layer 3 --head telling
  regard see "the dog was happy" -o weights.html
  echo "the dog was happy" | regard see

[bold]What is averaged[/bold]
  All layers and heads alike, unless one is named. A word of
  several tokens is their sum as a key, and their mean as a query.

[bold]What is hidden[/bold]
  What the model adds (\\[CLS], \\[SEP]), punctuation, and symbols such as $,
  where they are words of their own. Emoji are shown.

[bold]The most telling head[/bold]
  Its Σ α(q, k) · ln(α(q, k) / b(q, k)) is the largest, over words that are
  not the same or neighbours; b is the mean weight of that key or that of
  that distance, whichever is larger. So it attends to words for what they are:
  not to one word always, nor by position. Hidden keys count for nothing.
"""

MODEL = "MiniLM"
LONGEST_TITLE = 120  # letters of a text that a title quotes
FORMATS = ("png", "svg", "pdf", "html", "json", "npz")


def see(
    text: Annotated[
        list[str] | None, typer.Argument(help="The text; from standard input if left out.", show_default=False)
    ] = None,
    layer: Annotated[int | None, typer.Option(help="Which layer, from 0; the average if left out.")] = None,
    head: Annotated[
        str | None,
        typer.Option(help="Which head, from 0, or [bold]telling[/bold]; the average if left out.", show_default=False),
    ] = None,
    query: Annotated[
        list[str] | None,
        typer.Option(
            "--query",
            "-q",
            help="Rank what this word attends to; several if given more than once. Of a word that is there twice, "
            "the second is [bold]word2[/bold].",
            show_default=False,
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help=f"Save to a file: {', '.join(FORMATS)}.", show_default=False),
    ] = None,
    specials: Annotated[
        bool, typer.Option("--specials", help="Show \\[CLS], \\[SEP], punctuation and symbols too; nothing is scaled.")
    ] = False,
) -> None:
    """See what each word of a sentence attends to, in a real model (MiniLM)."""
    number = _head_number(head)
    if output is not None:
        extension_of(output, FORMATS)
    sentence = " ".join(text) if text and text != ["-"] else _standard_input()
    if not sentence.strip():
        raise OptionError("There are no words: the text is empty. Write a sentence.")
    with log.status("loading the model"):
        from regard.text import SentenceEncoder

        look = SentenceEncoder.load().look(sentence)
    seen = choose_maps(look, layer, number, query, specials)
    if output is None:
        _print(seen)
    else:
        with saving(output) as file:
            _save(seen, look, sentence, file)


def _head_number(head: str | None) -> int | str | None:
    if head is None or head == "telling":
        return head
    try:
        return int(head)
    except ValueError:
        raise typer.BadParameter(f"--head must be a number from 0, or telling: got {head!r}.") from None


def _standard_input() -> str:
    if sys.stdin.isatty():
        raise typer.BadParameter('there is no text: write a sentence in quotes, as in regard see "the dog was happy".')
    return " ".join(standard_text().split())


def _print(seen: Seen) -> None:
    from regard.plots import draw_matrix, draw_ranked

    width = min(out.width, 80)
    if seen.places:
        for place in seen.places:
            out.print(f"what “{short_name(seen.names[place])}” attends to", style="bold", markup=False)
            out.print(draw_ranked(seen.row(place), seen.names, width=width), soft_wrap=True)
    else:
        colour = has_colour(out)
        more = "not every word has its place here: -o weights.html shows them all"
        picture = draw_matrix(seen.weights, seen.names, seen.names, width=out.width, colour=colour, more=more)
        out.print(picture, soft_wrap=True)
    hidden = f"{seen.hidden_note}. Show all with --specials" if seen.hidden else seen.hidden_note
    for line in (f"{MODEL}, {seen.source}", hidden):
        out.print(line, style="dim", markup=False, width=width)
    if seen.unknown:
        out.print(seen.unknown_note, markup=False, width=width)


def _save(seen: Seen, look: Look, sentence: str, output: Path) -> None:
    from regard.plots import Picture, matrix, page, ranked

    names, quoted, source = seen.names, f"“{short_name(sentence, LONGEST_TITLE)}”", f"{MODEL}, {seen.source}"
    kind = extension_of(output, FORMATS)
    first = seen.places[0] if seen.places else None
    if kind == "json":
        save_json(_described(seen, sentence), output)
    elif kind == "npz":
        _save_arrays(seen, look, output)
    elif kind == "html":
        picture = Picture(seen.weights, names, names, source, "; ".join(seen.notes), first)
        save_text(page(picture, quoted), output)
    elif first is not None:
        notes = seen.of_first().notes
        title = f"what “{short_name(names[first])}” attends to in {quoted}: {source}"
        if len(seen.places) > 1:
            notes.append(f"the first of {len(seen.places)}: --query {names[seen.places[1]]} shows the next")
        save_figure(ranked(seen.row(first), names, names[first], title=title, note="; ".join(notes)), output)
    else:
        save_figure(matrix(seen.weights, names, title=f"{quoted}: {source}", note="; ".join(seen.notes)), output)


def _described(seen: Seen, sentence: str) -> dict[str, Any]:
    names = seen.names
    described: dict[str, Any] = {
        "text": sentence,
        "source": seen.source,
        "axes": "rows are queries, columns are keys",
        "words": seen.words,
        "names": names,
        "unknown": seen.unknown,
        "notes": seen.notes,
        "hidden": seen.hidden,
        "hidden_share": seen.hidden_share.tolist(),
        "weights": seen.weights.tolist(),
    }
    if seen.places:
        described["queries"] = [
            {
                "word": seen.words[place],
                "name": names[place],
                "place": place,
                "looks_at": sorted(
                    (
                        {"word": seen.words[key], "name": names[key], "place": key, "weight": weight}
                        for key, weight in enumerate(seen.row(place))
                    ),
                    key=lambda pair: -float(pair["weight"]),
                ),
            }
            for place in seen.places
        ]
    return described


def _save_arrays(seen: Seen, look: Look, output: Path) -> None:
    import numpy as np

    with output.open("wb") as file:  # NumPy would add .npz to a name that ends in .NPZ
        # Text as fixed-width arrays: np.load reads them without pickle.
        np.savez_compressed(
            file,
            words=np.array(seen.words),
            weights=seen.weights.numpy(),
            hidden_share=seen.hidden_share.numpy(),
            all_words=np.array(look.words),
            all_weights=look.all_weights().numpy(),
        )
