"""Which rows are like the query? The score and the weights that a question is answered with, and the words for them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch

from regard.database.bandwidth import Choice, Widths, mixed_score
from regard.database.columns import Quantity, names
from regard.database.encoding import Encoding
from regard.database.tables import check_names
from regard.errors import OptionError
from regard.scores import Boxcar, Custom, Epanechnikov, Equal, Gaussian, OnColumns, Scaled, Score, Sum, Triangular
from regard.weights import Proportional, Softmax, Weights

KERNELS = (Boxcar, Epanechnikov, Triangular, Equal)
"""Scores that are kernels already: never negative, and 0 for what is not similar at all."""

TOO_FAR = 6.0
"""How many bandwidths away, beyond what rows typically find, the nearest row is no longer called similar."""


@dataclass(frozen=True)
class Similarity:
    """How a question is answered.

    Args:
        score, weights: what `attend` is given.
        scaled: whether keys and queries are in standard deviations or in their own units.
        text: the same in words, for the answer.
        floor: rows are similar only if the best score is above this.
    """

    score: Score
    weights: Weights
    scaled: bool
    text: str
    floor: float = -math.inf


ScoreLike = Score | Mapping[str, Score] | None


def similarity(
    encoding: Encoding, asked: Sequence[int], score: ScoreLike, weights: Weights | None, choice: Callable[[], Choice]
) -> Similarity:
    """The similarity for queries that know the columns `asked`.

    Args:
        encoding: the keys.
        asked: the places of the key columns that the query says something about.
        score: None for the default; a score of the quantities together; or one for each column by name.
        weights: None for the rule that goes with the score.
        choice: the bandwidth that the data chose, found when first needed.
    """
    _check(score, weights, encoding)
    quantities = [place for place in asked if isinstance(encoding.columns[place], Quantity)]
    categories = [place for place in asked if place not in quantities]
    if isinstance(score, Mapping):
        return _by_column(encoding, quantities, categories, score, weights, choice)
    if score is not None:
        return _given(encoding, quantities, categories, score, weights, choice)
    if quantities:
        return _chosen(encoding, quantities, categories, weights, choice())
    return _finished(encoding, [(Equal(), categories, "Equal()")], weights, scaled=False)


Part = tuple[Score, list[int], str]
"""A score, the columns that it sees, and its description."""


def _chosen(
    encoding: Encoding, quantities: list[int], categories: list[int], weights: Weights | None, choice: Choice
) -> Similarity:
    """The default: a Gaussian for each quantity, a soft equality for each category."""
    widths = Widths(
        tuple(_width_of(encoding, place, choice) for place in quantities),
        tuple(_width_of(encoding, place, choice) for place in categories),
    )
    rule = weights or Softmax()
    text = [_default_text(encoding, place, choice) for place in [*quantities, *categories]]
    text[len(quantities) - 1] += f", by {choice.method}"
    best_possible = sum(-math.log(mismatch) for mismatch in widths.mismatches)
    floor = best_possible - TOO_FAR**2 / 2 + choice.typical
    score = mixed_score(encoding.places_of(quantities, categories), widths).to(encoding.dtype)
    return Similarity(score, rule, True, _sentence(text, rule), floor if _ranks(rule) else -math.inf)


def _given(
    encoding: Encoding,
    quantities: list[int],
    categories: list[int],
    score: Score,
    weights: Weights | None,
    choice: Callable[[], Choice],
) -> Similarity:
    """A score of the quantities together; categories keep their soft equality."""
    if not quantities:
        _check_compares_codes(encoding, categories, score)
        return _finished(encoding, [(score, categories, _score_text(score))], weights, scaled=False)
    # One column is compared in its own units; several have no unit in common but the standard deviation.
    scaled = len(quantities) > 1
    text = _score_text(score) + (" in standard deviations" if scaled else "")
    parts: list[Part] = [(score, quantities, text)]
    parts += [_soft_equality(encoding, place, choice()) for place in categories]
    return _finished(encoding, parts, weights, scaled=scaled)


def _by_column(
    encoding: Encoding,
    quantities: list[int],
    categories: list[int],
    scores: Mapping[str, Score],
    weights: Weights | None,
    choice: Callable[[], Choice],
) -> Similarity:
    """A score for each column named, in the column's own units; the others keep their default."""
    parts: list[Part] = []
    left: list[int] = []
    for place in [*quantities, *categories]:
        name = encoding.columns[place].name
        if name in scores:
            if place in categories:
                _check_compares_codes(encoding, [place], scores[name])
            parts.append((scores[name], [place], _score_text(scores[name])))
        else:
            left.append(place)
    for place in left:
        if place in quantities:
            own = _width_of(encoding, place, choice()) * float(encoding.scale[encoding.coordinates[place][0]])
            parts.append((Gaussian(own), [place], _default_text(encoding, place, choice()).partition(": ")[2]))
        elif quantities:
            parts.append(_soft_equality(encoding, place, choice()))
    if not quantities and left:
        parts.append((Equal(), left, "Equal()"))
    return _finished(encoding, parts, weights, scaled=False)


def _soft_equality(encoding: Encoding, place: int, choice: Choice) -> Part:
    mismatch = _width_of(encoding, place, choice)
    return -math.log(mismatch) * Equal(), [place], _default_text(encoding, place, choice).partition(": ")[2]


def _width_of(encoding: Encoding, place: int, choice: Choice) -> float:
    """The bandwidth of a quantity, or the mismatch of a category, that the data chose."""
    same_kind = [
        each
        for each, column in enumerate(encoding.columns)
        if isinstance(column, Quantity) == isinstance(encoding.columns[place], Quantity)
    ]
    quantity = isinstance(encoding.columns[place], Quantity)
    return (choice.widths.bandwidths if quantity else choice.widths.mismatches)[same_kind.index(place)]


def _finished(encoding: Encoding, parts: list[Part], weights: Weights | None, *, scaled: bool) -> Similarity:
    """The parts as one score. Scores add; a kernel among several enters by its logarithm, so that kernels multiply."""
    alone = len(parts) == 1
    is_kernel = alone and isinstance(parts[0][0], KERNELS)
    scores = []
    for score, columns, _ in parts:
        part = logarithm(score) if isinstance(score, KERNELS) and not alone else score
        places = encoding.places(columns)
        scores.append(part if places == list(range(encoding.dim)) else part.on(places))
    rule = weights or (Proportional() if is_kernel else Softmax())
    text = [f"{_joined(encoding, columns)}: {description}" for _, columns, description in parts]
    floor = 0.0 if is_kernel and _ranks(rule) else -math.inf
    return Similarity(scores[0] if alone else Sum(*scores), rule, scaled, _sentence(text, rule), floor)


def logarithm(kernel: Score) -> Score:
    """log a(q, k): −inf, which means "not allowed", where the kernel is 0."""

    def log_kernel(queries: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = kernel(queries, keys)
        return scores.log()

    return Custom(log_kernel)


def _check_compares_codes(encoding: Encoding, categories: list[int], score: Score) -> None:
    if not isinstance(score, Equal | Custom | OnColumns | Scaled | Sum):
        raise OptionError(
            f"`score` over columns without a distance ({_joined(encoding, categories)}) must be Equal(), or a "
            f"Custom that compares codes: got {score}. Leave `score` out to ask by equality."
        )


def _ranks(rule: Weights) -> bool:
    """Whether the heaviest row is the one with the best score."""
    return rule.kind not in ("uniform", "linear")


def _check(score: ScoreLike, weights: Weights | None, encoding: Encoding) -> None:
    if isinstance(score, Mapping):
        check_names([str(name) for name in score], names(encoding.columns))
        wrong = [(name, each) for name, each in score.items() if not isinstance(each, Score)]
        if wrong:
            name, each = wrong[0]
            raise OptionError(f"`score[{name!r}]` must be a score such as Gaussian(0.1): got {each!r}.")
    elif score is not None and not isinstance(score, Score):
        raise OptionError(f"`score` must be a score such as Gaussian(0.1), or a dict of them by column: got {score!r}.")
    if weights is not None and not isinstance(weights, Weights):
        raise OptionError(f"`weights` must be a rule such as Softmax() or OneHot(): got {weights!r}.")


def _joined(encoding: Encoding, places: Sequence[int]) -> str:
    return ", ".join(encoding.columns[place].name for place in places)


def _default_text(encoding: Encoding, place: int, choice: Choice) -> str:
    """The default score of one column, in words that could be typed back in: bandwidths in the column's own units."""
    column, width = encoding.columns[place], _width_of(encoding, place, choice)
    if isinstance(column, Quantity):
        own = width * float(encoding.scale[encoding.coordinates[place][0]])
        return f"{column.name}: Gaussian(bandwidth={own:.3g}{' ' * bool(column.unit)}{column.unit})"
    return f"{column.name}: " + ("ignored" if width == 1.0 else f"equality, a mismatch weighs {width:g}")


def _score_text(score: Score) -> str:
    return " ".join(str(score).split())


def _sentence(parts: Sequence[str], rule: Weights) -> str:
    return " · ".join([*parts, " ".join(str(rule).split())])
