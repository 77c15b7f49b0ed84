"""Claims about the small drawing that a view's repr has."""

from __future__ import annotations

import pytest
import torch

from regard import Dot, Raw, weigh


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


def test_the_legend_speaks_in_percents() -> None:
    keys = torch.tensor([[0.0], [1.0]])
    assert repr(weigh(torch.ones(1, 1), keys, keys, score=Dot())).endswith("; █ is 73.1%")


def test_a_weight_that_is_no_number_is_a_question_mark_and_hides_no_other() -> None:
    queries, keys = torch.tensor([[0.0], [float("nan")]]), torch.tensor([[0.0], [1.0]])
    first, second, legend = repr(weigh(queries, keys, keys)).splitlines()[1:]
    assert (first.strip(), second.strip()) == ("██", "??")
    assert legend.endswith("; █ is 50%, ? is no finite number")


def test_a_weight_below_0_is_drawn_as_0_and_the_legend_says_so() -> None:
    keys = torch.tensor([[-2.0], [0.5]])
    _, line, legend = repr(weigh(torch.ones(1, 1), keys, keys, score=Dot(), weights=Raw())).splitlines()
    assert line[2:] == " █"
    assert legend.endswith("; █ is 0.5, weights below 0 are drawn as 0")


def test_linear_weights_are_plain_numbers() -> None:
    keys = torch.tensor([[5.0], [0.5]])
    assert repr(weigh(torch.ones(1, 1), keys, keys, score=Dot(), weights=Raw())).endswith("columns are keys; █ is 5")


@pytest.mark.parametrize(("number", "said"), [(0.0, ""), (-2.0, "; weights below 0 are drawn as 0")])
def test_where_no_weight_is_above_0_the_legend_does_not_say_how_large_the_largest_is(number: float, said: str) -> None:
    keys = torch.tensor([[number], [number]])
    _, line, legend = repr(weigh(torch.ones(1, 1), keys, keys, score=Dot(), weights=Raw())).splitlines()
    assert not line.strip()
    assert legend.strip() == f"rows are queries, columns are keys{said}"


def test_weights_that_float32_cannot_hold_are_drawn():
    x = torch.randn(4, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    text = repr(weigh(x * 1e200, x * 1e100, x, weights=Raw()))
    assert "?" not in text
    assert "e+3" in text
