"""The planner: which engine, and why not the others."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from regard.engines import ENGINES, Engine
from regard.errors import EngineRefusal, OptionError
from regard.problem import AttentionProblem

# Up to so many elements of scores the dense reference is cheaper than streaming tiles.
SMALL = 1 << 16


@dataclass(frozen=True)
class Plan:
    """Which engine will run, with the reasons; `print(plan)` explains."""

    engine: str
    reason: str
    refusals: Mapping[str, tuple[str, ...]]  # for each engine that cannot run it, why
    passed_over: Mapping[str, str]  # for each engine that could but was not chosen, why
    bytes: int  # memory beside inputs and output
    problem: str  # one line about what was asked

    def __str__(self) -> str:
        lines = [self.problem, f"  engine: {self.engine}, because {self.reason}; needs {readable_bytes(self.bytes)}"]
        lines += [f"  {name}: {reason}" for name, reason in self.passed_over.items()]
        for name, reasons in self.refusals.items():
            lines += [f"  {name} cannot: {reason}" for reason in reasons]
        return "\n".join(lines)


def choose(problem: AttentionProblem, engine: str | Engine | None = None) -> Engine:
    """The engine to run a problem on: the one asked for, or the best that can.

    Raises:
        EngineRefusal: The engine asked for cannot compute this problem; the text says why.
    """
    if engine is not None:
        chosen = find_engine(engine)
        if chosen.accepts(problem):
            return chosen
        raise EngineRefusal(
            f"Engine {chosen.name!r} cannot compute this problem: {'; '.join(chosen.refusals(problem))}. "
            f"Leave `engine` out, or ask plan(...) which engines can."
        )
    for name in _preference(problem):
        if ENGINES[name].accepts(problem):
            return ENGINES[name]
    reasons = [f"{name}: {'; '.join(each.refusals(problem))}" for name, each in ENGINES.items()]
    raise EngineRefusal(f"No engine can compute this problem: {'. '.join(reasons)}.")


def explain(problem: AttentionProblem, engine: str | Engine | None = None) -> Plan:
    """The plan for a problem: what `choose` takes, with everything it knows about the others."""
    chosen = choose(problem, engine)
    refusals, passed_over = {}, {}
    for name, each in ENGINES.items():
        if name == chosen.name:
            continue
        reasons = each.refusals(problem)
        if reasons:
            refusals[name] = tuple(reasons)
        else:
            passed_over[name] = f"could run it and would need {readable_bytes(each.bytes(problem))}"
    return Plan(
        engine=chosen.name,
        reason=("it was asked for" if engine is not None else _reason(chosen, problem)) + _detour(chosen, problem),
        refusals=MappingProxyType(refusals),
        passed_over=MappingProxyType(passed_over),
        bytes=chosen.bytes(problem),
        problem=_describe(problem),
    )


def find_engine(engine: str | Engine) -> Engine:
    """The engine of that name, or the engine itself."""
    if isinstance(engine, Engine):
        return engine
    if engine not in ENGINES:
        raise OptionError(
            f"`engine` must be one of {', '.join(ENGINES)}, or an Engine: got {engine!r}. "
            f"Leave it out to let the planner choose."
        )
    return ENGINES[engine]


def readable_bytes(count: int) -> str:
    """A number of bytes for people: "1.5 GiB"."""
    size = float(count)
    for unit in ("bytes", "KiB", "MiB", "GiB", "TiB"):
        if size < 1024 or unit == "TiB":
            return f"{size:.0f} {unit}" if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1024
    raise AssertionError  # pragma: no cover


def _preference(problem: AttentionProblem) -> Iterator[str]:
    yield "sdpa"
    yield from ("reference", "tiled") if _is_small(problem) else ("tiled", "reference")


def _is_small(problem: AttentionProblem) -> bool:
    grid = problem.grid
    return math.prod(grid.batch_shape) * grid.n_queries * grid.n_keys * problem.form.width <= SMALL


def _reason(chosen: Engine, problem: AttentionProblem) -> str:
    if chosen.name == "reference" and _is_small(problem):
        return "the problem is small, and dense is cheapest"
    return chosen.summary


def _detour(chosen: Engine, problem: AttentionProblem) -> str:
    if chosen.name == "reference" or not problem.may_leak:
        return ""
    return " (NaN or infinity is among the inputs, so that it goes by strips of the definition)"


def _describe(problem: AttentionProblem) -> str:
    grid = problem.grid
    batch = f"{' × '.join(map(str, grid.batch_shape))} × " if grid.batch_shape else ""
    dtype = str(problem.dtype).removeprefix("torch.")
    mask = "" if problem.mask is None else f", mask {problem.mask!r}"
    return (
        f"{batch}{grid.n_queries} queries × {grid.n_keys} keys, {dtype} on {grid.device}: "
        f"{type(problem.score).__name__} under {type(problem.weights).__name__}{mask}"
    )
