"""Every engine × score × rule × mask × dtype matches the float64 definition, forward and gradient, or refuses."""

import dataclasses
import itertools

import pytest
import torch

from regard.engines import ENGINES, Tiled
from regard.testing import DTYPES, MASKS, RULES, SCORES, VARIANTS, Case, Mismatch, check

# The reference is the definition.
TESTED = [name for name in ENGINES if name != "reference"]

# Masks that name keys, or batch rows, that a variant does not have.
UNFIT = {(variant, "KeyMask") for variant in ("no keys", "one tensor for all")} | {
    (variant, "Padding")
    for variant in ("no keys", "no batch axes", "an empty batch", "one tensor for all", "batch axes of values alone")
}
UNUSUAL = sorted(set(itertools.product(VARIANTS, ["no mask", "Causal, end", "KeyMask", "Padding"])) - UNFIT)

# Tiles so small that every case has many, in both directions.
SMALL_TILES = {"tiled": Tiled(tile_elements=256)}


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: str(dtype).removeprefix("torch."))
@pytest.mark.parametrize("engine", TESTED)
def test_engine_matches_the_definition_or_refuses(engine, dtype, score, rule):
    cases = [case for mask in MASKS if (case := Case(score, rule, mask, dtype)).comparable]
    outcomes = {case.mask: check(SMALL_TILES.get(engine, ENGINES[engine]), case) for case in cases}
    if engine != "sdpa":
        refused = {mask: outcome.refusals for mask, outcome in outcomes.items() if not outcome.matched}
        assert all("refused" in reason for reasons in refused.values() for reason in reasons), refused


@pytest.mark.parametrize(("variant", "mask"), UNUSUAL)
@pytest.mark.parametrize("engine", TESTED)
def test_engine_matches_the_definition_on_unusual_inputs(engine, variant, mask):
    scores = ["ScaledDot", "Additive", "Gated", "Cosine", "Gaussian", "Laplacian", "Custom", "RelativeBias"]
    rules = ["Softmax", "Softmax, sink", "Conic", "OneHot", "Uniform", "Sparsemax", "Entmax, alpha learned", "TopK"]
    matched = 0
    for score, rule in itertools.product(scores, rules):
        case = Case(score, rule, mask, variant=variant)
        matched += check(SMALL_TILES.get(engine, ENGINES[engine]), case).matched
    assert matched or engine == "sdpa"


def test_an_engine_that_ignores_dropout_is_found_out():
    class Forgetful(Tiled):
        def run(self, problem):
            return super().run(dataclasses.replace(problem, dropout=0.0))

    with pytest.raises(Mismatch):
        check(Forgetful(), Case("ScaledDot", "Softmax", "no mask", variant="dropout"))


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
