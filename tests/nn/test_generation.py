"""Writing token by token: what greedy, sampling and beam search find, and what they looked at."""

import functools
import itertools
import math

import pytest
import torch

from regard import Multiplicative, nn
from regard.errors import DtypeError, OptionError, ScoreError, ShapeError

START, STOP, SOURCE, TARGET = 1, 2, 9, 5
SOURCES = torch.tensor([[3, 4, 5, 6], [7, 8, 3, 0], [4, 0, 0, 0]])
PADDING = SOURCES == 0


def recurrent(seed=0, **options):
    torch.manual_seed(seed)
    model = nn.Seq2Seq(SOURCE, TARGET, 8, **options).eval()
    return sharpened(model)


def transformer(seed=0, **options):
    torch.manual_seed(seed)
    return sharpened(nn.Seq2SeqTransformer(SOURCE, TARGET, 8, 2, 2, **options).eval())


def sharpened(model):
    """With outputs far apart, so that what is likeliest depends on what was written."""
    with torch.no_grad():
        model.output.weight.mul_(4)
    return model.double()


MODELS = {"recurrent": recurrent, "transformer": transformer}


def log_probability(model, place, tokens, complete):
    """Of a whole sequence, by one forward pass of one source."""
    source = SOURCES[place : place + 1, : int((~PADDING[place]).sum())]
    wanted = [*tokens, STOP] if complete else list(tokens)
    with torch.no_grad():
        scores = model(source, torch.tensor([[START, *wanted[:-1]]]))
    steps = scores.log_softmax(-1)[0]
    return float(steps[range(len(wanted)), wanted].sum())


def write(model, **options):
    return nn.generate(model, SOURCES, start=START, stop=STOP, source_padding=PADDING, **options)


@pytest.mark.parametrize("method", ["greedy", "sample", "beam"])
@pytest.mark.parametrize("name", MODELS)
def test_scores_are_the_models_own_log_probabilities(name, method):
    completed = set()
    for seed in range(4):
        model = MODELS[name](seed)
        for place, each in enumerate(write(model, method=method, max_length=6, generator=torch.manual_seed(seed))):
            assert each.score == pytest.approx(log_probability(model, place, each.tokens, each.complete), abs=1e-9)
            assert STOP not in each.tokens
            assert len(each.tokens) <= 6
            assert each.complete or len(each.tokens) == 6
            assert each.attention is None
            completed.add(each.complete)
    assert True in completed


@pytest.mark.parametrize("name", MODELS)
def test_greedy_takes_the_likeliest_token_each_time(name):
    model = MODELS[name](1)
    for place, each in enumerate(write(model, max_length=5)):
        tokens = [*each.tokens, STOP] if each.complete else each.tokens
        source = SOURCES[place : place + 1, : int((~PADDING[place]).sum())]
        with torch.no_grad():
            scores = model(source, torch.tensor([[START, *tokens[:-1]]]))
        assert scores.argmax(-1)[0].tolist() == tokens


@functools.cache
def every_sequence(name, seed, place):
    """The log probability of each sequence of at most three tokens and a stop."""
    model, others = MODELS[name](seed), [token for token in range(TARGET) if token != STOP]
    sequences = [each for length in range(4) for each in itertools.product(others, repeat=length)]
    return {tokens: log_probability(model, place, tokens, True) for tokens in sequences}


@pytest.mark.parametrize("penalty", [0.0, 0.7, 1.0, 2.0])
@pytest.mark.parametrize("name", MODELS)
def test_beam_search_with_room_for_all_finds_the_best_of_all(name, penalty):
    differs = False
    for seed in (0, 3):
        model = MODELS[name](seed)
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


@pytest.mark.parametrize("name", MODELS)
def test_one_beam_is_greedy(name):
    for seed in range(3):
        model = MODELS[name](seed)
        beams = write(model, method="beam", beams=1, max_length=5, length_penalty=0)
        for greedy, beam in zip(write(model, max_length=5), beams, strict=True):
            assert beam.tokens == greedy.tokens
            assert beam.complete or not greedy.complete


def test_a_penalty_for_length_makes_sequences_longer():
    lengths = []
    for penalty in (0.0, 5.0):
        found = write(recurrent(0), method="beam", beams=64, max_length=3, length_penalty=penalty)
        lengths.append(sum(len(each.tokens) for each in found))
    assert lengths[0] < lengths[1]


@pytest.mark.parametrize("method", ["greedy", "sample", "beam"])
def test_limits(method):
    model = recurrent()
    with torch.no_grad():
        model.output.bias[STOP] = -1e9
    for each in write(model, method=method, max_length=3):
        assert len(each.tokens) == 3
        if method != "beam":  # whose only complete sequences are those it was forced to close
            assert not each.complete
    with torch.no_grad():
        model.output.bias[STOP] = 1e9
    for limit in (0, 3):
        for each in write(model, method=method, max_length=limit, attention=True):
            assert (each.tokens, each.complete, each.score) == ([], True, pytest.approx(0))
            assert each.attention.shape == (1, 1, 1, 4)


@pytest.mark.parametrize("method", ["greedy", "beam"])
def test_no_room_and_no_stop_writes_nothing(method):
    model = recurrent()
    with torch.no_grad():
        model.output.bias[STOP] = -math.inf
    for each in write(model, method=method, beams=2, max_length=0, attention=True):
        assert (each.tokens, each.complete, each.score) == ([], False, 0)
        assert each.attention.shape == (1, 1, 0, 4)


# What was looked at ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["greedy", "sample", "beam"])
@pytest.mark.parametrize("name", MODELS)
def test_attention_is_what_a_recording_gives_for_the_same_tokens(name, method):
    model = MODELS[name](1)
    for place, each in enumerate(
        write(model, method=method, max_length=4, attention=True, generator=torch.manual_seed(0))
    ):
        wanted = [*each.tokens, STOP] if each.complete else each.tokens
        target = torch.tensor([[START, *wanted[:-1]]])
        with torch.no_grad(), nn.record(model, layers=model.alignment) as recording:
            model(SOURCES[place : place + 1], target, PADDING[place : place + 1])
        if name == "recurrent":  # one call for each token
            expected = torch.cat([view.dense() for view in recording.views()], 1)[None]
        else:
            expected = torch.cat([recording[layer][0].dense() for layer in model.alignment])
        torch.testing.assert_close(each.attention, expected)  # (layers, heads, tokens, n_source)
        torch.testing.assert_close(each.attention.sum(-1), torch.ones_like(each.attention[..., 0]))
        assert float(each.attention[..., PADDING[place]].abs().sum()) == 0


def test_a_recording_around_generation_sees_every_step():
    model = transformer()
    with nn.record(model) as recording:
        found = write(model, max_length=3, attention=True)
    n_steps = max(len(each.tokens) + each.complete for each in found)
    n_steps = max(n_steps, 4 if not all(each.complete for each in found) else 0)
    assert len(recording["transformer.decoder.layers.0.self_attn"]) == n_steps
    assert [view.shape[-1] for view in recording["transformer.decoder.layers.0.self_attn"]] == list(
        range(1, n_steps + 1)
    )
    assert len(recording["transformer.encoder.layers.0.self_attn"]) == 1


# Sampling -------------------------------------------------------------------------------------------------------------


def test_sampling_is_repeated_by_its_generator():
    model = recurrent()
    once, again, other = (
        [each.tokens for each in write(model, method="sample", generator=torch.Generator().manual_seed(seed))]
        for seed in (0, 0, 1)
    )
    assert once == again
    assert once != other


@pytest.mark.parametrize("options", [{"top_k": 1}, {"temperature": 1e-6}, {"top_p": 1e-6}], ids=str)
def test_what_leaves_one_token_is_greedy(options):
    model = recurrent(4)
    wanted = [each.tokens for each in write(model, max_length=6)]
    assert [each.tokens for each in write(model, method="sample", max_length=6, **options)] == wanted


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({}, [0.1, 0.4, 0.05, 0.25, 0.2]),
        ({"top_k": 2}, [0, 0.4 / 0.65, 0, 0.25 / 0.65, 0]),
        ({"top_k": 3, "top_p": 0.5}, [0, 0.4 / 0.65, 0, 0.25 / 0.65, 0]),
        ({"top_k": 99}, [0.1, 0.4, 0.05, 0.25, 0.2]),
        ({"top_p": 0.8}, [0, 0.4 / 0.85, 0, 0.25 / 0.85, 0.2 / 0.85]),
        ({"temperature": 0.5}, [0.01 / 0.275, 0.16 / 0.275, 0.0025 / 0.275, 0.0625 / 0.275, 0.04 / 0.275]),
    ],
    ids=str,
)
def test_tokens_are_drawn_as_often_as_they_are_likely(options, wanted):
    class Constant(torch.nn.Module):
        alignment = ()

        def start(self, source, source_padding=None):
            return None

        def step(self, tokens, state):
            return torch.tensor([0.1, 0.4, 0.05, 0.25, 0.2]).log().expand(len(tokens), -1)

    found = nn.generate(
        Constant(),
        torch.zeros(20_000, 1, dtype=torch.long),
        start=0,
        stop=99,
        max_length=1,
        method="sample",
        generator=torch.Generator().manual_seed(0),
        **options,
    )
    counts = torch.bincount(torch.tensor([each.tokens[0] for each in found]), minlength=5) / len(found)
    torch.testing.assert_close(counts, torch.tensor(wanted, dtype=counts.dtype), atol=0.012, rtol=0)
    assert all((count == 0) == (share == 0) for count, share in zip(counts.tolist(), wanted, strict=True))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"method": "best"}, "`method` must be"),
        ({"max_length": -1}, "`max_length` must be 0 or more"),
        ({"beams": 0}, "`beams` must be 1 or more"),
        ({"top_k": 0}, "`top_k` must be 1 or more"),
        ({"top_p": 0.0}, "`top_p` must be in"),
        ({"top_p": 1.5}, "`top_p` must be in"),
        ({"temperature": 0.0}, "`temperature` must be above 0"),
        ({"temperature": math.nan}, "`temperature` must be above 0"),
        ({"temperature": math.inf}, "`temperature` must be above 0 and finite"),
        ({"beams": 2.0}, "`beams` must be 1 or more, a whole number: got 2.0"),
        ({"max_length": 2.5}, "`max_length` must be 0 or more, a whole number"),
        ({"length_penalty": -0.1}, "`length_penalty` must be 0 or more"),
        ({"length_penalty": math.inf}, "`length_penalty` must be 0 or more"),
    ],
)
def test_options_that_make_no_sense(options, text):
    with pytest.raises(OptionError, match=text):
        write(recurrent(), **options)


@pytest.mark.parametrize(
    ("source", "error"),
    [
        (torch.tensor([3, 4]), ShapeError),
        (torch.zeros(0, 3, dtype=torch.long), ShapeError),
        (SOURCES.float(), DtypeError),
        ([[3, 4]], DtypeError),
    ],
    ids=["one", "none", "float", "list"],
)
def test_a_source_must_be_a_batch_of_token_numbers(source, error):
    with pytest.raises(error, match=r"`source` must be .*\(batch, n\)"):
        nn.generate(recurrent(), source, start=START, stop=STOP)


@pytest.mark.parametrize("kind", [torch.long, torch.uint8, torch.float32])
@pytest.mark.parametrize("name", MODELS)
def test_padding_is_true_or_false(name, kind):
    # Numbers are added to scores in PyTorch's masks: 1.0 for padding would hide nothing.
    padding = PADDING.to(kind)
    model = MODELS[name]()
    with pytest.raises(DtypeError, match=r"Padding must be bool.*source_padding\.bool\(\)"):
        nn.generate(model, SOURCES, start=START, stop=STOP, source_padding=padding)
    with pytest.raises(DtypeError, match="Padding must be bool"):
        model(SOURCES, SOURCES.clamp(max=TARGET - 1), padding)
    with pytest.raises(ShapeError, match="padding the same"):
        model(SOURCES, SOURCES.clamp(max=TARGET - 1), PADDING[:, :2])


class Scores(torch.nn.Module):
    """The same scores after every token."""

    alignment = ()

    def __init__(self, *scores, after_stop=None):
        super().__init__()
        self.scores, self.after_stop = torch.tensor(scores), after_stop

    def start(self, source, source_padding=None):
        return self

    def step(self, tokens, state):
        scores = self.scores.expand(len(tokens), -1)
        return scores if self.after_stop is None else torch.where((tokens == STOP)[:, None], self.after_stop, scores)

    def reorder(self, index):
        pass


def test_of_tokens_that_are_as_likely_the_lowest_are_drawn_among():
    source = torch.zeros(300, 1, dtype=torch.long)
    for options in ({"top_k": 2}, {"top_p": 0.39}):
        found = nn.generate(
            Scores(0.0, -9.0, 0.0, 0.0, 0.0, 0.0), source, start=0, stop=99, max_length=1, method="sample", **options
        )
        assert {each.tokens[0] for each in found} == {0, 2}


@pytest.mark.parametrize("method", ["greedy", "sample", "beam"])
@pytest.mark.parametrize("wrong", [(math.nan, 0.0), (math.inf, 0.0), (-math.inf, -math.inf)], ids=str)
def test_scores_from_which_no_token_follows(wrong, method):
    with pytest.raises(ScoreError, match="must be numbers"):
        nn.generate(Scores(*wrong), SOURCES, start=0, stop=1, max_length=3, method=method)


@pytest.mark.parametrize("method", ["greedy", "sample", "beam"])
def test_what_a_model_says_after_the_stop_does_not_matter(method):
    model = Scores(0.5, 0.0, 1.0, after_stop=math.nan)
    for each in nn.generate(
        model, SOURCES, start=0, stop=STOP, max_length=9, method=method, beams=2, generator=torch.manual_seed(0)
    ):
        assert math.isfinite(each.score)


def test_attention_needs_layers_that_look_at_the_source():
    class Blind(nn.Seq2Seq):
        alignment = ()

    for model in (Blind(SOURCE, TARGET, 8), Scores(0.0, 1.0)):
        with pytest.raises(OptionError, match="`alignment` names the layers"):
            nn.generate(model, SOURCES, start=0, stop=1, attention=True)


@pytest.mark.parametrize("method", ["greedy", "beam"])
@pytest.mark.parametrize("name", MODELS)
def test_sources_do_not_change_each_other(name, method):
    model = MODELS[name](5)
    together = write(model, method=method, max_length=5, attention=True)
    for place, each in enumerate(together):
        n = int((~PADDING[place]).sum())
        (alone,) = nn.generate(
            model, SOURCES[place : place + 1, :n], start=START, stop=STOP, method=method, max_length=5, attention=True
        )
        assert (alone.tokens, alone.complete) == (each.tokens, each.complete)
        assert alone.score == pytest.approx(each.score, abs=1e-9)
        torch.testing.assert_close(each.attention[..., :n], alone.attention)


def test_luongs_model_writes_too():
    model = recurrent(score=Multiplicative(8, 16))
    for place, each in enumerate(write(model, method="beam", max_length=4, attention=True)):
        assert each.score == pytest.approx(log_probability(model, place, each.tokens, each.complete), abs=1e-9)
        torch.testing.assert_close(each.attention.sum(-1), torch.ones_like(each.attention[..., 0]))
