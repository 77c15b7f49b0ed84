"""What changes nothing, for exactly the rules for which that is true."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import regard
from regard import Bias, Dot, KeyMask, attend
from regard.engines import Tiled

ENGINES = ["reference", Tiled(tile_elements=64), None]
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
    "entmax-1.2": regard.Entmax(1.2),
    "entmax-1.5": regard.Entmax(),
    "entmax-3": regard.Entmax(3.0),
    "top-k": regard.TopK(3),
    "top-k-sparsemax": regard.TopK(3, regard.Sparsemax()),
}
SHIFT_INVARIANT = [
    *("softmax", "temperature", "one-hot", "uniform", "sparsemax", "entmax-1.2", "entmax-1.5", "entmax-3"),
    *("top-k", "top-k-sparsemax"),
]
DUPLICATION_INVARIANT = ["softmax", "temperature", "proportional", "uniform"]
CONVEX = [*SHIFT_INVARIANT, "proportional"]

torch.manual_seed(0)
SCORES = {
    "dot": Dot(),
    "additive": regard.Additive(3, 3, 4).double(),
    "gated": regard.Gated(3, 3).double(),
    "gaussian": regard.Gaussian(0.8),
    "laplacian": regard.Laplacian(0.8),
    "cosine": regard.Cosine(0.5),
}

many = settings(max_examples=200)
seeds = st.integers(0, 2**32)
engines = st.sampled_from(ENGINES)
sizes = st.integers(1, 12)


def scores_for(rule: str) -> st.SearchStrategy:
    """Scores that the rule takes, without ties."""
    if rule == "proportional":
        return st.sampled_from([regard.Epanechnikov(3.0), regard.Triangular(2.5)])
    return st.sampled_from(list(SCORES.values()))


def drawn(seed: int, n: int, m: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    q, k, v = (torch.randn(*shape, dtype=torch.float64, generator=generator) for shape in ((2, n, 3), (m, 3), (m, 2)))
    return q, k, v


@pytest.mark.parametrize("rule", RULES)
@many
@given(data=st.data(), seed=seeds, n=sizes, m=sizes, engine=engines)
def test_permuting_the_pairs_changes_nothing(rule, data, seed, n, m, engine):
    q, k, v = drawn(seed, n, m)
    score = data.draw(scores_for(rule))
    order = torch.randperm(m, generator=torch.Generator().manual_seed(seed))
    seen = torch.rand(m, generator=torch.Generator().manual_seed(seed + 1)) < 0.7
    output = attend(q, k, v, score=score, weights=RULES[rule], mask=KeyMask(seen), engine=engine)
    permuted = attend(q, k[order], v[order], score=score, weights=RULES[rule], mask=KeyMask(seen[order]), engine=engine)
    torch.testing.assert_close(permuted, output)


def shifted(rule: str, constant: float, q, k, v, engine=None) -> torch.Tensor:
    bias = Bias(torch.full((1, 1), constant, dtype=torch.float64))
    return attend(q, k, v, score=Dot() + bias, weights=RULES[rule], engine=engine)


@pytest.mark.parametrize("rule", SHIFT_INVARIANT)
@many
@given(seed=seeds, n=sizes, m=sizes, constant=st.integers(-1000, 1000), engine=engines)
def test_adding_a_constant_to_all_scores_changes_nothing(rule, seed, n, m, constant, engine):
    q, k, v = drawn(seed, n, m)
    # A power ¹⁄₍alpha−1₎ at the edge of the support magnifies the rounding that the constant brings in.
    torch.testing.assert_close(
        shifted(rule, float(constant), q, k, v, engine), shifted(rule, 0.0, q, k, v, engine), atol=1e-5, rtol=1e-6
    )


@pytest.mark.parametrize("rule", sorted(set(RULES) - set(SHIFT_INVARIANT) - {"proportional"}))
def test_adding_a_constant_changes_what_the_other_rules_give(rule):
    q, k, v = drawn(0, 4, 6)
    assert not torch.allclose(shifted(rule, 1.0, q, k, v), shifted(rule, 0.0, q, k, v))


@pytest.mark.parametrize("rule", DUPLICATION_INVARIANT)
@many
@given(data=st.data(), seed=seeds, n=sizes, m=sizes, copies=st.integers(2, 3), engine=engines)
def test_duplicating_all_pairs_changes_nothing(rule, data, seed, n, m, copies, engine):
    q, k, v = drawn(seed, n, m)
    score = data.draw(scores_for(rule))
    once = attend(q, k, v, score=score, weights=RULES[rule], engine=engine)
    often = attend(q, k.repeat(copies, 1), v.repeat(copies, 1), score=score, weights=RULES[rule], engine=engine)
    torch.testing.assert_close(often, once)


# One key twice is one key among the best: the same output by one-hot and top-k, from other weights.
@pytest.mark.parametrize("rule", sorted(set(RULES) - set(DUPLICATION_INVARIANT) - {"one-hot"}))
def test_duplicating_all_pairs_changes_what_the_other_rules_give(rule):
    q, k, v = drawn(0, 4, 6)
    once = attend(q, k, v, weights=RULES[rule])
    assert not torch.allclose(attend(q, k.repeat(2, 1), v.repeat(2, 1), weights=RULES[rule]), once)


@pytest.mark.parametrize("rule", CONVEX)
@many
@given(data=st.data(), seed=seeds, n=sizes, m=sizes, engine=engines)
def test_convex_rules_stay_within_the_values(rule, data, seed, n, m, engine):
    q, k, v = drawn(seed, n, m)
    score = data.draw(scores_for(rule))
    seen = torch.rand(m, generator=torch.Generator().manual_seed(seed + 1)) < 0.7
    output = attend(q, k, v, score=score, weights=RULES[rule], mask=KeyMask(seen), engine=engine)
    if not seen.any():
        assert not output.any()
        return
    low, high = v[seen].amin(0), v[seen].amax(0)
    # Zeros where nothing has a score above zero, under Proportional.
    nowhere = (output == 0).all(-1, keepdim=True) & torch.tensor(rule == "proportional")
    inside = (output >= low - 1e-9) & (output <= high + 1e-9)
    assert bool((inside | nowhere).all())
