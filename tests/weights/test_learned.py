"""What rules learn: temperature, sink and alpha, one or one for each head."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from regard import Dot, Entmax, Proportional, Softmax, Sparsemax, TopK, attend, partial, plan, weigh
from regard import nn as layers
from regard.engines import Tiled
from regard.errors import OptionError, ScoreError, ShapeError
from regard.nn import base_layer, recording

ENGINES = [pytest.param("reference", id="reference"), pytest.param(Tiled(tile_elements=64), id="tiled")]


def drawn():
    generator = torch.Generator().manual_seed(0)
    return (torch.randn(2, 3, n, d, dtype=torch.float64, generator=generator) for n, d in ((7, 4), (21, 4), (21, 2)))


def parameter(*numbers: float) -> nn.Parameter:
    return nn.Parameter(torch.tensor(numbers if len(numbers) > 1 else numbers[0], dtype=torch.float64))


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("temperature", [(0.7,), (0.5, 1.0, 2.0)])
def test_a_learned_temperature_divides_the_scores(engine, temperature):
    q, k, v = drawn()
    rule = Softmax(temperature=parameter(*temperature))
    output = attend(q, k, v, score=Dot(), weights=rule, engine=engine)
    plain = rule.temperature.detach().clone().requires_grad_()
    expected = torch.softmax(q @ k.mT / plain.reshape(*plain.shape, 1, 1), -1) @ v
    torch.testing.assert_close(output, expected)
    output.square().sum().backward()
    expected.square().sum().backward()
    torch.testing.assert_close(rule.temperature.grad, plain.grad)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("sink", [(0.7,), (0.5, -1.0, 30.0)])
def test_a_learned_sink_is_one_more_key_of_value_zero(engine, sink):
    q, k, v = drawn()
    rule = Softmax(sink=parameter(*sink))
    output = attend(q, k, v, score=Dot(), weights=rule, engine=engine)
    plain = rule.sink.detach().clone().requires_grad_()
    logit = plain.reshape(*plain.shape, 1, 1).expand(2, 3, 7, 1)
    expected = torch.softmax(torch.cat([q @ k.mT, logit], -1), -1)[..., :-1] @ v
    torch.testing.assert_close(output, expected)
    output.square().sum().backward()
    expected.square().sum().backward()
    torch.testing.assert_close(rule.sink.grad, plain.grad)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_sink_that_is_a_plain_tensor_is_a_buffer_and_does_not_learn(engine):
    q, k, v = drawn()
    rule = Softmax(sink=torch.tensor([0.5, 1.0, 2.0]).double())
    assert list(rule.parameters()) == []
    assert [name for name, _ in rule.named_buffers()] == ["sink"]
    learned = Softmax(sink=nn.Parameter(rule.sink.clone()))
    torch.testing.assert_close(
        attend(q, k, v, weights=rule, engine=engine), attend(q, k, v, weights=learned, engine=engine)
    )


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("alpha", [(1.3,), (1.2, 2.0, 3.5)])
def test_a_learned_alpha_has_the_gradient_of_a_difference_quotient(engine, alpha):
    q, k, v = drawn()
    rule = Entmax(parameter(*alpha))

    def loss(rule):
        return attend(q, k, v, score=Dot(), weights=rule, engine=engine).square().sum()

    loss(rule).backward()
    flat = rule.alpha.detach().reshape(-1)
    for place in range(len(alpha)):
        step = torch.zeros_like(flat)
        step[place] = 1e-6
        up, down = (Entmax((flat + sign * step).reshape(rule.alpha.shape)) for sign in (1, -1))
        slope = (loss(up) - loss(down)) / 2e-6
        torch.testing.assert_close(rule.alpha.grad.reshape(-1)[place], slope, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("engine", ENGINES)
def test_what_an_inner_rule_learns_learns_inside_a_top_k(engine):
    q, k, v = drawn()
    whole, inner = Softmax(temperature=parameter(0.5), sink=parameter(1.0)), None
    rule = TopK(21, Softmax(temperature=parameter(0.5), sink=parameter(1.0)))
    inner = rule.then
    for each in (whole, rule):
        attend(q, k, v, score=Dot(), weights=each, engine=engine).square().sum().backward()
    assert len(list(rule.parameters())) == 2
    torch.testing.assert_close(inner.temperature.grad, whole.temperature.grad)
    torch.testing.assert_close(inner.sink.grad, whole.sink.grad)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_sink_takes_everything_from_a_fully_masked_query(engine):
    q, k, v = torch.ones(2, 3), torch.ones(0, 3), torch.ones(0, 4)
    assert torch.equal(attend(q, k, v, weights=Softmax(sink=0.0), engine=engine), torch.zeros(2, 4))


HEADS = {
    "temperature": lambda: Softmax(temperature=parameter(0.5, 2.0, 1.0)),
    "sink": lambda: Softmax(sink=parameter(0.5, 2.0, 1.0)),
    "alpha": lambda: Entmax(parameter(1.2, 2.0, 3.0)),
    "inner-sink": lambda: TopK(4, Softmax(sink=parameter(0.5, 2.0, 1.0))),
}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", HEADS)
def test_a_number_for_each_head_is_a_batch_axis_where_the_inputs_have_none(name, engine):
    q, k, v = (each[0, 0] for each in drawn())
    rule = HEADS[name]()
    alone = attend(q, k, v, weights=rule, engine=engine)
    repeated = attend(q.expand(3, 7, 4), k, v, weights=rule, engine="reference")
    torch.testing.assert_close(alone, repeated)
    found = torch.autograd.grad(alone.square().sum(), list(rule.parameters()))
    torch.testing.assert_close(found, torch.autograd.grad(repeated.square().sum(), list(rule.parameters())))


@pytest.mark.parametrize("name", HEADS)
def test_numbers_for_another_number_of_heads_are_refused(name):
    text = r"What a score or rule has for each head must broadcast with the last batch axis: .*\. Put heads on the"
    with pytest.raises(ShapeError, match=text):
        attend(torch.ones(2, 7, 4), torch.ones(5, 4), torch.ones(5, 4), weights=HEADS[name]())


@pytest.mark.parametrize("name", HEADS)
def test_rules_with_a_number_for_each_head_merge_and_have_a_repr(name):
    q, k, v = drawn()
    rule = HEADS[name]()
    parts = [partial(q, k[..., a:b, :], v[..., a:b, :], weights=rule) for a, b in ((0, 9), (9, 21))]
    merged = parts[0].merge(parts[1])
    torch.testing.assert_close(merged.finish(), attend(q, k, v, weights=rule))
    assert "3 learned" in repr(rule)


def test_a_temperature_that_is_a_plain_tensor_is_a_buffer():
    rule = Softmax(temperature=torch.tensor([0.5, 2.0, 1.0]).double())
    assert [name for name, _ in rule.named_buffers()] == ["temperature"]
    learned = Softmax(temperature=nn.Parameter(rule.temperature.clone()))
    torch.testing.assert_close(attend(*drawn(), weights=rule), attend(*drawn(), weights=learned))


@pytest.mark.parametrize("then", ["softmax", Softmax, 3])
def test_something_that_is_no_rule_inside_a_top_k_is_refused(then):
    with pytest.raises(OptionError, match=r"`then` of TopK must be a regard Weights: got "):
        TopK(3, then)


@pytest.mark.parametrize("temperature", [0.0, -1.0])
def test_a_temperature_that_is_not_positive_is_refused(temperature):
    with pytest.raises(OptionError, match=rf"`temperature` of Softmax must be positive: got {temperature}"):
        Softmax(temperature=temperature)


@pytest.mark.parametrize("alpha", [1.0, 0.5, 4.5, torch.tensor([1.5, 9.0])])
def test_an_alpha_outside_its_range_is_refused(alpha):
    text = r"`alpha` of Entmax must be in \(1, 4\]: got .*\. Use Softmax\(\) for alpha = 1; clamp a learned alpha\."
    with pytest.raises(OptionError, match=text):
        Entmax(alpha)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_learned_alpha_that_left_its_range_is_refused_at_the_next_call(engine):
    rule = Entmax(parameter(1.5))
    rule.alpha.data.fill_(0.9)
    with pytest.raises(OptionError, match=r"`alpha` of Entmax must be in \(1, 4\]: got 0\.9"):
        attend(*drawn(), weights=rule, engine=engine)


@pytest.mark.parametrize("k", [0, -1, 2.0, True, "3"])
def test_a_k_that_is_no_positive_integer_is_refused(k):
    with pytest.raises(OptionError, match=r"`k` of TopK must be an integer of at least 1: got "):
        TopK(k)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_negative_score_under_proportional_is_an_error(engine):
    text = r"Proportional\(\) must have scores that are not negative: got -2\. Use Softmax\(\) for scores of any sign\."
    for rule in (Proportional(), TopK(2, Proportional())):
        with pytest.raises(ScoreError, match=text):
            attend(
                torch.ones(1, 1),
                torch.tensor([[1.0], [-2.0]]),
                torch.ones(2, 1),
                score=Dot(),
                weights=rule,
                engine=engine,
            )


def test_reprs_show_what_was_given():
    assert (repr(Softmax()), repr(Softmax(0.5, sink=1.0))) == ("Softmax()", "Softmax(temperature=0.5, sink=1)")
    assert (repr(Sparsemax()), repr(Entmax(1.5))) == ("Sparsemax()", "Entmax(alpha=1.5)")
    assert repr(TopK(3)) == "TopK(\n  k=3\n  (then): Softmax()\n)"


@pytest.mark.parametrize("alpha", [(1.5,), (1.2, 1.5, 2.0)])
@pytest.mark.parametrize("top", [None, 3])
def test_where_nothing_needs_a_gradient_kernels_take_a_learned_alpha(alpha, top):
    q, k, v = (each.float().repeat(1, 1, 16, 1) for each in drawn())
    learned, fixed = Entmax(parameter(*alpha)), Entmax(torch.tensor(alpha).squeeze())
    learned, fixed = (each if top is None else TopK(top, each) for each in (learned, fixed))
    assert "learned alpha" in plan(q, k, v, weights=learned).reason or top is not None
    with torch.no_grad():
        assert plan(q, k, v, weights=learned) == plan(q, k, v, weights=fixed)
        torch.testing.assert_close(attend(q, k, v, weights=learned), attend(q, k, v, weights=fixed))
    view = weigh(q, k, v, weights=learned)
    view.entropy().sum().backward()
    assert next(learned.parameters()).grad is not None


def test_a_learned_alpha_of_many_pairs_is_trained_by_tiles():
    q = torch.zeros(1, 4, 1024, 8)
    found = plan(q, q, q, weights=Entmax(parameter(1.5)))
    assert found.engine == "tiled"


def test_layers_and_recordings_have_a_learned_alpha_at_rest_where_nothing_needs_a_gradient(monkeypatch):
    rules, own = [], weigh
    for module in (base_layer, recording):
        monkeypatch.setattr(
            module, "weigh", lambda *inputs, **options: rules.append(options["weights"]) or own(*inputs, **options)
        )
    layer, x = layers.MultiHeadAttention(8, 2, batch_first=True, weights=Entmax(parameter(1.5))), torch.rand(1, 5, 8)
    for grad in (False, True):
        with torch.set_grad_enabled(grad), layers.record(layer, top=2):
            layer(x, x, x)
            layer(x, x, x, need_weights=False)
    assert [len(rule.learned()) for rule in rules] == [0, 0, 1, 0]
