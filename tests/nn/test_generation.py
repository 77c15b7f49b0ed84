"""Writing token by token: what greedy and sampling find, what every method promises, and what was attended to."""

import math

import pytest
import torch

from regard import Multiplicative, nn
from regard.errors import DtypeError, OptionError, ScoreError, ShapeError

START, STOP, SOURCE, TARGET = 1, 2, 9, 5
SOURCES = torch.tensor([[3, 4, 5, 6], [7, 8, 3, 0], [4, 0, 0, 0]])
PADDING = SOURCES == 0


@pytest.mark.parametrize("method", ["greedy", "sample", "beam"])
@pytest.mark.parametrize("name", ["recurrent", "transformer"])
def test_scores_are_the_models_own_log_probabilities(name, method, models, write, log_probability):
    completed = set()
    for seed in range(4):
        model = models[name](seed)
        for place, each in enumerate(write(model, method=method, max_length=6, generator=torch.manual_seed(seed))):
            assert each.score == pytest.approx(log_probability(model, place, each.tokens, each.complete), abs=1e-9)
            assert STOP not in each.tokens
            assert len(each.tokens) <= 6
            assert each.complete or len(each.tokens) == 6
            assert each.attention is None
            completed.add(each.complete)
    assert True in completed


@pytest.mark.parametrize("name", ["recurrent", "transformer"])
def test_greedy_takes_the_likeliest_token_each_time(name, models, write):
    model = models[name](1)
    for place, each in enumerate(write(model, max_length=5)):
        tokens = [*each.tokens, STOP] if each.complete else each.tokens
        source = SOURCES[place : place + 1, : int((~PADDING[place]).sum())]
        with torch.no_grad():
            scores = model(source, torch.tensor([[START, *tokens[:-1]]]))
        assert scores.argmax(-1)[0].tolist() == tokens


@pytest.mark.parametrize("method", ["greedy", "sample", "beam"])
def test_limits(method, models, write):
    model = models["recurrent"]()
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
            assert each.attention.shape == (1, 1, 0, 4)


@pytest.mark.parametrize("method", ["greedy", "beam"])
def test_no_room_and_no_stop_writes_nothing(method, models, write):
    model = models["recurrent"]()
    with torch.no_grad():
        model.output.bias[STOP] = -math.inf
    for each in write(model, method=method, beams=2, max_length=0, attention=True):
        assert (each.tokens, each.complete, each.score) == ([], False, 0)
        assert each.attention.shape == (1, 1, 0, 4)


# What was attended to ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["greedy", "sample", "beam"])
@pytest.mark.parametrize("name", ["recurrent", "transformer"])
def test_attention_is_what_a_recording_gives_for_the_same_tokens(name, method, models, write):
    written = []
    for seed in range(3):
        options = {"max_length": 4, "attention": True, "generator": torch.manual_seed(seed)}
        model = models[name](seed)
        written += [(model, place, each) for place, each in enumerate(write(model, method=method, **options))]
    compared = 0
    for model, place, each in written:
        if not each.tokens:
            continue
        compared += 1
        target = torch.tensor([[START, *each.tokens[:-1]]])
        with torch.no_grad(), nn.record(model, layers=model.alignment) as recording:
            model(SOURCES[place : place + 1], target, PADDING[place : place + 1])
        if name == "recurrent":  # one call for each token
            expected = torch.cat([view.dense() for view in recording.views()], 1)[None]
        else:
            expected = torch.cat([recording[layer].dense() for layer in model.alignment])
        torch.testing.assert_close(each.attention, expected)  # (layers, heads, tokens, n_source)
        torch.testing.assert_close(each.attention.sum(-1), torch.ones_like(each.attention[..., 0]))
        assert float(each.attention[..., PADDING[place]].abs().sum()) == 0
    assert compared, "nothing was written: there was nothing to compare"


def test_a_recording_around_generation_sees_every_step(models, write):
    model = models["transformer"]()
    with nn.record(model) as recording:
        found = write(model, max_length=3, attention=True)
    n_steps = max(len(each.tokens) + each.complete for each in found)
    n_steps = max(n_steps, 4 if not all(each.complete for each in found) else 0)
    assert len(recording.views("transformer.decoder.layers.0.self_attn")) == n_steps
    assert [view.shape[-1] for view in recording.views("transformer.decoder.layers.0.self_attn")] == list(
        range(1, n_steps + 1)
    )
    assert len(recording.views("transformer.encoder.layers.0.self_attn")) == 1


@pytest.mark.parametrize("method", ["greedy", "sample", "beam"])
@pytest.mark.parametrize("name", ["recurrent", "transformer"])
def test_attention_has_a_row_for_each_token_whether_or_not_it_stopped(name, method, models, write):
    complete = set()
    for seed in range(4):
        for each in write(
            models[name](seed), method=method, max_length=3, attention=True, generator=torch.manual_seed(seed)
        ):
            assert each.attention.shape[-2:] == (len(each.tokens), 4)
            complete.add(each.complete)
    assert True in complete


def test_what_was_written_can_be_drawn_with_its_tokens(models, write):
    pytest.importorskip("matplotlib", reason="needs regard[plots]")
    from regard.plots import alignment

    everything = [each for seed in range(8) for each in write(models["transformer"](seed), attention=True)]
    written = next(each for each in everything if each.tokens and each.complete)
    alignment(written.attention[0, 0], [str(token) for token in written.tokens], list("abcd"))


# Who can write --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [nn.Transformer, torch.nn.Transformer])
def test_a_transformer_without_a_vocabulary_is_told_from_one_that_writes(kind):
    text = (
        r"^`model` must write token by token, by `start` and `step`, as Seq2Seq and Seq2SeqTransformer do: "
        r"got Transformer\. It maps vectors to vectors and has no vocabulary: build Seq2SeqTransformer"
    )
    with pytest.raises(DtypeError, match=text):
        nn.generate(kind(8, 2, 1, 1, 8, batch_first=True), SOURCES, start=START, stop=STOP)


def test_another_model_must_have_what_a_writer_has():
    for model in (torch.nn.Linear(2, 2), None):
        with pytest.raises(
            DtypeError, match=r"got \w+\. Give it these methods, as `regard\.nn\.Writer` describes them"
        ):
            nn.generate(model, SOURCES, start=START, stop=STOP)


def test_a_writer_without_alignment_writes_but_keeps_no_attention():
    class Plain(torch.nn.Module):
        def start(self, source, source_padding=None):
            return None

        def step(self, tokens, state):
            return torch.tensor([0.0, 0.0, 9.0]).expand(len(tokens), -1)

    assert [each.tokens for each in nn.generate(Plain(), SOURCES, start=START, stop=STOP)] == [[], [], []]
    with pytest.raises(OptionError, match="`alignment` names its cross-attention layers"):
        nn.generate(Plain(), SOURCES, start=START, stop=STOP, attention=True)


# Sampling -------------------------------------------------------------------------------------------------------------


def test_sampling_is_repeated_by_its_generator(models, write):
    model = models["recurrent"]()
    once, again, other = (
        [each.tokens for each in write(model, method="sample", generator=torch.Generator().manual_seed(seed))]
        for seed in (0, 0, 1)
    )
    assert once == again
    assert once != other


@pytest.mark.parametrize("options", [{"top_k": 1}, {"temperature": 1e-6}, {"top_p": 1e-6}], ids=str)
def test_what_leaves_one_token_is_greedy(options, models, write):
    model = models["recurrent"](4)
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
def test_options_that_make_no_sense(options, text, models, write):
    with pytest.raises(OptionError, match=text):
        write(models["recurrent"](), **options)


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
def test_a_source_must_be_a_batch_of_token_numbers(source, error, models):
    with pytest.raises(error, match=r"`source` must be .*\(batch, n\)"):
        nn.generate(models["recurrent"](), source, start=START, stop=STOP)


@pytest.mark.parametrize("kind", [torch.long, torch.uint8, torch.float32])
@pytest.mark.parametrize("name", ["recurrent", "transformer"])
def test_padding_is_true_or_false(name, kind, models):
    # Numbers are added to scores in PyTorch's masks: 1.0 for padding would hide nothing.
    padding = PADDING.to(kind)
    model = models[name]()
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


def test_attention_needs_cross_attention_layers():
    class Blind(nn.Seq2Seq):
        alignment = ()

    for model in (Blind(SOURCE, TARGET, 8), Scores(0.0, 1.0)):
        with pytest.raises(OptionError, match="`alignment` names its cross-attention layers"):
            nn.generate(model, SOURCES, start=0, stop=1, attention=True)


@pytest.mark.parametrize("method", ["greedy", "beam"])
@pytest.mark.parametrize("name", ["recurrent", "transformer"])
def test_sources_do_not_change_each_other(name, method, models, write):
    model = models[name](5)
    together = write(model, method=method, max_length=5, attention=True)
    for place, each in enumerate(together):
        n = int((~PADDING[place]).sum())
        (alone,) = nn.generate(
            model, SOURCES[place : place + 1, :n], start=START, stop=STOP, method=method, max_length=5, attention=True
        )
        assert (alone.tokens, alone.complete) == (each.tokens, each.complete)
        assert alone.score == pytest.approx(each.score, abs=1e-9)
        torch.testing.assert_close(each.attention[..., :n], alone.attention)


def test_luongs_model_writes_too(models, write, log_probability):
    model = models["recurrent"](score=Multiplicative(8, 16))
    for place, each in enumerate(write(model, method="beam", max_length=4, attention=True)):
        assert each.score == pytest.approx(log_probability(model, place, each.tokens, each.complete), abs=1e-9)
        torch.testing.assert_close(each.attention.sum(-1), torch.ones_like(each.attention[..., 0]))
