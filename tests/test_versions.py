"""A view of inputs that changed in place says so: no reading mixes the old ones with the new."""

from __future__ import annotations

from functools import partial

import pytest
import torch

import regard
from regard import Additive, Allowed, Bias, Causal, Custom, Dot, ScaledDot, Softmax, Where, nn, weigh
from regard.errors import RegardError, ViewExpired

READINGS = {
    "output": lambda view: view.output,
    "tile": lambda view: view.tile(slice(2), slice(2)),
    "no tile": lambda view: view.tile(slice(0), slice(0)),
    "rows": lambda view: view.rows([0]),
    "top": lambda view: view.top(1),
    "entropy": lambda view: view.entropy(),
    "received": lambda view: view.received(),
    "map": lambda view: view.map(2, 2),
    "dense": lambda view: view.dense(),
    "collect": lambda view: view.collect(),
    "log_normalizer": lambda view: view.log_normalizer(),
    "verify": lambda view: view.verify(),
}


def three(n: int = 6) -> list[torch.Tensor]:
    return [torch.randn(n, 3) for _ in range(3)]


@pytest.mark.parametrize("seen", [False, True], ids=["", "read before"])
@pytest.mark.parametrize("changed", [0, 1, 2], ids=["queries", "keys", "values"])
@pytest.mark.parametrize("reading", READINGS)
def test_every_reading_after_an_input_changed_in_place_says_which(reading, changed, seen):
    tensors = three()
    view, read, name = weigh(*tensors), READINGS[reading], ["queries", "keys", "values"][changed]
    if seen:
        read(view)
    tensors[changed].mul_(2)
    with pytest.raises(ViewExpired, match=rf"its inputs as they were: `{name}` was changed in place .* clone"):
        read(view)


def test_it_is_an_error_of_regard_and_a_runtime_error():
    assert issubclass(ViewExpired, RegardError)
    assert issubclass(ViewExpired, RuntimeError)


@pytest.mark.parametrize(
    ("score", "rule", "name"),
    [
        (Additive(3, 3, 4), Softmax(), r"score\.\w+"),
        (ScaledDot(), Softmax(temperature=torch.nn.Parameter(torch.tensor(2.0))), r"weights\.temperature"),
        (ScaledDot(), Softmax(sink=torch.nn.Parameter(torch.tensor(2.0))), r"weights\.sink"),
        (Dot() + Bias(torch.zeros(6, 6)), Softmax(), r"score\.\w+\.bias"),
        (Custom(torch.nn.PairwiseDistance()), Softmax(), None),
    ],
    ids=["additive", "temperature", "sink", "bias", "custom"],
)
def test_what_an_optimizer_or_a_user_changes_in_score_and_rule_expires_a_view(score, rule, name):
    if name is None:
        linear = torch.nn.Linear(3, 3)
        score, name = Custom(lambda queries, keys: linear(queries) @ keys.mT), r"what the function of Custom reads"
        changed = linear.weight
    else:
        changed = next(iter([*score.parameters(), *score.buffers(), *rule.parameters()]))
    view = weigh(*three(), score=score, weights=rule)
    view.received()
    with torch.no_grad():
        changed.add_(1)
    with pytest.raises(ViewExpired, match=name):
        view.top(1)


def test_a_view_after_a_step_of_an_optimizer_is_neither_old_nor_new_so_it_is_refused():
    score = Additive(3, 3, 4)
    optimizer = torch.optim.Adam(score.parameters(), lr=0.1)
    view = weigh(*three(), score=score)
    view.entropy().sum().backward()
    optimizer.step()
    with pytest.raises(ViewExpired, match=r"`score\.\w+` was changed in place, as by a step of an optimizer"):
        view.entropy()


def test_a_mask_that_changed_expires_a_view():
    allowed = torch.ones(6, 6, dtype=torch.bool)
    view = weigh(*three(), mask=Allowed(allowed))
    allowed[0, 0] = False
    with pytest.raises(ViewExpired, match="a tensor of the mask"):
        view.received()


@pytest.mark.parametrize("engine", [regard.engines.Tiled(kernels=True), "reference", None])
def test_a_view_of_inference_tensors_holds_its_own_copies(engine):
    with torch.inference_mode():
        tensors = three()
        view = weigh(*tensors, engine=engine)
        before = weigh(*[each.clone() for each in tensors], engine=engine)
        view.top(2)
        for each in tensors:
            each.fill_(7)
        for read in (lambda view: view.dense(), lambda view: view.entropy(), lambda view: view.output):
            torch.testing.assert_close(read(view), read(before))


def test_a_repr_of_a_view_that_expired_says_so():
    tensors = three()
    view = weigh(*tensors)
    tensors[0].zero_()
    assert "(expired: `queries` was changed in place)" in repr(view)


def test_a_copy_of_the_inputs_is_not_affected_by_changes_of_the_original():
    tensors = three()
    view = weigh(*[each.clone() for each in tensors])
    expected = view.received()
    tensors[0].zero_()
    assert torch.equal(view.received(), expected)


def test_a_recorded_view_holds_its_state_through_training():
    layer = nn.MultiHeadAttention(8, 2, batch_first=True, score=Additive(4, 4, 5))
    optimizer = torch.optim.SGD(layer.parameters(), lr=1.0)
    x = torch.randn(2, 5, 8)
    with nn.record(layer) as recording:
        layer(x, x, x)[0].sum().backward()
    (view,) = recording.views()
    expected = view.dense()
    x.zero_()
    optimizer.step()
    torch.testing.assert_close(view.dense(), expected)
    torch.testing.assert_close(view.map(5, 5), expected)


def test_a_recorded_view_of_a_function_that_learned_on_is_refused():
    linear = torch.nn.Linear(4, 4)
    layer = nn.MultiHeadAttention(8, 2, batch_first=True, score=Custom(lambda q, k: linear(q) @ k.mT))
    x = torch.randn(2, 5, 8)
    with nn.record(layer) as recording:
        layer(x, x, x)
    (view,) = recording.views()
    view.received()
    with torch.no_grad():
        linear.weight.zero_()
    with pytest.raises(ViewExpired, match="the function of Custom reads"):
        view.dense()


def test_an_output_that_its_user_changed_is_not_handed_out_again():
    for grad in (False, True):
        tensors = [each.requires_grad_(grad) for each in three()]
        view = weigh(*tensors)
        expected = view.output.detach().clone()
        view.output.add_(1)
        torch.testing.assert_close(view.output.detach(), expected)


@pytest.mark.parametrize("engine", ["reference", "sdpa", "tiled", regard.engines.Tiled(kernels=True)])
@pytest.mark.parametrize("size", [1.0, 1e4])
def test_the_output_can_be_differentiated_again_and_again(engine, size):
    tensors = [(size * each).requires_grad_() for each in three(8)]
    view = weigh(*tensors, engine=engine)
    gradients = []
    for _ in range(3):
        view.output.sum().backward()
        gradients.append([each.grad for each in tensors])
        for each in tensors:
            each.grad = None
    torch.testing.assert_close(gradients[1], gradients[0])
    torch.testing.assert_close(gradients[2], gradients[0])


def test_the_output_is_one_tensor_until_it_is_differentiated():
    view = weigh(*[each.requires_grad_() for each in three()])
    assert view.output is view.output


class Holder:
    def __init__(self, weight):
        self.weight = weight

    def score(self, queries, keys):
        return (queries * self.weight) @ keys.mT


@pytest.mark.parametrize(
    "function",
    [
        lambda weight: partial(lambda w, queries, keys: (queries * w) @ keys.mT, weight),
        lambda weight: Holder(weight).score,
        lambda weight: lambda queries, keys, w=weight: (queries * w) @ keys.mT,
        lambda weight: lambda queries, keys: (queries * [weight][0].view(1, -1)) @ keys.mT,
    ],
    ids=["partial", "method", "default", "view"],
)
def test_what_a_function_reads_is_known_however_it_got_hold_of_it(function):
    weight = torch.randn(3)
    view = weigh(*three(), score=Custom(function(weight)))
    view.entropy()
    weight.mul_(3.0)
    with pytest.raises(ViewExpired, match="what the function of Custom reads"):
        view.entropy()


def test_what_the_function_of_a_mask_reads_expires_a_view():
    blocks = torch.tensor([0, 0, 0, 1, 1, 1])
    view = weigh(*three(), mask=Where(lambda row, column: blocks[row] == blocks[column]))
    view.entropy()
    blocks[0] = 1
    with pytest.raises(ViewExpired, match="a tensor of the mask"):
        view.dense()


def test_functions_that_name_each_other_or_what_is_not_there_yet_have_views():
    def one(queries, keys):
        return queries @ keys.mT if keys.ndim else other(queries, keys)

    def other(queries, keys):
        return one(queries, keys) if keys.ndim else later

    assert weigh(*three(), score=Custom(one)).entropy().isfinite().all()
    later = None


def test_a_view_of_a_step_of_generation_outlives_the_next_steps():
    layer, tokens, cache = nn.MultiHeadAttention(16, 4, batch_first=True), torch.randn(1, 5, 16), nn.LayerCache()
    with torch.no_grad():
        steps = [tokens[:, place : place + 1] for place in range(5)]
        views = [layer.weigh(step, step, step, cache=cache) for step in steps]
        _, weights = layer(tokens, tokens, tokens, mask=Causal(), average_attn_weights=False)
    for place, view in enumerate(views):
        torch.testing.assert_close(view.dense(), weights[..., place : place + 1, : place + 1])


@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.SGD])
def test_a_step_of_a_fused_optimizer_is_noticed(kind):
    score = regard.Additive(4, 4, 3)
    queries, keys = torch.rand(6, 4), torch.rand(7, 4)
    view = regard.weigh(queries, keys, keys, score=score)
    view.entropy()
    for each in score.parameters():
        each.grad = torch.ones_like(each)
    kind(score.parameters(), lr=0.1, fused=True).step()
    with pytest.raises(ViewExpired, match=r"`score\..* was changed in place, as by a step of an optimizer"):
        view.received()
