"""Rules that a user writes: by their definition alone, in one pass, and in passes of their own."""

from __future__ import annotations

import pytest
import torch

from regard import Causal, ScaledDot, TopK, attend, partial, plan, weigh
from regard.engines import Tiled
from regard.errors import EngineRefusal
from regard.weights import OnePass, Weights


class Squared(Weights):
    """A rule with a definition alone."""

    kind = "conic"

    def define(self, scores):
        return torch.where(scores == -torch.inf, 0, scores).square()


class Softplus(OnePass):
    """A normalised rule of one pass."""

    kind, normalized, reaches_all = "convex", True, True

    def numerators(self, scores, peak):
        return torch.nn.functional.softplus(scores)

    def numerator_slope(self, scores):
        return torch.sigmoid(scores)


class Peaked(OnePass):
    """A shifted rule of one pass: softmax, written by a user."""

    kind, normalized, shifted = "convex", True, True

    def numerators(self, scores, peak):
        peak = torch.where(peak == -torch.inf, 0, peak)
        return torch.where(scores == -torch.inf, 0, (scores - peak).exp())


class Range:
    """(least, largest) allowed score of each row: a user's monoid."""

    def lift(self, scores, columns):
        least = torch.where(scores == -torch.inf, torch.inf, scores).amin(-1, keepdim=True)
        return least, scores.amax(-1, keepdim=True)

    def merge(self, left, right):
        return torch.minimum(left[0], right[0]), torch.maximum(left[1], right[1])


class AboveTheMiddle(Weights):
    """A rule with passes of its own: 1 for scores above the middle of their row's range."""

    kind = "conic"

    def define(self, scores):
        return self.weights(scores, Range().lift(scores, None), None)

    def solve(self, fold):
        return fold(Range())

    def weights(self, scores, statistics, columns):
        least, largest = statistics
        return (scores >= (least + largest) / 2).to(scores.dtype)

    def slope(self, scores, weights, statistics, columns):
        return None


def drawn():
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(n, 4, dtype=torch.float64, generator=generator) for n in (20, 20, 20)]


def scores_of(q, k):
    seen = torch.ones(20, 20).tril().bool()
    return (q @ k.mT / 2).masked_fill(~seen, -torch.inf)


def test_a_definition_alone_is_enough_for_attend_and_the_view():
    q, k, v = drawn()
    expected = Squared().define(scores_of(q, k))
    torch.testing.assert_close(attend(q, k, v, weights=Squared(), mask=Causal()), expected @ v)
    view = weigh(q, k, v, weights=Squared(), mask=Causal())
    torch.testing.assert_close(view.dense(), expected)
    torch.testing.assert_close(view.tile(slice(3, 9), slice(2, 6)), expected[3:9, 2:6])
    torch.testing.assert_close(view.received(), expected.sum(0))
    torch.testing.assert_close(view.top(2).weights, expected.topk(2).values)
    view.verify()


def test_a_definition_alone_sends_gradients():
    q, k, v = (each.requires_grad_() for each in drawn())
    found = torch.autograd.grad(attend(q, k, v, weights=Squared(), mask=Causal()).square().sum(), (q, k, v))
    plain = torch.autograd.grad((Squared().define(scores_of(q, k)) @ v).square().sum(), (q, k, v))
    torch.testing.assert_close(found, plain)


@pytest.mark.parametrize("rule", [Squared(), TopK(3, Squared())])
def test_a_definition_alone_is_refused_by_tiles_and_parts_with_the_reason(rule):
    q, k, v = drawn()
    name = type(rule).__name__
    assert plan(q, k, v, weights=rule).engine == "reference"
    with pytest.raises(
        EngineRefusal, match=rf"'tiled' cannot .*{name} defines no passes over tiles \(Weights\.solve\)"
    ):
        attend(q, k, v, weights=rule, engine="tiled")
    text = rf"partial\(\) must have a rule with passes over tiles: {name} has none\. Define solve\(fold\), or use"
    with pytest.raises(EngineRefusal, match=text):
        partial(q, k, v, weights=rule)


@pytest.mark.parametrize("rule", [Softplus(), Peaked(), AboveTheMiddle()])
def test_a_rule_with_passes_is_the_same_on_every_route(rule):
    q, k, v = (each.requires_grad_() for each in drawn())
    expected = rule.define(scores_of(q, k)) @ v
    routes = [attend(q, k, v, weights=rule, mask=Causal(), engine=each) for each in ("reference", Tiled(64), None)]
    parts = [
        partial(q, k[a:b], v[a:b], weights=rule, mask=Causal(align=-a)) for a, b in ((0, 7), (7, 7), (7, 12), (12, 20))
    ]
    routes.append(parts[0].merge(parts[1]).merge(parts[2].merge(parts[3])).finish())
    for output in routes:
        torch.testing.assert_close(output, expected)
        torch.testing.assert_close(
            torch.autograd.grad(output.square().sum(), (q, k, v), allow_unused=True, materialize_grads=True),
            torch.autograd.grad(
                expected.square().sum(), (q, k, v), retain_graph=True, allow_unused=True, materialize_grads=True
            ),
        )
    weigh(q, k, v, weights=rule, mask=Causal()).verify()


@pytest.mark.parametrize("kind", [Weights, OnePass])
def test_a_rule_without_a_definition_says_what_is_missing(kind):
    rule = type("Empty", (kind,), {})()
    missing = r"define\(scores\)" if kind is Weights else r"numerators\(scores, peak\)"
    with pytest.raises(NotImplementedError, match=rf"Empty must define {missing}\."):
        rule(torch.ones(2, 2))


@pytest.mark.parametrize(("method", "text"), [("solve", r"solve\(fold\) to run over tiles"), ("weights", r"weights\(")])
def test_a_rule_without_a_pass_says_what_is_missing(method, text):
    rule = type("Empty", (Weights,), {})()
    arguments = (None,) if method == "solve" else (torch.ones(1, 1), (), torch.arange(1))
    with pytest.raises(NotImplementedError, match=rf"Empty must define {text}"):
        getattr(rule, method)(*arguments)


def test_a_users_rule_works_with_a_score_of_every_form():
    q, k, v = drawn()
    for score in (ScaledDot(), 2.0 * ScaledDot()):
        torch.testing.assert_close(
            attend(q, k, v, score=score, weights=Softplus(), engine=Tiled(64)), Softplus()(score(q, k)) @ v
        )


@pytest.mark.parametrize("engine", ["reference", "tiled"])
@pytest.mark.parametrize("is_shifted", [False, True])
def test_numerators_get_a_peak_where_the_rule_is_shifted_and_none_elsewhere(engine, is_shifted):
    seen = []

    class Noting(Peaked if is_shifted else Softplus):
        def numerators(self, scores, peak):
            seen.append((scores.detach(), peak))
            return super().numerators(scores, peak)

    x = torch.randn(6, 4, requires_grad=True)
    attend(x, x, x, weights=Noting(), engine=engine).sum().backward()
    assert seen
    for scores, peak in seen:
        assert (peak is not None) == is_shifted
        assert not is_shifted or bool((peak >= scores.amax(-1, keepdim=True)).all())
