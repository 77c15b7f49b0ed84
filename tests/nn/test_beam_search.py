"""Beam search: against every sequence there is, and against the search as it is defined."""

import functools
import itertools
import math

import pytest
import torch

from regard import nn

START, STOP, TARGET = 1, 2, 5
SOURCES = torch.tensor([[3, 4, 5, 6]])


@pytest.fixture(scope="module")
def every_sequence(models, log_probability):
    """`every_sequence(name, seed, place)`: the log probability of each sequence of at most three tokens and a stop."""

    @functools.cache
    def of_model(name, seed, place):
        model, others = models[name](seed), [token for token in range(TARGET) if token != STOP]
        sequences = [each for length in range(4) for each in itertools.product(others, repeat=length)]
        return {tokens: log_probability(model, place, tokens, True) for tokens in sequences}

    return of_model


@pytest.mark.parametrize("penalty", [0.0, 0.7, 1.0, 2.0])
@pytest.mark.parametrize("name", ["recurrent", "transformer"])
def test_beam_search_with_room_for_all_finds_the_best_of_all(name, penalty, models, write, every_sequence):
    differs = False
    for seed in (0, 3):
        model = models[name](seed)
        found = write(model, method="beam", beams=4**3, max_length=3, length_penalty=penalty)
        greedy = write(model, max_length=3)
        for place, each in enumerate(found):
            known = every_sequence(name, seed, place)
            ranked = {tokens: score / (len(tokens) + 1) ** penalty for tokens, score in known.items()}
            assert len(ranked) == 1 + 4 + 16 + 64
            best = max(ranked, key=ranked.get)
            assert tuple(each.tokens) == best
            assert each.complete
            assert each.score / (len(each.tokens) + 1) ** penalty == pytest.approx(ranked[best], abs=1e-9)
            differs |= each.tokens != greedy[place].tokens
    assert differs, "greedy finds the same everywhere: the search had nothing to do"


class Table(torch.nn.Module):
    """Scores that depend on the place and the last token: what a search finds can be computed by hand."""

    alignment = ()

    def __init__(self, n_places, generator):
        super().__init__()
        self.scores = 2 * torch.randn(n_places, TARGET, TARGET, generator=generator, dtype=torch.float64)
        self.place = 0

    def start(self, source, source_padding=None):
        self.place = 0
        return self

    def step(self, tokens, state):
        self.place += 1
        return self.scores[self.place - 1, tokens]

    def reorder(self, index):
        """The scores do not depend on the source."""


def search(table, beams, max_length, penalty):
    """Beam search as it is defined: it goes on to the limit, whatever it has found, and there closes what it has."""
    steps = table.scores.log_softmax(-1)
    unfinished, finished = {(): 0.0}, {}
    for place in range(max_length + 1):
        longer = {
            (*tokens, token): score + float(steps[place, tokens[-1] if tokens else START, token])
            for tokens, score in unfinished.items()
            for token in range(TARGET)
        }
        best = sorted(longer, key=longer.get, reverse=True)
        unfinished = {}
        for tokens in best:
            if tokens[-1] == STOP and (len(unfinished) < beams or place == max_length):
                finished[tokens] = longer[tokens]
            elif tokens[-1] != STOP and len(unfinished) < beams and place < max_length:
                unfinished[tokens] = longer[tokens]
    best = max(finished, key=lambda tokens: finished[tokens] / len(tokens) ** penalty)
    return list(best[:-1]), finished[best]


@pytest.mark.parametrize("penalty", [0.0, 1.0, 1.5])
@pytest.mark.parametrize("beams", [1, 2, 3])
def test_a_narrow_search_finds_what_it_would_if_it_never_ended_early(beams, penalty):
    generator = torch.Generator().manual_seed(beams)
    source = torch.zeros(1, 1, dtype=torch.long)
    for _ in range(60):
        table = Table(7, generator)
        options = {"method": "beam", "beams": beams, "max_length": 6, "length_penalty": penalty}
        (found,) = nn.generate(table, source, start=START, stop=STOP, **options)
        tokens, score = search(table, beams, 6, penalty)
        assert found.complete
        assert found.tokens == tokens
        assert found.score == pytest.approx(score, abs=1e-9)


def test_a_sequence_at_the_limit_competes_with_those_that_stopped_before():
    class Late(torch.nn.Module):
        """Stops at once with 1%, or writes token 3 for sure, and then stops with 10%, the least of all tokens."""

        alignment = ()

        def start(self, source, source_padding=None):
            self.rows = iter([[0.0, 0.0, 0.01, 0.99, 0.0], [0.3, 0.3, 0.1, 0.3, 0.0]])
            return self

        def step(self, tokens, state):
            return torch.tensor(next(self.rows), dtype=torch.float64).log().expand(len(tokens), -1)

        def reorder(self, index):
            pass

    for beams in (1, 2):
        options = {"method": "beam", "beams": beams, "max_length": 1, "length_penalty": 0.0}
        (found,) = nn.generate(Late(), SOURCES[:1], start=START, stop=STOP, **options)
        assert (found.tokens, found.complete) == ([3], True)
        assert found.score == pytest.approx(math.log(0.99 * 0.1))
    # Without a stop there is nothing to close, and the limit ends it.
    (found,) = nn.generate(Late(), SOURCES[:1], start=START, stop=99, method="beam", beams=1, max_length=1)
    assert (found.tokens, found.complete) == ([3], False)
    assert found.score == pytest.approx(math.log(0.99))


@pytest.mark.parametrize("name", ["recurrent", "transformer"])
def test_one_beam_is_greedy(name, models, write):
    for seed in range(3):
        model = models[name](seed)
        beams = write(model, method="beam", beams=1, max_length=5, length_penalty=0)
        for greedy, beam in zip(write(model, max_length=5), beams, strict=True):
            assert beam.tokens == greedy.tokens
            assert beam.complete or not greedy.complete


def test_a_penalty_for_length_makes_sequences_longer(models, write):
    lengths = []
    for penalty in (0.0, 5.0):
        found = write(models["recurrent"](0), method="beam", beams=64, max_length=3, length_penalty=penalty)
        lengths.append(sum(len(each.tokens) for each in found))
    assert lengths[0] < lengths[1]


def test_a_large_penalty_for_length_takes_the_longest_sequence():
    table = Table(7, torch.Generator().manual_seed(0))
    options = {"method": "beam", "beams": 3, "max_length": 6, "length_penalty": 1000.0}
    (found,) = nn.generate(table, torch.zeros(1, 1, dtype=torch.long), start=START, stop=STOP, **options)
    assert len(found.tokens) == 6
