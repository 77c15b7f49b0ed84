from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.errors import DtypeError, OptionError
from regard.grid import Grid
from regard.masks import Cover, RandomKeys


def _drawn(mask: RandomKeys, n_queries: int, n_keys: int) -> list[set[int]]:
    """What each row sees, asked for one row at a time."""
    grid = Grid((), n_queries, n_keys)
    return [set(mask.indices(range(row, row + 1), grid)[0].tolist()) for row in range(n_queries)]


@pytest.mark.parametrize("batch_shape", [(), (2, 3)])
@pytest.mark.parametrize("per_query", [1, 3, 5, 9])
def test_every_answer_is_about_the_same_draw(answers_match, batch_shape, per_query):
    mask = RandomKeys(per_query, seed=1)
    drawn = _drawn(mask, 4, 5)
    answers_match(mask, Grid(batch_shape, 4, 5), lambda batch, row, column: column in drawn[row])


@given(st.integers(1, 40), st.integers(0, 60), st.integers())
def test_each_row_sees_as_many_distinct_keys_as_were_asked_for(per_query, n_keys, seed):
    grid = Grid((), 7, n_keys)
    indices = RandomKeys(per_query, seed).indices(grid.rows, grid)
    assert indices.shape == (7, min(per_query, n_keys))
    assert bool((indices.diff(dim=-1) > 0).all())
    assert bool(((indices >= 0) & (indices < n_keys)).all())


def test_the_draw_does_not_depend_on_how_rows_are_split_or_how_many_there_are():
    mask = RandomKeys(4, seed=7)
    whole = mask.indices(range(100), Grid((), 100, 50))
    parts = [mask.indices(range(start, start + 20), Grid((3,), 1000, 50)) for start in range(0, 100, 20)]
    assert torch.equal(torch.cat(parts), whole)
    assert torch.equal(RandomKeys(4, seed=7).indices(range(100), Grid((), 100, 50)), whole)


def test_a_draw_is_the_same_from_a_block_and_alone():
    mask, grid = RandomKeys(16, seed=3), Grid((), 3000, 5000)
    whole = mask.indices(grid.rows, grid)
    for rows in (range(1000, 1100), range(2990, 3000), range(5, 6), range(0, 3000, 7), range(900, 2500)):
        wanted = whole[rows.start : rows.stop : rows.step]
        assert torch.equal(mask.indices(rows, grid), wanted)
        assert torch.equal(RandomKeys(16, seed=3).indices(rows, grid), wanted)


def test_the_draw_is_pinned_so_that_saved_models_keep_their_masks():
    grid = Grid((), 2_000_000, 1_000_000)
    assert RandomKeys(3, seed=0).indices(range(1_999_998, 2_000_000), grid).tolist() == [
        [471023, 676055, 893092],
        [140305, 697825, 712907],
    ]


def test_another_seed_or_another_number_of_keys_is_another_draw():
    grid = Grid((), 50, 1000)
    drawn = RandomKeys(4, seed=0).indices(grid.rows, grid)
    for seed in (1, -1, 2**32, 2**64, 2**100):
        assert not torch.equal(RandomKeys(4, seed=seed).indices(grid.rows, grid), drawn)
    assert not torch.equal(RandomKeys(4, seed=0).indices(grid.rows, Grid((), 50, 1001)), drawn)


@pytest.mark.parametrize("n_keys", [8, 17, 100])
def test_every_key_and_every_pair_of_keys_is_drawn_equally_often(n_keys):
    n_queries, per_query = 10_000, 3
    indices = RandomKeys(per_query, seed=3).indices(range(n_queries), Grid((), n_queries, n_keys))
    share = per_query / n_keys
    counts = torch.bincount(indices.flatten(), minlength=n_keys).double()
    # Chi-square over its degrees of freedom: 1 in the mean; 3 would be a chance of one in thousands or less.
    assert ((counts - n_queries * share) ** 2 / (n_queries * share * (1 - share))).mean() < 3
    left, right = torch.triu_indices(per_query, per_query, 1)
    pairs = torch.bincount((indices[:, left] * n_keys + indices[:, right]).flatten(), minlength=n_keys**2).double()
    pairs = pairs.reshape(n_keys, n_keys)[torch.triu(torch.ones(n_keys, n_keys, dtype=torch.bool), 1)]
    assert ((pairs - pairs.mean()) ** 2 / pairs.mean()).mean() < 1.5 + 10 / n_keys


def test_neighbouring_rows_draw_independently():
    indices = RandomKeys(3, seed=3).indices(range(10_001), Grid((), 10_001, 100))
    shared = (indices[1:, :, None] == indices[:-1, None, :]).sum().item() / 10_000
    assert shared == pytest.approx(3 * 3 / 100, rel=0.1)


def test_changing_the_indices_that_were_returned_changes_nothing():
    mask, grid = RandomKeys(2, seed=0), Grid((), 3, 10)
    before = mask.tile(grid.rows, grid.columns, grid)
    mask.indices(grid.rows, grid).fill_(0)
    assert torch.equal(mask.tile(grid.rows, grid.columns, grid), before)


def test_all_keys_are_seen_when_there_are_no_more():
    grid = Grid((), 3, 4)
    assert RandomKeys(4, seed=0).cover(grid.rows, grid.columns, grid) is Cover.ALL
    assert RandomKeys(3, seed=0).cover(grid.rows, grid.columns, grid) is Cover.SOME


def test_no_keys_are_no_trouble(answers_match):
    answers_match(RandomKeys(2, seed=0), Grid((2,), 3, 0), lambda batch, row, column: False)


def test_its_arguments_must_be_whole_numbers():
    with pytest.raises(OptionError, match="`per_query` of RandomKeys must be at least 1: got 0"):
        RandomKeys(0, seed=0)
    with pytest.raises(DtypeError, match=r"`per_query` of RandomKeys must be an integer: got 0\.5"):
        RandomKeys(0.5, seed=0)  # type: ignore[arg-type]
    with pytest.raises(DtypeError, match=r"`seed` of RandomKeys must be an integer: got 'a'\. Pass a whole number\."):
        RandomKeys(1, seed="a")  # type: ignore[arg-type]


def test_repr_shows_what_was_given():
    assert repr(RandomKeys(2, 5)) == "RandomKeys(per_query=2, seed=5)"


def test_a_row_costs_what_it_draws_at_a_million(small_memory):
    grid = Grid((), 1_000_000, 1_000_000)
    mask = RandomKeys(32, seed=0)
    assert mask.cover(grid.rows, grid.columns, grid) is Cover.SOME
    indices = mask.indices(range(999_936, 1_000_000), grid)
    assert indices.shape == (64, 32)
    columns = indices[:, :3]
    assert mask.allows(torch.arange(999_936, 1_000_000)[:, None], columns, grid).all()


def test_integers_of_numpy_are_integers():
    np = pytest.importorskip("numpy")
    mask = RandomKeys(np.int64(2), seed=np.uint32(7))
    assert repr(mask) == "RandomKeys(per_query=2, seed=7)"
    assert mask.picture(4, 8) == RandomKeys(2, seed=7).picture(4, 8)
