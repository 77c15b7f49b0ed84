"""Rules, once more: scores and what is allowed become weights."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fuzz.definition.numbers import Parameters, Sigmoid, a_head, reader
from fuzz.parts import Part


def weights_of(rule: Part, parameters: Parameters, scores: Tensor, allowed: Tensor) -> Tensor:
    """α of every pair; 0 where it is not allowed, and all over a fully masked row."""
    number = reader(rule.options, parameters, scores)
    safe = torch.where(allowed, scores, 0)
    match rule.kind:
        case "softmax":
            sink = a_head(number("sink")) if "sink" in rule.options else None
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
            return Entmax.apply(safe, allowed, a_head(number("alpha").double()))
        case "one-hot":
            unknown = (scores.detach().isnan() & allowed).any(-1, keepdim=True)
            chosen = best(scores.detach(), allowed, 1)
            return torch.where(chosen & unknown, torch.nan, chosen.to(scores.dtype))
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
        for _ in range(80):
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


def rule_batch(rule: Part, parameters: Parameters) -> tuple[int, ...]:
    """The batch axes of what a rule has for each head."""
    names = [value for name, value in rule.options.items() if isinstance(value, str) and name in ("sink", "alpha")]
    shapes = [tuple(parameters[name].shape) for name in names] + [rule_batch(each, parameters) for each in rule.inside]
    return tuple(torch.broadcast_shapes(*shapes)) if shapes else ()
