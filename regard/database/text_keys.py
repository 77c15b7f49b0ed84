"""Texts as keys that are compared by what they mean."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import torch
from torch import Tensor

from regard.database.column_names import check_names
from regard.database.columns import CategoryColumn, Column, IdColumn, TextColumn, names
from regard.database.python_columns import column_from
from regard.database.python_values import Entries
from regard.errors import OptionError, ShapeError
from regard.scores import Cosine, Score


class Embedder(Protocol):
    """What has a method from n texts to their vectors, `(n, dim)`, as `regard.text.SentenceEncoder` has."""

    def embed(self, texts: list[str], /) -> Tensor: ...


TextEncoder = Embedder | Callable[[list[str]], Tensor]
"""What turns texts into vectors."""

TEMPERATURE = 0.1
"""Of the cosine that compares texts. Texts on one subject are at 0.4 to 0.8, others near 0: so e⁴ to e⁸ to 1."""


def by_meaning(columns: tuple[Column, ...], encoder: TextEncoder | Mapping[str, TextEncoder]) -> tuple[Column, ...]:
    """Key columns, with those of text that have an encoder compared by their vectors."""
    if not isinstance(encoder, Mapping):
        texts = [column.name for column in columns if _is_text(column)]
        if len(texts) != 1:
            raise OptionError(
                f"`encoder` must be for one key column of text: got {len(texts)} of them among "
                f"{', '.join(names(columns))}. Pass texts as keys, or a dict with an encoder for each column by name."
            )
        encoder = {texts[0]: encoder}
    check_names(list(encoder), names(columns), "`encoder` must name key columns")
    return tuple(text_column(column, encoder[column.name]) if column.name in encoder else column for column in columns)


def default_scores(columns: Sequence[Column]) -> Mapping[str, Score] | None:
    """The score of each column of texts with vectors, where no other is asked for; None if there is no such column."""
    return {column.name: Cosine(TEMPERATURE) for column in columns if isinstance(column, TextColumn)} or None


def text_column(column: Column, encoder: TextEncoder) -> Column:
    """A column of texts with the vectors that an encoder gives them; a missing text stays missing.

    Example:
        >>> from regard.database.python_columns import column_from
        >>> lengths = lambda texts: torch.tensor([[float(len(text))] for text in texts])
        >>> text_column(column_from("word", ["a", "bcd"]), lengths).numbers
        tensor([[1.],
                [3.]])
    """
    if not _is_text(column):
        raise OptionError(
            f"`encoder` must be for a column of text: got {column.name!r}, a column of {column.label}. Leave it out."
        )
    assert isinstance(column, CategoryColumn)
    embed = _checked(encoder)
    if not column.categories:
        return column  # no row has a text, and so there is nothing to compare
    # Each text once, however many rows have it; a missing one has the code −1 and takes the row of NaN at the end.
    vectors = embed(list(column.categories))
    blank = torch.full((1, vectors.shape[1]), torch.nan, dtype=vectors.dtype)
    return TextColumn(column.name, column.entries, torch.cat([vectors, blank])[column.codes], embed)


def _is_text(column: Column) -> bool:
    return isinstance(column, CategoryColumn) and (column.label == "text" or not column.categories)


def _checked(encoder: TextEncoder) -> Callable[[list[str]], Tensor]:
    """The encoder as a function, whose vectors are floats on the CPU, one for each text."""
    function = getattr(encoder, "embed", encoder)
    if not callable(function) or isinstance(encoder, type):
        raise OptionError(
            f"`encoder` must have a method embed(texts), or be such a function: got {encoder!r}. Pass one such as "
            f"SentenceEncoder.load()."
        )

    def embed(texts: list[str]) -> Tensor:
        vectors = function(texts)
        if not isinstance(vectors, Tensor) or vectors.ndim != 2 or len(vectors) != len(texts):
            got = tuple(vectors.shape) if isinstance(vectors, Tensor) else type(vectors).__name__
            raise ShapeError(
                f"`encoder` must give a tensor with a vector for each text, ({len(texts)}, dim): got {got}."
            )
        vectors = vectors.detach().cpu()
        return vectors.to(torch.float64 if vectors.dtype == torch.float64 else torch.float32)

    return embed


def as_given(columns: Sequence[Column]) -> tuple[Column, ...]:
    """Columns as values: texts are texts again, and numbers are numbers."""
    given = (column.given if isinstance(column, IdColumn) else column for column in columns)
    return tuple(
        column_from(column.name, _listed(column.entries)) if isinstance(column, TextColumn) else column
        for column in given
    )


def _listed(entries: Entries) -> list[object]:
    return list(entries)
