"""The stops of the tour, in the order of the documents."""

from __future__ import annotations

from regard.cli.tour import (
    about_large,
    about_lookup,
    about_model,
    about_multi_head,
    about_rules,
    about_salary,
    about_scale,
    about_scores,
    about_self_attention,
    about_sentence,
    about_transformer,
    about_transformer_parts,
)

STOPS = (
    about_lookup.STOP,
    about_salary.STOP,
    about_rules.STOP,
    about_scores.STOP,
    about_scale.STOP,
    about_sentence.STOP,
    about_self_attention.STOP,
    about_multi_head.STOP,
    about_transformer_parts.STOP,
    about_transformer.STOP,
    about_model.STOP,
    about_large.STOP,
)
