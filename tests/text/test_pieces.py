"""From weights among pieces to weights among words."""

from __future__ import annotations

import pytest
import torch

from regard.errors import OptionError, ShapeError
from regard.text import by_words
from regard.text.pieces import joints


def test_keys_of_a_word_are_summed_and_its_queries_averaged():
    weights = torch.rand(2, 3, 5, 5, generator=torch.Generator().manual_seed(0)).softmax(-1)
    found = by_words(weights, [0, 1, 1, 1, 2])
    assert found.shape == (2, 3, 3, 3)
    torch.testing.assert_close(found[..., 0, 1], weights[..., 0, 1:4].sum(-1))
    torch.testing.assert_close(found[..., 1, 2], weights[..., 1:4, 4].mean(-1))
    torch.testing.assert_close(found[..., 1, 1], weights[..., 1:4, 1:4].sum(-1).mean(-1))


def test_rows_that_sum_to_one_still_do():
    weights = torch.rand(7, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(1)).softmax(-1)
    torch.testing.assert_close(by_words(weights, [0, 0, 1, 2, 2, 2, 3]).sum(-1), torch.ones(4, dtype=torch.float64))


def test_queries_and_keys_may_be_cut_differently():
    weights = torch.tensor([[0.1, 0.2, 0.7], [0.3, 0.3, 0.4]])
    torch.testing.assert_close(by_words(weights, [0, 0], [0, 1, 1]), torch.tensor([[0.2, 0.8]]))


def test_pieces_of_a_word_need_not_stand_together():
    weights = torch.tensor([[0.1, 0.2, 0.7]])
    torch.testing.assert_close(by_words(weights, [0], [0, 1, 0]), torch.tensor([[0.8, 0.2]]))


@pytest.mark.parametrize(
    ("text", "signs"),
    [
        ("don't", "'"),
        ("Smith’s", "’"),
        ("rock'n'roll", "''"),
        ("well-known e‑mail", "-‑"),
        ("3.50 and 1,000", ".,"),
        ("'tis the dogs' -5", ""),
        ("one--two - three", ""),
        ("3. 5, a.b,c", ""),
        ("ends-", ""),
    ],
)
def test_a_sign_within_a_word_joins_it_and_one_beside_it_does_not(text, signs):
    assert "".join(text[place] for place in sorted(joints(text))) == signs


def test_no_pieces_are_no_words():
    assert by_words(torch.zeros(0, 0), []).shape == (0, 0)


def test_words_that_do_not_fit_the_weights_are_refused():
    with pytest.raises(ShapeError, match=r"a word for each query and key: got 2 and 2 for weights \(3, 3\)"):
        by_words(torch.ones(3, 3), [0, 1])


def test_words_with_a_gap_in_their_numbers_are_refused():
    with pytest.raises(OptionError, match=r"numbered from 0 with none left out: got \[0, 2\]"):
        by_words(torch.ones(2, 2), [0, 2])
