"""The tables of times in docs/performance.md and README.md, from `benchmarks/results/`: written between markers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks import cuda_report, results
from benchmarks.contests import OURS
from benchmarks.figures import PEER_NAMES, best_peer, readable_ratio
from benchmarks.report import NAME

PAGE = Path(__file__).parent.parent / "docs" / "performance.md"

ATTENTION = {
    "dot": "dot-product softmax",
    "gated": "gated",
    "gaussian": "Gaussian",
    "sigmoid": "sigmoid weights",
    "conic": "conic weights",
    "softcap": "soft-capped",
    "topk": "top-k 32",
    "additive": "additive, hidden 64, (1, 4, 1024, 64)",
    "entmax": "entmax 1.5, (1, 8, 2048, 64)",
    "sparsemax": "sparsemax, (1, 8, 2048, 64)",
    "window": "window of 256 in 16,384, two heads",
    "selected": "64 selected keys of 16,384, two heads",
}
LAYERS = {
    "multi-head": "multi-head attention, (8, 512, 512)",
    "multi-head-weights": "the same with its 8 heaviest weights, (1, 2048, 512)",
    "encoder": "encoder of two layers, (8, 256, 512)",
    "sentences": "MiniLM, 100 sentences",
}
TABLES = {
    "attention": (
        "at (1, 8, 4096, 64), unless said | forward: regard · the best peer that computes the same",
        ATTENTION,
    ),
    "layers": ("layers | forward: regard · the best peer that computes the same", LAYERS),
}

README = PAGE.parent.parent / "README.md"
BEGIN, END = "<!-- times on both, by python -m benchmarks --figures -->\n", "<!-- end of times on both -->"
BOTH = {  # work: its row on a CPU, and on a GPU
    "dot-product softmax": ("dot", "dot"),
    "causal": (None, "causal"),
    "gated": ("gated", "gated"),
    "soft-capped": ("softcap", "soft-capped"),
    "ALiBi": (None, "ALiBi"),
    "Gaussian": ("gaussian", "Gaussian"),
    "sigmoid weights": ("sigmoid", "sigmoid"),
    "conic weights": ("conic", "conic"),
    "window of 256 in 16,384": ("window", "window"),
    "64 selected keys of 16,384": ("selected", "selected"),
    "additive, hidden 64": ("additive", "additive"),
    "Laplacian, 64 dimensions": (None, "Laplacian"),
    "top-k 32": ("topk", "top-k"),
    "sparsemax": ("sparsemax", "sparsemax"),
    "entmax 1.5": ("entmax", "entmax"),
}


def with_times(text: str, rows: Mapping[str, Mapping[str, Any]]) -> str:
    """The text with the times of these results between its markers."""
    for name, (heading, labels) in TABLES.items():
        head, start, rest = text.partition(f"<!-- times of {name}, by python -m benchmarks --figures -->")
        _, end, tail = rest.partition(f"<!-- end of {name} -->")
        lines = [f"| {heading} | forward + backward |", "|---|---|---|"]
        for key, label in labels.items():
            cells = [_cell(rows[key], quantity) for quantity in ("forward", "training")]
            lines.append(f"| {label} | {' | '.join(cells)} |")
        text = f"{head}{start}\n\n" + "\n".join(lines) + f"\n\n{end}{tail}"
    return text


def with_both(text: str) -> str:
    """The text with how many times faster we are on either kind of machine between its markers."""
    on_cpu = results.read(NAME)["rows"]
    found = results.read(cuda_report.NAME)
    on_gpu = cuda_report.rows_to_draw(found["rows"])
    gpu = f"one {found['gpu'].removeprefix('NVIDIA ')}"
    heading = f"{gpu}, bfloat16; additive and Laplacian in float32"
    lines = [f"| forward; forward + backward | two CPU cores, float32 | {heading} |", "|---|---|---|"]
    for label, (cpu_row, gpu_row) in BOTH.items():
        cells = _faster(on_cpu.get(cpu_row, {})), _faster(on_gpu.get(gpu_row, {}))
        lines.append(f"| {label} | {' | '.join(cells)} |")
    head, _, rest = text.partition(BEGIN)
    _, _, tail = rest.partition(END)
    return f"{head}{BEGIN}\n" + "\n".join(lines) + f"\n\n{END}{tail}"


def write_times() -> None:
    """Write the tables into their pages."""
    rows = results.read(NAME)["rows"]
    PAGE.write_text(with_times(PAGE.read_text(encoding="utf-8"), rows), encoding="utf-8")
    README.write_text(with_both(README.read_text(encoding="utf-8")), encoding="utf-8")


def _faster(row: Mapping[str, Any]) -> str:
    """How many times faster than the fastest peer, forward and with a backward pass."""
    peers = [best for quantity in ("forward", "training") if (best := best_peer(row, quantity))]
    names = dict.fromkeys(PEER_NAMES.get(name, name) for name, _ in peers)
    return "; ".join(readable_ratio(times) for _, times in peers) + f" {', '.join(names)}" if peers else ""


def _cell(row: Mapping[str, Any], quantity: str) -> str:
    figures = row["figures"].get(quantity, {})
    if OURS not in figures:
        return ""
    ours, best = _readable(figures[OURS]), best_peer(row, quantity)
    if best is None:
        return ours
    name, times = best
    return f"{ours} · {name} {_readable(figures[name])}, {readable_ratio(times)}"


def _readable(seconds: float) -> str:
    milliseconds = 1000 * seconds
    return f"{milliseconds:.0f} ms" if milliseconds >= 99.5 else f"{milliseconds:.1f} ms"
