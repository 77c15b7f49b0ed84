"""Claims about how well hidden rows are predicted by widths of any kind."""

from __future__ import annotations

import math

import pytest
import torch

from regard import Database
from regard.database.database import rows_of
from regard.database.hidden_rows import HiddenRows


def hidden(keys: dict[str, list[object]], values: list[object]) -> HiddenRows:
    return HiddenRows(rows_of(Database(keys, values), range(len(keys))))


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


@pytest.mark.parametrize("count", [20, 400, 600])
def test_the_narrowest_width_is_the_nearest_row_or_too_narrow_to_be_weighed(count: int) -> None:
    x = [float(i**2) for i in range(count)]  # the nearest is the one before, but for the first row
    values = [float((i * 37) % 11) for i in range(count)]
    nearest = math.sqrt(sum((values[i] - values[abs(i - 1)]) ** 2 for i in range(count)) / count)
    found = hidden({"x": x}, values).errors([[0.01], [5e-324], [1e-160], [1e-12], [1e308], [0.02]])
    assert [found[0], found[-1]] == pytest.approx([nearest] * 2, rel=1e-5)
    assert all(math.isnan(error) for error in found[1:3])
    assert math.isnan(found[3]) or found[3] == pytest.approx(nearest, rel=1e-5)
    others = [sum(values[:i] + values[i + 1 :]) / (count - 1) for i in range(count)]
    alike = math.sqrt(sum((value - guess) ** 2 for value, guess in zip(values, others, strict=True)) / count)
    assert found[4] == pytest.approx(alike, rel=1e-5)


@pytest.mark.parametrize("values", [[1.0], ["a", "b", "c", "d"]])
def test_what_cannot_be_predicted_has_no_error(values: list[object]) -> None:
    rows = hidden({"x": [float(i) for i in range(len(values))]}, values)
    assert rows.n_hidden == 0
    assert all(map(math.isnan, rows.errors([[1.0], [2.0]])))
