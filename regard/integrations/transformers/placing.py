"""Where the queries of a call stand among its keys: told to positional scores and masks that layers were given."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Final, Literal, TypeAlias

from torch import nn

from regard.errors import OptionError
from regard.grid import Align
from regard.masks import Allowed, GlobalKeys, KeyMask, Mask, Padding, PerHead, SameDocument, Selected, Window
from regard.masks.boolean import And, Not, Or
from regard.masks.positional import Positional
from regard.scores import Score
from regard.scores.bias import POSITIONAL, Alibi, RelativeBias

Unknown: TypeAlias = Literal["unknown"]
UNKNOWN: Final = "unknown"  # where queries stand among keys, if nobody says
# What says the same of every row, or has a tensor for the rows of a call, which fits or is refused.
_OF_KEYS = (Allowed, GlobalKeys, KeyMask, Padding, SameDocument, Selected)
_OF_SEVERAL = (And, Or, PerHead)  # by type, not isinstance: a user's subclass may be something else


def check_moves(score: Score | None, mask: Mask | None) -> None:
    """Raise for a positional part that says itself where queries stand: with a cache, that is another place each call.

    Raises:
        OptionError: An `align` that is neither left out nor "end".
    """
    for part in (*_terms(score), *_positional(mask)):
        if not (part.align is None or part.align == "end"):
            raise OptionError(
                f"`align` of {type(part).__name__} must be left out for a layer of transformers: got {part.align!r}. "
                f"Queries stand where the model's call has them, at another place with every cache."
            )


def is_positional(score: Score | None, mask: Mask | None) -> bool:
    """Whether a score or a mask depends on where queries stand among keys."""
    return any(True for _ in (*_terms(score), *_positional(mask)))


def moving(score: Score) -> Score:
    """A copy of a score whose positional terms have queries at the end of the keys, as with a cache that grows."""
    score = copy.deepcopy(score)
    for term in _terms(score):
        term.align = "end"
    return score


def placed_score(score: Score, align: Align | Unknown) -> Score:
    """What `moving` gave, with its positional terms where the queries of a call stand; parameters are the same."""
    if align is None or isinstance(align, str) or not any(True for _ in _terms(score)):
        return score
    return _placed_module(score, align)  # type: ignore[return-value]


def _placed_module(module: nn.Module, align: Align) -> nn.Module:
    made = copy.copy(module)
    if isinstance(made, POSITIONAL):
        made.align = align
    parts = {name: None if each is None else _placed_module(each, align) for name, each in module._modules.items()}
    made.__dict__["_modules"] = parts
    return made


def placed_mask(mask: Mask, align: Align | Unknown) -> Mask:
    """A mask whose positional parts stand where the queries of a call do; itself where they stood there already."""
    if isinstance(mask, And | Or | PerHead) and type(mask) in _OF_SEVERAL:
        parts = [placed_mask(each, align) for each in mask.masks]
        if all(one is other for one, other in zip(parts, mask.masks, strict=True)):
            return mask
        return PerHead(parts) if isinstance(mask, PerHead) else type(mask)(*parts)
    if type(mask) is Not:
        inner = placed_mask(mask.mask, align)
        return mask if inner is mask.mask else Not(inner)
    if not isinstance(mask, Positional):
        if align is not None and type(mask) not in _OF_KEYS:
            raise OptionError(
                f"A mask of a layer of transformers must be one that can be placed among the keys of a cache: got "
                f"{type(mask).__name__}, whose rows would be counted from the first of each call. Run the model with "
                f"use_cache=False, or take Window, Causal, Strided, NotSelf, KeyMask or GlobalKeys."
            )
        return mask
    if _is_everything(mask) or align == UNKNOWN or align == mask.align:
        return mask
    placed = copy.copy(mask)
    placed.align = align
    return placed


def _terms(score: Score | None) -> Iterator[Alibi | RelativeBias]:
    return (each for each in (() if score is None else score.modules()) if isinstance(each, POSITIONAL))


def _positional(mask: Mask | None) -> Iterator[Positional]:
    if isinstance(mask, And | Or | PerHead) and type(mask) in _OF_SEVERAL:
        for each in mask.masks:
            yield from _positional(each)
    elif type(mask) is Not:
        yield from _positional(mask.mask)
    elif isinstance(mask, Positional) and not _is_everything(mask):
        yield mask


def _is_everything(mask: Mask) -> bool:
    """Whether it is a window without ends, which is every key wherever queries stand."""
    return type(mask) is Window and mask.before is None and mask.after is None
