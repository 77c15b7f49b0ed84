"""Tests that several entries name."""

from __future__ import annotations


def contract(score: str, rule: str) -> str:
    """The cell of the contract for plain tiles."""
    return f"tests/contract/test_engines.py -k or_refuses and float32-tiled and {score} and {rule}"


def by_tiles(score: str, rule: str) -> str:
    """The cell of the contract for kernels."""
    return f"tests/contract/test_engines.py -k by_tiles and float32 and {score} and {rule}"
