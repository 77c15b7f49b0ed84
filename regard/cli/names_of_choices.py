"""Scores and rules by their names on the command line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import typer

from regard.errors import RegardError

# The name on the command line -> the class, and whether its parameter may, must or cannot be given.
SCORES = {
    "gaussian": ("Gaussian", "must"),
    "laplacian": ("Laplacian", "must"),
    "boxcar": ("Boxcar", "must"),
    "epanechnikov": ("Epanechnikov", "must"),
    "triangular": ("Triangular", "must"),
    "equal": ("Equal", "cannot"),
    "dot": ("Dot", "cannot"),
    "scaled-dot": ("ScaledDot", "may"),
    "cosine": ("Cosine", "may"),
}
RULES = {
    "softmax": ("Softmax", "may"),
    "proportional": ("Proportional", "cannot"),
    "one-hot": ("OneHot", "cannot"),
    "uniform": ("Uniform", "cannot"),
    "sparsemax": ("Sparsemax", "cannot"),
    "entmax": ("Entmax", "may"),
    "top-k": ("TopK", "must"),
    "conic": ("Conic", "cannot"),
    "raw": ("Raw", "cannot"),
    "sigmoid": ("Sigmoid", "cannot"),
}


def named_score(texts: Sequence[str]) -> Any:
    """A score, or a dict of scores by column."""
    if len(texts) == 1 and "=" not in texts[0]:
        return _named(texts[0], SCORES, "--score")
    scores: dict[str, Any] = {}
    for text in texts:
        column, equals, name = text.rpartition("=")
        if not equals:
            raise typer.BadParameter(
                f"several --score must each name their column: got {text!r}. Write it as COLUMN={text}."
            )
        if column in scores:
            raise typer.BadParameter(f"a column must have one --score: got two for {column!r}. Leave out one of them.")
        scores[column] = _named(name, SCORES, "--score")
    return scores


def named_rule(text: str) -> Any:
    """A weights rule."""
    return _named(text, RULES, "--weights")


def _named(text: str, known: dict[str, tuple[str, str]], option: str) -> Any:
    """The score or rule that `text` names: NAME or NAME:NUMBER."""
    import regard

    name, _, parameter = text.strip().partition(":")
    plain = {spelling.replace("-", ""): spelling for spelling in known}
    spelling = plain.get(name.casefold().replace("-", "").replace("_", ""))
    if spelling is None:
        raise typer.BadParameter(f"{option} must be one of {', '.join(known)}: got {name!r}. {_nearest(name, known)}")
    class_name, takes = known[spelling]
    made = getattr(regard, class_name)
    example = f"{spelling}:{5 if spelling == 'top-k' else 0.5}"
    if takes == "cannot" and parameter:
        raise typer.BadParameter(f"{option} {spelling} must stand without a number: got {text!r}. Write {spelling}.")
    if takes == "must" and not parameter:
        raise typer.BadParameter(f"{option} {spelling} must have a number: got {text!r}. Write it as {example}.")
    if not parameter:
        return made()
    try:
        number = int(parameter) if spelling == "top-k" else float(parameter)
    except ValueError:
        raise typer.BadParameter(
            f"{option} {spelling} must have a {'whole ' * (spelling == 'top-k')}number after the colon: "
            f"got {parameter!r}. Write it as {example}."
        ) from None
    try:
        return made(number)
    except RegardError as error:
        raise typer.BadParameter(f"{option} {text}: {error}") from error


def _nearest(name: str, known: dict[str, tuple[str, str]]) -> str:
    import difflib

    near = difflib.get_close_matches(name.casefold(), known, n=1)
    return f"Did you mean {near[0]!r}?" if near else "Choose one of those."
