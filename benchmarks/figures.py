"""The figures in docs/, drawn from `benchmarks/results/`: the same bytes from the same results.

Backgrounds are transparent and text is a grey that reads on white and on black, so that both of GitHub's modes work;
the map of weights is drawn once for each.
Colours are Okabe and Ito's, which colour-blind people can tell apart; shapes and labels say the same again.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib
import torch
from torch import Tensor

from benchmarks import cuda_report, results
from benchmarks.contests import OURS
from benchmarks.peers import MEMORY_LIMIT
from benchmarks.report import NAME
from regard import weigh
from regard.plots.palette import STOPS

matplotlib.use("svg")
import matplotlib.pyplot as plt
from matplotlib.colors import LinearSegmentedColormap, PowerNorm

FOLDER = Path(__file__).parent.parent / "docs"
GREY = "#6e7781"
BLUE, ORANGE, GREEN, VERMILLION, SKY = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#56B4E9"
STYLE = {
    **{f"{part}.color": GREY for part in ("text", "xtick", "ytick")},
    **{f"axes.{part}": GREY for part in ("edgecolor", "labelcolor", "titlecolor")},
    **{f"axes.spines.{side}": False for side in ("top", "right")},
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "font.size": 11,
    "svg.hashsalt": "regard",
    "legend.frameon": False,
}
PEER_NAMES = {"compiled": "torch.compile", "gathered": "gathering rows", "two products": "two products in torch"}
ROOT = 0.35  # of the weights of a long sequence, for their colours
SEEN = 16_384  # tokens of the sequence whose weights are shown


def draw_all() -> list[Path]:
    """Draw every figure whose results are there; return where."""
    rows = results.read(NAME).get("rows", {})
    with plt.rc_context(STYLE):
        drawn = []
        trained = {name: row for name, row in rows.items() if best_peer(row, "training")}
        if trained:
            drawn.append(save(draw_speed(trained, "a CPU"), "speed"))
        if "memory" in rows.get("growth", {}):
            drawn.append(save(draw_memory(rows["growth"]), "memory"))
        drawn += [save(draw_view(SEEN, dark), name) for name, dark in (("view", False), ("view-dark", True))]
    return [*drawn, *draw_gpu()]


def draw_gpu(folder: Path = FOLDER) -> list[Path]:
    """Draw the speed on a GPU, if it was measured; return where."""
    found = results.read(cuda_report.NAME)
    rows = cuda_report.rows_to_draw(found.get("rows", {}))
    compared = {name: row for name, row in rows.items() if best_peer(row, "forward")}
    if not compared:
        return []
    with plt.rc_context(STYLE):
        return [save(draw_speed(compared, f"one {found['gpu'].removeprefix('NVIDIA ')}"), "speed-gpu", folder)]


def save(figure: Any, name: str, folder: Path = FOLDER) -> Path:
    """Write a figure without the date, so that nothing changes when nothing changed."""
    path = folder / f"{name}.svg"
    figure.savefig(path, metadata={"Date": None}, transparent=True, bbox_inches="tight")
    plt.close(figure)
    # matplotlib leaves blanks at the ends of lines.
    path.write_text("\n".join(line.rstrip() for line in path.read_text("utf-8").splitlines()) + "\n", "utf-8")
    return path


def best_peer(row: Mapping[str, Any], quantity: str) -> tuple[str, float] | None:
    """The fastest who computes the same as we do, and how many times our time it takes."""
    figures = row.get("figures", {}).get(quantity, {})
    rivals = {name: figures[name] for name in row.get("same", ()) if name in figures and not name.startswith(OURS)}
    if OURS not in figures or not rivals:
        return None
    best = min(rivals, key=rivals.__getitem__)
    return best, rivals[best] / figures[OURS]


def readable_ratio(ratio: float) -> str:
    """With two digits after the point where the first may be the same as that of 1."""
    digits = 2 if ratio < 1.95 else 1 if ratio < 9.95 else 0
    return f"{ratio:.{digits}f} ×"


def draw_speed(rows: Mapping[str, Mapping[str, Any]], machine: str) -> Any:
    """How many times faster than the fastest peer that computes the same, for each kind of attention."""
    figure, axes = plt.subplots(figsize=(8.2, 0.52 * len(rows) + 1.2))
    ratios = [1.0]
    for place, row in enumerate(rows.values()):
        pairs = (("forward", BLUE), ("training", ORANGE))
        bars = [(colour, peer) for quantity, colour in pairs if (peer := best_peer(row, quantity))]
        for turn, (colour, (name, ratio)) in enumerate(bars):
            height = place + 0.38 * (turn - (len(bars) - 1) / 2)
            axes.barh(height, ratio - 1, left=1, height=0.36, color=colour)
            axes.annotate(
                f"{readable_ratio(ratio)} {PEER_NAMES.get(name, name)}",
                (max(ratio, 1), height),
                xytext=(4, 0),
                textcoords="offset points",
                va="center",
                fontsize=9,
            )
            ratios.append(ratio)
    axes.set_xscale("log")
    least, most = min(ratios), max(ratios)
    axes.set_xlim(min(0.4, least / 1.25), most * 4)
    ticks = [tick for tick in (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200) if min(0.4, least) <= tick <= most * 2]
    axes.set_xticks(ticks, [f"{tick:g} ×" for tick in ticks])
    axes.minorticks_off()
    axes.axvline(1, color=GREY, linewidth=1)
    labels = [f"{row['work']}\n{row['size']}".rstrip() for row in rows.values()]
    axes.set_yticks(range(len(rows)), labels, fontsize=9)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_title(f"Speed of regard on {machine}, beside the fastest peer that computes the same", fontsize=11)
    axes.set_xlabel("times as fast as the peer named")
    handles = [plt.Rectangle((0, 0), 1, 1, color=colour) for colour in (BLUE, ORANGE)]
    axes.legend(handles, ["forward", "forward + backward"], loc="upper right")
    return figure


def draw_memory(growth: Mapping[str, Any]) -> Any:
    """Bytes of forward + backward against n, one head; dashed where it was computed from a smaller n, not run."""
    right, above = {"xytext": (8, 0), "va": "center"}, {"xytext": (0, 8), "ha": "center"}
    lines: dict[tuple[str, str], tuple[str, str, str, dict[str, Any]]] = {
        ("additive", "eager"): ("additive, the formula", VERMILLION, "s", right),
        ("gated", "eager"): ("gated, the formula", ORANGE, "D", right),
        ("additive", OURS): ("additive, regard", BLUE, "o", above),  # the line of gated goes on to its right
        ("gated", OURS): ("gated, regard", SKY, "^", right),
        ("dot", "SDPA"): ("plain softmax, SDPA", GREEN, "v", right),
    }
    figure, axes = plt.subplots(figsize=(8.2, 4.4))
    for (row, call), (label, colour, marker, where) in lines.items():
        points = [point for point in growth["memory"] if (point["row"], point["call"]) == (row, call)]
        run = [point for point in points if not point["computed"]]
        computed = run[-1:] + [point for point in points if point["computed"]]
        for part, line in ((run, "-"), (computed, "--")):
            sides, sizes = [point["side"] for point in part], [point["bytes"] / 2**20 for point in part]
            face = colour if line == "-" else "none"
            axes.plot(sides, sizes, line, color=colour, marker=marker, markersize=5, markerfacecolor=face)
        end = (points[-1]["side"], points[-1]["bytes"] / 2**20)
        axes.annotate(label, end, color=colour, fontsize=9, textcoords="offset points", **where)
    total = growth["machine bytes"] / 2**20
    axes.axhline(total, color=GREY, linewidth=1, linestyle=":")
    axes.annotate(f"all of this machine's memory, {total / 1024:.0f} GiB", (1024, total), xytext=(0, 4), fontsize=9,
                  textcoords="offset points")  # fmt: skip
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    sides = sorted({point["side"] for point in growth["memory"]})
    axes.set_xticks(sides, [f"{side // 1024}k" for side in sides])
    ticks = [1, 10, 100, 1024, 10 * 1024, 100 * 1024, 1024 * 1024]
    axes.set_yticks(ticks, ["1 MiB", "10 MiB", "100 MiB", "1 GiB", "10 GiB", "100 GiB", "1 TiB"])
    axes.minorticks_off()
    axes.set_title("Memory of a forward and a backward pass, one head, float32", fontsize=11)
    limit = MEMORY_LIMIT >> 30
    axes.set_xlabel(
        f"n queries and n keys (dashed: not run, as the formula keeps more than {limit} GiB; computed as ~ n²)"
    )
    return figure


def make_sequence(n_tokens: int) -> tuple[Tensor, Tensor]:
    """Queries and keys of an invented text: chapters on a few subjects, neighbours, and words that all look at."""
    generator = torch.Generator().manual_seed(3)
    place = torch.arange(n_tokens, dtype=torch.float32) / n_tokens
    subject = torch.tensor([0, 1, 0, 2, 3, 1, 4, 2, 0])[(place * 9).long()]
    subjects = 3.2 * torch.eye(5)[subject]
    turns = 2 * math.pi * place.unsqueeze(-1) * torch.tensor([1.0, 2.0, 4.0, 8.0, 16.0, 32.0])
    near = 1.6 * torch.cat([turns.cos(), turns.sin()], -1)
    common = torch.zeros(n_tokens, 1)
    common[[int(n_tokens * part) for part in (0.0, 0.29, 0.52, 0.86)]] = 24.0
    noise = 0.7 * torch.randn(2, n_tokens, 8, generator=generator)
    # Attention widens towards the end, as it does where a text sums itself up.
    sharp = (0.6 - 0.3 * place).unsqueeze(-1)
    queries = torch.cat([subjects, near, torch.ones(n_tokens, 1), noise[0]], -1)
    return queries * sharp * math.sqrt(queries.shape[-1]), torch.cat([subjects, near, common, noise[1]], -1)


def draw_view(n_tokens: int, dark: bool = False) -> Any:
    """A map of the weights of a long sequence, the entropy of each query and what each key receives."""
    queries, keys = make_sequence(n_tokens)
    with torch.no_grad():
        seen = weigh(queries, keys, keys).collect(entropy=True, received=True, map=(256, 256))
    figure, parts = plt.subplots(
        2, 2, figsize=(7.4, 7.0), width_ratios=(5, 1.3), height_ratios=(5, 1.1), layout="constrained"
    )
    (picture, entropies), (received, legend) = parts
    ends, largest = (0, n_tokens, n_tokens, 0), float(seen.map.max())
    # A root lower than that of the palette, because weights span orders of magnitude.
    colours = LinearSegmentedColormap.from_list("regard", STOPS[::-1] if dark else STOPS)
    norm = PowerNorm(ROOT, 0.0, largest)
    image = picture.imshow(seen.map.numpy(), cmap=colours, norm=norm, extent=ends, interpolation="nearest")
    legend.set_axis_off()
    bar = figure.colorbar(image, cax=legend.inset_axes((0.0, 0.6, 1.0, 0.2)), orientation="horizontal")
    places = [0.0, 0.5 ** (1 / ROOT) * largest, largest]
    bar.set_ticks(places, labels=[f"{each:.3g}" for each in places])
    bar.ax.tick_params(labelsize=8)
    bar.minorticks_off()
    bar.outline.set_visible(False)
    side = n_tokens // len(seen.map)
    bar.set_label(f"sum of {side} × {side} weights,\nup to the largest", fontsize=8)
    picture.set_ylabel("query")
    picture.set_title(f"{n_tokens:,} × {n_tokens:,} weights, pooled to 256 × 256", fontsize=11)
    strips = seen.entropy.unflatten(0, (256, -1))
    rows = (torch.arange(256) + 0.5) * (n_tokens / 256)
    entropies.fill_betweenx(rows, strips.amin(-1), strips.amax(-1), color=SKY, alpha=0.45, linewidth=0)
    entropies.plot(strips.mean(-1), rows, color=BLUE, linewidth=1.4)
    entropies.set_ylim(n_tokens, 0)
    entropies.set_title("entropy (nats)", fontsize=11)
    received.plot(rows, seen.received.unflatten(0, (256, -1)).amax(-1), color=VERMILLION, linewidth=1.2)
    received.set_yscale("log")
    received.set_xlim(0, n_tokens)
    received.set_xlabel("key")
    received.set_ylabel("received")
    thousands = [n_tokens * part // 4 for part in range(5)]
    for axis in (picture.xaxis, picture.yaxis, entropies.yaxis, received.xaxis):
        axis.set_ticks(thousands, [f"{each // 1024}k" if each >= 1024 else str(each) for each in thousands])
    return figure
