"""Claims about how well hidden rows are predicted by widths of any kind."""

from __future__ import annotations

import math

import pytest
import torch

from regard import Database
from regard.database.hidden_rows import HiddenRows


def hidden(keys: dict[str, list[object]], values: list[object]) -> HiddenRows:
    return HiddenRows(Database(keys, values)._attender.rows(range(len(keys))))


def test_of_categories_alone_what_differs_weighs_nothing_unless_it_is_told_to() -> None:
    rows = hidden({"kind": ["a", "a", "b", "b"]}, [1.0, 3.0, 10.0, 14.0])
    assert (rows.best, rows.method) == ([0.0], "equality")
    # Each is predicted by the other of its kind; by all three alike where kinds are ignored.
    assert rows.errors([[0.0]])[0] == pytest.approx(math.sqrt((4 + 4 + 16 + 16) / 4))
    alike = [(1.0, (3 + 10 + 14) / 3), (3.0, 25 / 3), (10.0, 6.0), (14.0, 14 / 3)]
    expected = math.sqrt(sum((value - guess) ** 2 for value, guess in alike) / 4)
    assert rows.errors([[1.0], [None]]) == pytest.approx([expected, expected])


def test_the_best_widths_are_in_the_columns_own_units() -> None:
    x = torch.linspace(0, 5000, 80, dtype=torch.float64)
    rows = hidden({"x": x.tolist(), "noise": [0, 1] * 40}, (x / 500).sin().tolist())
    (width, noise), answer = rows.best, Database({"x": x.tolist()}, (x / 500).sin().tolist()).attend(2500.0)
    assert noise is None
    assert f"Gaussian(bandwidth={width:.3g})" in answer.similarity
    assert rows.errors([[width, None]])[0] < 1.01 * min(rows.errors([[width * by, None] for by in (0.1, 0.5, 2, 10)]))


def test_vectors_are_missed_by_so_many_standard_deviations() -> None:
    x = [float(i) for i in range(20)]
    small, large = (hidden({"x": x}, (torch.rand(20, 3).double() * size).tolist()) for size in (1.0, 1000.0))
    assert small.measure == "in standard deviations"
    assert 0.5 < small.errors([[100.0]])[0] < 1.5
    assert 0.5 < large.errors([[100.0]])[0] < 1.5


@pytest.mark.parametrize("values", [[1.0], ["a", "b", "c", "d"]])
def test_what_cannot_be_predicted_has_no_error(values: list[object]) -> None:
    rows = hidden({"x": [float(i) for i in range(len(values))]}, values)
    assert rows.n_hidden == 0
    assert all(map(math.isnan, rows.errors([[1.0], [2.0]])))
