"""a(q, k), once more. What is not allowed is a boolean beside each score, which no arithmetic can undo."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fuzz.definition.numbers import Parameters, Sigmoid, Square, Tanh, a_head, offset_of, reader
from fuzz.parts import Part


class Scored(NamedTuple):
    """Scores, how large the terms were that they are sums of, and which pairs are not allowed."""

    scores: Tensor  # (..., n, m)
    size: Tensor  # (..., n, m): rounding moves a score by a few eps of this
    blocked: Tensor  # (..., n, m), boolean


def scores_of(score: Part, parameters: Parameters, queries: Tensor, keys: Tensor) -> Scored:
    """a(q, k) of every pair."""
    options, dim = score.options, queries.shape[-1]
    number = reader(options, parameters, queries)
    q, k = queries.unsqueeze(-2), keys.unsqueeze(-3)  # (..., n, 1, dim) and (..., 1, m, dim)
    match score.kind:
        case "dot":
            return _sum(q * k)
        case "scaled dot":
            scale = 1 / math.sqrt(max(dim, 1)) if options.get("scale") is None else a_head(number("scale"))
            return _times(_sum(q * k), scale)
        case "multiplicative":
            return _sum((queries @ number("W")).unsqueeze(-2) * k)
        case "additive":
            left, right = queries @ number("W1").mT, keys @ number("W2").mT + number("b").unsqueeze(-2)
            v = number("v")[..., None, None, :]
            return _sum(v * Tanh.apply(left.unsqueeze(-2) + right.unsqueeze(-3)), size=v.abs())
        case "cosine":
            return _times(_sum(_unit(queries).unsqueeze(-2) * _unit(keys).unsqueeze(-3)), 1 / number("temperature"))
        case "gaussian":
            # The library may fold ‖q − k‖² into a dot product where that costs no more than this.
            found = _sum(Square.apply((q - k) / number("bandwidth")) / -2)
            # Its terms, and so what they are off by, go with 1/bandwidth², in gradients too.
            bandwidth = torch.as_tensor(number("bandwidth"))
            return found._replace(size=found.size + 64 * (bandwidth.detach() / bandwidth).square().mean(-1))
        case "laplacian":
            return _sum(-((q - k) / number("bandwidth")).abs())
        case "boxcar":
            return _exactly((_distance(q, k, number("radius")) <= 1).to(queries.dtype))
        case "epanechnikov":
            distance = _distance(q, k, a_head(number("radius")))
            return _sized(torch.relu(1 - distance.square()), 1 + distance.detach().square())
        case "triangular":
            distance = _distance(q, k, a_head(number("radius")))
            return _sized(torch.relu(1 - distance), 1 + distance.detach())
        case "equal":
            return _exactly((q == k).all(-1).to(queries.dtype))
        case "custom":
            return _sum(-number("sharpness") * torch.hypot(q - k, torch.ones_like(q)))
        case "gated":
            inside, gates = scores_of(score.inside[0], parameters, queries, keys), number("W_g").mT
            gate = Sigmoid.apply(queries @ gates[..., :dim, :] + (keys @ gates[..., dim:, :]).mT)
            return _times(inside, gate)
        case "soft cap":
            inside, cap = scores_of(score.inside[0], parameters, queries, keys), options["cap"]
            scores = cap * Tanh.apply(inside.scores / cap)
            steepness = (1 - (scores.detach() / cap).square()).clamp(min=0)
            size = inside.size * steepness + scores.detach().abs()
            # What leaves float32 before it is capped is not saved by the cap: ∞ − ∞ may have been on the way.
            return inside._replace(scores=scores, size=torch.where(inside.size > 1e37, inside.size, size))
        case "bias":
            bias = number("bias")
            blocked = bias == -torch.inf
            return _plus(scores_of(score.inside[0], parameters, queries, keys), torch.where(blocked, 0, bias), blocked)
        case "alibi":
            inside = scores_of(score.inside[0], parameters, queries, keys)
            apart = _apart(options["align"], inside.scores.shape).abs().to(queries.dtype)
            return _plus(inside, -a_head(number("slopes")) * apart)
        case "relative":
            inside, table = scores_of(score.inside[0], parameters, queries, keys), number("table")
            reach = table.shape[-1] // 2
            place = (_apart(options["align"], inside.scores.shape).clamp(-reach, reach) + reach).long()
            bias = table[place] if table.ndim == 1 else torch.stack([each[place] for each in table])
            blocked = bias == -torch.inf
            return _plus(inside, torch.where(blocked, 0, bias), blocked)
        case "sum":
            one, two = (scores_of(each, parameters, queries, keys) for each in score.inside)
            return Scored(one.scores + two.scores, one.size + two.size, one.blocked | two.blocked)
        case "scaled":
            return _times(scores_of(score.inside[0], parameters, queries, keys), options["factor"])
        case "on":
            columns = options["columns"]
            return scores_of(score.inside[0], parameters, queries[..., columns], keys[..., columns])
    raise AssertionError(score.kind)


def _sum(terms: Tensor, size: Tensor | None = None) -> Scored:
    total = terms.sum(-1)
    return _sized(total, (terms if size is None else size).detach().abs().sum(-1).expand(total.shape))


def _sized(scores: Tensor, size: Tensor) -> Scored:
    return Scored(scores, size, torch.zeros(scores.shape, dtype=torch.bool))


def _exactly(scores: Tensor) -> Scored:
    return _sized(scores, torch.zeros_like(scores))


def _times(scored: Scored, factor: Any) -> Scored:
    size = factor.detach().abs() if isinstance(factor, Tensor) else abs(factor)
    found, scaled = scored.scores * factor, scored.size * size
    # What leaves float32 before it is scaled down is not saved by the factor: PyTorch's kernels multiply first.
    scaled = torch.where(scored.size > 1e37, torch.maximum(scored.size, scaled), scaled)
    return Scored(found, scaled.expand(found.shape), scored.blocked.expand(found.shape))


def _plus(scored: Scored, bias: Tensor, blocked: Tensor | None = None) -> Scored:
    scores = scored.scores + bias
    blocked = scored.blocked if blocked is None else scored.blocked | blocked
    return Scored(scores, scored.size + bias.detach().abs(), blocked.expand(scores.shape))


def _distance(q: Tensor, k: Tensor, radius: Tensor) -> Tensor:
    """‖q − k‖ / radius, whose gradient at q = k is 0. Squares of it neither overflow nor vanish."""
    squares = ((q - k) / (radius.unsqueeze(-1) if radius.ndim else radius)).square().sum(-1)
    zero = squares == 0
    return torch.where(zero, 0, torch.where(zero, 1, squares).sqrt())


def _unit(vectors: Tensor) -> Tensor:
    largest = vectors.detach().abs().amax(-1, keepdim=True) if vectors.shape[-1] else vectors
    zero = largest == 0
    reduced = vectors / torch.where(zero, 1, largest)
    length = torch.where(zero, 1, reduced.square().sum(-1, keepdim=True)).sqrt()
    return torch.where(zero, 0, reduced / length)


def _apart(align: Any, shape: tuple[int, ...]) -> Tensor:
    """Key position − query position of every pair, `(..., n, m)`."""
    *_, n, m = shape
    return torch.arange(m) - (torch.arange(n)[:, None] + offset_of(align, len(shape) - 2, n, m))
