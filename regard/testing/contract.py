"""The contract: an engine matches the float64 definition, forward and gradient, or refuses with reasons.

To test an engine of your own:

    @pytest.mark.parametrize("case", every_case(), ids=str)
    def test_my_engine_keeps_the_contract(case):
        check(MyEngine(), case)
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

import torch
from torch import Tensor

from regard.engines import Engine, Reference
from regard.errors import ScoreError
from regard.problem import AttentionProblem
from regard.testing.cases import Case


@dataclass(frozen=True)
class Outcome:
    """What became of a case: it matched, or the engine refused it for these reasons."""

    refusals: tuple[str, ...] = ()

    @property
    def matched(self) -> bool:
        return not self.refusals


class Mismatch(AssertionError):
    """An engine computed something other than the definition."""


def check(engine: Engine, case: Case) -> Outcome:
    """Compare an engine with the definition on one case.

    Raises:
        Mismatch: It computes something else, in the output or in a gradient.
    """
    if case.expected_error:
        try:
            case.make(case.dtype)
        except ScoreError:
            return Outcome(("refused by ScoreError: proportional weights of a log-kernel",))
        raise Mismatch(f"{case}: expected a ScoreError")
    problem = case.make(case.dtype)
    refusals = engine.refusals(problem)
    if refusals:
        return Outcome(tuple(refusals))
    exact = _define(replace(case, dtype=torch.float64))
    if isinstance(exact, ScoreError):
        got = _run(engine, problem)
        if isinstance(got, ScoreError):
            return Outcome((f"refused while running: {got}",))
        if problem.queries.is_cuda and bool(got["output"].isnan().any()):
            # Nobody has waited for the device to say; by now it has, and the next call raises.
            later = _run(engine, problem)
            if isinstance(later, ScoreError):
                return Outcome((f"refused by the call that followed: {later}",))
        raise Mismatch(f"{case}: the definition refuses ({exact}) and {engine.name} does not")
    plain = _define(case)
    got = _run(engine, problem)
    assert isinstance(plain, dict)
    if isinstance(got, ScoreError):
        raise Mismatch(f"{case}: {engine.name} refuses while running: {got}")
    for name, wanted in exact.items():
        _compare(f"{case}: {engine.name}, {name}", got[name], plain[name], wanted, case.dtype)
    return Outcome()


@lru_cache(maxsize=8192)  # a few kB each: a case is asked for by every engine, and in every dtype
def _define(case: Case) -> dict[str, Tensor] | ScoreError:
    """The definition's output and gradients, in the dtype of the case."""
    return _run(Reference(), case.make(case.dtype))


def _run(engine: Engine, problem: AttentionProblem) -> dict[str, Tensor] | ScoreError:
    """The output and every gradient, by name."""
    try:
        output = engine.run(problem)
    except ScoreError as error:
        return error
    inputs = {"queries": problem.queries, "keys": problem.keys, "values": problem.values}
    inputs |= {f"score.{name}": each for name, each in problem.score.named_parameters()}
    inputs |= {f"weights.{name}": each for name, each in problem.rule.named_parameters()}
    generator = torch.Generator().manual_seed(2)
    weighting = torch.randn(output.shape, generator=generator, dtype=torch.float64).to(output)
    gradients = torch.autograd.grad(output, list(inputs.values()), weighting, allow_unused=True)
    results = {"output": output.detach()}
    for (name, tensor), gradient in zip(inputs.items(), gradients, strict=True):
        if gradient is None and name in ("queries", "keys", "values"):
            raise Mismatch(f"{engine.name} sends None, not zeros, to {name}")
        results[f"gradient of {name}"] = torch.zeros_like(tensor) if gradient is None else gradient
    return results


def _compare(what: str, got: Tensor, plain: Tensor, exact: Tensor, dtype: torch.dtype) -> None:
    if got.shape != exact.shape or got.dtype != dtype:
        raise Mismatch(f"{what} is {tuple(got.shape)} in {got.dtype}, not {tuple(exact.shape)} in {dtype}")
    if not torch.equal(got.isfinite(), exact.isfinite()):
        raise Mismatch(f"{what} is finite where it should not be, or is not where it should")
    got, plain, exact = (torch.where(exact.isfinite(), each, 0) for each in (got, plain, exact))
    largest = max(float(exact.abs().max()), 1.0) if exact.numel() else 1.0
    # Twice the error of the plain formula in the same dtype, and a few units in the last place of the largest entry.
    # The terms of a gradient cancel, so that the order of a sum shows: twice as much again, and more units; most for
    # parameters, whose gradients sum over every pair. In float64 the definition is no better than an engine.
    if dtype == torch.float64:
        slack, units = 0, 4096
    elif what.endswith("output"):
        slack, units = 2, 4
    else:
        slack, units = 4, 32 if what.endswith(("queries", "keys", "values")) else 128
    allowed = slack * _error(plain, exact) + units * torch.finfo(dtype).eps * largest
    error = _error(got, exact)
    if not error <= allowed:
        raise Mismatch(f"{what} is off by {error:.3g}; {allowed:.3g} is allowed (largest entry {largest:.3g})")


def _error(got: Tensor, exact: Tensor) -> float:
    return float((got.double() - exact).abs().max()) if exact.numel() else 0.0
