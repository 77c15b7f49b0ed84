"""Claims about keys as one matrix."""

from __future__ import annotations

import pytest
import torch

from regard.database.key_matrix import Encoding
from regard.database.python_columns import columns_from


def encoding(keys: object) -> Encoding:
    columns = columns_from(keys, "key")
    return Encoding(columns, torch.arange(len(columns[0])))


def test_quantities_are_scaled_and_categories_are_codes() -> None:
    made = encoding({"x": [1.0, 3.0], "word": ["a", "b"], "v": [[0.0, 0.0], [0.0, 4.0]]})
    assert made.coordinates == [[0], [1], [2, 3]]
    assert made.own.tolist() == [[1.0, 0.0, 0.0, 0.0], [3.0, 1.0, 0.0, 4.0]]
    assert made.scaled[:, :2].tolist() == [[-1.0, 0.0], [1.0, 1.0]]


def test_the_coordinates_of_a_vector_share_one_scale() -> None:
    made = encoding([[0.0, 0.0], [0.0, 4.0]])
    assert made.scale[0] == made.scale[1]


def test_a_constant_is_only_centred() -> None:
    made = encoding({"x": [0.1, 0.1, 0.1], "y": [1e9, 1e9, 1e9]})
    assert made.scale.tolist() == [1.0, 1.0]
    assert made.scaled.abs().max() < 1e-6


def test_a_query_is_encoded_as_a_row_of_keys_would_be() -> None:
    made = encoding({"x": [1.0, 3.0], "word": ["a", "b"]})
    encoded = made.encode([[1.0, 3.0], ["a", "b"]], n_queries=2)
    assert torch.equal(encoded, made.own)
    assert torch.equal(made.in_deviations(encoded), made.scaled)


def test_what_no_row_has_is_minus_one() -> None:
    made = encoding({"x": [1.0, 3.0], "word": ["a", "b"]})
    assert made.encode([[2.0], ["zebra"]], n_queries=1).tolist() == [[2.0, -1.0]]


def test_vectors_in_float32_stay_in_float32_and_numbers_never_do() -> None:
    assert encoding(torch.ones(2, 3)).dtype == torch.float32
    assert encoding(torch.ones(2)).dtype == torch.float64
    assert encoding({"v": torch.ones(2, 3), "word": ["a", "b"]}).dtype == torch.float64


def test_only_the_rows_that_are_complete_are_there() -> None:
    columns = columns_from({"x": [1.0, None, 3.0]}, "key")
    assert Encoding(columns, torch.tensor([0, 2])).own.tolist() == [[1.0], [3.0]]


@pytest.mark.parametrize("step", [1.0, 1e-3, 1e-6])
def test_a_small_spread_far_from_zero_is_no_constant(step: float) -> None:
    made = encoding([1e6 + place * step for place in range(20)])
    assert made.scaled.std(correction=0) == pytest.approx(1.0)


@pytest.mark.parametrize("size", [1e-320, 1e-200, 1e200, 1.7e308])
def test_numbers_whose_squares_do_not_fit_are_scaled_all_the_same(size: float) -> None:
    made = encoding([[-size, 0.0], [size, 0.0]])
    assert made.scaled[:, 0].tolist() == pytest.approx([-(2**0.5), 2**0.5])
    assert torch.equal(made.in_deviations(made.encode([[(size, 0.0)]], n_queries=1)), made.scaled[1:])
