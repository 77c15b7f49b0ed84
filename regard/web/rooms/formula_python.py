"""The lines of Python that compute what the room of the formula shows."""

from __future__ import annotations

from regard.web.rooms.formula_asked import Formula

NEAREST = """\
distances = (queries[:, None] - keys).square().sum(-1).masked_fill(~on, torch.inf)
ranks = distances.argsort(stable=True).argsort()
"""
ALLOWED = {
    "all": "on.expand(1, -1)",
    "left": "on & (keys[:, 0] <= queries[:, :1])",
    "nearest": "on & (ranks < NEAREST)",
}


def lines(asked: Formula) -> str:
    """Lines that print the output and the weights."""
    score, rule = asked.scored(), asked.ruled()
    names = {"weigh", *score.names(), *rule.names(), *(["Allowed"] if asked.is_masked else [])}
    told = [
        "import torch",
        f"from regard import {', '.join(sorted(names, key=lambda name: (name[0].islower(), name)))}",
        "",
        "torch.set_default_dtype(torch.float64)",
        f"queries = torch.tensor([{asked.query}])",
        f"keys = torch.tensor({asked.keys})",
        f"values = torch.tensor({asked.values})",
    ]
    mask = ""
    if asked.is_masked:
        told += [f"on = torch.tensor({asked.on})", *(NEAREST.splitlines() if asked.mask == "nearest" else [])]
        told += [f"mask = Allowed({ALLOWED[asked.mask].replace('NEAREST', str(asked.nearest))})"]
        mask = ", mask=mask"
    told += [
        f"view = weigh(queries, keys, values, score={score}, weights={rule}{mask})",
        "print(view.output, view.dense())",
    ]
    return "\n".join(told) + "\n"
