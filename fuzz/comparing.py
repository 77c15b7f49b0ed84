"""How what was computed is compared with what was expected."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from fuzz.cases import Case
from fuzz.definition import attention
from fuzz.expected import Expected, orders
from fuzz.objects import Call

MARGIN = 4
NOTHING = 1e-16  # what sums of ordinary numbers may leave where nothing should be


class Broken(AssertionError):
    """A promise that did not hold."""


def gradients_of(call: Call, output: Tensor, gradient: Tensor) -> dict[str, Tensor]:
    if not output.requires_grad:
        return {}
    found = torch.autograd.grad(output, list(call.leaves.values()), gradient.to(output.dtype), allow_unused=True)
    return {
        name: torch.zeros_like(leaf) if each is None else each
        for (name, leaf), each in zip(call.leaves.items(), found, strict=True)
    }


def compare(name: str, got: Tensor, expected: Expected, known: Tensor | None = None) -> None:
    # What was measured on a few samples of rounding may be less than the worst.
    wanted, allowed = expected.exact[name], MARGIN * expected.allowed[name] + NOTHING
    demand(tuple(got.shape) == tuple(wanted.shape), f"{name} is {tuple(got.shape)}, not {tuple(wanted.shape)}")
    off = (got.double() - wanted).abs()
    off = torch.where(torch.ones_like(off, dtype=torch.bool) if known is None else known.expand(off.shape), off, 0)
    if not off.numel() or math.isinf(allowed):
        return
    worst = off.flatten()[off.nan_to_num(torch.inf).argmax()]
    demand(
        bool(worst <= allowed),
        f"{name} is off by {float(worst):.3g} where {allowed:.3g} is allowed (largest {float(wanted.abs().max()):.3g})",
    )


def gathered(known: Tensor, like: Tensor) -> Tensor:
    """What is known of rows `(*batch, n, 1)` that broadcast from a tensor: known where it is for all of them."""
    unknown = (~known).double().expand(*known.shape[:-1], like.shape[-1])
    return unknown.sum_to_size(like.shape) == 0


def shows_what_is_broken(case: Case, output: Tensor, expected: Expected) -> None:
    """NaN in a key, or in a dot product, shows in every row that sees it, under a rule that divides by a sum of all."""
    if not case.broken or case.rule.kind != "softmax" or case.score.kinds() & {"equal", "on"}:
        return
    allowed = ~expected.scored.blocked
    broken = case.keys.isnan().any(-1).unsqueeze(-2) & allowed
    if case.score.kinds() <= {"dot", "scaled dot", "bias"}:
        inputs = case.parameters | {"queries": case.queries, "keys": case.keys, "values": case.values}
        scores = attention(case.score, case.rule, case.mask, inputs, *list(inputs.values())[-3:])[2].scores
        broken = broken | (allowed & (scores.isnan() | (scores == torch.inf)))
    rows = broken.any(-1, keepdim=True).expand(output.shape)
    demand(not bool(output[rows].isfinite().any()), "NaN does not show in a row that sees it")


def is_convex(case: Case) -> bool:
    rule = case.rule.inside[0] if case.rule.kind == "top-k" else case.rule
    return rule.kind in ("softmax", "entmax", "uniform", "one-hot", "proportional") and "sink" not in rule.options


def blunt(case: Case) -> float:
    """How far from 1 weights of entmax may sum where alpha is above 2: a small one has no bounded slope."""
    alpha = max(orders(case), default=0.0)
    return float(torch.finfo(reading(case)).eps ** (1 / (alpha - 1))) if alpha > 2 else 0.0


def raw_inside(case: Case) -> bool:
    return "raw" in case.rule.kinds()


def overflows(case: Case, expected: Expected) -> bool:
    """Whether scores leave what the dtype of computation, or of projections, can hold; towards 0, if divided by."""
    if case.rule.kind == "uniform":
        return False
    if case.rule.kind == "proportional" and case.dtype != torch.float64:
        allowed = torch.where(expected.scored.blocked, 0, expected.scored.scores)
        if allowed.numel() and bool((allowed.abs().amax(-1) < 1e-30).any()):
            return True
    projected = case.dtype == torch.float16 and bool(case.parameters)
    limit = 1e4 if projected else 1e290 if case.dtype == torch.float64 else 1e36
    size = expected.scored.size
    return bool(size.numel() and float(size.max()) > limit) or math.isinf(expected.allowed["output"])


def reading(case: Case) -> torch.dtype:
    return torch.float64 if case.dtype == torch.float64 else torch.float32


def reads(got: Tensor, wanted: Tensor, slack: float, name: str, case: Case) -> None:
    demand(got.dtype in (torch.float32, torch.float64), f"{name} is read in {got.dtype}")
    demand(got.shape == wanted.shape, f"{name} is {tuple(got.shape)}, not {tuple(wanted.shape)}")
    got, wanted = got.double(), wanted.double()
    demand(near(got, wanted, slack), f"{name} is not what dense() says: off by {worst(got - wanted, None)}")


def near(got: Tensor, wanted: Tensor, slack: float) -> bool:
    off = (got - wanted).abs()
    return bool((torch.isnan(got) & torch.isnan(wanted) | (got == wanted) | (off <= slack)).all())


def worst(tensor: Tensor, where: Tensor | None) -> str:
    chosen = tensor.flatten() if where is None else tensor[where.expand(tensor.shape)]
    return (
        f"{float(chosen.flatten()[chosen.abs().nan_to_num(torch.inf).argmax()]):.6g}" if chosen.numel() else "nothing"
    )


def demand(holds: Any, text: str) -> None:
    if not holds:
        raise Broken(text)
