"""Dropout: a function of (seed, batch index, row, column), the same in every engine."""

from __future__ import annotations

import pytest
import torch

import regard
from regard import attend, weigh
from regard.engines import Tiled
from regard.engines.dropout import hashes, keep_factors
from regard.errors import OptionError
from regard.grid import Grid

RULES = [
    regard.Softmax(),
    regard.Softmax(sink=0.5),
    regard.Sparsemax(),
    regard.Sigmoid(),
    regard.TopK(5),
    regard.Uniform(),
]


def drawn(*batch: int):
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(*batch, n, 3, dtype=torch.float64, generator=generator).requires_grad_() for n in (11, 17, 17)]


def at_seed(seed: int, *tensors, **options):
    torch.manual_seed(seed)
    return attend(*tensors, **options)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: type(rule).__name__)
def test_every_engine_drops_the_same_weights(rule):
    tensors = drawn(2, 3)
    results = []
    for engine in ("reference", "tiled", Tiled(64), None):
        output = at_seed(3, *tensors, weights=rule, dropout=0.4, engine=engine)
        grads = torch.autograd.grad(output.square().sum(), tensors, allow_unused=True, materialize_grads=True)
        results.append((output, *grads))
    for other in results[1:]:
        torch.testing.assert_close(results[0], other)


@pytest.mark.parametrize("engine", ["reference", "tiled"])
def test_the_same_generator_state_gives_the_same_bits_and_another_gives_others(engine):
    tensors = drawn()
    first = at_seed(1, *tensors, dropout=0.5, engine=engine)
    assert torch.equal(first, at_seed(1, *tensors, dropout=0.5, engine=engine))
    assert not torch.equal(first, at_seed(2, *tensors, dropout=0.5, engine=engine))
    assert not torch.equal(first, attend(*tensors, dropout=0.5, engine=engine))  # the generator has moved on


@pytest.mark.parametrize("engine", ["reference", "tiled"])
def test_a_probability_of_zero_is_no_dropout_and_draws_nothing(engine):
    tensors = drawn()
    state = torch.get_rng_state()
    assert torch.equal(attend(*tensors, dropout=0.0, engine=engine), attend(*tensors, engine=engine))
    assert torch.equal(state, torch.get_rng_state())


def test_the_average_over_many_draws_is_the_output_without_dropout():
    q, k, v = (each.detach() for each in drawn())
    # A batch axis of 4,000 copies: each has its own pattern.
    average = at_seed(0, q.expand(4000, 11, 3), k, v, dropout=0.3).mean(0)
    torch.testing.assert_close(average, attend(q, k, v), atol=0.03, rtol=0)


@pytest.mark.parametrize("probability", [0.1, 0.5, 0.9])
def test_the_share_that_is_dropped_is_the_probability_for_rows_columns_and_batch_entries(probability):
    grid = Grid((4,), 64, 64)
    kept = keep_factors(12345678901234, probability, grid, grid.rows, grid.columns, torch.float64)
    assert set(kept.unique().tolist()) == {0.0, 1 / (1 - probability)}
    dropped = (kept == 0).double()
    assert abs(dropped.mean() - probability) < 0.02
    for axis in ((0, 1), (0, 2), (1, 2)):
        assert (dropped.mean(axis) - probability).abs().max() < 0.15
    # Neighbours are independent: both dropped with probability p².
    for shifted in (dropped[1:] * dropped[:-1], dropped[:, 1:] * dropped[:, :-1], dropped[..., 1:] * dropped[..., :-1]):
        assert abs(shifted.mean() - probability**2) < 0.03


def test_every_bit_of_a_hash_depends_on_every_bit_of_what_is_hashed():
    numbers = torch.randint(2**32, (4000,), generator=torch.Generator().manual_seed(0))

    def hashed(columns):
        return hashes(0, 0, torch.zeros(1, dtype=torch.int64), columns)[1]

    for bit in range(32):
        changed = hashed(numbers) ^ hashed(numbers ^ (1 << bit))
        flips = torch.stack([(changed >> place) & 1 for place in range(32)]).double().mean(-1)
        assert 0.4 < flips.min() <= flips.max() < 0.6


def test_the_pattern_does_not_depend_on_the_tile():
    grid = Grid((2,), 30, 40)
    whole = keep_factors(77, 0.4, grid, grid.rows, grid.columns, torch.float32)
    part = keep_factors(77, 0.4, grid, range(5, 9), torch.tensor([30, 2, 7]), torch.float32)
    assert torch.equal(part, whole[:, 5:9, [30, 2, 7]])


def test_a_view_reports_weights_before_dropout():
    tensors = drawn()
    torch.manual_seed(0)
    view = weigh(*tensors, dropout=0.5)
    plain = weigh(*tensors)
    assert torch.equal(view.dense(), plain.dense())
    assert torch.equal(view.tile(slice(2, 5), slice(3, 9)), plain.tile(slice(2, 5), slice(3, 9)))
    torch.testing.assert_close(view.entropy(), plain.entropy())
    torch.testing.assert_close(view.received(), plain.received())
    view.verify()
    torch.testing.assert_close(view.output, at_seed(0, *tensors, dropout=0.5))
    assert torch.equal(view.output, view.output)


@pytest.mark.parametrize("probability", [-0.1, 1.0, 1.5, float("nan")])
def test_a_probability_outside_its_range_is_refused(probability):
    text = r"`dropout` must be in \[0, 1\): got .*\. It is the share of weights that are dropped\."
    with pytest.raises(OptionError, match=text):
        attend(*drawn(), dropout=probability)
