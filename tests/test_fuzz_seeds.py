"""What the fuzzer once found stays mended, and some cases of each kind are tried in every run of the tests."""

from pathlib import Path

import pytest
import torch

import fuzz
from fuzz import cases, definition, parts
from fuzz.parts import Part
from fuzz.runner import judge, run

SEEDS = Path(fuzz.__file__).parent / "seeds.txt"


# Kept ones, and as many again that nobody has looked at.
FRESH_ATTENTION = range(7_000_000, 7_000_048)
FRESH_COMMANDS = range(8_000_000, 8_000_024)


def kept(kind):
    lines = SEEDS.read_text(encoding="utf-8").splitlines()
    found = [line.split("  ", 1) for line in lines if line.startswith(f"{kind}:")]
    return {int(case.partition(":")[2]): what for case, what in found}


@pytest.fixture(autouse=True)
def one_thread():
    """Cases are small: threads would only wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def broken(seed, every=False):
    return [f"{check}: {text}" for check, outcome, text in judge("attention", seed, every) if outcome == "broken"]


@pytest.mark.parametrize("seed", [pytest.param(seed, id=f"{seed} {what}") for seed, what in kept("attention").items()])
def test_what_was_found_stays_mended(seed):
    assert broken(seed, every=True) == []


@pytest.mark.parametrize("first", FRESH_ATTENTION[::8])
def test_random_attention_is_the_definition(first):
    found = {seed: broken(seed) for seed in range(first, first + 8)}
    assert {seed: texts for seed, texts in found.items() if texts} == {}


@pytest.mark.parametrize("seeds", [[*kept("command")], FRESH_COMMANDS], ids=["kept", "fresh"])
def test_commands_and_files_get_an_answer_or_an_error_in_words(seeds):
    # In a process of its own, which may die and whose memory is limited.
    tally = run("command", seeds, seconds=300)
    assert [str(failure) for failure in tally.failures] == []
    assert tally.cases == len(seeds)


def test_a_case_is_the_same_every_time():
    one, other = cases.make_case(12), cases.make_case(12)
    assert str(one) == str(other)
    assert torch.equal(one.queries.nan_to_num(), other.queries.nan_to_num())


def test_cases_are_of_every_kind():
    made = [cases.make_case(seed) for seed in range(600)]
    assert {part for case in made for part in case.score.kinds()} >= {
        *cases.DOTS,
        *cases.DISTANCES,
        *cases.STEPS,
        "bias",
    }
    assert {part for case in made for part in case.rule.kinds()} >= {*cases.RULES} - {"sparsemax"}
    assert {case.engine for case in made} == {*cases.ENGINES}
    assert {case.dtype for case in made} == {*cases.DTYPES}


def test_the_definition_shares_no_code_with_the_library():
    files = [*Path(definition.__file__).parent.glob("*.py"), Path(parts.__file__)]
    assert len(files) > 3
    assert [path.name for path in files if "regard" in path.read_text(encoding="utf-8")] == []


def test_the_definition_of_softmax_is_torchs():
    q, k, v = torch.rand(3, 4).double(), torch.rand(5, 4).double(), torch.rand(5, 2).double()
    got, weights, _ = definition.attention(Part("dot"), Part("softmax", {"temperature": 2.0}), None, {}, q, k, v)
    wanted = (q @ k.mT / 2).softmax(-1)
    torch.testing.assert_close(weights, wanted)
    torch.testing.assert_close(got, wanted @ v)


def test_a_promise_that_is_broken_is_found(monkeypatch):
    import regard

    wrong = regard.attend
    monkeypatch.setattr(regard, "attend", lambda *tensors, **options: wrong(*tensors, **options) * 1.001)
    monkeypatch.setattr("fuzz.attention.MORE", 0)
    found = [seed for seed in FRESH_ATTENTION[:16] if broken(seed)]
    assert len(found) > 6
