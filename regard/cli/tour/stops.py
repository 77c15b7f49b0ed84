"""The stops of the tour, in the order of the documents."""

from __future__ import annotations

from regard.cli.tour import (
    large,
    lookup,
    model,
    multi_head,
    parts,
    rules,
    salary,
    scale,
    scores,
    self_attention,
    sentence,
    transformer,
)

STOPS = (
    lookup.STOP,
    salary.STOP,
    rules.STOP,
    scores.STOP,
    scale.STOP,
    sentence.STOP,
    self_attention.STOP,
    multi_head.STOP,
    parts.STOP,
    transformer.STOP,
    model.STOP,
    large.STOP,
)
