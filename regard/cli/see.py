"""`regard see`: what each word of a sentence attends to, in a real model."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.console import has_colour, log, out
from regard.cli.saving import extension_of, save_figure, save_json, save_text, saving
from regard.cli.standard_input import standard_text
from regard.errors import OptionError
from regard.printable import short_name

if TYPE_CHECKING:
    from regard.text import Look
    from regard.text.seen import Seen

EXAMPLES = """\
[bold]Examples[/bold]
  regard see "When he saw his owner, the dog was happy, so he wagged his tail"
  regard see "the dog was happy" --query happy
  regard see "the dog was happy" --layer 3 --head telling
  regard see "the dog was happy" -o weights.html
  echo "the dog was happy" | regard see
  regard see "the dog was happy" --model ./gpt2 --layer 5 --head 1
  regard see "the dog was happy" --model ./t5-small --attention cross

[bold]What is averaged[/bold]
  All layers and heads alike, unless one is named. A word of
  several tokens is their sum as a key, and their mean as a query;
  --pieces shows the tokens.

[bold]Models[/bold]
  MiniLM, or any checkpoint of transformers on this disk: a folder with
  config.json, model.safetensors and a tokenizer, as save_pretrained writes
  it. Nothing is fetched, and no code in it is run.
  Where a model reads and writes (T5, BART), --attention is [bold]encoder[/bold]:
  what is read, to itself; [bold]decoder[/bold]: what is written, to itself;
  or [bold]cross[/bold]: what is written, at the step that writes it, to what is
  read. It writes its first choice at every step, or --target.

[bold]What is hidden[/bold]
  What the model adds (\\[CLS], \\[SEP]), punctuation, and symbols such as $,
  where they are words of their own. Emoji are shown.

[bold]The most telling head[/bold]
  Its Σ α(q, k) · ln(α(q, k) / b(q, k)) is the largest, over words that are
  not the same or neighbours; b is the mean weight of that key or that of
  that distance, whichever is larger. So it attends to words for what they are:
  not to one word always, nor by position. Hidden keys count for nothing.
  Between two texts there are no distances: b is the mean of the key.
"""

MINILM = "MiniLM"
BUDGET = 1 << 32  # bytes of the queries and keys of all layers
MOST_SAVED = 1 << 28  # weights of every layer and head in one file: 1 GiB
MOST_SMALL = 1 << 26  # weights up to which a page shows every head: of 72 heads, for 965 words
PARTS = (
    "encoder",
    "decoder",
    "cross",
)  # those of `regard.integrations.transformers.text_model`, which --help must not load
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
    pieces: Annotated[bool, typer.Option("--pieces", help="Show the model's tokens, not words.")] = False,
    model: Annotated[
        Path | None,
        typer.Option("--model", help="The folder of a model of transformers; MiniLM if left out.", show_default=False),
    ] = None,
    attention: Annotated[
        str | None,
        typer.Option(
            help=f"Of a model that reads and writes: {', '.join(PARTS)}; the last if left out.", show_default=False
        ),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(help="What such a model writes; what it generates, if left out.", show_default=False),
    ] = None,
) -> None:
    """See what each word of a sentence attends to, in a real model: MiniLM, or yours."""
    number = _head_number(head)
    if output is not None:
        extension_of(output, FORMATS)
    sentence = " ".join(text) if text and text != ["-"] else _standard_input()
    if not sentence.strip():
        raise OptionError("There are no words: the text is empty. Write a sentence.")
    if model is None:
        name, look = MINILM, _minilm(sentence, attention, target)
    else:
        name, look = _of_model(model, sentence, attention, target)
    look = look.by_pieces() if pieces else look
    from regard.text.seen import choose_maps

    seen = choose_maps(look, layer, number, query, specials)
    if output is None:
        _print(seen, name)
    else:
        with saving(output) as file:
            _save(seen, sentence, name, file)


def _minilm(sentence: str, attention: str | None, target: str | None) -> Look:
    for option, given in (("--attention", attention), ("--target", target)):
        if given is not None:
            raise typer.BadParameter(f"{option} must stand with a --model that reads and writes: MiniLM only reads.")
    with log.status("loading the model"):
        from regard.text import SentenceEncoder

        return SentenceEncoder.load().look(sentence)


def _of_model(folder: Path, sentence: str, attention: str | None, target: str | None) -> tuple[str, Look]:
    """What a model in a folder attends to, and what pictures call it."""
    if attention is not None and attention not in PARTS:
        raise typer.BadParameter(f"--attention must be one of {', '.join(PARTS)}: got {attention!r}.")
    with log.status("loading the model"):
        from regard.integrations.transformers import TextModel

        model = TextModel.load(folder)
    with log.status("reading the text"):
        part = model.choose_part(attention)
        look = model.look(sentence, part, target=target, budget=BUDGET)
    attends = {"encoder": "encoder", "decoder": "decoder", "cross": "cross-attention"}[part]
    return f"{model.name}, {attends}" if len(model.parts) > 1 else model.name, look


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


def _print(seen: Seen, name: str) -> None:
    from regard.plots import draw_matrix, draw_ranked

    width = min(out.width, 80)
    if seen.places:
        for place in seen.places:
            out.print(f"what “{short_name(seen.names[place])}” attends to", style="bold", markup=False)
            out.print(draw_ranked(seen.row(place), seen.key_names, width=width), soft_wrap=True)
    else:
        colour = has_colour(out)
        more = "not every word has its place here: -o weights.html shows them all"
        picture = draw_matrix(seen.weights, seen.names, seen.key_names, width=out.width, colour=colour, more=more)
        out.print(picture, soft_wrap=True)
    hidden = f"{seen.hidden_note}. Show all with --specials" if seen.hidden else seen.hidden_note
    for line in filter(None, (f"{short_name(name, LONGEST_TITLE)}, {seen.source}", seen.axes_note, hidden)):
        out.print(line, style="dim", markup=False, width=width)
    if seen.unknown:
        out.print(seen.unknown_note, markup=False, width=width)


def _save(seen: Seen, sentence: str, name: str, output: Path) -> None:
    from regard.plots import Picture, matrix, page, ranked

    names, keys, quoted = seen.names, seen.key_names, f"“{short_name(sentence, LONGEST_TITLE)}”"
    source = f"{short_name(name, LONGEST_TITLE)}, {seen.source}"
    kind = extension_of(output, FORMATS)
    first = seen.places[0] if seen.places else None
    if kind == "json":
        save_json(_described(seen, sentence, name), output)
    elif kind == "npz":
        _save_arrays(seen, output)
    elif kind == "html":
        count = seen.look.n_layers * seen.look.n_heads * len(names) * len(keys)
        heads = [seen.of_heads(layer) for layer in range(seen.look.n_layers)] if count <= MOST_SMALL else None
        notes = list(seen.notes)
        if heads is None:
            notes.append("the text is too long for every head to be here: regard explore shows them")
        elif seen.hidden:
            notes.append("each head has a share of its own")
        picture = Picture(seen.weights, names, keys, source, "; ".join(notes), first, heads=heads)
        save_text(page(picture, quoted), output)
    elif first is not None:
        notes = seen.of_first().notes
        title = f"what “{short_name(names[first])}” attends to in {quoted}: {source}"
        if len(seen.places) > 1:
            notes.append(f"the first of {len(seen.places)}: --query {names[seen.places[1]]} shows the next")
        save_figure(ranked(seen.row(first), keys, names[first], title=title, note="; ".join(notes)), output)
    else:
        save_figure(matrix(seen.weights, names, keys, title=f"{quoted}: {source}", note="; ".join(seen.notes)), output)


def _described(seen: Seen, sentence: str, name: str) -> dict[str, Any]:
    names, keys, key_names = seen.names, seen.key_words, seen.key_names
    described: dict[str, Any] = {
        "text": sentence,
        "model": name,
        "source": seen.source,
        "axes": "rows are queries, columns are keys",
        "words": seen.words,
        "names": names,
        "keys": keys,
        "key_names": key_names,
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
                        {"word": keys[key], "name": key_names[key], "place": key, "weight": weight}
                        for key, weight in enumerate(seen.row(place))
                    ),
                    key=lambda pair: -float(pair["weight"]),
                ),
            }
            for place in seen.places
        ]
    return described


def _save_arrays(seen: Seen, output: Path) -> None:
    import numpy as np

    look = seen.look
    count = look.n_layers * look.n_heads * len(look.words) * len(look.keys.words)
    if count > MOST_SAVED:
        raise OptionError(
            f"A file of arrays must have at most {MOST_SAVED:,} weights: every layer and head has {count:,}. Save "
            f"{output.with_suffix('.json').name}, which has the average of them, or a shorter text."
        )
    with output.open("wb") as file:  # NumPy would add .npz to a name that ends in .NPZ
        # Text as fixed-width arrays: np.load reads them without pickle.
        np.savez_compressed(
            file,
            words=np.array(seen.words),
            keys=np.array(seen.key_words),
            weights=seen.weights.numpy(),
            hidden_share=seen.hidden_share.numpy(),
            all_words=np.array(look.words),
            all_keys=np.array(look.keys.words),
            all_weights=look.all_weights().numpy(),
        )
