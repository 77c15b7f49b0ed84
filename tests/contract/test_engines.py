"""Every engine × score × rule × mask × dtype matches the float64 definition, forward and gradient, or refuses."""

import itertools

import pytest
import torch

from regard.engines import ENGINES, Tiled
from regard.testing import DTYPES, MASKS, RULES, SCORES, Case, check

# Tiles so small that every case has many, in both directions.
SMALL_TILES = {"tiled": Tiled(tile_elements=256)}


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: str(dtype).removeprefix("torch."))
@pytest.mark.parametrize("engine", ENGINES)
def test_engine_matches_the_definition_or_refuses(engine, dtype, score, rule):
    cases = [case for mask in MASKS if (case := Case(score, rule, mask, dtype)).comparable]
    outcomes = {case.mask: check(SMALL_TILES.get(engine, ENGINES[engine]), case) for case in cases}
    if engine != "sdpa":
        refused = {mask: outcome.refusals for mask, outcome in outcomes.items() if not outcome.matched}
        assert all("refused" in reason for reasons in refused.values() for reason in reasons), refused


def test_sdpa_takes_what_reduces_to_it():
    taken = {
        (score, rule, mask)
        for score, rule, mask in itertools.product(SCORES, RULES, MASKS)
        if not Case(score, rule, mask).expected_error
        and not ENGINES["sdpa"].refusals(Case(score, rule, mask).make(torch.float32))
    }
    assert {score for score, _, _ in taken} == {"Dot", "ScaledDot", "Multiplicative", "Cosine", "Gaussian"}
    assert {rule for _, rule, _ in taken} == {"Softmax", "Softmax, temperature"}
    assert {mask for _, _, mask in taken} == {
        "no mask",
        "Causal, start",
        "GlobalKeys",
        "Padding",
        "KeyMask",
        "Allowed",
    }
