"""Merging any split of the keys equals the whole, empty parts included, for every rule."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import regard
from regard import KeyMask, attend, partial

RULES = {
    "softmax": regard.Softmax(),
    "temperature": regard.Softmax(temperature=0.3),
    "sink": regard.Softmax(sink=0.5),
    "proportional": regard.Proportional(),
    "conic": regard.Conic(),
    "raw": regard.Raw(),
    "sigmoid": regard.Sigmoid(),
    "one-hot": regard.OneHot(),
    "uniform": regard.Uniform(),
    "sparsemax": regard.Sparsemax(),
    "entmax": regard.Entmax(),
    "top-k": regard.TopK(3),
    "top-k-proportional": regard.TopK(3, regard.Proportional()),
}


@st.composite
def splits(draw) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, list[int]]:
    """Small integers, so that ties are ties: queries, keys, values, which keys are seen, and where the keys are cut."""
    n, m, seed = draw(st.integers(1, 4)), draw(st.integers(0, 10)), draw(st.integers(0, 2**32))
    generator = torch.Generator().manual_seed(seed)
    q, k = (torch.randint(0, 3, (size, 2), generator=generator).double() for size in (n, m))
    v = torch.randn(m, 2, dtype=torch.float64, generator=generator)
    seen = torch.rand(m, generator=generator) < draw(st.sampled_from([0.0, 0.5, 1.0]))
    cuts = sorted(draw(st.lists(st.integers(0, m), min_size=1, max_size=5)))
    return q, k, v, seen, [0, *cuts, m]


def merge_as(parts: list[regard.Partial], seed: int) -> regard.Partial:
    """The parts merged as a random tree: neighbours join until one is left."""
    generator = torch.Generator().manual_seed(seed)
    parts = list(parts)
    while len(parts) > 1:
        place = int(torch.randint(len(parts) - 1, (), generator=generator))
        parts[place : place + 2] = [parts[place].merge(parts[place + 1])]
    return parts[0]


@pytest.mark.parametrize("rule", RULES)
@settings(max_examples=200)
@given(split=splits(), tree=st.integers(0, 2**32))
def test_merging_any_split_equals_the_whole(rule, split, tree):
    q, k, v, seen, cuts = split
    whole = attend(q, k, v, weights=RULES[rule], mask=KeyMask(seen), engine="reference")
    parts = [
        partial(q, k[a:b], v[a:b], weights=RULES[rule], mask=KeyMask(seen[a:b])) for a, b in itertools.pairwise(cuts)
    ]
    torch.testing.assert_close(merge_as(parts, tree).finish(), whole)


@pytest.mark.parametrize("rule", ["softmax", "sink", "sigmoid", "sparsemax", "top-k"])
@settings(max_examples=200)
@given(split=splits(), tree=st.integers(0, 2**32))
def test_merging_any_split_has_the_gradient_of_the_whole(rule, split, tree):
    q, k, v, seen, cuts = split
    for each in (q, k, v):
        each.requires_grad_()
    whole = attend(q, k, v, weights=RULES[rule], mask=KeyMask(seen), engine="reference")
    parts = [
        partial(q, k[a:b], v[a:b], weights=RULES[rule], mask=KeyMask(seen[a:b])) for a, b in itertools.pairwise(cuts)
    ]
    merged = merge_as(parts, tree).finish()
    found = torch.autograd.grad(merged.square().sum(), (q, k, v))
    torch.testing.assert_close(found, torch.autograd.grad(whole.square().sum(), (q, k, v)))
