"""Which rows are similar to the query: the score and the rule that answer it, and how they are described."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from regard.database.bandwidth import Choice, Widths, mixed_score
from regard.database.column_names import check_names
from regard.database.columns import Column, Quantity, names
from regard.database.combining import (
    TOO_FAR,
    Part,
    Similarity,
    check_signs,
    combined,
    joined,
    part,
    ranks,
    soft_equality,
    words,
)
from regard.database.key_matrix import Encoding
from regard.errors import OptionError
from regard.scores import Custom, Equal, Gaussian, OnColumns, Scaled, Score, SoftCap, Sum, WithBias
from regard.weights import Softmax, Weights

FORGIVEN = 1e-6
"""What a mismatch weighs at least, where the question is whether any row is similar."""

IGNORED = "ignored, as it does not help"

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
    quantities = [place for place in asked if isinstance(encoding.columns[place], Quantity)]
    categories = [place for place in asked if place not in quantities]
    if isinstance(score, Mapping):
        return _by_column(encoding, quantities, categories, score, weights, choice)
    if score is not None:
        return _given(encoding, quantities, categories, score, weights, choice)
    if quantities:
        return _chosen(encoding, quantities, categories, weights, choice())
    return combined(encoding, [part(Equal(), categories, "Equal()")], weights, scaled=False)


def ignored(encoding: Encoding, score: ScoreLike, choice: Callable[[], Choice]) -> list[int]:
    """The places of the columns that the data chose not to compare; a column with a score of its own is none."""
    if not any(isinstance(column, Quantity) for column in encoding.columns):
        return []  # compared by equality, all of them
    given = score if isinstance(score, Mapping) else {}
    return [
        place
        for place, column in enumerate(encoding.columns)
        if column.name not in given and (not isinstance(score, Score) or not isinstance(column, Quantity))
        if _width_of(encoding, place, choice()) == (math.inf if isinstance(column, Quantity) else 1.0)
    ]


def without_quantities(encoding: Encoding, whole: Encoding, chosen: Similarity, choice: Choice) -> Similarity:
    """What was chosen for the columns of `whole`, for those of `encoding`: its categories, where no quantity counts."""
    columns = [whole.columns.index(column) for column in encoding.columns]
    widths = Widths((), tuple(_width_of(whole, place, choice) for place in columns))
    places = encoding.places_of([], range(len(columns)))
    return replace(chosen, score=mixed_score(places, widths, encoding.dim).to(encoding.dtype))


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
    if weights is not None:
        check_signs(weights, Gaussian(1.0), f"the default, {text[0]}")
    heard = [place for place, width in enumerate(widths.bandwidths) if width < math.inf] or [len(quantities) - 1]
    text[heard[-1]] += f", by {choice.method}" + _asked_of(encoding, choice)
    # Rows that differ in a category are still similar, however little they weigh beside rows that do not.
    best_possible = sum(-math.log(max(mismatch, FORGIVEN)) for mismatch in widths.mismatches)
    floor = best_possible - TOO_FAR**2 / 2 + choice.typical
    score = mixed_score(encoding.places_of(quantities, categories), widths, encoding.dim).to(encoding.dtype)
    return Similarity(score, rule, True, tuple(text), floor if ranks(rule) else -math.inf, usual=weights is None)


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
        return combined(encoding, [part(score, categories, words(score))], weights, scaled=False)
    # One column is compared in its own units; several have no unit in common but the standard deviation.
    scaled = len(quantities) > 1
    text = words(score) + (" in standard deviations" if scaled else "")
    parts: list[Part] = [part(score, quantities, text)]
    parts += [_soft_equality(encoding, place, choice()) for place in categories]
    return combined(encoding, parts, weights, scaled=scaled)


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
            parts.append(part(scores[name], [place], words(scores[name])))
        else:
            left.append(place)
    for place in left:
        if place in quantities:
            own = _width_of(encoding, place, choice()) * float(encoding.scale[encoding.coordinates[place][0]])
            # A column that is ignored adds the same to every row: nothing.
            score = Gaussian(own) if own < math.inf else 0.0 * Equal()
            parts.append(part(score, [place], _default_text(encoding, place, choice()).partition(": ")[2]))
        elif quantities:
            parts.append(_soft_equality(encoding, place, choice()))
    if not quantities and left:
        parts.append(part(Equal(), left, "Equal()"))
    return combined(encoding, parts, weights, scaled=False)


def _soft_equality(encoding: Encoding, place: int, choice: Choice) -> Part:
    text = _default_text(encoding, place, choice).partition(": ")[2]
    return soft_equality(_width_of(encoding, place, choice), [place], text)


def _width_of(encoding: Encoding, place: int, choice: Choice) -> float:
    """The bandwidth of a quantity, or the mismatch of a category, that the data chose."""
    same_kind = [
        each
        for each, column in enumerate(encoding.columns)
        if isinstance(column, Quantity) == isinstance(encoding.columns[place], Quantity)
    ]
    quantity = isinstance(encoding.columns[place], Quantity)
    return (choice.widths.bandwidths if quantity else choice.widths.mismatches)[same_kind.index(place)]


def _check_compares_codes(encoding: Encoding, categories: list[int], score: Score) -> None:
    if not _compares_codes(score):
        raise OptionError(
            f"`score` over columns without a distance ({joined(encoding, categories)}) must be Equal(), or a "
            f"Custom that compares codes: got {words(score)}. Leave `score` out to ask by equality."
        )


def _compares_codes(score: Score) -> bool:
    if isinstance(score, OnColumns | Scaled | SoftCap | WithBias):
        return _compares_codes(score.score)
    if isinstance(score, Sum):
        return all(_compares_codes(each) for each in score.scores if isinstance(each, Score))
    return isinstance(score, Equal | Custom)


def merged(default: ScoreLike, score: ScoreLike) -> ScoreLike:
    """The score that was asked for; the default's where it says nothing about a column."""
    if isinstance(default, Mapping) and isinstance(score, Mapping):
        return {**default, **score}
    return default if score is None else score


def check_options(score: ScoreLike, weights: Weights | None, columns: Sequence[Column]) -> None:
    """Raise unless `score` and `weights` are what they are called, for columns that are there."""
    if isinstance(score, Mapping):
        check_names([str(name) for name in score], names(columns), "`score` must name key columns")
        wrong = [(name, each) for name, each in score.items() if not isinstance(each, Score)]
        if wrong:
            name, each = wrong[0]
            raise OptionError(
                f"`score[{name!r}]` must be a score: got {each!r}. Pass one such as {{{name!r}: Gaussian(0.1)}}."
            )
    elif score is not None and not isinstance(score, Score):
        raise OptionError(
            f"`score` must be a score, or a dict of them by column: got {score!r}. Pass one such as Gaussian(0.1)."
        )
    if weights is not None and not isinstance(weights, Weights):
        raise OptionError(f"`weights` must be a rule: got {weights!r}. Pass one such as Softmax() or OneHot().")


def _asked_of(encoding: Encoding, choice: Choice) -> str:
    """On how many rows the choice rests, where it is not all of them."""
    return f" of {choice.asked:,} rows" if 0 < choice.asked < len(encoding.rows) else ""


def _default_text(encoding: Encoding, place: int, choice: Choice) -> str:
    """The default score of one column, in words that could be typed back in: bandwidths in the column's own units."""
    column, width = encoding.columns[place], _width_of(encoding, place, choice)
    if width == (math.inf if isinstance(column, Quantity) else 1.0):
        return f"{column.name}: {IGNORED}"
    if isinstance(column, Quantity):
        own = width * float(encoding.scale[encoding.coordinates[place][0]])
        return f"{column.name}: Gaussian(bandwidth={own:.3g}{' ' * bool(column.unit)}{column.unit})"
    return f"{column.name}: equality, a mismatch weighs {width:.3g}"
