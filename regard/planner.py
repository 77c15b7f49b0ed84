"""The planner: which engine, and why not the others."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from types import MappingProxyType
from weakref import WeakKeyDictionary

import torch

from regard.engines import ENGINES, Engine
from regard.engines.costs import work_of
from regard.engines.kernels.dispatch import is_worthwhile, trust_kernels, why_plain, why_unsupported
from regard.engines.kernels.support import RULES
from regard.engines.torch_internals import sdpa_backends
from regard.engines.work import Work
from regard.errors import EngineRefusal, OptionError
from regard.masks import Mask
from regard.modes import is_forward_mode, is_transforming
from regard.problem import AttentionProblem
from regard.scores.form import ChannelForm, DotForm

# What the dense reference may take where another engine could do with less.
MOST_BYTES = 1 << 28

# Which engine was chosen for calls of a kind and shape, without a mask and by mask, and how many are kept. A mask
# is a value, and answers the same for ever.
_CHOSEN: dict[Hashable, tuple[Engine, bool]] = {}  # and whether its kernels compute it
_CHOSEN_BY_MASK: WeakKeyDictionary[Mask, dict[Hashable, tuple[Engine, bool]]] = WeakKeyDictionary()
MOST_CHOSEN = 1024


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
        lines += [f"  {name}: not supported: {'; '.join(reasons)}" for name, reasons in self.refusals.items()]
        return "\n".join(lines)


def choose(problem: AttentionProblem, engine: str | Engine | None = None) -> Engine:
    """The engine to run a problem on: the one requested, or the fastest that supports it.

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
    if _goes_by_the_definition(problem):
        return ENGINES["reference"]
    signature = _signature(problem)
    if signature is None:
        return _quickest(problem)[0]
    before = _CHOSEN if problem.mask is None else _CHOSEN_BY_MASK.setdefault(problem.mask, {})
    known = before.get(signature)
    if known is not None:
        if known[1]:
            trust_kernels(problem)
        return known[0]
    chosen, work, plain = _quickest(problem)
    if not (work.compiled and plain):  # kernels that are being compiled will be there
        if len(before) >= MOST_CHOSEN:
            before.clear()
        before[signature] = chosen, chosen.pools_by_tiles and plain is None
    return chosen


def _goes_by_the_definition(problem: AttentionProblem) -> bool:
    """Whether there are no numbers to decide by, or derivatives are wanted that only the definition has."""
    return problem.queries.is_meta or is_transforming() or is_forward_mode()


def _signature(problem: AttentionProblem) -> Hashable | None:
    """All that the choice of an engine depends on beside the mask; None where what a user wrote may depend on more."""
    form, rule, mask = problem.form, problem.rule, problem.mask
    if mask is not None and type(mask).__hash__ is not object.__hash__:
        return None  # one that may equal another
    if type(rule) not in RULES or type(form) not in (DotForm, ChannelForm):
        return None
    # PyTorch's causal kernels take scales above 0 alone.
    kind = (type(form), getattr(form, "scale", 1.0) > 0, getattr(form, "function", None), *map(type, form.steps))
    state = (problem.needs_gradient, problem.dropout > 0, torch.get_num_threads(), *sdpa_backends())
    learned = (type(rule), len(rule.learned()), getattr(rule, "sink", None) is None)
    tensors = map(attrgetter("shape", "dtype", "device", "requires_grad"), problem.tensors)
    return kind, state, learned, problem.grid.batch_shape, *tensors


def _quickest(problem: AttentionProblem) -> tuple[Engine, Work, str | None]:
    """The engine that takes least time, of those that can; what the problem comes to; and why it uses no kernels."""
    work = work_of(problem)
    chosen = _first(problem, work)
    # Only now is it worth asking whether kernels are there: it imports them, and has them compiled if they are not.
    plain = why_plain(problem, chosen.kernels) if chosen.pools_by_tiles else None
    if plain is not None and work.compiled:
        work = replace(work, compiled=False)
        chosen = _first(problem, work)
    return chosen, work, plain


def _first(problem: AttentionProblem, work: Work) -> Engine:
    """The quickest that can compute a problem; but what would need much memory, only where no other can."""
    able = [each for each in ENGINES.values() if each.accepts(problem)]
    if able:
        return min(able, key=lambda each: (_is_heavy(each, problem, able), each.seconds(work)))
    reasons = [f"{name}: {'; '.join(each.refusals(problem))}" for name, each in ENGINES.items()]
    raise EngineRefusal(f"No engine can compute this problem: {'. '.join(reasons)}.")


def explain(problem: AttentionProblem, engine: str | Engine | None = None) -> Plan:
    """The plan for a problem: what `choose` takes, with everything it knows about the others."""
    if engine is None and not _goes_by_the_definition(problem):
        chosen, work, plain = _quickest(problem)
    else:
        chosen, work = choose(problem, engine), work_of(problem)
        plain = why_plain(problem, chosen.kernels) if chosen.pools_by_tiles else None
        work = replace(work, compiled=work.compiled and plain is None)
    refusals, passed_over = {}, {}
    for name, each in ENGINES.items():
        if name == chosen.name:
            continue
        reasons = each.refusals(problem)
        if reasons:
            refusals[name] = tuple(reasons)
        else:
            estimate = each.seconds(work)
            time = "" if math.isinf(estimate) else f" and about {readable_seconds(estimate)}"
            quicker = engine is None and estimate < chosen.seconds(work) and _is_heavy(each, problem, [chosen])
            but = f": quicker, but more than {readable_bytes(MOST_BYTES)} where another needs less" if quicker else ""
            passed_over[name] = f"supported, would need {readable_bytes(each.bytes(problem))}{time}{but}"
    return Plan(
        engine=chosen.name,
        reason=("it was asked for" if engine is not None else _reason(chosen, work)) + _detour(chosen, problem, plain),
        refusals=MappingProxyType(refusals),
        passed_over=MappingProxyType(passed_over),
        bytes=(chosen if plain is None else chosen.without_kernels()).bytes(problem),
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


def _is_heavy(engine: Engine, problem: AttentionProblem, others: Sequence[Engine]) -> bool:
    """Whether an engine needs much memory where another needs less."""
    if engine.name != "reference":
        return False
    needed = engine.bytes(problem)
    return needed > MOST_BYTES and any(each.bytes(problem) < needed for each in others)


def _reason(chosen: Engine, work: Work) -> str:
    seconds = chosen.seconds(work)
    if math.isinf(seconds):
        return chosen.summary
    return f"{chosen.summary}; about {readable_seconds(seconds)}"


def readable_seconds(seconds: float) -> str:
    """A time for people: "1.5 ms"."""
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:.2g} {unit}" if seconds < 100 * size else f"{seconds / size:.0f} {unit}"
    return f"{seconds * 1e6:.0f} µs"


def _detour(chosen: Engine, problem: AttentionProblem, plain: str | None) -> str:
    """What a user may want to know of how the engine will go about it; `plain` is why it uses no kernels."""
    if chosen.name != "reference" and problem.may_leak:
        return " (NaN or infinity is among the inputs: rows that see it are computed apart)"
    if plain is None:
        return " (compiled kernels)" if chosen.pools_by_tiles else ""
    # What is small runs in plain torch anyway: nothing to mend there.
    return f" (in plain torch: {plain})" if is_worthwhile(problem) or why_unsupported(problem) else ""


def _describe(problem: AttentionProblem) -> str:
    grid = problem.grid
    batch = f"{' × '.join(map(str, grid.batch_shape))} × " if grid.batch_shape else ""
    dtype = str(problem.dtype).removeprefix("torch.")
    mask = "" if problem.mask is None else f", mask {problem.mask!r}"
    return (
        f"{batch}{grid.n_queries} queries × {grid.n_keys} keys, {dtype} on {grid.device}: "
        f"{type(problem.score).__name__} under {type(problem.rule).__name__}{mask}"
    )
