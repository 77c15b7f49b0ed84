"""What a case must give: output and gradients of the float64 definition, and how far off rounding may put them.

The allowance is measured: the error of the same formula in the dtype that is computed in, and how far the definition
itself moves when inputs, scores and the gradient of scores are off by a few units in the last place; each times a
factor for what few samples miss. Where scores are so large that rounding decides the weights, the definition says so by
moving a lot, and the case says nothing. `tests/test_fuzz_power.py` holds that most cases do say something.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fuzz.cases import Case
from fuzz.definition import Scored, attention, steep
from fuzz.parts import Part

SAMPLES = 3
STEP = 1e-5  # by which an alpha is moved
LIMIT = 1024.0  # of scores
# Scores that are computed from queries and keys as they are: in float32 for half precision too. Others divide them by a
# radius or project them, and round.
UNPROJECTED = {"dot", "boxcar", "equal", "soft cap", "scaled", "on", "sum"}


@dataclass
class Expected:
    """Output, weights and gradients by name, what each may be off by, and the rows that can be compared."""

    exact: dict[str, Tensor]
    allowed: dict[str, float]
    weights: Tensor
    scored: Scored
    gradient: Tensor  # dO, 0 in rows that cannot be compared
    rows: Tensor  # (*batch, n, 1): rows whose output is known
    dirty: Tensor  # (*batch, n, 1): rows that see NaN or infinity
    known_keys: Tensor  # (*batch, m, 1): keys that no dirty row sees


def expect(case: Case) -> Expected:
    """The definition's answer for a case."""
    dirty, allowed_pairs = _who_sees_what(case)
    inputs = sane(case)
    exact_scored = _run(case, inputs)[2]
    epsilon = _epsilon(case)
    generator = case.generator
    shape = exact_scored.scores.shape
    chooses = bool(case.rule.kinds() & {"one-hot", "top-k"})
    # Equal keys have equal scores, however they are rounded; what positions add to them is rounded apart.
    alike = chooses and not case.score.kinds() & {"bias", "alibi", "relative"}
    half = case.dtype != torch.promote_types(case.dtype, torch.float32)
    noises = [
        _noise(shape, inputs["keys"], alike, generator)
        * (epsilon if half and not _is_unprojected(case) else 8 * epsilon)
        for _ in range(SAMPLES)
    ]
    rows = ~dirty & ~_undecided(case, exact_scored, 8 * epsilon)
    value_dim = case.values.shape[-1]
    gradient = torch.randn(*shape[:-1], value_dim, generator=generator, dtype=torch.float64)
    gradient = torch.where(rows, gradient.to(case.dtype).double(), 0)

    exact, weights, scored = _differentiate(case, inputs, gradient)
    # Half precision is computed with in float32, but for projections.
    # A user's function sees them as they are.
    compute = case.dtype if "custom" in case.score.kinds() else torch.promote_types(case.dtype, torch.float32)
    own = compute if _is_unprojected(case) else case.dtype
    plain_inputs = {name: each.to(own) for name, each in inputs.items()}
    plain, _, _ = _differentiate(case, plain_inputs, gradient.to(own))
    moved = []
    for noise in noises:
        shaken = shake(inputs, epsilon, generator)
        moved.append(_differentiate(case, shaken, gradient, None if case.exact else noise)[0])
    rounding = _rounding(case, inputs, weights, gradient, generator)
    size = exact_scored.size if case.rule.kind != "uniform" else exact_scored.size[:0]
    leaves = bool((size > torch.finfo(torch.promote_types(case.dtype, torch.float32)).max).any())
    if case.rule.kind == "proportional" and case.dtype != torch.float64 and size.numel():
        leaves = leaves or bool((size.amax(-1) < 1e-30).any())  # and are divided by
        leaves = leaves or bool((size.sum(-1) > torch.finfo(torch.float32).max).any())
    if not exact_scored.scores.shape[-1] and case.dtype == torch.float16 and case.parameters:
        # Without keys there are no scores, and nothing else says whether projections leave float16.
        largest = max((float(each.abs().max()) for each in case.parameters.values() if each.numel()), default=0.0)
        leaves = leaves or bool((case.queries.abs().sum(-1) * largest > 1e4).any())
    allowed = {}
    for name, wanted in exact.items():
        largest = float(wanted.abs().max()) if wanted.numel() else 0.0
        finite = bool(plain[name].isfinite().all() & plain["output"].isfinite().all())
        if name in _bandwidths_of(case.score):
            # The gradient of 1/2h² comes first, a sum over squared distances.
            before = rounding[name] / _epsilon_of_sums(case) * float(inputs[name].abs().max()) ** 3
            finite = finite and before < torch.finfo(compute).max
        if not finite or leaves or largest > 1e-3 * torch.finfo(case.dtype).max:
            allowed[name] = float("inf")  # the formula itself leaves the numbers that the dtype has, or nearly
            continue
        units = 8 if name == "output" else 64
        allowed[name] = (
            2 * _distance(plain[name].double(), wanted)
            # Few samples: one case in a thousand is three times as far off as the farthest of them.
            + (1 if half else 6) * max(_distance(each[name], wanted) for each in moved)
            + 8 * rounding.get(name, 0.0)
            + (units * torch.finfo(compute).eps + 2 * torch.finfo(case.dtype).eps) * largest
            + 1e4 * torch.finfo(compute).tiny
            + 8 * torch.finfo(case.dtype).tiny * torch.finfo(case.dtype).eps
        )
    for name in alphas_of(case.rule):
        allowed[name] += 2 * _kink(case, inputs, gradient, name)
    for alpha in orders(case):
        # The threshold, a number of about 1, is rounded: each weight is off by that times its slope.
        slope = torch.where(weights == 0, 0, weights.clamp(min=1e-300).pow(2 - alpha)) / (alpha - 1)
        pooled = slope @ torch.where(case.values.isfinite(), case.values, 0).double().abs()
        for name, off in (("output", pooled), ("values", slope.mT @ gradient.abs())):
            allowed[name] += 4 * torch.finfo(torch.float64).eps * (float(off.max()) if off.numel() else 0.0)
    if max(orders(case), default=0.0) > 2:  # a small weight of entmax has no bounded slope there
        allowed = {name: off if name == "output" else 10 * off for name, off in allowed.items()}
    if any(off > torch.finfo(case.dtype).max for off in allowed.values()):
        allowed = {name: off if name == "output" else float("inf") for name, off in allowed.items()}
    seen = (allowed_pairs & dirty).any(-2).unsqueeze(-1)
    return Expected(exact, allowed, weights, scored, gradient, rows, dirty, ~seen)


def _run(case: Case, inputs: dict[str, Tensor], noise: Tensor | None = None) -> tuple[Tensor, Tensor, Scored]:
    tensors = inputs["queries"], inputs["keys"], inputs["values"]
    return attention(case.score, case.rule, case.mask, inputs, *tensors, noise=noise)


def _differentiate(
    case: Case, inputs: dict[str, Tensor], gradient: Tensor, noise: Tensor | None = None
) -> tuple[dict[str, Tensor], Tensor, Scored]:
    """Output and gradients by name, in the dtype of the inputs; the weights; the scores."""
    leaves = {name: each.detach().requires_grad_() for name, each in inputs.items()}
    output, weights, scored = _run(case, leaves, noise)
    results = {"output": output.detach()}
    found: Any = [None] * len(leaves)
    if output.requires_grad:
        found = torch.autograd.grad(output, list(leaves.values()), gradient, allow_unused=True)
    for (name, leaf), each in zip(leaves.items(), found, strict=True):
        results[name] = torch.zeros_like(leaf) if each is None else each
    for name in alphas_of(case.rule):
        results[name] = _by_differences(case, inputs, gradient, name, noise)
    return results, weights.detach(), Scored(scored.scores.detach(), scored.size.detach(), scored.blocked)


def orders(case: Case) -> list[float]:
    """The alphas of entmax; none under other rules."""
    rule = case.rule.inside[0] if case.rule.kind == "top-k" else case.rule
    if "alpha" not in rule.options:
        return []
    alpha = rule.options["alpha"]
    found = torch.as_tensor(case.parameters[alpha] if isinstance(alpha, str) else alpha)
    return [float(each) for each in found.flatten()]


def alphas_of(rule: Part) -> list[str]:
    """The learned alphas of a rule: the bisection has no derivative in them."""
    own = [rule.options["alpha"]] if isinstance(rule.options.get("alpha"), str) else []
    return own + [name for each in rule.inside for name in alphas_of(each)]


def _bandwidths_of(score: Part) -> list[str]:
    """The learned bandwidths of a score."""
    own = [score.options["bandwidth"]] if isinstance(score.options.get("bandwidth"), str) else []
    return own + [name for each in score.inside for name in _bandwidths_of(each)]


def _by_differences(case: Case, inputs: dict[str, Tensor], gradient: Tensor, name: str, noise: Tensor | None) -> Tensor:
    above, _, below = _around(case, inputs, gradient, name, noise)
    return ((above - below) / (2 * STEP)).to(gradient.dtype)


def _kink(case: Case, inputs: dict[str, Tensor], gradient: Tensor, name: str) -> float:
    """How far apart the one-sided derivatives are: where a key is at the edge of the support, any between is one."""
    above, here, below = _around(case, inputs, gradient, name, None)
    return float((above + below - 2 * here).abs() / STEP)


def _around(case: Case, inputs: dict[str, Tensor], gradient: Tensor, name: str, noise: Tensor | None) -> list[Tensor]:
    found = []
    for side in (STEP, 0.0, -STEP):
        shifted = {each: tensor.double() for each, tensor in inputs.items()}
        shifted[name] = shifted[name] + side
        found.append((_run(case, shifted, noise)[0] * gradient.double()).sum())
    return found


# What is broken -------------------------------------------------------------------------------------------------------


def sane(case: Case) -> dict[str, Tensor]:
    """Every input by name, with 0 for NaN and infinity."""
    tensors = {"queries": case.queries, "keys": case.keys, "values": case.values}
    return {name: torch.where(each.isfinite(), each, 0) for name, each in tensors.items()} | case.parameters


def _who_sees_what(case: Case) -> tuple[Tensor, Tensor]:
    """Which rows see NaN or infinity, `(*batch, n, 1)`, and which pairs are allowed at all."""
    scored = _run(case, sane(case))[2]
    allowed = ~scored.blocked
    *batch, n, m = allowed.shape
    broken_query = ~case.queries.isfinite().all(-1, keepdim=True)
    broken_key = ~(case.keys.isfinite().all(-1) & case.values.isfinite().all(-1)).unsqueeze(-2)
    touched = allowed & (broken_query | broken_key).expand(*batch, n, m)
    return touched.any(-1, keepdim=True), allowed


# What rounding does ---------------------------------------------------------------------------------------------------


def _epsilon(case: Case) -> float:
    return torch.finfo(torch.promote_types(case.dtype, torch.float32) if _is_unprojected(case) else case.dtype).eps


def _epsilon_of_sums(case: Case) -> float:
    """The epsilon of the dtype in which gradients of scores are summed."""
    return torch.finfo(torch.promote_types(case.dtype, torch.float32)).eps


def _is_unprojected(case: Case) -> bool:
    return case.score.kinds() <= UNPROJECTED and not case.parameters


def _first_of_equals(keys: Tensor) -> Tensor:
    """For each key the first that equals it, `(..., m)`: what is equal is rounded alike."""
    if keys.shape[-2] == 0:
        return torch.zeros(keys.shape[:-1], dtype=torch.long)
    equal = (keys.unsqueeze(-2) == keys.unsqueeze(-3)).all(-1)
    return equal.to(torch.int8).argmax(-1)


def _noise(shape: torch.Size, keys: Tensor, alike: bool, generator: torch.Generator) -> Tensor:
    """Random numbers in [−1, 1], the same for equal keys if asked."""
    noise = torch.rand(shape, generator=generator, dtype=torch.float64) * 2 - 1
    if not alike:
        return noise
    same = _first_of_equals(keys).expand(*shape[:-2], shape[-1])
    return noise.gather(-1, same.unsqueeze(-2).expand(shape))


def shake(inputs: dict[str, Tensor], epsilon: float, generator: torch.Generator) -> dict[str, Tensor]:
    """The inputs off by rounding."""
    return {name: _shaken(each, epsilon, generator, name == "keys") for name, each in inputs.items()}


def _shaken(tensor: Tensor, epsilon: float, generator: torch.Generator, keys: bool) -> Tensor:
    """The tensor off by rounding; equal keys stay equal."""
    noise = torch.rand(tensor.shape, generator=generator, dtype=torch.float64) * 2 - 1
    if keys:
        noise = noise.gather(-2, _first_of_equals(tensor).unsqueeze(-1).expand(noise.shape))
    return tensor * (1 + epsilon * noise)


def _undecided(case: Case, scored: Scored, share: float) -> Tensor:
    """Rows in which rounding decides what a rule chooses, `(*batch, n, 1)`: any rule chooses where scores are huge."""
    rule = case.rule
    inner = rule.inside[0] if rule.kind == "top-k" else rule
    first = inner.kind in ("softmax", "entmax")
    chosen = _close(case, scored, share, 1 if rule.kind == "one-hot" else rule.options.get("k", 0))
    return chosen | _close(case, scored, share, 1, at_least=0.1) if first else chosen


def _close(case: Case, scored: Scored, share: float, k: int, at_least: float = 0.0) -> Tensor:
    """Rows in which rounding, of this size at least, decides which keys are the k best."""
    if not k or case.exact or scored.scores.shape[-1] <= k or not scored.scores.numel():
        return torch.zeros(*scored.scores.shape[:-1], 1, dtype=torch.bool)
    least = torch.where(scored.blocked, -torch.inf, scored.scores)
    ordered, order = least.sort(dim=-1, descending=True, stable=True)
    tiny = torch.finfo(torch.promote_types(case.dtype, torch.float32)).tiny  # below, digits are lost
    slack = share * scored.size.gather(-1, order) + tiny
    last, following = ordered[..., k - 1 : k], ordered[..., k : k + 1]
    doubt = slack[..., k - 1 : k] + slack[..., k : k + 1]
    close = (last - following <= doubt) & (following > -torch.inf)
    if at_least:
        return close & (doubt > at_least)
    # Keys that are equal tie exactly, and the lowest index takes it. Others that come as close are anybody's.
    first = _first_of_equals(sane(case)["keys"]).expand(*least.shape[:-2], least.shape[-1])
    first = first.unsqueeze(-2).expand(least.shape).gather(-1, order)
    tied = (first[..., k - 1 : k] == first[..., k : k + 1]) & (last == following)
    if not case.score.kinds() & {"bias", "alibi", "relative"}:
        beyond = (last - ordered[..., k:] <= slack[..., k - 1 : k] + slack[..., k:]) & (ordered[..., k:] > -torch.inf)
        before = (ordered[..., :k] - last <= slack[..., :k] + slack[..., k - 1 : k]) & (ordered[..., :k] > -torch.inf)
        alike = first == first[..., k - 1 : k]
        others = (beyond & ~alike[..., k:]).any(-1, keepdim=True) | (
            (before & ~alike[..., :k]).any(-1, keepdim=True) & close
        )
        return torch.where(tied, others, close)
    return close


def _rounding(
    case: Case, inputs: dict[str, Tensor], weights: Tensor, gradient: Tensor, generator: torch.Generator
) -> dict[str, float]:
    """What rounding the gradient of each score, before its terms cancel, does to the gradients of the inputs."""
    leaves = {name: each.detach().requires_grad_() for name, each in inputs.items()}
    output, _, scored = _run(case, leaves)
    rule = case.rule.inside[0] if case.rule.kind == "top-k" else case.rule
    temperature = rule.options.get("temperature", 1.0)
    temperature = leaves[temperature] if isinstance(temperature, str) else torch.as_tensor(temperature)
    scores = scored.scores / temperature
    slope = _slope(rule, weights, scored, max(orders(case), default=0.0))
    size = gradient.abs() @ leaves["values"].detach().abs().mT
    size = size + (weights.abs() * size).sum(-1, keepdim=True)
    # A slope below the least normal number has lost its digits, or is 0.
    lost = slope.clamp(max=torch.finfo(torch.promote_types(case.dtype, torch.float32)).tiny) * size
    size = slope * size
    if rule.kind == "softmax":
        # On the way back weights are computed again, from scores that may be rounded otherwise: up to those so large
        # that engines keep the weights they had.
        terms = (scored.size / temperature).detach().abs()
        size = size * (1 + terms.clamp(max=LIMIT) / 8)  # of which there will be eight
    if not scores.requires_grad:
        return {name: 1e-7 * float(size.sum() + gradient.abs().sum()) for name in alphas_of(rule)}
    epsilon = _epsilon_of_sums(case)
    names = [name for name in leaves if name != "values"]
    sources = [leaves[name] for name in names]
    results = dict.fromkeys(names, 0.0)
    signs = torch.randint(2, size.shape, generator=generator) * 2.0 - 1
    # Random signs may cancel, where a number is shared: with one sign they cannot, and add up to √n times as much.
    for sign in (signs, torch.ones_like(signs)):
        noise = sign.double() * (size * epsilon + lost)
        sums = dict.fromkeys(names, 0.0)
        for context in (nullcontext, steep):  # a slope that saturates is rounded relative to one that does not
            # Of a distance that was folded, the terms have gradients of their own, which cancel.
            for summed in (scores, scored.size) if scored.size.requires_grad else (scores,):
                with context():
                    found = torch.autograd.grad(summed, sources, noise, allow_unused=True, retain_graph=True)
                for name, each in zip(names, found, strict=True):
                    if each is not None and each.numel():
                        shared = 1.0 if sign is signs else max(float((size > 0).sum()) / each.numel(), 1.0)
                        sums[name] += float(each.abs().max()) / shared**0.5
        results = {name: max(results[name], sums[name]) for name in names}
    half = case.dtype in (torch.float16, torch.bfloat16)
    if half and not _is_unprojected(case) and scored.scores.requires_grad:
        # What reaches a projected query or key is rounded to half precision before rows are summed.
        (reached,) = torch.autograd.grad(output, scored.scores, gradient, allow_unused=True, retain_graph=True)
        for sign in (signs[..., :1, :], signs[..., :1]) if reached is not None else ():
            noise = sign.double() * reached * torch.finfo(case.dtype).eps
            found = torch.autograd.grad(scored.scores, sources, noise, allow_unused=True, retain_graph=True)
            for name, each in zip(names, found, strict=True):
                if each is not None and each.numel():
                    results[name] += float(each.abs().max())
    if half and rule.kind == "softmax" and case.engine == "default" and scores.requires_grad:
        # PyTorch's kernels take dO·o from an output that is rounded to half precision.
        moved = (gradient * output.detach()).sum(-1, keepdim=True).abs() * torch.finfo(case.dtype).eps * weights
        for sign in (signs[..., :1], torch.ones_like(signs[..., :1])):
            found = torch.autograd.grad(scores, sources, sign * moved, allow_unused=True, retain_graph=True)
            for name, each in zip(names, found, strict=True):
                if each is not None and each.numel():
                    results[name] += float(each.abs().max()) / 8  # of which there will be eight
    if "cosine" in case.score.kinds():
        # The gradient of a unit vector is a difference of two terms, 1/temperature and 1/norm times what reaches it.
        for name, axis in (("queries", -1), ("keys", -2)):
            norms = inputs[name].norm(dim=-1)
            terms = 10 * size.sum(axis) / torch.where(norms == 0, 1, norms)
            results[name] += torch.finfo(case.dtype).eps * (float(terms.max()) if terms.numel() else 0.0)
    # A sink shares in every score's gradient. An alpha's is found here by differences, which keep ten digits or so.
    every = float(size.sum())
    results |= {name: epsilon * every for name in (rule.options.get("sink"),) if isinstance(name, str)}
    results |= {name: max(epsilon, 1e-7) * (every + float(gradient.abs().sum())) for name in alphas_of(rule)}
    return results


def _slope(rule: Part, weights: Tensor, scored: Scored, alpha: float) -> Tensor:
    """How much a weight moves with its own score, under entmax of an alpha at most."""
    match rule.kind:
        case "one-hot" | "uniform":
            return torch.zeros_like(weights)
        case "conic" | "raw":
            return torch.ones_like(weights)
        case "proportional":
            total = torch.where(scored.blocked, 0, scored.scores.detach()).sum(-1, keepdim=True)
            return torch.where(total == 0, 0, 1 / torch.where(total == 0, 1, total)).expand(weights.shape)
        case "entmax":  # near 0 it moves without bound, if alpha is above 2
            return torch.where(weights == 0, 0, weights.clamp(1e-30, 1).pow(min(2 - alpha, 0.0)))
    return weights.clamp(max=1)


def _distance(one: Tensor, other: Tensor) -> float:
    return float((one - other).abs().max()) if other.numel() else 0.0
