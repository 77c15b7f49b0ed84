"""Claims about pooling values."""

from __future__ import annotations

import torch

from regard import Database, Gaussian, attend
from regard.database.python_columns import columns_from
from regard.database.value_pool import LIKELIEST, ValuePool


def pool(values: object) -> ValuePool:
    columns = columns_from(values, "value")
    return ValuePool(columns, torch.arange(len(columns[0])))


def test_probabilities_are_attention_over_one_hot_values() -> None:
    generator = torch.Generator().manual_seed(0)
    keys = torch.randn(50, 2, generator=generator, dtype=torch.float64)
    codes = torch.randint(4, (50,), generator=generator)
    queries = torch.randn(3, 2, generator=generator, dtype=torch.float64)
    answers = Database(keys, ["abcd"[code] for code in codes.tolist()]).attend(queries, score=Gaussian(0.5))
    one_hot = torch.nn.functional.one_hot(codes, 4).double()
    expected = attend(queries, keys, one_hot, score=Gaussian(0.5))
    found = torch.tensor([[answer.probabilities.get(each, 0.0) for each in "abcd"] for answer in answers])
    torch.testing.assert_close(found.double(), expected)


def test_an_answer_keeps_the_likeliest_of_very_many_categories() -> None:
    answer = Database([0.0] * 2500, [f"name {row % 2000}" for row in range(2500)]).attend(0.0)
    assert len(answer.probabilities) == LIKELIEST
    assert answer.value == "name 0"


def test_many_categories_make_small_blocks() -> None:
    assert pool([1.0, 2.0]).block_size == 256
    assert pool([f"name {row}" for row in range(100_000)]).block_size == 41


def test_what_there_is_to_predict() -> None:
    rows = torch.arange(4)
    numbers = pool([1.0, 3.0, 1.0, 3.0]).targets(rows)
    assert numbers is not None
    assert numbers.flatten().tolist() == [-1.0, 1.0, -1.0, 1.0]
    words = pool(["a", "b", "a", "a"]).targets(rows)
    assert words is not None
    assert words.tolist() == [[1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 0.0]]
    assert pool(["a", "b", "c", "d"]).targets(rows) is None
    assert pool([{}, {}, {}, {}]).targets(rows) is None
