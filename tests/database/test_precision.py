"""Claims about float32: many rows are weighed in it where it is exact enough, and there alone."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
import torch
from torch import Tensor

from regard import Custom, Database, Gaussian, Laplacian, Softmax, Sparsemax, attend
from regard.database import Answers, precision
from regard.database.precision import Factors, is_possible
from regard.scores import Equal, Score

ROWS = 20_000

pytestmark = pytest.mark.skipif(not is_possible(), reason="float32 is for compiled loops")


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def both(monkeypatch: pytest.MonkeyPatch, database: Database, queries: object, score: object) -> list[Answers]:
    """The answers as they are, and in float64."""
    found = database.attend(queries, score=score, top=5)  # type: ignore[arg-type]
    with monkeypatch.context() as patch:
        patch.setattr("regard.database.attending.is_possible", lambda: False)
        return [found, database.attend(queries, score=score, top=5)]  # type: ignore[arg-type,list-item]


def is_used(monkeypatch: pytest.MonkeyPatch, database: Database, query: object, score: object) -> bool:
    calls = []
    pooled = precision.Narrow.pooled
    with monkeypatch.context() as patch:
        patch.setattr(precision.Narrow, "pooled", lambda *each: calls.append(each) or pooled(*each))
        database.attend(query, score=score)  # type: ignore[arg-type]
    return bool(calls)


@pytest.mark.parametrize("offset", [0.0, 1e6, 1e9])
@pytest.mark.parametrize("spread", [1.0, 1e-3])
def test_answers_are_those_of_float64(monkeypatch: pytest.MonkeyPatch, offset: float, spread: float) -> None:
    keys = drawn(ROWS, 2)
    codes = torch.randint(5, (ROWS,), generator=torch.Generator().manual_seed(1))
    values = offset + spread * (keys[:, 0].sin() + codes + 0.1 * drawn(ROWS, seed=2))
    names = ["abcde"[code] for code in codes.tolist()]
    database = Database({"price": 1e6 + 1e5 * keys[:, 0], "step": 1e9 + keys[:, 1], "word": names}, values)
    queries = [
        (1e6 + 1e5 * x, 1e9 + y, word) for (x, y), word in zip(drawn(8, 2, seed=3).tolist(), "abcdeabc", strict=True)
    ]
    score = {"price": Gaussian(3e4), "step": Gaussian(0.4), "word": 2.0 * Equal()}
    assert is_used(monkeypatch, database, queries, score)
    for found, exact in zip(*both(monkeypatch, database, queries, score), strict=True):
        assert found.value == pytest.approx(exact.value, rel=1e-5)
        assert found.value - offset == pytest.approx(exact.value - offset, abs=1e-5 * spread + 1e-14 * offset)
        assert found.std == pytest.approx(exact.std, rel=1e-5, abs=1e-6 * spread)
        assert found.effective_rows == pytest.approx(exact.effective_rows, rel=1e-5)
        assert [row.index for row in found.rows] == [row.index for row in exact.rows]
        assert found.weights.tolist() == pytest.approx(exact.weights.tolist(), rel=2e-5)


def test_small_steps_far_apart_stay_in_float64(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = torch.cat([torch.arange(ROWS) * 1e-3 + 0.1, torch.tensor([1e6])]).double()
    database = Database(keys, torch.arange(ROWS + 1))
    queries = [1.1, 2.1, 3.1, 4.1]
    assert not is_used(monkeypatch, database, queries, Gaussian(1e-3))
    assert database.attend(queries, score=Gaussian(1e-3)).values == pytest.approx([1000.0, 2000.0, 3000.0, 4000.0])


def test_moments_a_second_apart_are_told_apart_among_many() -> None:
    moments = [datetime(2020, 1, 1) + timedelta(seconds=second) for second in range(ROWS)]
    queries = [moments[place] for place in (10, 5000, 10_000, 19_990)]
    found = Database(moments, [float(second) for second in range(ROWS)]).attend(queries, score=Gaussian(1 / 86_400))
    assert found.values == pytest.approx([10.0, 5000.0, 10_000.0, 19_990.0], rel=1e-5)


def test_large_values_keep_their_digits(monkeypatch: pytest.MonkeyPatch) -> None:
    database = Database([float(key % 500) for key in range(ROWS)], [123_456_789.0 + key % 2 for key in range(ROWS)])
    queries = [100.0, 101.0, 200.0, 301.0]
    assert is_used(monkeypatch, database, queries, Gaussian(0.2))
    found = database.attend(queries, score=Gaussian(0.2)).values
    assert found == pytest.approx([123_456_789.0 + query % 2 for query in queries], abs=1e-4)


@pytest.mark.parametrize("score", [Laplacian(1.0), Custom(lambda q, k: -(q - k.mT).square()), -1.0 * Gaussian(1.0)])
def test_other_scores_are_not_for_the_loops(score: Score) -> None:
    assert Factors.of(score, Softmax(), 1) is None
    assert Factors.of(Gaussian(1.0), Softmax(sink=0.0), 1) is None
    assert Factors.of(Gaussian(1.0), Sparsemax(), 1) is None


def test_the_temperature_of_softmax_counts() -> None:
    keys, values = drawn(ROWS, 1), drawn(ROWS, 1, seed=1)
    found = Database(keys.flatten(), values.flatten()).attend(
        [0.0, 1.0, 2.0, 3.0], score=Gaussian(0.5), weights=Softmax(4.0)
    )
    queries = torch.tensor([[0.0], [1.0], [2.0], [3.0]], dtype=torch.float64)
    expected = attend(queries, keys, values, score=Gaussian(1.0))
    assert found.values == pytest.approx(expected.flatten().tolist(), rel=1e-4, abs=1e-5)


def test_rows_of_one_value_have_no_spread_and_average_to_it() -> None:
    keys = drawn(ROWS)
    database = Database(keys, torch.where(keys > 0.5, 1000.0, 0.0))
    for query, value in ((2.0, 1000.0), (1.5, 1000.0), (-1.0, 0.0), (-2.0, 0.0)):
        answer = database.attend([query] * 4, score=Gaussian(0.05))[0]
        assert answer.value == pytest.approx(value, abs=1e-9)
        assert answer.std == 0.0


@pytest.mark.parametrize("unit", [1e-30, 1e-20, 1e20, 1e30, 1e290])
def test_bandwidths_beyond_float32_are_weighed_in_float64(monkeypatch: pytest.MonkeyPatch, unit: float) -> None:
    keys = drawn(ROWS)
    database = Database((unit * keys).tolist(), 1000 * keys)
    queries = [0.0, unit, 2 * unit, -unit]
    found = database.attend(queries, score=Gaussian(0.5 * unit))
    wanted = [database.attend(each, score=Gaussian(0.5 * unit)).value for each in queries]
    assert found.values == pytest.approx(wanted, rel=1e-6)
    assert not is_used(monkeypatch, database, queries, Gaussian(0.5 * unit))
