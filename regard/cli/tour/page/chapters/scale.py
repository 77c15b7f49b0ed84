"""Why 1/√d: the weights of random keys as d grows, with the division and without, and what is left of the gradient."""

from __future__ import annotations

import torch

from regard.cli.tour.guide import Numbers
from regard.cli.tour.material import seeded
from regard.cli.tour.page.chapter import Chapter, Stops
from regard.cli.tour.page.drawing import power

MOST, N_KEYS = 256, 8


def measure() -> Numbers:
    with seeded(39):
        q, k = torch.randn(MOST, dtype=torch.float64), torch.randn(N_KEYS, MOST, dtype=torch.float64)
    # Three decimals, so that the page is small: the page and the library compute with the same numbers.
    return {"query": q.round(decimals=3).tolist(), "keys": k.round(decimals=3).tolist()}


def fill(stops: Stops, _: Numbers) -> dict[str, str]:
    rows = stops["scale"]["rows"]
    told = {(row["dim"], row["score"]): row for row in rows}
    dims = sorted({row["dim"] for row in rows})
    body = "".join(
        f"<tr><th scope='row'>{dim}</th>"
        + "".join(f"<td>{told[dim, name]['largest']:.4f}</td>" for name in ("Dot", "ScaledDot"))
        + "".join(f"<td>{power(told[dim, name]['gradient_norm'])}</td>" for name in ("Dot", "ScaledDot"))
        + "</tr>"
        for dim in dims
    )
    return {"rows": body, "n_queries": str(stops["scale"]["n_queries"]), "n_keys": str(stops["scale"]["n_keys"])}


def live(_: Stops, own: Numbers) -> dict[str, object]:
    return dict(own)


CHAPTER = Chapter("scale", "Why 1/√d", ("scale",), measure, fill, live)
