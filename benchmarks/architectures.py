"""Every architecture of transformers on regard: outputs and gradients beside eager, on tiny random models.

    python -m benchmarks.architectures                  # all; writes benchmarks/results/ and docs/architectures.md
    python -m benchmarks.architectures --only bert t5   # some of them; writes nothing

Two things must hold for a match: no entry of an output is further from eager's than 1e-5 of that output's largest, or
twice as far as transformers' own `sdpa` is; and the same for gradients of all parameters, beside their largest entry.
Inputs have no padding, since eager gives padded queries something that nobody reads.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks import results
from benchmarks.tiny_models import NotBuilt, Tiny, build, in_short, numbers_of
from regard.integrations.transformers.hosted_layers import is_attention

BOUND = 1e-5
SECONDS = 120  # for one architecture
PAGE = Path(__file__).parent.parent / "docs" / "architectures.md"

# How an architecture may end, and what the page says of it.
MATCHED, DEVIATES, REFUSED = "matched", "deviates", "refused"
NOT_BUILT, OUTSIDE = "not built", "outside the interface"


@dataclass
class Verdict:
    """How one architecture came out."""

    model_type: str
    outcome: str
    reason: str = ""
    calls: int = 0  # of regard's attention, in one forward pass
    output: float = 0.0  # how far outputs are from eager's, as a share of the largest entry
    gradient: float = 0.0
    output_of_sdpa: float | None = None
    gradient_of_sdpa: float | None = None


@dataclass
class Answer:
    """What a model answers, and the gradients of its parameters."""

    outputs: list[Tensor]
    gradients: list[Tensor]


def examine(model_type: str) -> Verdict:
    """Build a tiny model of an architecture and compare."""
    try:
        tiny = build(model_type)
    except NotBuilt as error:
        return Verdict(model_type, NOT_BUILT, str(error))
    return compare(model_type, tiny)


def compare(model_type: str, tiny: Tiny) -> Verdict:
    """Run a model with eager, regard and sdpa, and say how far they are apart."""
    eager = ask(tiny, "eager")
    with counted() as calls:
        try:
            regards = ask(tiny, "regard")
        except Exception as error:
            return Verdict(model_type, REFUSED, in_short(error), len(calls))
    if not calls:
        unreached = any(map(is_attention, tiny.model.modules()))
        reason = "its attention was not reached by the input" if unreached else "no layer looks its attention up"
        return Verdict(model_type, NOT_BUILT if unreached else OUTSIDE, reason)
    output, gradient = distance(regards, eager)
    verdict = Verdict(model_type, MATCHED, calls=len(calls), output=output, gradient=gradient)
    with suppress(Exception):  # not every architecture has sdpa
        verdict.output_of_sdpa, verdict.gradient_of_sdpa = distance(ask(tiny, "sdpa"), eager)
    if output > max(BOUND, 2 * (verdict.output_of_sdpa or 0)):
        verdict.outcome, verdict.reason = DEVIATES, f"outputs differ by {output:.1e} of the largest"
    elif gradient > max(BOUND, 2 * (verdict.gradient_of_sdpa or 0)):
        verdict.outcome, verdict.reason = DEVIATES, f"gradients differ by {gradient:.1e} of the largest"
    return verdict


def ask(tiny: Tiny, implementation: str) -> Answer:
    """A model's outputs with one attention, and the gradients of a fixed sum of them."""
    model = tiny.model
    model.set_attn_implementation(implementation)  # type: ignore[operator]
    model.zero_grad()
    torch.manual_seed(3)
    outputs = numbers_of(model(**tiny.inputs))
    generator = torch.Generator().manual_seed(4)
    loss = sum((each * torch.randn(each.shape, generator=generator)).sum() for each in outputs if each.requires_grad)
    if isinstance(loss, Tensor):
        loss.backward()
    gradients = [each.grad.clone() for each in model.parameters() if each.grad is not None]
    return Answer([each.detach() for each in outputs], gradients)


def distance(one: Answer, other: Answer) -> tuple[float, float]:
    """The largest difference of outputs and of gradients, as shares of the largest entries."""
    of_outputs = max((_share([a], [b]) for a, b in zip(one.outputs, other.outputs, strict=True)), default=0.0)
    return of_outputs, _share(one.gradients, other.gradients)


def _share(ones: list[Tensor], others: list[Tensor]) -> float:
    largest = max((float(each.abs().max()) for each in others if each.numel()), default=0.0)
    pairs = zip(ones, others, strict=True)
    apart = max((float((a - b).abs().max()) for a, b in pairs if a.numel()), default=0.0)
    return apart / largest if largest else apart


@contextmanager
def counted() -> Iterator[list[nn.Module]]:
    """The layers that come to regard's attention, one entry a call."""
    from transformers import AttentionInterface

    import regard.integrations.transformers  # noqa: F401

    attend = AttentionInterface()["regard"]
    seen: list[nn.Module] = []

    def counting(module: nn.Module, *arguments: Any, **options: Any) -> Any:
        seen.append(module)
        return attend(module, *arguments, **options)

    AttentionInterface.register("regard", counting)
    try:
        yield seen
    finally:
        AttentionInterface.register("regard", attend)


# All of them --------------------------------------------------------------------------------------------------------


def model_types() -> list[str]:
    """Every architecture that has a base model."""
    from transformers.models.auto.modeling_auto import MODEL_MAPPING_NAMES

    return sorted(MODEL_MAPPING_NAMES)


def within(seconds: int, work: Callable[[], Verdict]) -> Verdict:
    """Do work, or give it up after some seconds."""

    def stop(*_: object) -> None:
        raise TimeoutError(f"it takes longer than {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        return work()
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def survey(names: Sequence[str]) -> list[Verdict]:
    """A verdict for each architecture."""
    verdicts = []
    for name in names:
        start = time.perf_counter()
        try:
            verdict = within(SECONDS, lambda name=name: examine(name))  # type: ignore[misc]
        except Exception as error:
            verdict = Verdict(name, NOT_BUILT, in_short(error))
        verdicts.append(verdict)
        took = time.perf_counter() - start
        print(f"{name}: {verdict.outcome} {verdict.reason} ({took:.1f} s)", flush=True)
    return verdicts


def page(verdicts: Sequence[Verdict], version: str) -> str:
    """docs/architectures.md: the counts, and every architecture under how it came out."""
    counts = Counter(each.outcome for each in verdicts)
    matched = [each for each in verdicts if each.outcome == MATCHED]
    beyond = [each for each in matched if max(each.output, each.gradient) > BOUND]
    near = [each for each in matched if each not in beyond]
    furthest, steepest = (max((getattr(each, what) for each in near), default=0.0) for what in ("output", "gradient"))
    lines = [
        "# Architectures of transformers on regard",
        "",
        'What `attn_implementation="regard"` computes beside `"eager"`, in float32, on a tiny random model of every',
        f"architecture that transformers {version} has a base model for: outputs, and gradients of every parameter, on",
        "inputs without padding. Made by `python -m benchmarks.architectures`; each figure is in",
        "[architectures.json](../benchmarks/results/architectures.json).",
        "",
        "| outcome | architectures | |",
        "|---|---|---|",
        f"| matched | {counts[MATCHED]} | within 1e-5 of the largest entry, or twice the deviation of `sdpa` |",
        f"| deviates | {counts[DEVIATES]} | further than that |",
        f"| refused | {counts[REFUSED]} | an error that says why |",
        f"| outside the interface | {counts[OUTSIDE]} | has no attention, or computes it without asking transformers' "
        "table: `attn_implementation` changes nothing |",
        f"| not built | {counts[NOT_BUILT]} | no tiny model of it could be made from its configuration alone and asked "
        "something |",
        "",
        f"{len(near)} are within 1e-5: their furthest output is {furthest:.1e} of the largest entry from eager's, "
        f"their furthest gradient {steepest:.1e}. {len(beyond)} are further, and so is `sdpa`: "
        + (", ".join(f"`{each.model_type}` ({max(each.output, each.gradient):.1e})" for each in beyond) or "none")
        + ".",
        "",
        f"## Matched: {counts[MATCHED]}",
        "",
        ", ".join(f"`{each.model_type}`" for each in matched),
    ]
    for outcome in (DEVIATES, REFUSED):
        some = [each for each in verdicts if each.outcome == outcome]
        lines += ["", f"## {outcome.capitalize()}: {len(some)}", ""]
        if some:
            lines += ["| architecture | why |", "|---|---|"]
            lines += [f"| `{each.model_type}` | {_in_a_cell(each.reason)} |" for each in some]
        else:
            lines.append("None.")
    outside = [each for each in verdicts if each.outcome == OUTSIDE]
    lines += [
        "",
        f"## Outside the interface: {len(outside)}",
        "",
        ", ".join(f"`{each.model_type}`" for each in outside),
    ]
    absent = [each for each in verdicts if each.outcome == NOT_BUILT]
    lines += ["", f"## Not built: {len(absent)}", "", "| architecture | what was raised first |", "|---|---|"]
    lines += [f"| `{each.model_type}` | {_in_a_cell(each.reason)} |" for each in absent]
    return "\n".join(lines) + "\n"


def _in_a_cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")


def main(arguments: Sequence[str] | None = None) -> int:
    """Survey what was asked for; write figures and page if that is everything."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.architectures", description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", metavar="NAME", help="these architectures alone; nothing is written")
    options = parser.parse_args(arguments)
    os.environ["HF_HUB_OFFLINE"] = "1"
    warnings.filterwarnings("ignore")
    import transformers

    import regard.integrations.transformers  # noqa: F401

    transformers.logging.set_verbosity_error()
    verdicts = survey(options.only or model_types())
    print(Counter(each.outcome for each in verdicts))
    if not options.only:
        results.write(
            "architectures",
            {"transformers": transformers.__version__, "verdicts": [asdict(each) for each in verdicts]},
        )
        PAGE.write_text(page(verdicts, transformers.__version__), encoding="utf-8")
    return int(any(each.outcome == DEVIATES for each in verdicts))


if __name__ == "__main__":
    sys.exit(main())
