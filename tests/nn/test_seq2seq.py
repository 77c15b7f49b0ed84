"""Models that read and write: with padding, with a cache, with additive and multiplicative attention."""

import pytest
import torch

from regard import Additive, Multiplicative, Sparsemax, attend, nn
from regard.errors import ShapeError

SOURCE, TARGET, HIDDEN = 9, 7, 8
SOURCES = torch.tensor([[3, 4, 5, 6, 7], [7, 8, 3, 0, 0], [4, 0, 0, 0, 0]])
PADDING = SOURCES == 0
TARGETS = torch.tensor([[1, 3, 4, 5], [1, 6, 6, 2], [1, 2, 0, 0]])


def recurrent(**options):
    return nn.Seq2Seq(SOURCE, TARGET, HIDDEN, **options)


def transformer(**options):
    return nn.Seq2SeqTransformer(SOURCE, TARGET, HIDDEN, 2, 2, **options)


MODELS = {
    "additive": recurrent,
    "two layers": lambda: recurrent(layers=2, embedding=5),
    "multiplicative": lambda: recurrent(score=Multiplicative(HIDDEN, 2 * HIDDEN)),
    "sparse": lambda: recurrent(weights=Sparsemax()),
    "transformer": transformer,
    "post-norm": lambda: transformer(norm_first=False, weights=Sparsemax()),
    "gated transformer": lambda: transformer(score=Additive(4, 4, 6)),
    "rotary": lambda: transformer(rotary=True),
}


def build(name):
    torch.manual_seed(2)
    return MODELS[name]().double().eval()


@pytest.mark.parametrize("name", MODELS)
def test_a_padded_batch_gives_what_each_source_gives_alone(name):
    model = build(name)
    together = model(SOURCES, TARGETS, PADDING)
    assert together.shape == (3, 4, TARGET)
    for place in range(3):
        n = int((~PADDING[place]).sum())
        alone = model(SOURCES[place : place + 1, :n], TARGETS[place : place + 1])
        torch.testing.assert_close(together[place : place + 1], alone)
    assert not torch.allclose(model(SOURCES, TARGETS)[1:], together[1:])  # padding that is not told is read


@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("name", MODELS)
def test_step_by_step_is_what_the_whole_target_gives(name, grad):
    model = build(name)
    wanted = model(SOURCES, TARGETS, PADDING).detach()
    with torch.set_grad_enabled(grad):
        state = model.start(SOURCES, PADDING)
        steps = [model.step(tokens, state) for tokens in TARGETS.T]
    torch.testing.assert_close(torch.stack(steps, 1).detach(), wanted)


@pytest.mark.parametrize("name", MODELS)
def test_a_state_that_is_reordered_follows_its_sources(name):
    model, index = build(name), torch.tensor([2, 0, 0, 1])
    with torch.no_grad():
        state = model.start(SOURCES, PADDING)
        model.step(TARGETS[:, 0], state)
        state.reorder(index)
        got = [model.step(TARGETS[index, place], state) for place in (1, 2)]
        wanted = model(SOURCES, TARGETS, PADDING)[index][:, 1:3]
    torch.testing.assert_close(torch.stack(got, 1), wanted)


@pytest.mark.parametrize("name", MODELS)
def test_a_token_does_not_see_those_after_it(name):
    model = build(name)
    other = TARGETS.clone()
    other[:, 2:] = 5
    one, changed = model(SOURCES, TARGETS, PADDING), model(SOURCES, other, PADDING)
    torch.testing.assert_close(one[:, :2], changed[:, :2])
    assert not torch.allclose(one[:, 2:], changed[:, 2:])


@pytest.mark.parametrize("name", MODELS)
def test_every_parameter_learns(name):
    model = build(name).train()
    loss = torch.nn.functional.cross_entropy(
        model(SOURCES, TARGETS[:, :-1], PADDING).flatten(0, 1), TARGETS[:, 1:].flatten()
    )
    loss.backward()
    still = [each for each, parameter in model.named_parameters() if parameter.grad is None]
    assert still == []
    before = loss.item()
    optimizer = torch.optim.Adam(model.parameters(), 0.02)
    for _ in range(30):
        optimizer.zero_grad()
        scores = model.eval()(SOURCES, TARGETS[:, :-1], PADDING)
        loss = torch.nn.functional.cross_entropy(scores.flatten(0, 1), TARGETS[:, 1:].flatten())
        loss.backward()
        optimizer.step()
    assert loss.item() < before / 2


def test_rotary_goes_by_distance_in_every_attention_and_in_the_look_at_the_source():
    model = build("rotary")
    layers = [module for module in model.modules() if isinstance(module, nn.MultiHeadAttention)]
    assert len(layers) == 6
    assert all(layer.rotary is not None for layer in layers)
    near = model(SOURCES, TARGETS, PADDING)
    for place in range(2):
        model.transformer.decoder.layers[place].multihead_attn.rotary = None
    assert not torch.allclose(model(SOURCES, TARGETS, PADDING), near)


def test_attention_is_bahdanaus_or_luongs():
    assert isinstance(recurrent().attention.score, Additive)
    model = build("multiplicative")
    with torch.no_grad(), nn.record(model) as recording:
        model(SOURCES, TARGETS, PADDING)
    assert recording.layers == model.alignment == ["attention"]
    assert [view.shape for view in recording.views("attention")] == [(3, 1, 5)] * 4
    dense = torch.cat([view.dense() for view in recording.views()], 1)
    torch.testing.assert_close(dense.sum(-1), torch.ones(3, 4, dtype=torch.float64))
    assert float(dense[PADDING[:, None].expand_as(dense)].abs().max()) == 0


@pytest.mark.parametrize("layers", [1, 2])
def test_the_recurrent_model_is_what_its_parts_give(layers):
    torch.manual_seed(4)
    model = recurrent(layers=layers, embedding=5).double().eval()
    keys, (hidden, cell) = model.reader(model.source_embedding(SOURCES))
    # Of each layer, the last state of both directions.
    hidden, cell = (each.reshape(layers, 2, 3, HIDDEN).transpose(1, 2).flatten(2) for each in (hidden, cell))
    state = (model.first_hidden(hidden).tanh(), model.first_cell(cell))
    context, wanted = torch.zeros(3, 1, 2 * HIDDEN, dtype=torch.float64), []
    for tokens in TARGETS.T:
        embedded = model.target_embedding(tokens)[:, None]
        written, state = model.writer(torch.cat([embedded, context], -1), state)
        context = attend(written, keys, keys, score=model.attention.score)
        wanted.append(model.output(model.mixed(torch.cat([embedded, written, context], -1)).tanh()))
    torch.testing.assert_close(model(SOURCES, TARGETS), torch.cat(wanted, 1))


def test_the_transformer_around_tokens_is_what_its_parts_give():
    model = build("transformer")
    source, target = (
        model.positions(embedding(tokens) * HIDDEN**0.5)
        for embedding, tokens in ((model.source_embedding, SOURCES), (model.target_embedding, TARGETS))
    )
    later = torch.ones(4, 4, dtype=torch.bool).triu(1)
    decoded = model.transformer(
        source, target, tgt_mask=later, src_key_padding_mask=PADDING, memory_key_padding_mask=PADDING
    )
    torch.testing.assert_close(model(SOURCES, TARGETS, PADDING), model.output(decoded))


def test_dropout_of_attention_can_be_set_apart():
    model = transformer(dropout=0.3, attention_dropout=0.0)
    layers = [each for each in model.modules() if isinstance(each, nn.MultiHeadAttention)]
    assert len(layers) == 6
    assert all(each.dropout == 0 for each in layers)
    assert model.transformer.encoder.layers[0].dropout1.p == 0.3


@pytest.mark.parametrize(
    ("padding", "text"),
    [
        (PADDING.flip(1), "Move padding to the end"),
        (torch.ones_like(PADDING), "every sequence must have a token"),
        (PADDING[:, :3], "padding the same"),
    ],
    ids=["left", "empty", "shape"],
)
def test_padding_that_cannot_be_read(padding, text):
    with pytest.raises(ShapeError, match=text):
        recurrent().start(SOURCES, padding)


def test_sequences_of_no_tokens():
    for model in (recurrent(), transformer()):
        assert model(SOURCES, TARGETS[:, :0], PADDING).shape == (3, 0, TARGET)
    with pytest.raises(ShapeError, match="must have a token to be read"):
        recurrent()(SOURCES[:, :0], TARGETS)
    # A Transformer needs nothing to look at: what it writes then depends on nothing but what it wrote.
    assert bool(transformer()(SOURCES[:, :0], TARGETS).isfinite().all())


@pytest.mark.parametrize("model", [recurrent, transformer])
def test_a_target_must_be_a_batch_as_large_as_the_source(model):
    with pytest.raises(ShapeError, match="batch"):
        model()(SOURCES, TARGETS[:2])
