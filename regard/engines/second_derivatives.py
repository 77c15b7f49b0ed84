"""Second derivatives, for engines whose first ones are not made of differentiable operations.

The definition is differentiated twice over strips of rows, so that memory grows with n + m.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from regard.engines.nonfinite.vectors_of_forms import vectors_of, without_broken
from regard.engines.reference import define
from regard.engines.strips import strips_of
from regard.errors import EngineRefusal
from regard.problem import AttentionProblem
from regard.scores.closures import substituting
from regard.tensors import is_finite


def _with_a_look(problem: AttentionProblem, *, known: bool) -> AttentionProblem:
    """The problem for the definition: told which of its vectors are not finite, where kernels have not asked."""
    if known or is_finite(*vectors_of(problem.form), problem.values):
        return problem
    with torch.enable_grad():
        sane, *broken = without_broken(problem.form)
        return problem.around_broken(sane.settled(problem.compute_dtype), *broken)


def gradients_over_strips(
    problem: AttentionProblem,
    needed: Sequence[bool],
    gradient: Tensor,
    inputs: Sequence[Tensor],
    second: Sequence[Tensor | None],
    captured: Sequence[Tensor] = (),
) -> list[Tensor | None]:
    """The derivative of a first derivative with respect to the output's gradient and each input.

    Args:
        problem: What was computed.
        needed: Which inputs have a first derivative.
        gradient: The gradient of the output that the first derivative was taken with.
        inputs: The problem's own, then what a user's function closes over.
        second: The gradient of each first derivative.
        captured: What a user's function closes over, itself.
    """
    if torch.is_grad_enabled():
        raise EngineRefusal(
            "This engine must stop at second derivatives: got a request for a third. "
            'Use engine="reference", which is made of differentiable operations.'
        )
    # Fresh leaves: queries and keys may be one tensor, and each place needs its own derivative.
    n_form = len(problem.form.tensors())
    leaves = [each.detach().requires_grad_(need) for each, need in zip(inputs, needed, strict=True)]
    n_own = len(inputs) - len(captured)
    outer = [*leaves[: n_form + 1], *inputs[n_form + 1 : n_own], *leaves[n_own:]]
    swapped = {id(each): leaf for each, leaf in zip(captured, leaves[n_own:], strict=True)}
    problem = _with_a_look(problem.rebuilt(leaves[: n_form + 1]), known=problem.was_looked_at)
    to_gradient = gradient.detach().requires_grad_()
    wanted = [place for place, need in enumerate(needed) if need]
    totals: list[Tensor | None] = [None] * (1 + len(outer))
    with torch.enable_grad(), substituting(swapped):
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
