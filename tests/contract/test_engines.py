"""Every engine × score × rule × mask × dtype matches the float64 definition, forward and gradient, or refuses."""

import dataclasses
import itertools

import pytest
import torch

from regard.engines import ENGINES, Tiled
from regard.engines.cpu import unusable
from regard.engines.cpu.needed_kernels import needed_kernels
from regard.testing import DTYPES, MASKS, RULES, SCORES, VARIANTS, Case, Mismatch, check

# The reference is the definition.
TESTED = [name for name in ENGINES if name != "reference"]

# Masks that name keys, or batch rows, that a variant does not have.
UNFIT = {(variant, "KeyMask") for variant in ("no keys", "one tensor for all")} | {
    (variant, "Padding")
    for variant in ("no keys", "no batch axes", "an empty batch", "one tensor for all", "batch axes of values alone")
}
UNUSUAL = sorted(set(itertools.product(VARIANTS, ["no mask", "Causal, end", "KeyMask", "Padding"])) - UNFIT)

# Scores that reduce to PyTorch's kernels: see `test_sdpa_takes_what_reduces_to_it`.
BY_SDPA = ("Dot", "ScaledDot", "Multiplicative", "Cosine", "Gaussian")

# Tiles so small that every case has many, in both directions.
SMALL_TILES = {"tiled": Tiled(tile_elements=256, kernels=False)}

# The compiled kernels of the tiled engine: by tiles, and by the keys that rows list wherever a mask names few.
KERNELS = Tiled(kernels=True)
HALF_AND_SINGLE = [dtype for dtype in DTYPES if dtype != torch.float64]

# What the kernels support: 232 of 315 cells of score × rule, and three more raise ScoreError.
DOT_SCORES = {
    "Dot",
    "ScaledDot",
    "Multiplicative",
    "Gated",
    "Cosine",
    "Gaussian",
    "SoftCap",
    "Bias",
    "Bias per pair",
}
DOT_SCORES |= {"Alibi", "RelativeBias"}
CHANNEL_SCORES = {"Additive", "Gated(Additive)", "Gaussian, bandwidth per dimension", "Laplacian", "Equal"}
CHANNEL_SCORES |= {"Boxcar", "Epanechnikov", "Triangular"}
PLAIN_SCORES = {"Custom", "sum of scores"}
CHOICES = {"OneHot", "TopK", "TopK(Raw)", "TopK(Sparsemax)"}
PLAIN_RULES = {"Entmax, alpha learned"}
BY_TILES = {
    (score, rule)
    for score, rule in itertools.product(DOT_SCORES | CHANNEL_SCORES, RULES)
    if rule not in PLAIN_RULES and not (score in CHANNEL_SCORES and rule in CHOICES)
}
BY_LISTS = {(score, rule) for score, rule in BY_TILES if score in DOT_SCORES}
# Uniform weights need no scores, but for a user's function, which may exclude pairs.
UNSCORED = {(score, "Uniform") for score in SCORES if score != "Custom"}
BY_TILES |= UNSCORED
BY_LISTS |= UNSCORED
EMPTY = {"no queries", "no keys", "an empty batch"}  # variants with nothing for kernels to do
LISTING = ("Window", "Strided", "GlobalKeys", "RandomKeys", "Selected")  # masks that list few keys


@pytest.fixture
def small_kernel_tiles(monkeypatch):
    """Kernels that cut small problems, too; returns where the names of those that are called are gathered."""
    if unusable() is not None:
        pytest.skip(unusable())
    from regard.engines.cpu import compiled_problem
    from regard.engines.cpu.passes import choosing
    from regard.engines.cpu.runtime import jit, thread_pool
    from regard.engines.cpu.traversal import by_lists, by_tiles

    called, call = set(), jit.Kernel.__call__
    monkeypatch.setattr(
        jit.Kernel, "__call__", lambda self, *arguments: (called.add(self.name), call(self, *arguments))[1]
    )
    monkeypatch.setattr(thread_pool, "LEAST_SECONDS", 0.0)
    monkeypatch.setattr(thread_pool, "LEAST_TASK_SECONDS", 0.0)
    monkeypatch.setattr(by_tiles, "ROWS", 4)
    monkeypatch.setattr(by_tiles, "COLUMNS", 6)
    monkeypatch.setattr(by_tiles, "MOST_COLUMNS", 6)
    monkeypatch.setattr(by_tiles, "HEIGHTS", {8: 1.0, 4: 1.0})
    monkeypatch.setattr(by_tiles, "CHANNEL_ROWS", 8)
    monkeypatch.setattr(by_tiles, "CHANNEL_COLUMNS", 6)
    monkeypatch.setattr(by_tiles, "CALL_PAIRS", 64)
    monkeypatch.setattr(choosing, "SOLVED_ELEMENTS", 100)
    monkeypatch.setattr(choosing, "LEAST_ROWS", 3)
    monkeypatch.setattr(by_lists, "BLOCK_PAIRS", 32)
    monkeypatch.setattr(compiled_problem, "GATHERING", 1000)
    return called


@pytest.fixture
def small_kernel_lists(small_kernel_tiles, monkeypatch):
    """Kernels that gather the keys which rows list, wherever a mask names few."""
    from regard.engines.cpu import compiled_problem

    monkeypatch.setattr(compiled_problem, "GATHERING", 1)
    return small_kernel_tiles


@pytest.fixture
def small_kernel_supports(small_kernel_tiles, monkeypatch):
    """Kernels that go through the keys that have a weight one by one, however many they are."""
    from regard.engines.cpu.traversal import by_support

    monkeypatch.setattr(by_support, "SPARSE", 0.5)
    monkeypatch.setattr(by_support, "ROOM", 1)
    monkeypatch.setattr(by_support, "LEAST_PAIRS", 0)
    return small_kernel_tiles


def test_every_pair_of_score_rule_and_mask_is_in_what_make_test_takes(masks_for):
    taken = {(score, rule, mask) for score in SCORES for rule in RULES for mask in masks_for(score, rule)}
    assert {(score, rule) for score, rule, _ in taken} == set(itertools.product(SCORES, RULES))
    assert {(score, mask) for score, _, mask in taken} == set(itertools.product(SCORES, MASKS))
    assert {(rule, mask) for _, rule, mask in taken} == set(itertools.product(RULES, MASKS))
    assert len(taken) == len(SCORES) * len(RULES) * len(MASKS) / 9


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(
    ("engine", "score"), [*itertools.product(["tiled"], SCORES), *itertools.product(["sdpa"], BY_SDPA)]
)
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: str(dtype).removeprefix("torch."))
def test_engine_matches_the_definition_or_refuses(engine, dtype, score, rule, masks):
    cases = cases_of(masks, score, rule, dtype)
    outcomes = {case.mask: check(SMALL_TILES.get(engine, ENGINES[engine]), case) for case in cases}
    if engine != "sdpa":
        refused = {mask: outcome.refusals for mask, outcome in outcomes.items() if not outcome.matched}
        assert all("refused" in reason for reasons in refused.values() for reason in reasons), refused


def check_kernels(called, case, supported=BY_TILES):
    """Compare kernels with the definition on a case, and see that they computed it, or refused what they must."""
    called.clear()
    outcome = check(KERNELS, case)
    if case.expected_error:
        return outcome
    if (case.score, case.rule) not in supported:
        assert any("the kernels do not have" in reason for reason in outcome.refusals), outcome
        assert not called
    elif outcome.matched:
        needed = needed_kernels(case.make(case.dtype))
        assert called
        assert called <= needed, called - needed
    else:
        assert all("refused while running" in reason for reason in outcome.refusals), outcome
    return outcome


def cases_of(masks, *names):
    cases = (Case(*names[:2], mask, *names[2:]) for mask in masks)
    return [case for case in cases if case.comparable]


def test_the_table_of_what_kernels_support_names_every_score_and_rule():
    assert set(SCORES) == DOT_SCORES | CHANNEL_SCORES | PLAIN_SCORES
    assert set(RULES) > CHOICES | PLAIN_RULES
    at_the_door = {cell for cell in BY_TILES if Case(*cell, "no mask").expected_error}
    assert (len(SCORES) * len(RULES), len(BY_TILES - at_the_door), len(at_the_door)) == (315, 232, 3)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("dtype", HALF_AND_SINGLE, ids=lambda dtype: str(dtype).removeprefix("torch."))
def test_kernels_match_the_definition_by_tiles(small_kernel_tiles, dtype, score, rule, masks):
    for case in cases_of(masks, score, rule, dtype):
        check_kernels(small_kernel_tiles, case)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("score", SCORES)
def test_kernels_match_the_definition_by_lists(small_kernel_lists, score, rule):
    called, matched = set(), False
    for case in cases_of(LISTING, score, rule):
        matched |= check_kernels(small_kernel_lists, case).matched
        called |= small_kernel_lists
    gathered = any(name.startswith(("list_loops.score", "list_loops.pool_l")) for name in called)
    assert gathered == ((score, rule) in BY_LISTS) or not matched


@pytest.mark.parametrize("rule", [rule for rule in RULES if "max" in rule and "Softmax" not in rule])
@pytest.mark.parametrize("score", SCORES)
def test_kernels_match_the_definition_by_supports(small_kernel_supports, score, rule, masks):
    for case in cases_of(masks, score, rule):
        check_kernels(small_kernel_supports, case)


@pytest.mark.parametrize(("variant", "mask"), UNUSUAL)
def test_kernels_match_the_definition_on_unusual_inputs(small_kernel_tiles, variant, mask):
    scores = ["ScaledDot", "Additive", "Gated", "Cosine", "Gaussian", "Laplacian", "Custom", "RelativeBias"]
    rules = ["Softmax", "Softmax, sink", "Conic", "OneHot", "Uniform", "Sparsemax", "Entmax, alpha learned", "TopK"]
    for score, rule in itertools.product(scores, rules):
        case = Case(score, rule, mask, variant=variant)
        if variant in EMPTY:
            assert check(KERNELS, case).matched
        elif variant == "NaN and infinity":  # by strips, lest it leak; and a Gaussian of it has another form
            check(KERNELS, case)
        else:
            check_kernels(small_kernel_tiles, case)


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
    assert {score for score, _, _ in taken} == set(BY_SDPA)
    assert {rule for _, rule, _ in taken} == {"Softmax", "Softmax, temperature"}
    assert {mask for _, _, mask in taken} == {
        "no mask",
        "Causal, start",
        "GlobalKeys",
        "Padding",
        "KeyMask",
        "Allowed",
    }
