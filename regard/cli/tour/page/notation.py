"""Formulas as MathML, written on a line in the documents' letters."""

from __future__ import annotations

import re
from xml.etree.ElementTree import Element, tostring

TOKEN = re.compile(r"\s*([A-Za-z]+|\d[\d.,]*\d|\d|“[^”]*”|\S)")
NAMED = re.compile(r"[A-Za-zα-ωΑ-ΡΤ-Ω∂ℝ]+\Z")
TALL = {"Σ": "∑"}
TRANSPOSED = "⊤"


def mathml(line: str, display: bool = False) -> str:
    """A formula as markup.

    Letters and numbers stand for themselves, `_` and `^` lower and raise what follows, braces hold together,
    `frac{…}{…}` and `sqrt{…}` draw, Σ is a sum with its limits, ^⊤ transposes, and “…” is text.

    Example:
        >>> mathml("a_i = frac{1}{2}")
        '<math><msub><mi>a</mi><mi>i</mi></msub><mo>=</mo><mfrac><mn>1</mn><mn>2</mn></mfrac></math>'
    """
    tokens = TOKEN.findall(line)[::-1]
    root = Element("math", {"display": "block"} if display else {})
    root.extend(_until(tokens, None))
    return tostring(root, encoding="unicode")


def _until(tokens: list[str], end: str | None) -> list[Element]:
    found = []
    while tokens and tokens[-1] != end:
        found.append(_with_scripts(tokens))
    if end is not None:
        tokens.pop()
    return found


def _with_scripts(tokens: list[str]) -> Element:
    base, scripts = _atom(tokens), {}
    while tokens and tokens[-1] in "_^":
        sign = tokens.pop()
        scripts[sign] = _atom(tokens)
    if not scripts:
        return base
    below, above = ("munder", "mover") if base.text in TALL.values() else ("msub", "msup")
    both = "munderover" if base.text in TALL.values() else "msubsup"
    held = Element(both if len(scripts) == 2 else below if "_" in scripts else above)
    held.extend([base, *(scripts[sign] for sign in "_^" if sign in scripts)])
    return held


def _atom(tokens: list[str]) -> Element:
    token = tokens.pop()
    if token == "{":
        parts = _until(tokens, "}")
        return parts[0] if len(parts) == 1 else _holding("mrow", parts)
    if token == "frac":
        return _holding("mfrac", [_atom(tokens), _atom(tokens)])
    if token == "sqrt":
        return _holding("msqrt", [_atom(tokens)])
    if token in TALL:
        return _leaf("mo", TALL[token])
    if token.startswith("“"):
        return _leaf("mtext", token[1:-1])
    if token == TRANSPOSED:
        upright = _leaf("mi", "T")
        upright.set("mathvariant", "normal")
        return upright
    if token[0].isdigit():
        return _leaf("mn", token)
    return _leaf("mi" if NAMED.match(token) else "mo", token)


def _holding(name: str, parts: list[Element]) -> Element:
    element = Element(name)
    element.extend(parts)
    return element


def _leaf(name: str, text: str) -> Element:
    # A bar or a bracket stretches to what it holds; the others keep their size.
    element = Element(name, {"stretchy": "false"} if text in "()[]|" else {})
    element.text = text
    return element
