"""Stop 12: additive attention at a size that the plain formula cannot hold."""

from __future__ import annotations

import textwrap
import time

import torch
from rich.text import Text

from regard import Additive, attend, plan
from regard.cli.tour.guide import Numbers, Stop
from regard.cli.tour.material import seeded
from regard.planner import readable_bytes

N_QUERIES = N_KEYS = 16_384
DIM, HIDDEN_DIM = 32, 64
# The first rows alone are computed, so that the tour stays short; what they need to hold does not grow with the rest.
N_COMPUTED = 512
# The formula written out, for as few queries as any machine can hold.
N_CHECKED = 4


def measure() -> Numbers:
    with seeded(11), torch.no_grad():
        score = Additive(DIM, DIM, HIDDEN_DIM)
        queries, keys, values = (torch.randn(size, DIM) for size in (N_QUERIES, N_KEYS, N_KEYS))
        whole = plan(queries, keys, values, score=score)
        attend(queries[:64], keys, values, score=score)  # the first call compiles the kernels, or loads them
        started = time.perf_counter()
        output = attend(queries[:N_COMPUTED], keys, values, score=score)
        seconds = time.perf_counter() - started
        hidden = torch.tanh((queries[:N_CHECKED] @ score.W1.T)[:, None] + keys @ score.W2.T + score.b)
        by_hand = torch.softmax(hidden @ score.v, dim=-1) @ values
    return {
        "n_queries": N_QUERIES,
        "n_keys": N_KEYS,
        "hidden_dim": HIDDEN_DIM,
        "eager_bytes": N_QUERIES * N_KEYS * HIDDEN_DIM * queries.element_size(),
        "plan_bytes": whole.bytes,
        "engine": whole.engine,
        "explanation": str(whole),
        "n_computed": N_COMPUTED,
        "n_checked": N_CHECKED,
        "seconds": seconds,
        "pairs_per_second": N_COMPUTED * N_KEYS / seconds,
        "largest_difference_from_formula": (output[:N_CHECKED] - by_hand).abs().max().item(),
    }


def picture(numbers: Numbers, width: int) -> list[Text | str]:
    below = "\n" + " " * 11
    lines: list[Text | str] = []
    for line in numbers["explanation"].splitlines():
        wrapped = textwrap.wrap(line, width, subsequent_indent="    ")
        lines += [Text(each, style="dim") for each in wrapped]
    lines += [
        "",
        f"in plain torch  {readable_bytes(numbers['eager_bytes']):>10}"
        f"{'  ' if width >= 60 else below}for the hidden layer alone",
        Text.assemble("with this plan  ", (f"{readable_bytes(numbers['plan_bytes']):>10}", "bold")),
        "",
        *textwrap.wrap(
            f"The first {numbers['n_computed']:,} queries × {numbers['n_keys']:,} keys took "
            f"{numbers['seconds']:.1f} s; {numbers['n_checked']} of them, written out, agree to "
            f"{numbers['largest_difference_from_formula']:.0e}.",
            width,
        ),
    ]
    return lines


STOP = Stop(
    name="large",
    title="Additive attention that would not fit",
    text="""
        a(q, k) = vᵀ tanh(W₁q + W₂k + b) has a hidden layer for every pair: {n_queries:,} × {n_keys:,} pairs ×
        {hidden_dim} units. An engine never holds them all. plan says which engine, why, and what it needs.
    """,
    code=(
        "whole = plan(queries, keys, values, score=score)\n"
        "output = attend(queries[:N_COMPUTED], keys, values, score=score)"
    ),
    measure=measure,
    picture=picture,
)
