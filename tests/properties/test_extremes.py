"""Scores of any size that floats hold stay finite under normalised rules, forward and backward."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import regard
from regard import Causal, Dot, attend, weigh
from regard.engines import Tiled

RULES = {
    "softmax": regard.Softmax(),
    "temperature": regard.Softmax(temperature=0.25),
    "sink": regard.Softmax(sink=1e4),
    "one-hot": regard.OneHot(),
    "uniform": regard.Uniform(),
    "sparsemax": regard.Sparsemax(),
    "entmax-1.2": regard.Entmax(1.2),
    "entmax-1.5": regard.Entmax(),
    "entmax-4": regard.Entmax(4.0),
    "top-k": regard.TopK(2),
    "proportional": regard.Proportional(),
}
SIZES = [1e4, -1e4, 1e30, -1e30, 1.0, 0.0]
ENGINES = ["reference", Tiled(tile_elements=64), None]


@pytest.mark.parametrize("rule", RULES)
@settings(max_examples=200)
@given(
    queries=st.lists(st.sampled_from([1.0, -1.0, 0.0]), min_size=1, max_size=4),
    keys=st.lists(st.sampled_from(SIZES), min_size=1, max_size=6),
    engine=st.sampled_from(ENGINES),
    masked=st.booleans(),
)
def test_huge_dot_scores_stay_finite_within_the_values_and_send_finite_gradients(rule, queries, keys, engine, masked):
    q, k = torch.tensor(queries)[:, None], torch.tensor(keys)[:, None]
    if rule == "proportional":
        q, k = q.abs(), k.abs()
    v = torch.arange(1.0, len(keys) + 1)[:, None]
    q, k, v = (each.requires_grad_() for each in (q, k, v))
    mask = Causal(align="start") if masked else None
    output = attend(q, k, v, score=Dot(), weights=RULES[rule], mask=mask, engine=engine)
    assert output.isfinite().all()
    assert bool(((output >= 0) & (output <= len(keys) + 1e-4)).all())
    grads = torch.autograd.grad(output.sum(), (q, k, v), allow_unused=True, materialize_grads=True)
    # By the chain rule dq = dS · k, and a slope of 1/4 against a key of 1e30 is a legitimate 1e29.
    assert all(bool(each.isfinite().all()) for each in grads)


@settings(max_examples=200)
@given(
    keys=st.lists(st.sampled_from(SIZES), min_size=1, max_size=6),
    masked=st.booleans(),
)
def test_huge_dot_scores_stay_finite_in_the_fused_kernels(keys, masked):
    q, k, v = torch.tensor([[1.0], [-1.0]]), torch.tensor(keys)[:, None], torch.arange(1.0, len(keys) + 1)[:, None]
    mask = Causal(align="start") if masked else None
    output = attend(q, k, v, score=Dot(), mask=mask, engine="sdpa")
    torch.testing.assert_close(output, attend(q, k, v, score=Dot(), mask=mask, engine="reference"))


@pytest.mark.parametrize("rule", ["softmax", "one-hot", "sparsemax", "entmax-1.5", "uniform", "top-k"])
@settings(max_examples=200)
@given(keys=st.lists(st.sampled_from(SIZES), min_size=1, max_size=6))
def test_huge_dot_scores_keep_the_promise_of_their_rule(rule, keys):
    k = torch.tensor(keys)[:, None]
    view = weigh(torch.tensor([[1.0], [-1.0]]), k, k, score=Dot(), weights=RULES[rule])
    view.verify()
    assert view.entropy().isfinite().all()
