"""Claims about the small drawing that a view's repr has."""

from __future__ import annotations

import pytest
import torch

from regard import weigh


def drawn(n_queries: int, n_keys: int) -> tuple[list[str], str]:
    """The lines of weights in a repr, and the legend below them."""
    queries, keys = torch.rand(n_queries, 3), torch.rand(n_keys, 3)
    _, *lines, legend = repr(weigh(queries, keys, keys)).splitlines()
    return lines, legend


@pytest.mark.parametrize("n_queries", [1, 9, 12, 20])
def test_a_few_rows_are_drawn_each_in_its_own_line(n_queries: int) -> None:
    lines, legend = drawn(n_queries, 12)
    assert len(lines) == n_queries
    assert "largest of" not in legend


def test_more_rows_share_lines_and_the_legend_says_how_many_exactly() -> None:
    lines, legend = drawn(28, 60)
    assert len(lines) == 8
    assert "each the largest of about 3.5 × 1.5;" in legend
