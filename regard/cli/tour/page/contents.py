"""The chapters of the page, on the documents' path from a lookup to the Transformer."""

from __future__ import annotations

from regard.cli.tour.page.chapter import Chapter
from regard.cli.tour.page.chapters import (
    blank,
    cover,
    distance,
    heads,
    kinds,
    learning,
    lookup,
    model,
    parts,
    rules,
    salary,
    scale,
    scores,
    self_attention,
    sentence,
    size,
    softmax,
    translation,
    vectors,
)

COVER = cover.CHAPTER
CHAPTERS = (
    Chapter("why", "Why it is called attention"),
    lookup.CHAPTER,
    Chapter("formula", "The formula"),
    salary.CHAPTER,
    kinds.CHAPTER,
    softmax.CHAPTER,
    rules.CHAPTER,
    scores.CHAPTER,
    scale.CHAPTER,
    vectors.CHAPTER,
    sentence.CHAPTER,
    blank.CHAPTER,
    self_attention.CHAPTER,
    learning.CHAPTER,
    distance.CHAPTER,
    heads.CHAPTER,
    parts.CHAPTER,
    translation.CHAPTER,
    model.CHAPTER,
    size.CHAPTER,
    Chapter("errata", "Where the documents slip"),
    Chapter("gaps", "What the documents leave open"),
)
