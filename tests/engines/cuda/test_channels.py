"""Scores that are sums over channels: they match the definition under every rule of one pass and every mask."""

from __future__ import annotations

import itertools

import pytest
import torch

pytest.importorskip("triton")

from regard.engines import Tiled
from regard.engines.cuda import masks, program
from regard.testing import MASKS, Case, Sizes, check

from .test_kernels import CHANNEL_SCORES, DEVICE, DTYPES, PAIRS

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

KERNELS = Tiled(kernels=True)
SIZE = Sizes(batch=1, heads=2, n_queries=7, n_keys=11, dim=3)


def cases():
    """Each of these scores under each rule, and under each mask; dtypes take turns."""
    pairs = [pair for pair in PAIRS if pair[0] in CHANNEL_SCORES]
    dtypes, scores = itertools.cycle(DTYPES), itertools.cycle(sorted(CHANNEL_SCORES))
    left = list(MASKS)
    for score, rule in pairs:
        yield Case(score, rule, left.pop() if left else "Causal, end", next(dtypes), DEVICE, SIZE)
    for mask in left:
        yield Case(next(scores), "Softmax", mask, next(dtypes), DEVICE, SIZE)


@pytest.mark.parametrize("case", list(cases()), ids=str)
def test_channels_match_the_definition(case):
    assert check(KERNELS, case).matched


@pytest.mark.parametrize("score", sorted(CHANNEL_SCORES))
def test_small_problems_of_channels_match_the_definition(monkeypatch, score):
    monkeypatch.setattr(program, "SMALL", 1 << 18)
    assert check(KERNELS, Case(score, "Softmax", "Causal, end", torch.float32, DEVICE, SIZE)).matched


@pytest.mark.parametrize("score", sorted(CHANNEL_SCORES))
def test_lists_of_channels_match_the_definition(monkeypatch, score):
    monkeypatch.setattr(masks, "SPARSE", 1)
    assert check(KERNELS, Case(score, "Softmax", "Selected", torch.float32, DEVICE, SIZE)).matched
