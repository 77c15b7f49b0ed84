"""A form, a rule and a mask as text and tensors, and back: what an operator can be given.

The text is JSON. A form, step, rule or mask is an object with one entry, its name and what it is made of; a tensor is
its place among the tensors, a fraction its place among the numbers:

    {"form": {"DotForm": {"left": "tensor 0", "right": "tensor 1", "scale": "number 0", "steps": []}},
     "rule": {"Softmax": ["number 1", null]}, "mask": {"Causal": ["end"]},
     "learned": [], "dropout": "number 2", "engine": null, "training": false}
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any, NamedTuple

from torch import Tensor

from regard import masks, weights
from regard.masks import Mask
from regard.masks.extended import Followed
from regard.scores import ChannelForm, DotForm, Form, SumForm, steps
from regard.scores.form_part import Parts
from regard.weights import Weights

# What can be described. By type, not isinstance: a user's subclass may be something else.
KINDS: dict[str, type[Any]] = {
    kind.__name__: kind
    for kind in (
        *(DotForm, ChannelForm, SumForm),
        *(steps.AddDistance, steps.AddPairs, steps.AddRelative, steps.Cap, steps.Gate, steps.Indicator),
        *(steps.Parabola, steps.Scale, steps.Tent),
        *(weights.Conic, weights.Entmax, weights.OneHot, weights.Proportional, weights.Raw, weights.Sigmoid),
        *(weights.Softmax, weights.Sparsemax, weights.TopK, weights.Uniform),
        *(masks.Allowed, masks.And, masks.BlockLayout, masks.Causal, masks.GlobalKeys, masks.KeyMask, masks.Not),
        *(masks.NotSelf, masks.Or, masks.Padding, masks.PerHead, masks.RandomKeys, masks.SameDocument),
        *(masks.Selected, masks.Strided, masks.Window, Followed),
    )
}


class Description(NamedTuple):
    """The text, and what it speaks of by place."""

    text: str
    tensors: list[Tensor]
    numbers: list[float]


def describe(
    form: Form, rule: Weights, mask: Mask | None, dropout: float, engine: str | None, training: bool
) -> Description | None:
    """The description of a problem; None where something has none: a user's own function or kind."""
    said = Description("", [], [])
    of_form = _described(form, said)
    n_form = len(said.tensors)
    of_rule = _described(rule, said)
    learned = [f"{place}" for place in range(n_form, len(said.tensors)) if said.tensors[place].requires_grad]
    of_mask, of_dropout, of_engine = _described(mask, said), _described(dropout, said), _described(engine, said)
    if of_form is None or of_rule is None or of_mask is None:
        return None
    # Written by hand: torch.compile traces this, and cannot trace json.dumps.
    text = (
        f'{{"form": {of_form}, "rule": {of_rule}, "mask": {of_mask}, "learned": [{", ".join(learned)}], '
        f'"dropout": {of_dropout}, "engine": {of_engine}, '
        f'"training": {"true" if training else "false"}}}'
    )
    return said._replace(text=text)


def _described(value: object, said: Description) -> str | None:
    """The words for one thing, whose tensors and numbers are added to what was said before."""
    if value is None:
        return "null"
    if isinstance(value, Tensor):
        said.tensors.append(value)
        return f'"tensor {len(said.tensors) - 1}"'
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return f"{value}"
    if isinstance(value, float):
        # Not in words: it may be a symbol, such as 1/√d of a dim that changes.
        said.numbers.append(value)
        return f'"number {len(said.numbers) - 1}"'
    if isinstance(value, tuple):
        return _joined([_described(each, said) for each in value], "[{}]")
    name = type(value).__name__
    if KINDS.get(name) is not type(value):
        return None
    if isinstance(value, Parts):
        parts = []
        for field in type(value).__dataclass_fields__:
            part = _described(getattr(value, field), said)
            parts.append(None if part is None else f'"{field}": {part}')
        return _joined(parts, f'{{{{"{name}": {{{{{{}}}}}}}}}}')
    assert isinstance(value, Weights | Mask)
    return _joined([_described(each, said) for each in value.arguments()], f'{{{{"{name}": [{{}}]}}}}')


def _joined(parts: list[str | None], frame: str) -> str | None:
    known = [each for each in parts if each is not None]
    return frame.format(", ".join(known)) if len(known) == len(parts) else None


class Rebuilt(NamedTuple):
    """What a description speaks of."""

    form: Form
    rule: Weights
    mask: Mask | None
    dropout: float
    engine: str | None
    training: bool  # whether a backward pass will follow


def rebuild(description: Description) -> Rebuilt:
    """What the description speaks of. Where its rule is learned, its tensor needs a gradient afterwards."""
    words = json.loads(description.text)
    for place in words["learned"]:
        description.tensors[place].requires_grad_()
    form, rule, dropout = (_rebuilt(words[part], description) for part in ("form", "rule", "dropout"))
    mask = _plain_mask(json.dumps(words["mask"]))
    if mask is None:
        mask = _rebuilt(words["mask"], description)
    return Rebuilt(form, rule, mask, dropout, words["engine"], words["training"])


@lru_cache(maxsize=64)
def _plain_mask(words: str) -> Mask | None:
    """The same mask for the same words, where they need no tensor: masks keep what they have worked out."""
    return None if '"tensor ' in words else _rebuilt(json.loads(words), Description("", [], []))


def _rebuilt(words: Any, description: Description) -> Any:
    if isinstance(words, str):
        kind, _, place = words.partition(" ")
        if not place:
            return words
        return (description.tensors if kind == "tensor" else description.numbers)[int(place)]
    if isinstance(words, list):
        return tuple(_rebuilt(each, description) for each in words)
    if not isinstance(words, dict):
        return words
    ((name, parts),) = words.items()
    if isinstance(parts, list):
        return KINDS[name](*_rebuilt(parts, description))
    return KINDS[name](**{field: _rebuilt(part, description) for field, part in parts.items()})
