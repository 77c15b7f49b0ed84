"""Attention(q, D) = Σ α(q, kᵢ)·vᵢ, once more: dense, in any dtype, and without a line of the library.

Inputs are finite. "Not allowed" is a boolean beside each score, never a number, so that no arithmetic can undo it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fuzz.parts import Part

Parameters = dict[str, Tensor]


class Scored(NamedTuple):
    """Scores, how large the terms were that they are sums of, and which pairs are not allowed."""

    scores: Tensor  # (..., n, m)
    size: Tensor  # (..., n, m): rounding moves a score by a few eps of this
    blocked: Tensor  # (..., n, m), boolean


def attention(
    score: Part,
    rule: Part,
    mask: Part | None,
    parameters: Parameters,
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    noise: Tensor | None = None,
) -> tuple[Tensor, Tensor, Scored]:
    """The output, the weights, and the scores, all with every batch axis.

    Args:
        score, rule, mask: What is computed.
        parameters: The numbers that are learned, by name.
        queries, keys, values: `(..., n, dim)`.
        noise: What scores are off by, in units of their size; nothing, if left out.
    """
    scored = scores_of(score, parameters, queries, keys)
    batch = torch.broadcast_shapes(scored.scores.shape[:-2], values.shape[:-2], _rule_batch(rule, parameters))
    shape = (*batch, queries.shape[-2], keys.shape[-2])
    allowed = ~scored.blocked.expand(shape)
    if mask is not None:
        allowed = allowed & allows(mask, shape)
    scores = scored.scores.expand(shape)
    if noise is not None:
        scores = scores + noise * scored.size
    weights = weights_of(rule, parameters, scores, allowed)
    return weights @ values, weights, Scored(scores, scored.size.expand(shape), ~allowed)


# Scores ---------------------------------------------------------------------------------------------------------------


def scores_of(score: Part, parameters: Parameters, queries: Tensor, keys: Tensor) -> Scored:
    """a(q, k) of every pair."""
    options, dim = score.options, queries.shape[-1]
    number = _reader(options, parameters, queries)
    q, k = queries.unsqueeze(-2), keys.unsqueeze(-3)  # (..., n, 1, dim) and (..., 1, m, dim)
    match score.kind:
        case "dot":
            return _sum(q * k)
        case "scaled dot":
            scale = 1 / math.sqrt(max(dim, 1)) if options.get("scale") is None else _a_head(number("scale"))
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
            found = _sum(((q - k) / number("bandwidth")).square() / -2)
            return found._replace(size=found.size + 64)
        case "laplacian":
            return _sum(-((q - k) / number("bandwidth")).abs())
        case "boxcar":
            return _exactly((_distance(q, k, number("radius")) <= 1).to(queries.dtype))
        case "epanechnikov":
            distance = _distance(q, k, _a_head(number("radius")))
            return _sized(torch.relu(1 - distance.square()), 1 + distance.detach().square())
        case "triangular":
            distance = _distance(q, k, _a_head(number("radius")))
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
            return inside._replace(scores=scores, size=inside.size * steepness + scores.detach().abs())
        case "bias":
            bias = number("bias")
            blocked = bias == -torch.inf
            return _plus(scores_of(score.inside[0], parameters, queries, keys), torch.where(blocked, 0, bias), blocked)
        case "alibi":
            inside = scores_of(score.inside[0], parameters, queries, keys)
            apart = _apart(options["align"], inside.scores.shape).abs().to(queries.dtype)
            return _plus(inside, -_a_head(number("slopes")) * apart)
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


def _reader(options: dict[str, Any], parameters: Parameters, like: Tensor) -> Any:
    """A function that reads a number by its name: a learned one, or one that is fixed."""

    def number(name: str) -> Tensor:
        value = options[name]
        return parameters[value] if isinstance(value, str) else torch.as_tensor(value, dtype=like.dtype)

    return number


def _sum(terms: Tensor, size: Tensor | None = None) -> Scored:
    total = terms.sum(-1)
    return _sized(total, (terms if size is None else size).detach().abs().sum(-1).expand(total.shape))


def _sized(scores: Tensor, size: Tensor) -> Scored:
    return Scored(scores, size, torch.zeros(scores.shape, dtype=torch.bool))


def _exactly(scores: Tensor) -> Scored:
    return _sized(scores, torch.zeros_like(scores))


def _times(scored: Scored, factor: Any) -> Scored:
    size = factor.detach().abs() if isinstance(factor, Tensor) else abs(factor)
    found = scored.scores * factor
    return Scored(found, (scored.size * size).expand(found.shape), scored.blocked.expand(found.shape))


def _plus(scored: Scored, bias: Tensor, blocked: Tensor | None = None) -> Scored:
    scores = scored.scores + bias
    blocked = scored.blocked if blocked is None else scored.blocked | blocked
    return Scored(scores, scored.size + bias.detach().abs(), blocked.expand(scores.shape))


def _a_head(number: Tensor) -> Tensor:
    """One number for each head, or one for all, against `(..., n, m)`."""
    return number.reshape(*number.shape, 1, 1)


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


_steep = False


@contextmanager
def steep() -> Iterator[None]:
    """Derivatives of sigmoid and tanh as if nothing saturated: what they are rounded relative to, not what they are."""
    global _steep
    _steep = True
    try:
        yield
    finally:
        _steep = False


class Sigmoid(torch.autograd.Function):
    """σ(x), with a derivative that does not vanish by rounding: σ·(1 − σ) is 0 from x = 40 on."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return torch.sigmoid(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        small = (-x.abs()).exp()
        return gradients[0] if _steep else gradients[0] * small / (1 + small).square()


class Tanh(torch.autograd.Function):
    """tanh(x), with a derivative that does not vanish by rounding: 1 − tanh² is 0 from x = 20 on."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return torch.tanh(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        small = (-2 * x.abs()).exp()
        return gradients[0] if _steep else gradients[0] * 4 * small / (1 + small).square()


def _apart(align: Any, shape: tuple[int, ...]) -> Tensor:
    """Key position − query position of every pair, `(..., n, m)`."""
    *_, n, m = shape
    return torch.arange(m) - (torch.arange(n)[:, None] + _offset(align, len(shape) - 2, n, m))


def _offset(align: Any, n_axes: int, n: int, m: int) -> int | Tensor:
    """Where the first query stands among the keys; one offset for each batch row if `align` has them."""
    if isinstance(align, Tensor):
        return align.reshape(*align.shape, *(1,) * (n_axes - align.ndim), 1, 1)
    return {None: 0, "start": 0, "end": m - n}.get(align, align)


# Masks ----------------------------------------------------------------------------------------------------------------


def allows(mask: Part, shape: tuple[int, ...]) -> Tensor:
    """Which pairs are allowed: boolean, of the shape `(*batch, n, m)`."""
    options, (*batch, n, m) = mask.options, shape
    rows, columns = torch.arange(n)[:, None], torch.arange(m)

    def from_left(tensor: Tensor, trailing: int) -> Tensor:
        split = tensor.ndim - trailing
        return tensor.reshape((*tensor.shape[:split], *(1,) * (len(batch) - split), *tensor.shape[split:]))

    if "align" in options:
        ahead = columns - (rows + _offset(options["align"], len(batch), n, m))
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


# Rules ----------------------------------------------------------------------------------------------------------------


def weights_of(rule: Part, parameters: Parameters, scores: Tensor, allowed: Tensor) -> Tensor:
    """α of every pair; 0 where it is not allowed, and all over a fully masked row."""
    number = _reader(rule.options, parameters, scores)
    safe = torch.where(allowed, scores, 0)
    match rule.kind:
        case "softmax":
            sink = _a_head(number("sink")) if "sink" in rule.options else None
            return _softmax(safe / number("temperature"), allowed, sink)
        case "proportional":
            return _shares(torch.where(allowed, safe, 0))
        case "conic":
            return torch.where(allowed, torch.relu(safe), 0)
        case "raw":
            return torch.where(allowed, safe, 0)
        case "sigmoid":
            return torch.where(allowed, Sigmoid.apply(safe), 0)
        case "uniform":
            return _shares(allowed.to(scores.dtype))
        case "entmax":
            return Entmax.apply(safe, allowed, _a_head(number("alpha").double()))
        case "one-hot":
            return best(scores.detach(), allowed, 1).to(scores.dtype)
        case "top-k":
            return weights_of(rule.inside[0], parameters, scores, best(scores.detach(), allowed, rule.options["k"]))
    raise AssertionError(rule.kind)


def best(scores: Tensor, allowed: Tensor, k: int) -> Tensor:
    """Which pairs are the k best of their row, the lowest index among equals."""
    order = torch.where(allowed, scores, -torch.inf).sort(dim=-1, descending=True, stable=True).indices
    rank = torch.empty_like(order).scatter_(-1, order, torch.arange(order.shape[-1]).expand(order.shape).contiguous())
    return allowed & (rank < k)


def _shares(numerators: Tensor) -> Tensor:
    total = numerators.sum(-1, keepdim=True)
    return torch.where(total == 0, 0, numerators / torch.where(total == 0, 1, total))


def _softmax(scores: Tensor, allowed: Tensor, sink: Tensor | None) -> Tensor:
    low = torch.where(allowed, scores, -torch.inf).detach()
    if sink is not None:
        low = torch.cat([low, sink.detach().expand(*low.shape[:-1], 1)], -1)
    if low.shape[-1] == 0:
        return scores
    peak = low.amax(-1, keepdim=True)
    peak = torch.where(peak == -torch.inf, 0, peak)
    numerators = torch.where(allowed, (torch.where(allowed, scores, peak) - peak).exp(), 0)
    total = numerators.sum(-1, keepdim=True)
    if sink is not None:
        total = total + (sink - peak).exp()
    return numerators / torch.where(total == 0, 1, total)


class Entmax(torch.autograd.Function):
    """α = [(alpha − 1)·a − τ]₊^(1/(alpha − 1)), by bisection in float64; its derivative from the weights themselves."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, allowed: Tensor, alpha: Tensor) -> Tensor:
        power = 1 / (alpha - 1)
        reach = torch.where(allowed, scores.double(), -torch.inf)
        peak = reach.amax(-1, keepdim=True) if reach.shape[-1] else reach
        z = (torch.where(allowed, reach, 0) - torch.where(peak == -torch.inf, 0, peak)) * (alpha - 1)

        def at(threshold: Tensor) -> Tensor:
            return torch.where(allowed, (z - threshold).clamp(min=0).pow(power), 0)

        low, high = torch.full_like(z[..., :1], -1.0), torch.zeros_like(z[..., :1])
        for _ in range(200):
            middle = (low + high) / 2
            enough = at(middle).sum(-1, keepdim=True) >= 1
            low, high = torch.where(enough, middle, low), torch.where(enough, high, middle)
        weights = at(low)
        total = weights.sum(-1, keepdim=True)
        weights = (weights / torch.where(total == 0, 1, total)).to(scores.dtype)
        ctx.save_for_backward(weights, alpha)
        return weights

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        weights, alpha = ctx.saved_tensors
        inside = weights != 0
        slope = torch.where(inside, torch.where(inside, weights, 1).pow((2 - alpha).to(weights.dtype)), 0)
        total = slope.sum(-1, keepdim=True)
        mean = (slope * gradients[0]).sum(-1, keepdim=True) / torch.where(total == 0, 1, total)
        return slope * (gradients[0] - mean), None, None


def _rule_batch(rule: Part, parameters: Parameters) -> tuple[int, ...]:
    """The batch axes of what a rule has for each head."""
    names = [value for name, value in rule.options.items() if isinstance(value, str) and name in ("sink", "alpha")]
    shapes = [tuple(parameters[name].shape) for name in names] + [_rule_batch(each, parameters) for each in rule.inside]
    return tuple(torch.broadcast_shapes(*shapes)) if shapes else ()
