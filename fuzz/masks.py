"""Random masks."""

from __future__ import annotations

import random

import torch
from torch import Tensor

from fuzz.parts import Part
from regard import RandomKeys
from regard.grid import Grid

KINDS = (
    *("causal", "causal", "window", "strided", "not self", "global keys", "allowed", "block layout", "selected"),
    *("padding", "key mask", "same document", "random keys", "where", "per head", "and", "or", "not"),
)


def draw_mask(
    chooser: random.Random, generator: torch.Generator, batch: tuple[int, ...], n: int, m: int, depth: int = 0
) -> Part:
    """A mask for a problem of that size."""

    def yes(*shape: int) -> Tensor:
        return torch.rand(shape, generator=generator) < chooser.choice((0.2, 0.6, 0.9))

    def whole(low: int, high: int, *shape: int) -> Tensor:
        return torch.randint(low, max(high, low + 1), shape, generator=generator)

    def another(axes: tuple[int, ...] = batch) -> Part:
        return draw_mask(chooser, generator, axes, n, m, depth + 1)

    simple = [kind for kind in KINDS if kind not in ("per head", "and", "or", "not")]
    kind = chooser.choice(KINDS if depth < 2 else simple)
    if kind == "per head" and not batch:
        kind = "causal"
    left = batch[: chooser.randint(0, len(batch))]  # from the left, as lengths and ids
    right = batch[chooser.randint(0, len(batch)) :]  # from the right, as PyTorch's masks
    aligns = ["start", "end", chooser.randint(-3, 5)]
    if n == m:
        aligns.append(None)
    if left and 0 not in left:
        aligns.append(whole(-2, 4, *left))
    align = chooser.choice(aligns)
    match kind:
        case "causal" | "not self":
            return Part(kind, {"align": align})
        case "window":
            before, after = (chooser.choice((None, 0, 1, 3, 20)) for _ in range(2))
            return Part(kind, {"before": before, "after": after, "align": align})
        case "strided":
            return Part(kind, {"stride": chooser.choice((1, 2, 5, 64)), "align": align})
        case "global keys":
            return Part(
                kind, {"positions": [chooser.randrange(-m, m) for _ in range(chooser.randint(0, 4))] if m else []}
            )
        case "allowed":
            shape = (chooser.choice((n, 1)) if n else 0, chooser.choice((m, 1)) if m else 0)
            return Part(kind, {"tensor": yes(*right, *shape)})
        case "block layout":
            height, width = chooser.choice((1, 4, 16)), chooser.choice((1, 4, 32))
            return Part(kind, {"layout": yes(*right, -(-n // height), -(-m // width)), "block_size": (height, width)})
        case "selected":
            return Part(kind, {"indices": whole(-1, m, *right, n, chooser.choice((1, 3, 9)))})
        case "padding":
            return Part(kind, {"lengths": whole(0, m + 1, *left)})
        case "key mask":
            return Part(kind, {"tensor": yes(*left, m)})
        case "same document":
            query_ids, key_ids = (whole(0, 3, *left, size) for size in (n, m))
            if chooser.random() < 0.5:
                query_ids, key_ids = query_ids.sort(-1).values, key_ids.sort(-1).values
            return Part(kind, {"query_ids": query_ids, "key_ids": key_ids})
        case "random keys":
            per_query, seed = chooser.choice((1, 3, 9)), chooser.randrange(5)
            drawn = RandomKeys(per_query, seed).indices(range(n), Grid((), n, m))
            rows = drawn.tolist()
            if any(len(set(row)) != min(per_query, m) for row in rows):
                raise AssertionError(f"RandomKeys({per_query}, {seed}) draws {rows} of {m} keys")
            return Part(kind, {"per_query": per_query, "seed": seed, "indices": drawn})
        case "where":
            return Part(kind, {"below": chooser.randint(0, 5)})
        case "per head":
            return Part(kind, {}, tuple(another(batch[:-1]) for _ in range(batch[-1])))
        case "not":
            return Part(kind, {}, (another(),))
    return Part(kind, {}, (another(), another()))
