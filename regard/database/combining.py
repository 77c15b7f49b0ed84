"""Scores of columns as one score: scores add, and kernels multiply."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce

import torch

from regard.database.key_matrix import Encoding
from regard.errors import ScoreError
from regard.scores import Custom, Equal, OnColumns, Scaled, Score, Sum
from regard.weights import Conic, Proportional, Softmax, TopK, Weights

TOO_FAR = 6.0
"""How many bandwidths away, in every coordinate, the nearest row is no longer called similar."""


@dataclass(frozen=True)
class Part:
    """A score of some columns.

    Args:
        score: what is added.
        columns: the key columns that it sees.
        text: its description.
        kernel: the same as a kernel, to be multiplied: never negative, 0 for what is not similar at all. None if it
            is none.
    """

    score: Score
    columns: list[int]
    text: str
    kernel: Score | None = None


@dataclass(frozen=True)
class Similarity:
    """The score and the rule that answer a query.

    Args:
        score, weights: what `attend` is given.
        scaled: whether keys and queries are in standard deviations or in their own units.
        parts: the score of each column in words, for the answer.
        floor: rows are similar only if the best score is above this.
        compared: the key columns that count: those that the query knows and that are not ignored.
        usual: whether score and rule are the database's own choice: Gaussians and equalities, under Softmax.
    """

    score: Score
    weights: Weights
    scaled: bool
    parts: tuple[str, ...]
    floor: float = -math.inf
    compared: tuple[int, ...] = ()
    usual: bool = False

    @cached_property
    def text(self) -> str:
        """The score and the rule, as text."""
        return " · ".join([*self.parts, words(self.weights)])


def part(score: Score, columns: list[int], text: str) -> Part:
    """A score of some columns, as a user gave it."""
    return Part(score, columns, text, score if is_kernel(score) else None)


def soft_equality(mismatch: float, columns: list[int], text: str) -> Part:
    """An equality in which a row that differs weighs `mismatch` of one that does not."""

    def kernel(queries: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
        equal: torch.Tensor = Equal()(queries, keys)
        return mismatch + (1 - mismatch) * equal

    return Part(-math.log(mismatch) * Equal(), columns, text, Custom(kernel))


def combined(encoding: Encoding, parts: Sequence[Part], weights: Weights | None, *, scaled: bool) -> Similarity:
    """The parts as one score.

    Scores add. Kernels multiply: under a rule that takes exponentials their logarithms add, under any other rule they
    are multiplied as they are.
    """
    alone = len(parts) == 1
    kernels = [each.kernel for each in parts if each.kernel is not None]
    rule = weights or (Proportional() if alone and kernels else Softmax())
    for each in parts:
        if not (each.kernel and len(kernels) == len(parts)):
            check_signs(rule, each.score, each.text)
    places = [encoding.places(each.columns) for each in parts]
    floor = -math.inf
    if alone:
        score = _seeing(parts[0].score, places[0], encoding)
        floor = 0.0 if kernels else _floor(parts, places)
    elif len(kernels) == len(parts) and not _takes_exponentials(rule):
        score = product([_seeing(kernel, each, encoding) for kernel, each in zip(kernels, places, strict=True)])
        floor = 0.0
    else:
        terms = [logarithm(each.score) if is_kernel(each.score) else each.score for each in parts]
        score = Sum(*(_seeing(term, each, encoding) for term, each in zip(terms, places, strict=True)))
        floor = _floor(parts, places)
    text = tuple(f"{joined(encoding, each.columns)}: {each.text}" for each in parts)
    return Similarity(score, rule, scaled, text, floor if ranks(rule) else -math.inf)


def _seeing(score: Score, places: list[int], encoding: Encoding) -> Score:
    return score if places == list(range(encoding.dim)) else score.on(places)


def is_kernel(score: Score) -> bool:
    """Whether a score is never negative, and 0 for what is not similar at all."""
    return is_kernel(score.score) if isinstance(score, OnColumns) else score.is_kernel


def logarithm(kernel: Score) -> Score:
    """log a(q, k): −inf, which means "not allowed", where the kernel is 0."""

    def log_kernel(queries: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = kernel(queries, keys)
        return scores.log()

    return Custom(log_kernel)


def product(kernels: Sequence[Score]) -> Score:
    """a₁(q, k) · a₂(q, k) · …"""
    factors: list[Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = list(kernels)
    return Custom(lambda queries, keys: reduce(torch.mul, [factor(queries, keys) for factor in factors]))


def check_signs(rule: Weights, score: Score, text: str) -> None:
    """Raise where a rule takes scores as weights, and the scores are logarithms: never positive."""
    inner = rule.then if isinstance(rule, TopK) else rule
    if isinstance(inner, Proportional | Conic) and _log_kernel_in(score):
        raise ScoreError(
            f"{words(rule)} must have scores that are not negative, since they are the weights: got {text}, the "
            f"logarithm of a kernel. Use Softmax(), which takes its exponential, or pass a kernel such as "
            f"score=Boxcar(radius)."
        )


def _takes_exponentials(rule: Weights) -> bool:
    return isinstance(rule.then if isinstance(rule, TopK) else rule, Softmax)


def _floor(parts: Sequence[Part], places: Sequence[list[int]]) -> float:
    """The score of rows that are too far away; −inf where nothing says what is far."""
    best = [0.0 if is_kernel(each.score) else _best(each.score) for each in parts]
    reach = [len(each) for each, part in zip(places, parts, strict=True) if _log_kernel_in(part.score)]
    if not reach or None in best:
        return -math.inf
    return sum(each for each in best if each is not None) - sum(reach) * TOO_FAR**2 / 2


def _best(score: Score) -> float | None:
    """The score of a query with itself, where that is known."""
    if score.is_log_kernel:
        return 0.0
    if isinstance(score, OnColumns):
        return _best(score.score)
    if isinstance(score, Scaled):
        inner = _best(score.score)
        return None if inner is None or score.factor < 0 else inner * score.factor
    if isinstance(score, Sum):
        inners = [_best(each) for each in score.scores if isinstance(each, Score)]
        return None if None in inners else sum(each for each in inners if each is not None)
    return 1.0 if is_kernel(score) else None


def _log_kernel_in(score: Score) -> bool:
    if isinstance(score, OnColumns | Scaled):
        return _log_kernel_in(score.score)
    if isinstance(score, Sum):
        return any(_log_kernel_in(each) for each in score.scores if isinstance(each, Score))
    return score.is_log_kernel


def ranks(rule: Weights) -> bool:
    """Whether the heaviest row is the one with the best score."""
    return rule.kind not in ("uniform", "linear")


def joined(encoding: Encoding, places: Sequence[int]) -> str:
    """The names of some columns."""
    return ", ".join(encoding.columns[place].name for place in places)


def words(module: Score | Weights) -> str:
    """A score or a rule on one line."""
    if isinstance(module, Scaled):
        return f"{module.factor:.4g} * {words(module.score)}"
    return " ".join(str(module).split())
