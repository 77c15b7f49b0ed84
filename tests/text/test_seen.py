"""Claims about what `regard see` shows, without the model."""

import pytest
import torch

from regard.errors import OptionError
from regard.text.seen import most_telling


def test_heads_that_look_by_place_or_at_one_word_tell_nothing():
    size = 8
    before = torch.eye(size).roll(-1, 1)
    two_before = torch.eye(size).roll(-2, 1).tril()
    one = torch.zeros(size, size)
    one[:, 3] = 1.0
    even = torch.full((size, size), 1 / size)
    mates = 0.5 * torch.eye(size)[[6, 4, 5, 7, 1, 2, 0, 3]]  # half of its weight is on hidden keys
    assert most_telling(torch.stack([before, two_before, one, mates, even])[None]) == (0, 3)


def test_a_layer_that_is_not_there_is_refused():
    with pytest.raises(OptionError, match="from 0 to 0: got 1"):
        most_telling(torch.full((1, 2, 3, 3), 1 / 3), layer=1)
