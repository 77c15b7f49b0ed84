"""Claims about one query to many rows: its weights are the definition's, and of equal rows the first are listed."""

from __future__ import annotations

import pytest
import torch

from regard import Database, Equal, Gaussian
from regard.database import near_rows as module
from regard.database.near_rows import heaviest, near_rows
from regard.database.precision import Factors

N_ROWS = 2**16 + 11


@pytest.fixture(scope="module")
def table() -> dict[str, list[float]]:
    generator = torch.Generator().manual_seed(3)
    x, y = torch.rand(2, N_ROWS, generator=generator, dtype=torch.float64)
    kind = torch.randint(3, (N_ROWS,), generator=generator)
    return {"x": x.tolist(), "y": (x + y).tolist(), "kind": [str(each) for each in kind.tolist()]}


@pytest.mark.parametrize("bandwidth", [1e-4, 0.1, 10.0])
def test_one_query_to_many_rows_is_the_definition(table: dict[str, list[float]], bandwidth: float) -> None:
    answer = Database(table["x"], table["y"]).attend(0.3, score=Gaussian(bandwidth), top=4)
    keys, values = (torch.tensor(table[name], dtype=torch.float64) for name in "xy")
    weights = (-(keys - 0.3).square() / (2 * bandwidth**2)).softmax(0)
    mean = float(weights @ values)
    assert answer.value == pytest.approx(mean, rel=1e-12)
    assert answer.std == pytest.approx(float(weights @ (values - mean).square()) ** 0.5, rel=1e-9)
    assert answer.effective_rows == pytest.approx(1 / float(weights.square().sum()), rel=1e-9)
    # Those that weigh the same to five digits come in the order of the table.
    assert sorted(row.index for row in answer.rows) == sorted(weights.topk(4).indices.tolist())
    assert sorted(answer.weights.tolist(), reverse=True) == pytest.approx(weights.topk(4).values.tolist(), rel=1e-9)


def test_a_mismatch_weighs_what_its_equality_says(table: dict[str, list[float]]) -> None:
    keys = torch.stack([torch.tensor(table["x"]).double(), torch.tensor(list(map(float, table["kind"]))).double()], 1)
    score = Gaussian(0.5).on([0]) + 2.0 * Equal().on([1])
    factors = Factors.of(score, Database([1.0], [1.0])._attender._similar((0,), None, None)[1].weights, 2)
    assert factors is not None
    query = torch.tensor([[0.5, 1.0]], dtype=torch.float64)
    found = near_rows(query[0], keys, factors)
    assert found is not None
    rows, weights = found
    expected = score(query, keys).softmax(-1).flatten()
    torch.testing.assert_close(weights, expected[rows], rtol=1e-10, atol=0)
    assert float(weights.sum()) == pytest.approx(1)


def test_rows_that_are_far_are_left_out() -> None:
    keys = torch.linspace(0, 1, 1000, dtype=torch.float64).unsqueeze(-1)
    factors = Factors(torch.tensor([1e6], dtype=torch.float64), torch.zeros(1, dtype=torch.float64))
    found = near_rows(torch.tensor([0.5], dtype=torch.float64), keys, factors)
    assert found is not None
    assert 0 < len(found[0]) < 30


def test_scores_that_are_no_numbers_are_left_to_others() -> None:
    keys = torch.tensor([[1e300], [-1e300]], dtype=torch.float64)
    factors = Factors(torch.ones(1, dtype=torch.float64), torch.zeros(1, dtype=torch.float64))
    assert near_rows(torch.zeros(1, dtype=torch.float64), keys, factors) is None


def test_of_rows_that_weigh_the_same_the_first_are_listed() -> None:
    top = heaviest(torch.arange(6), torch.tensor([0.1, 0.2, 0.2, 0.1, 0.2, 0.2]), 3, 6)
    assert top.indices.tolist() == [[1, 2, 4]]


def test_rows_without_weight_are_none() -> None:
    top = heaviest(torch.tensor([4, 7]), torch.tensor([0.25, 0.75]), 4, 9)
    assert top.indices.tolist() == [[7, 4, -1, -1]]
    assert top.weights.tolist() == [[0.75, 0.25, 0.0, 0.0]]


def test_many_rows_with_one_query_go_this_way(table: dict[str, list[float]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FARTHEST", 0.0)  # the best row alone
    assert Database(table["x"], table["y"]).attend(0.3, score=Gaussian(1.0)).effective_rows == 1


def test_categories_are_pooled_over_the_same_rows(table: dict[str, list[float]]) -> None:
    answer = Database(table["x"], table["kind"]).attend(0.3, score=Gaussian(0.05))
    keys = torch.tensor(table["x"], dtype=torch.float64)
    weights = (-(keys - 0.3).square() / (2 * 0.05**2)).softmax(0)
    for kind, share in answer.probabilities.items():
        among = torch.tensor([each == kind for each in table["kind"]])
        assert share == pytest.approx(float(weights[among].sum()), rel=1e-9)
