"""Masks, once more: each a formula of rows and columns."""

from __future__ import annotations

import torch
from torch import Tensor

from fuzz.definition.numbers import offset_of
from fuzz.parts import Part


def allows(mask: Part, shape: tuple[int, ...]) -> Tensor:
    """Which pairs are allowed: boolean, of the shape `(*batch, n, m)`."""
    options, (*batch, n, m) = mask.options, shape
    rows, columns = torch.arange(n)[:, None], torch.arange(m)

    def from_left(tensor: Tensor, trailing: int) -> Tensor:
        split = tensor.ndim - trailing
        return tensor.reshape((*tensor.shape[:split], *(1,) * (len(batch) - split), *tensor.shape[split:]))

    if "align" in options:
        ahead = columns - (rows + offset_of(options["align"], len(batch), n, m))
    match mask.kind:
        case "causal":
            found = ahead <= 0
        case "window":
            before, after = options["before"], options["after"]
            found = torch.ones_like(ahead, dtype=torch.bool)
            found = found if before is None else found & (ahead >= -before)
            found = found if after is None else found & (ahead <= after)
        case "strided":
            found = ahead % options["stride"] == 0
        case "not self":
            found = ahead != 0
        case "global keys":
            found = torch.zeros(m, dtype=torch.bool)
            found[options["positions"]] = True
        case "allowed":
            found = options["tensor"]
        case "block layout":
            height, width = options["block_size"]
            found = options["layout"].repeat_interleave(height, -2)[..., :n, :].repeat_interleave(width, -1)[..., :m]
        case "selected" | "random keys":  # which keys are drawn is the library's to say, how many is not
            found = (options["indices"].unsqueeze(-1) == columns).any(-2)
        case "padding":
            found = columns < from_left(options["lengths"], 0)[..., None, None]
        case "key mask":
            found = from_left(options["tensor"], 1).unsqueeze(-2)
        case "same document":
            found = from_left(options["query_ids"], 1).unsqueeze(-1) == from_left(options["key_ids"], 1).unsqueeze(-2)
        case "where":
            found = (rows * 7 + columns * 3) % 5 < options["below"]
        case "per head":
            found = torch.stack([allows(each, (*batch[:-1], n, m)) for each in mask.inside], dim=-3)
        case "and":
            found = allows(mask.inside[0], shape) & allows(mask.inside[1], shape)
        case "or":
            found = allows(mask.inside[0], shape) | allows(mask.inside[1], shape)
        case "not":
            found = ~allows(mask.inside[0], shape)
        case _:
            raise AssertionError(mask.kind)
    return found.expand(shape)
