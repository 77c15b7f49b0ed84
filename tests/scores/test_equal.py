"""Equal: 1 where every coordinate agrees."""

from __future__ import annotations

import pytest
import torch

from regard import Equal, Proportional, attend
from regard.errors import ShapeError


def test_the_score_is_one_where_every_coordinate_agrees(by_pairs):
    generator = torch.Generator().manual_seed(0)
    q = torch.randint(0, 2, (2, 4, 3), generator=generator).double()
    k = torch.randint(0, 2, (6, 3), generator=generator).double()
    expected = by_pairs(lambda q, k, _: float(q == k), q, k)
    assert 0 < expected.mean() < 1
    assert torch.equal(Equal()(q, k), expected)


def test_proportional_averages_the_pairs_whose_key_is_the_query():
    keys, values = torch.tensor([[1.0], [2.0], [1.0]]), torch.tensor([[10.0], [20.0], [30.0]])
    output = attend(torch.tensor([[1.0], [2.0], [3.0]]), keys, values, score=Equal(), weights=Proportional())
    assert output.tolist() == [[20.0], [20.0], [0.0]]


def test_vectors_of_different_dims_are_refused():
    with pytest.raises(ShapeError, match=r"Equal\(\) must have queries and keys of the same dim"):
        attend(torch.ones(2, 3), torch.ones(4, 5), torch.ones(4, 1), score=Equal())
