"""The promises that a random case is held to, one function each. A promise that is broken raises `Broken`."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

import regard
from fuzz.cases import Case
from fuzz.comparing import (
    Broken,
    blunt,
    compare,
    demand,
    gathered,
    gradients_of,
    is_convex,
    near,
    overflows,
    raw_inside,
    reading,
    reads,
    shows_what_is_broken,
    worst,
)
from fuzz.definition import attention
from fuzz.expected import SAMPLES, alphas_of, expect, orders, sane, shake
from fuzz.objects import Call, make_call, make_engine
from regard.engines import rounding
from regard.errors import EngineRefusal, OptionError, RegardError


def matches(case: Case) -> None:
    """The output and every gradient are the definition's, up to rounding."""
    expected, call = expect(case), make_call(case)
    output = call.attend()
    compare("output", output.detach(), expected, known=expected.rows)
    found = gradients_of(call, output, expected.gradient)
    for name, got in found.items():
        if not bool(expected.dirty.any()):
            compare(name, got, expected)
        elif name == "queries":
            compare(name, got, expected, known=gathered(~expected.dirty, got))
        elif name in ("keys", "values"):
            compare(name, got, expected, known=gathered(expected.known_keys, got))
    shows_what_is_broken(case, output.detach(), expected)
    output = make_call(case, grad=False).attend()  # by another way, perhaps
    compare("output", output, expected, known=expected.rows)
    shows_what_is_broken(case, output, expected)


def stays_in_the_hull(case: Case) -> None:
    """Convex weights sum to 1, forward and backward, and the output lies between the least and the greatest value."""
    expected, call = expect(case), make_call(case)
    if not is_convex(case) or bool(expected.dirty.any()) or overflows(case, expected):
        return
    output = call.attend()
    seen = expected.weights.sum(-1, keepdim=True) > 0
    values = torch.where(case.values.isfinite(), case.values, 0)
    allowed = (~expected.scored.blocked).unsqueeze(-1)  # (*batch, n, m, 1)
    if not allowed.numel():
        return
    spread = values.unsqueeze(-3).expand(*allowed.shape[:-1], values.shape[-1])
    least = torch.where(allowed, spread, torch.inf).amin(-2)
    greatest = torch.where(allowed, spread, -torch.inf).amax(-2)
    largest = values.abs().amax() if values.numel() else 0
    # The weights of entmax near softmax are a high power, of 1/(alpha − 1), of what is rounded.
    power = max((1 / (alpha - 1) for alpha in orders(case)), default=1.0)
    slack = 32 * max(power, 1.0) * torch.finfo(case.dtype).eps * largest + torch.finfo(case.dtype).tiny
    got = output.detach().double()
    inside = (got >= least - slack) & (got <= greatest + slack)
    demand(bool((inside | ~seen).all()), f"the output leaves the hull of the values: {worst(got, ~inside & seen)}")
    demand(bool((got[~seen.expand(got.shape)] == 0).all()), "a fully masked row is not zeros")
    if bool(values.isfinite().all()) and output.requires_grad:
        ones = torch.ones_like(output)
        (to_values,) = torch.autograd.grad(output, [call.leaves["values"]], ones)
        received = to_values.double().sum(-2).sum_to_size(*to_values.shape[:-2], to_values.shape[-1])
        wanted = seen.double().sum(-2).sum()
        together = float(received.sum()) / max(values.shape[-1], 1)
        # The backward pass computes weights again, from scores that are rounded.
        units = 64 * math.sqrt(max(expected.weights.shape[-1], 1)) + 2 * float(expected.scored.size.max())
        share = units * torch.finfo(case.dtype).eps + blunt(case)
        demand(abs(together - float(wanted)) <= share * float(wanted) + 1e-30, f"backward weights sum to {together}")


def reads_one_set_of_weights(case: Case) -> None:
    """Every reading of a view comes from the same weights, those of the definition, in float32 at least."""
    expected, call = expect(case), make_call(case, grad=case.random.random() < 0.3)
    if bool(expected.dirty.any()):
        return
    view = call.weigh()
    dense = view.dense().detach()
    *_, n, m = dense.shape
    demand(dense.dtype == reading(case), f"dense is {dense.dtype}")
    scale = max(float(expected.weights.abs().max()), 1.0) if expected.weights.numel() else 1.0
    slack = 64 * torch.finfo(torch.float32 if case.dtype != torch.float64 else torch.float64).eps
    # Below the limit from which on all readings share a strip, scores may be rounded otherwise in each.
    size = expected.scored.size
    limit = rounding.CANCELLING * rounding.LIMIT
    share = 1 if case.dtype == torch.float64 else 16
    slack *= max(1.0, min(float(size.max()), limit) / share) if size.numel() else 1.0
    if is_convex(case) and not overflows(case, expected):
        total = dense.double().sum(-1)
        wanted = (expected.weights.sum(-1) > 0).double()
        demand(
            near(total, wanted, slack * math.sqrt(max(m, 1)) + blunt(case)),
            f"rows sum to {worst(total, total != wanted)}",
        )
    if overflows(case, expected):
        return
    same = slack * scale + blunt(case)
    chooser = case.random
    if n and m:
        top, left = chooser.randrange(n), chooser.randrange(m)
        rows, columns = slice(top, chooser.randint(top + 1, n)), slice(left, chooser.randint(left + 1, m))
        reads(view.tile(rows, columns), dense[..., rows, columns], same, "tile", case)
        index = [chooser.randrange(n) for _ in range(3)]
        reads(view.rows(index).detach(), dense[..., index, :], same, "rows", case)
        k = chooser.choice((1, 3, m))
        found = view.top(k)
        heaviest = dense.sort(-1, descending=True).values[..., :k].clamp(min=0)
        heaviest = torch.nn.functional.pad(heaviest, (0, k - heaviest.shape[-1]))
        if case.rule.kind != "raw" and not raw_inside(case):
            reads(found.weights.detach(), heaviest, same, "top", case)
        picked = dense.gather(-1, found.indices.clamp(min=0))
        reads(found.weights.detach(), torch.where(found.indices >= 0, picked, 0), same, "top's indices", case)
        reads(view.received().detach(), dense.double().sum(-2), same * n, "received", case)
        height, width = chooser.randint(1, n), chooser.randint(1, m)
        pooled = view.map(height, width).detach()
        reads(pooled.double().sum((-1, -2)), dense.double().sum((-1, -2)), same * n * m, "map", case)
        largest = view.map(1, 1, pool="max").detach()[..., 0, 0]
        reads(largest, dense.amax((-1, -2)), same, "map by max", case)
    if view.kind in ("convex", "one-hot", "uniform"):
        exact = -torch.xlogy(dense.double(), dense.double()).sum(-1)
        reads(view.entropy().detach(), exact, same * max(m, 1) * 30, "entropy", case)
        if not overflows(case, expected):
            view.verify()


def says_that_its_inputs_changed(case: Case) -> None:
    """A view whose inputs were changed in place gives the weights of before, of after, or an error."""
    if case.broken or min(case.queries.shape[-2], case.keys.shape[-2]) == 0:
        return
    call = make_call(case, grad=False)
    view = call.weigh()
    before = view.dense().clone()
    if case.random.random() < 0.5:
        view.top(1)
    target = case.random.choice([call.keys, call.queries])
    try:
        with torch.no_grad():
            target.mul_(0.5 if "proportional" in case.rule.kinds() else -0.5)
    except RuntimeError:
        return  # an expanded tensor cannot be changed in place
    after = make_after(call).dense()
    readings: dict[str, tuple[Callable[[], Tensor], Callable[[Tensor], Tensor]]] = {
        "dense": (view.dense, lambda w: w),
        "rows": (lambda: view.rows([0]), lambda w: w[..., :1, :]),
        "received": (view.received, lambda w: w.sum(-2)),
        "map": (lambda: view.map(1, 1), lambda w: w.sum((-1, -2), keepdim=True)),
    }
    for name, (read, define) in readings.items():
        try:
            got = read().double()
        except RegardError:
            continue
        answers = [define(each.double()) for each in (before, after)]
        scale = max(float(each.abs().max()) for each in answers)
        slack = 1e-3 * scale * (1 if case.dtype in (torch.float32, torch.float64) else 30)
        if not scale < 1e30:
            continue
        demand(any(near(got, each, slack) for each in answers), f"{name} is neither the old weights' nor the new ones'")


def make_after(call: Call) -> regard.WeightsView:
    """A view of the call as it is now."""
    return call.weigh(engine="reference")


def merges_in_any_split(case: Case) -> None:
    """Partials over parts of the keys, merged in order, are attention over all of them."""
    expected = expect(case)
    kinds = case.score.kinds() | (case.mask.kinds() if case.mask else set())
    if case.mask is not None or kinds & {"bias", "alibi", "relative"} or bool(expected.dirty.any()):
        return
    most = torch.finfo(torch.promote_types(case.dtype, torch.float32)).max
    if case.rule.kind == "proportional" and bool((expected.scored.size.sum(-1) > most).any()):
        return  # a part keeps the sum of its scores, which is infinite: the output is NaN
    call = make_call(case, grad=case.random.random() < 0.5)
    m = case.keys.shape[-2]
    cuts = sorted(case.random.randint(0, m) for _ in range(case.random.randint(1, 3)))
    spans = [slice(start, stop) for start, stop in zip([0, *cuts], [*cuts, m], strict=True)]
    parts = [
        regard.partial(
            call.queries, call.keys[..., span, :], call.values[..., span, :], score=call.score, weights=call.weights
        )
        for span in spans
    ]
    while len(parts) > 1:  # neighbours, in any order
        place = case.random.randrange(len(parts) - 1)
        parts[place : place + 2] = [parts[place].merge(parts[place + 1])]
    output = parts[0].finish()
    compare("output", output.detach(), expected, known=expected.rows)
    if output.requires_grad:
        for name, got in gradients_of(call, output, expected.gradient).items():
            compare(name, got, expected)


def refuses_parts_of_other_queries(case: Case) -> None:
    """Partials of other queries do not merge, whatever their shape."""
    if case.broken or 0 in (*case.queries.shape, *case.values.shape):
        return
    call = make_call(case, grad=False)
    options = {"score": call.score, "weights": call.weights, "mask": call.mask}
    try:
        one = regard.partial(*call.tensors, **options)
    except OptionError:
        return  # positions by "start" or "end", which a part does not know
    if torch.equal(call.queries * 2 + 1, call.queries):
        return
    other = regard.partial(call.queries * 2 + 1, call.keys, call.values, **options)
    try:
        one.merge(other).finish()
    except RegardError:
        return
    raise Broken("partials of other queries merge")


def differentiates_twice(case: Case) -> None:
    """The derivative of a gradient is the definition's, computed in float64."""
    small = case.queries.shape[-2] * case.keys.shape[-2] <= 600
    if case.broken or not small or any(each.numel() == 0 for each in (case.queries, case.keys, case.values)):
        return
    largest = [float(each.abs().max()) for each in (case.queries, case.keys, case.values)]
    if not all(1e-3 < size < 1e3 for size in largest) or alphas_of(case.rule):
        return
    # In float64, where nothing is lost to rounding; which engine computes it does not depend on the dtype alone.
    call = make_call(case, torch.float64)
    try:
        got = _second(call.attend(), call.leaves, case)
    except EngineRefusal:
        return
    inputs = sane(case)
    wanted = _second_of_definition(case, inputs)
    sizes = {name: max(float(exact.abs().max()), 1.0) for name, exact in wanted.items()}
    off = {name: float((got[name] - wanted[name]).abs().nan_to_num(torch.inf).max()) for name in wanted}
    if all(off[name] <= 1e-6 * sizes[name] for name in wanted):
        return
    # Where scores are huge, what float64 rounds off the inputs moves the definition itself by more than that.
    generator = case.generator
    shaken = [
        _second_of_definition(case, shake(inputs, torch.finfo(torch.float64).eps, generator)) for _ in range(SAMPLES)
    ]
    for name, exact in wanted.items():
        moved = max(float((each[name] - exact).abs().max()) for each in shaken)
        demand(
            off[name] <= 1e-6 * sizes[name] + 3 * moved,
            f"the second derivative of {name} is off by {off[name]:.3g} of {sizes[name]:.3g}, and moves by {moved:.3g}",
        )


def _second_of_definition(case: Case, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
    leaves = {name: each.detach().clone().requires_grad_() for name, each in inputs.items()}
    tensors = leaves["queries"], leaves["keys"], leaves["values"]
    return _second(attention(case.score, case.rule, case.mask, leaves, *tensors)[0], leaves, case)


def _second(output: Tensor, leaves: dict[str, Tensor], case: Case) -> dict[str, Tensor]:
    """The gradient of a random sum of the gradients of a random sum of the output."""
    generator = case.generator

    def weighed(tensor: Tensor) -> Tensor:
        return (tensor * torch.randn(tensor.shape, generator=generator, dtype=tensor.dtype)).sum()

    found = list(leaves.values())
    first = torch.autograd.grad(weighed(output), found, create_graph=True, allow_unused=True, materialize_grads=True)
    total = sum(weighed(each) for each in first)
    nothing = {name: torch.zeros_like(each) for name, each in leaves.items()}
    if not isinstance(total, Tensor) or not total.requires_grad:
        return nothing
    second = torch.autograd.grad(total, found, allow_unused=True, materialize_grads=True)
    return dict(zip(leaves, second, strict=True))


def raises_or_is_right_after_a_change(case: Case) -> None:
    """A backward pass after an input was changed in place raises, or gives the gradient of the call as it was."""
    if case.broken:
        return
    expected, call = expect(case), make_call(case)
    output = call.attend()
    if not output.requires_grad:
        return
    name = case.random.choice(["queries", "keys", "values", *case.parameters])
    with torch.no_grad():
        call.leaves[name].mul_(-0.7)
        if call.tensors[0].data_ptr() != call.leaves["queries"].data_ptr():
            for each in call.tensors:
                each.mul_(1.3)
    try:
        found = gradients_of(call, output, expected.gradient)
    except RuntimeError as error:
        demand("modified by an inplace" in str(error) or isinstance(error, RegardError), f"says {error}")
        return
    for each, got in found.items():
        compare(each, got, expected)


def gives_the_same_bits(case: Case) -> None:
    """The same call gives the same bits, gradients included."""
    found = []
    for _ in range(2):
        call = make_call(case)
        output = call.attend()
        gradient = torch.ones_like(output)
        found.append([output.detach(), *gradients_of(call, output, gradient).values()])
    for one, other in zip(*found, strict=True):
        same = torch.equal(one.nan_to_num(1.5), other.nan_to_num(1.5))
        demand(same, "two equal calls differ")


def drops_the_same_weights(case: Case) -> None:
    """Dropout drops the same weights in every engine, as many as it was asked to, and scales up the others."""
    if case.broken or case.rule.kind != "softmax":
        return
    call = make_call(case, grad=False)
    share = case.random.choice((0.1, 0.5))
    outputs = []
    for engine in ("reference", make_engine("plain tiles", case.random), make_engine("kernels", case.random), None):
        torch.manual_seed(case.seed)
        try:
            outputs.append(call.attend(engine=engine, dropout=share).double())
        except EngineRefusal:
            continue
    expected = expect(case)
    if overflows(case, expected):
        return
    slack = expected.allowed["output"] / (1 - share) * 4
    for each in outputs[1:]:
        same = torch.where(expected.rows, (each - outputs[0]).abs(), 0)
        if same.numel():
            demand(float(same.max()) <= slack, f"engines drop differently: {float(same.max()):.3g}")


PROMISES = (
    matches,
    stays_in_the_hull,
    reads_one_set_of_weights,
    says_that_its_inputs_changed,
    merges_in_any_split,
    refuses_parts_of_other_queries,
    differentiates_twice,
    raises_or_is_right_after_a_change,
    gives_the_same_bits,
    drops_the_same_weights,
)
