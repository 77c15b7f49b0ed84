"""Time, in turns: everybody runs in the same process, one after the other, round after round.

Cores are shared and clocks drift; the best of several rounds, side by side, is what can be compared.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor

from benchmarks.peers import Call

Quantity = Literal["forward", "training"]  # training is forward + backward

SHORTEST = 2e-3  # seconds: what takes less is repeated within one timing
ROUNDS = 200
TOLERANCE = 1e-3  # of the norm: float32 sums of thousands of terms, and ranks that tie within rounding


@dataclass
class Timing:
    """What a race found of one participant."""

    repeats: int = 1
    seconds: list[float] = field(default_factory=list)
    failure: str | None = None

    @property
    def best(self) -> float | None:
        return min(self.seconds) if self.seconds and self.failure is None else None


def runner(call: Call, quantity: Quantity) -> Callable[[], tuple[Tensor, ...]]:
    """A function that runs a call once: forward without gradients, or forward and the gradients of its leaves."""
    if quantity == "forward":

        def forward() -> tuple[Tensor, ...]:
            with torch.no_grad():
                return _as_tuple(call.compute())

        return forward

    gradient: list[Tensor] = []  # drawn once, when the output's shape is known; the same for everybody

    def training() -> tuple[Tensor, ...]:
        (output,) = _as_tuple(call.compute())
        if not gradient:
            gradient.append(torch.randn(output.shape, generator=torch.Generator().manual_seed(7)).to(output))
        return output.detach(), *torch.autograd.grad(output, call.leaves, gradient[0])

    return training


def race(
    calls: Mapping[str, Callable[[], Any]],
    *,
    seconds: float = 10.0,
    rounds: int = ROUNDS,
    check: Callable[[str, Any], str | None] | None = None,
) -> dict[str, Timing]:
    """Times of every call, interleaved.

    Args:
        calls: What to run, by name.
        seconds: How long the race may last, beside warming up. Everybody runs at least once; whoever has used up an
            equal share sits out, so that slow ones run fewer rounds.
        rounds: The most rounds.
        check: Looks at the result of each in the warm-up; what it returns is why that one is left out.
    """
    timings = {name: Timing() for name in calls}
    for name, call in calls.items():
        timings[name].failure = _warm_up(name, call, timings[name], check, seconds / 4)
    alive = {name: call for name, call in calls.items() if timings[name].failure is None}
    share = seconds / max(len(alive), 1)
    used = dict.fromkeys(alive, 0.0)
    for turn in range(rounds):
        running = [name for name in alive if turn == 0 or used[name] + min(timings[name].seconds) <= share]
        if not running:
            break
        # There and back again, so that nobody always follows the same one.
        for name in running if turn % 2 == 0 else reversed(running):
            timing = timings[name]
            taken = _seconds(alive[name], timing.repeats)
            timing.seconds.append(taken / timing.repeats)
            used[name] += taken
    return timings


def _warm_up(name: str, call: Callable[[], Any], timing: Timing, check: Any, patience: float) -> str | None:
    """Fill caches and compile; then see, unless that was slow, how often to repeat what is short."""
    try:
        start = time.perf_counter()
        result = call()
        slow = time.perf_counter() - start > patience
        complaint: str | None = None if check is None else check(name, result)
        del result
        if complaint is None and not slow:
            once = min(_seconds(call, 1) for _ in range(3))
            timing.repeats = max(1, round(SHORTEST / max(once, 1e-7)))
        return complaint
    except Exception as error:  # a peer that fails is a result, too
        return f"{type(error).__name__}: {error}".splitlines()[0][:200]


def _seconds(call: Callable[[], Any], repeats: int) -> float:
    start = time.perf_counter()
    for _ in range(repeats):
        call()
    return time.perf_counter() - start


def race_calls(
    calls: Mapping[str, Call], quantity: Quantity, seconds: float, rounds: int = ROUNDS
) -> dict[str, Timing]:
    """Race those who can, after each has shown that it computes what the first one, ours, does."""
    able = {
        name: call for name, call in calls.items() if call.cannot is None and (quantity == "forward" or call.leaves)
    }
    expected: list[tuple[Tensor, ...]] = []

    def check(name: str, result: tuple[Tensor, ...]) -> str | None:
        if not able[name].same:
            return None
        if not expected:
            expected.append(result)
            return None
        return disagreement(result, expected[0])

    timings = race(
        {name: runner(call, quantity) for name, call in able.items()}, seconds=seconds, rounds=rounds, check=check
    )
    for name, call in calls.items():
        if name not in able:
            timings[name] = Timing(failure=call.cannot or "cannot train on a CPU")
    return timings


def agree(calls: Mapping[str, Call], quantity: Quantity) -> None:
    """Check that all who compute the same give the same.

    Raises:
        AssertionError: Somebody does not; the text says who and by how much.
    """
    with nullcontext() if quantity == "training" else torch.no_grad():
        able = {
            name: runner(call, quantity)()
            for name, call in calls.items()
            if call.same and call.cannot is None and (quantity == "forward" or call.leaves)
        }
    (first, expected), *others = able.items()
    for name, result in others:
        complaint = disagreement(result, expected)
        if complaint is not None:
            raise AssertionError(f"{name} against {first}: {complaint}")


def disagreement(results: tuple[Tensor, ...], expected: tuple[Tensor, ...]) -> str | None:
    """By how much two results differ, if by more than rounding; in the norm, for ranks may tie within rounding."""
    for place, (result, wanted) in enumerate(zip(results, expected, strict=True)):
        if result.shape != wanted.shape:
            return f"disagrees: shape {tuple(result.shape)}, not {tuple(wanted.shape)} (result {place})"
        error = float((result.double() - wanted.double()).norm() / wanted.double().norm().clamp_min(1e-12))
        if not error <= TOLERANCE:
            return f"disagrees: {error:.1e} of the norm (result {place})"
    return None


def _as_tuple(results: Tensor | tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return (results,) if isinstance(results, Tensor) else results
