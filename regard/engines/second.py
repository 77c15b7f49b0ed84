"""Second derivatives, for engines whose first ones are not made of differentiable operations.

The definition is differentiated twice over strips of rows, so that memory grows with n + m.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from regard.engines.reference import define
from regard.engines.strips import strips_of
from regard.errors import EngineRefusal
from regard.problem import AttentionProblem


def gradients_over_strips(
    parts: Sequence[AttentionProblem],
    needed: Sequence[bool],
    gradient: Tensor,
    inputs: Sequence[Tensor],
    second: Sequence[Tensor | None],
) -> list[Tensor | None]:
    """The derivative of a first derivative with respect to the output's gradient and each input.

    Args:
        parts: The problem, as a sequence of one.
        needed: Which inputs have a first derivative.
        gradient: The gradient of the output that the first derivative was taken with.
        inputs: The problem's own, then what a user's function closes over.
        second: The gradient of each first derivative.
    """
    part = _single(parts)
    n_form = len(part.form.tensors())
    # Fresh leaves: queries and keys may be one tensor, and each place needs its own derivative.
    leaves = [each.detach().requires_grad_(need) for each, need in zip(inputs[: n_form + 1], needed, strict=False)]
    outer = [*leaves, *inputs[n_form + 1 :]]
    problem = part.rebuilt(leaves)
    to_gradient = gradient.detach().requires_grad_()
    wanted = [place for place, need in enumerate(needed) if need]
    totals: list[Tensor | None] = [None] * (1 + len(outer))
    with torch.enable_grad():
        for rows in strips_of(problem):
            strip = to_gradient[..., rows.start : rows.stop, :]
            output = define(problem, rows).to(strip.dtype)
            if not output.requires_grad:
                continue
            first = torch.autograd.grad(
                output, [outer[place] for place in wanted], strip, create_graph=True, allow_unused=True
            )
            pairs = [
                (each, second[place])
                for each, place in zip(first, wanted, strict=True)
                if each is not None and each.requires_grad and second[place] is not None
            ]
            if not pairs:
                continue
            sources = [to_gradient, *(outer[place] for place in wanted)]
            found = torch.autograd.grad(
                [each for each, _ in pairs], sources, [weight for _, weight in pairs], allow_unused=True
            )
            for place, each in zip([0, *(1 + place for place in wanted)], found, strict=True):
                if each is not None:
                    before = totals[place]
                    totals[place] = each if before is None else before + each
    for place in wanted:
        if totals[1 + place] is None:
            totals[1 + place] = torch.zeros_like(outer[place])
    if totals[0] is None:
        totals[0] = torch.zeros_like(gradient)
    return totals


def _single(parts: Sequence[AttentionProblem]) -> AttentionProblem:
    if len(parts) != 1:
        raise EngineRefusal(
            f"Second derivatives must be taken of one problem: got {len(parts)} merged parts. "
            f"Attend over the concatenated keys and values instead."
        )
    return parts[0]
