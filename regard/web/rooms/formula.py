"""The room of the formula: attention of one query over keys that are points, and of every query of a picture."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from regard import Allowed, Proportional, attend, weigh
from regard.errors import ScoreError
from regard.web.asked import Asked
from regard.web.rooms.formula_asked import Formula, Picture
from regard.web.rooms.formula_python import lines
from regard.web.settings import Settings

SUMMING_TO_1 = ("convex", "one-hot", "uniform")  # kinds of weights that have an entropy


class FormulaRoom:
    """Computes what the page does not compute itself, by the library: nothing is defined a second time."""

    operations: ClassVar[Mapping[str, type[Asked]]] = {"weigh": Picture, "python": Formula}

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def weigh(self, asked: Picture) -> dict[str, Any]:
        """The weights of the query, its output, and the outputs of a grid of queries; `field` is None without one."""
        keys, values, queries = (_points(each) for each in (asked.keys, asked.values, [asked.query]))
        view = weigh(queries, keys, values, **_chosen(asked, queries, keys))
        return {
            "weights": view.dense()[0].tolist(),
            "output": view.output[0].tolist(),
            "entropy": view.entropy().item() if view.kind in SUMMING_TO_1 else None,
            "kind": view.kind,
            "field": None if asked.field is None else _field(asked, _points(asked.field.queries()), keys, values),
        }

    def python(self, asked: Formula) -> dict[str, Any]:
        """The lines of Python that compute the output of the query."""
        return {"python": lines(asked)}


def _points(given: list[list[float]]) -> Tensor:
    return torch.tensor(given, dtype=torch.float64)


def _chosen(asked: Formula, queries: Tensor, keys: Tensor) -> dict[str, Any]:
    """The score, the rule and the mask, as `attend` takes them."""
    mask = Allowed(_allowed(asked, queries, keys)) if asked.is_masked else None
    return {"score": asked.scored().made(), "weights": asked.ruled().made(), "mask": mask}


def _allowed(asked: Formula, queries: Tensor, keys: Tensor) -> Tensor:
    """Which keys each query may attend to, `(n_queries, n_keys)`."""
    on = torch.tensor(asked.on)
    if asked.mask == "left":
        return on & (keys[:, 0] <= queries[:, :1])
    if asked.mask == "nearest":
        distances = (queries[:, None] - keys).square().sum(-1).masked_fill(~on, torch.inf)
        return on & (distances.argsort(stable=True).argsort() < asked.nearest)
    return on.expand(len(queries), -1)


def _field(asked: Formula, queries: Tensor, keys: Tensor, values: Tensor) -> list[list[float]]:
    """The output of each query, NaN where the rule refuses its scores."""
    found = torch.full((len(queries), values.shape[-1]), torch.nan, dtype=torch.float64)
    rows = _answered(asked, queries, keys)
    if rows.any():
        found[rows] = attend(queries[rows], keys, values, **_chosen(asked, queries[rows], keys))
    return found.tolist()


def _answered(asked: Formula, queries: Tensor, keys: Tensor) -> Tensor:
    """Which queries of a grid the rule answers: proportional weights refuse scores below 0.

    What is refused of the reader's own query is an error with the library's words; of a grid it is a blank.
    """
    rule, score = asked.ruled().made(), asked.scored().made()
    everyone = torch.ones(len(queries), dtype=torch.bool)
    if not isinstance(rule, Proportional):
        return everyone
    try:
        rule.check_score(score)
    except ScoreError:
        return ~everyone
    scores: Tensor = score(queries, keys)
    return ((scores >= 0) | ~_allowed(asked, queries, keys)).all(-1)
