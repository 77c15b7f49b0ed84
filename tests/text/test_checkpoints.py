"""Weights must fit their model by name and shape."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from regard.errors import CheckpointError
from regard.text.checkpoints import load_strictly


def test_weights_are_copied_unless_the_model_is_to_take_the_tensors_themselves():
    weights = {"weight": torch.ones(1, 2), "bias": torch.zeros(1)}
    model, other = nn.Linear(2, 1), nn.Linear(2, 1)
    load_strictly(model, weights)
    load_strictly(other, weights, assign=True)
    weights["weight"].fill_(3.0)
    assert model.weight.tolist() == [[1.0, 1.0]]
    assert other.weight.tolist() == [[3.0, 3.0]]


def test_a_model_whose_weights_do_not_fit_stays_as_it_was():
    model = nn.Linear(2, 1)
    before = model.weight.clone()
    with pytest.raises(
        CheckpointError,
        match=r"missing \['bias'\], unknown \['b'\], of another shape \['weight \(1, 3\) for \(1, 2\)'\]",
    ):
        load_strictly(model, {"weight": torch.ones(1, 3), "b": torch.zeros(1)})
    assert torch.equal(model.weight, before)
