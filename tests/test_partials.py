"""Partials: attention over some of the keys, merged with attention over the others."""

from __future__ import annotations

import itertools
import pickle

import pytest
import torch

import regard
from regard import Alibi, Causal, Dot, KeyMask, PerHead, RelativeBias, Softmax, attend, partial
from regard.errors import EngineRefusal, OptionError, ShapeError

RULES = {
    "softmax": regard.Softmax(),
    "sink": regard.Softmax(sink=0.5),
    "temperature": regard.Softmax(temperature=0.3),
    "conic": regard.Conic(),
    "raw": regard.Raw(),
    "sigmoid": regard.Sigmoid(),
    "uniform": regard.Uniform(),
    "one-hot": regard.OneHot(),
    "sparsemax": regard.Sparsemax(),
    "entmax": regard.Entmax(),
    "top-k": regard.TopK(4),
}
ONE_PASS = ["softmax", "sink", "temperature", "conic", "raw", "sigmoid", "uniform"]
CUTS = [0, 0, 3, 8, 8, 12]  # five parts, two of them empty


def drawn(grad: bool = False) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    shapes = ((2, 7, 3), (12, 3), (12, 2))
    return [torch.randn(*shape, dtype=torch.float64, generator=generator).requires_grad_(grad) for shape in shapes]


def parts_of(q, k, v, **options):
    return [partial(q, k[a:b], v[a:b], **options) for a, b in itertools.pairwise(CUTS)]


def merged(parts):
    """The parts merged as a tree that is neither a left nor a right comb."""
    first, second, third, fourth, fifth = parts
    return first.merge(second.merge(third)).merge(fourth.merge(fifth))


@pytest.mark.parametrize("rule", RULES)
def test_merged_parts_are_the_whole(rule):
    q, k, v = drawn()
    whole = attend(q, k, v, weights=RULES[rule], engine="reference")
    torch.testing.assert_close(merged(parts_of(q, k, v, weights=RULES[rule])).finish(), whole)


@pytest.mark.parametrize("rule", RULES)
def test_merged_parts_have_the_gradient_of_the_whole(rule):
    q, k, v = drawn(grad=True)
    output = merged(parts_of(q, k, v, weights=RULES[rule])).finish()
    whole = attend(q, k, v, weights=RULES[rule], engine="reference")
    found = torch.autograd.grad(output.square().sum(), (q, k, v))
    torch.testing.assert_close(found, torch.autograd.grad(whole.square().sum(), (q, k, v)))


@pytest.mark.parametrize(
    "score",
    [regard.Additive(3, 3, 4), regard.Gaussian(0.4), regard.Gated(3, 3), regard.Multiplicative(3, 3)],
    ids=lambda score: type(score).__name__,
)
@pytest.mark.parametrize("rule", ["sink", "sparsemax"])
def test_learned_scores_learn_through_merged_parts(score, rule):
    q, k, v = drawn(grad=True)
    score = score.double()
    wanted = (q, k, v, *score.parameters())
    output = merged(parts_of(q, k, v, score=score, weights=RULES[rule])).finish()
    whole = attend(q, k, v, score=score, weights=RULES[rule], engine="reference")
    found = torch.autograd.grad(output.square().sum(), wanted)
    torch.testing.assert_close(found, torch.autograd.grad(whole.square().sum(), wanted))


def test_what_a_rule_learns_learns_through_merged_parts():
    q, k, v = drawn()
    for rule in (
        Softmax(sink=torch.nn.Parameter(torch.tensor(0.4).double())),
        regard.Entmax(torch.nn.Parameter(torch.tensor(1.4).double())),
    ):
        output = merged(parts_of(q, k, v, weights=rule)).finish()
        whole = attend(q, k, v, weights=rule, engine="reference")
        found = torch.autograd.grad(output.square().sum(), list(rule.parameters()))
        torch.testing.assert_close(found, torch.autograd.grad(whole.square().sum(), list(rule.parameters())))


def test_captured_tensors_learn_through_merged_parts():
    q, k, v = drawn()
    weight = torch.tensor(0.7).double().requires_grad_()
    score = regard.Custom(lambda q, k: weight * (q @ k.mT))
    found = torch.autograd.grad(merged(parts_of(q, k, v, score=score)).finish().square().sum(), weight)
    plain = torch.autograd.grad((torch.softmax(weight * (q @ k.mT), -1) @ v).square().sum(), weight)
    torch.testing.assert_close(found, plain)


@pytest.mark.parametrize("rule", RULES)
def test_a_positional_mask_is_aligned_with_each_part(rule):
    q, k, v = drawn()
    whole = attend(q, k, v, weights=RULES[rule], mask=Causal(align="end"), engine="reference")
    parts = [
        partial(q, k[a:b], v[a:b], weights=RULES[rule], mask=Causal(align=5 - a)) for a, b in itertools.pairwise(CUTS)
    ]
    torch.testing.assert_close(merged(parts).finish(), whole)


@pytest.mark.parametrize("rule", RULES)
def test_parts_that_allow_nothing_change_nothing(rule):
    q, k, v = drawn()
    whole = attend(q, k[:5], v[:5], weights=RULES[rule], engine="reference")
    hidden = partial(q, k[5:], v[5:], weights=RULES[rule], mask=KeyMask(torch.zeros(7, dtype=torch.bool)))
    part = partial(q, k[:5], v[:5], weights=RULES[rule])
    torch.testing.assert_close(part.merge(hidden).finish(), whole)
    torch.testing.assert_close(hidden.finish(), torch.zeros_like(whole))


@pytest.mark.parametrize("rule", ["one-hot", "top-k"])
def test_ties_across_parts_go_to_the_lowest_index(rule):
    q, k, v = torch.ones(1, 1), torch.ones(12, 1), torch.eye(12)
    output = merged(parts_of(q, k, v, score=Dot(), weights=RULES[rule])).finish()
    assert output.count_nonzero() == (1 if rule == "one-hot" else 4)
    assert output[0, : 1 if rule == "one-hot" else 4].all()


@pytest.mark.parametrize("rule", ONE_PASS)
def test_rules_of_one_pass_keep_sums_alone_when_nothing_learns(rule):
    part = merged(parts_of(*drawn(), weights=RULES[rule]))
    assert part.parts == ()
    assert repr(part) == f"<Partial of {RULES[rule]}, output (2, 7, 2), sums alone>"


def test_a_repr_counts_the_parts_that_are_kept():
    part = merged(parts_of(*drawn(), weights=regard.Sparsemax()))
    assert repr(part) == "<Partial of Sparsemax(), output (2, 7, 2), 5 parts kept>"


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_the_output_has_the_dtype_of_the_values_and_sums_are_wider(dtype):
    q, k, v = (each.to(dtype) for each in drawn())
    output = merged(parts_of(q, k, v)).finish()
    assert output.dtype == dtype
    exact = attend(q.double(), k.double(), v.double())
    torch.testing.assert_close(output.double(), exact, rtol=torch.finfo(dtype).eps, atol=torch.finfo(dtype).eps)


def test_masked_nan_in_a_part_reaches_nothing():
    q, k, v = drawn()
    k[2], v[2], v[9] = torch.nan, torch.inf, torch.nan
    seen = torch.ones(12, dtype=torch.bool)
    seen[[2, 9]] = False
    parts = [partial(q, k[a:b], v[a:b], mask=KeyMask(seen[a:b])) for a, b in itertools.pairwise(CUTS)]
    torch.testing.assert_close(merged(parts).finish(), attend(q, k[seen], v[seen]))


def test_the_gradient_of_parts_that_are_not_finite_under_a_mask_is_refused():
    q, k, v = drawn(grad=True)
    broken = v.detach().clone()
    broken[2] = torch.nan
    part = partial(q, k, broken, mask=Causal(align=k.shape[-2] - q.shape[-2]))
    text = r"The gradient of a merged partial must have finite .* under a mask: got NaN or infinity"
    with pytest.raises(EngineRefusal, match=text):
        part.finish()


def test_a_positional_score_is_aligned_with_each_part():
    q, k, v = drawn()
    n, m = q.shape[-2], k.shape[-2]
    whole = attend(q, k, v, score=Dot() + Alibi(0.3, align="end"), engine="reference")
    parts = [
        partial(q, k[..., a:b, :], v[..., a:b, :], score=Dot() + Alibi(0.3, align=m - n - a))
        for a, b in itertools.pairwise(CUTS)
    ]
    torch.testing.assert_close(merged(parts).finish(), whole)


def test_parts_with_a_learned_positional_score_share_its_table():
    q, k, v = drawn()
    n, m = q.shape[-2], k.shape[-2]

    def score(align, table):
        bias = RelativeBias(4, align=align).to(q.dtype)
        bias.table = table
        return Dot() + bias

    table = torch.nn.Parameter(torch.randn_like(RelativeBias(4).table, dtype=q.dtype))
    parts = [
        partial(q, k[..., a:b, :], v[..., a:b, :], score=score(m - n - a, table)) for a, b in itertools.pairwise(CUTS)
    ]
    found, whole = merged(parts).finish(), attend(q, k, v, score=score(m - n, table), engine="reference")
    torch.testing.assert_close(found, whole)
    torch.testing.assert_close(*(torch.autograd.grad(each.square().sum(), table) for each in (found, whole)))
    other = partial(q, k, v, score=score(m - n, torch.nn.Parameter(table.detach().clone())))
    with pytest.raises(EngineRefusal, match="or objects that are alike and share their parameters"):
        parts[0].merge(other)


@pytest.mark.parametrize("align", [None, "start", "end"])
def test_a_part_must_be_told_where_queries_stand_among_all_keys(align):
    x = torch.rand(2, 4, 3)
    text = r"`align` of \w+ must be an integer offset where keys are a part of all: got"
    heads = PerHead([Causal(align=align), Causal(align=align)])
    for mask in (Causal(align=align), Causal(align=align) & KeyMask(torch.ones(4, dtype=torch.bool)), heads):
        with pytest.raises(OptionError, match=text):
            partial(x, x, x, mask=mask)
    for queries in (x, x[:, :2]):
        with pytest.raises(OptionError, match=text):
            partial(queries, x, x, score=Dot() + Alibi(0.3, align=align))


def test_parts_of_other_sizes_are_refused():
    q, k, v = drawn()
    text = r"Partials must have outputs of the same shape and dtype: got \(2, 7, 2\) in torch\.float64 and \(2, 6, 2\)"
    with pytest.raises(ShapeError, match=text):
        partial(q, k, v).merge(partial(q[:, 1:], k, v))
    with pytest.raises(
        ShapeError, match=r"got .* in torch\.float64 and .* in torch\.float32\. Make them from the same queries"
    ):
        partial(q, k, v).merge(partial(q.float(), k.float(), v.float()))


@pytest.mark.parametrize(("one", "other"), [("softmax", "sigmoid"), ("softmax", "sink"), ("softmax", "temperature")])
def test_parts_of_other_rules_are_refused(one, other):
    text = r"Partials must have the same `weights`: got Softmax\(\) and .*\. Pass one object to every partial\(\), or"
    with pytest.raises(EngineRefusal, match=text):
        partial(*drawn(), weights=RULES[one]).merge(partial(*drawn(), weights=RULES[other]))


def test_second_derivatives_of_merged_parts_are_refused():
    q, k, v = drawn(grad=True)
    output = partial(q, k[:5], v[:5]).merge(partial(q, k[5:], v[5:])).finish()
    (first,) = torch.autograd.grad(output.square().sum(), q, create_graph=True)
    with pytest.raises(
        RuntimeError, match=r"A second derivative must be taken of one problem: got merged parts\. Attend over"
    ):
        first.sum().backward()


def test_one_part_has_second_derivatives():
    q, k, v = drawn(grad=True)
    assert torch.autograd.gradgradcheck(lambda q: partial(q, k, v).finish(), (q,), fast_mode=True)


@pytest.mark.parametrize("rule", ["softmax", "top-k"])
def test_parts_of_other_queries_are_refused(rule):
    q, k, v = drawn()
    one, other = partial(q, k, v, weights=RULES[rule]), partial(q + 1, k, v, weights=RULES[rule])
    with pytest.raises(EngineRefusal, match=r"same queries: got two tensors, .* that differ\. Pass the same queries"):
        one.merge(other)
    nearly = q.clone()
    nearly[0, 0, 0] = torch.nan
    with pytest.raises(EngineRefusal, match=r"same queries"):
        one.merge(partial(nearly, k, v, weights=RULES[rule]))


def test_parts_of_queries_that_changed_in_place_between_are_refused():
    q, k, v = drawn()
    one, unrelated = partial(q, k, v), partial(q.clone(), k, v)
    q.mul_(2)
    for other in (partial(q, k, v), unrelated):
        with pytest.raises(EngineRefusal, match=r"changed in place since it was made\. Make every partial"):
            one.merge(other)


def test_parts_made_before_the_queries_change_in_place_merge():
    q, k, v = drawn()
    one, other = partial(q, k[:5], v[:5]), partial(q, k[5:], v[5:])
    whole = attend(q, k, v)
    q.mul_(2)
    torch.testing.assert_close(one.merge(other).finish(), whole)


def test_parts_of_equal_queries_merge_from_another_process_too():
    q, k, v = drawn()
    q[0, 0, 0] = torch.nan
    first, second = partial(q[:, 2:], k[:5], v[:5]), partial(q.clone()[:, 2:], k[5:], v[5:])
    whole = attend(q[:, 2:], k, v)
    sent = pickle.loads(pickle.dumps(second))
    for merging in (
        first.merge(second),
        first.merge(sent),
        sent.merge(first),
        pickle.loads(pickle.dumps(first.merge(sent))),
    ):
        assert torch.equal(merging.finish().isnan(), whole.isnan())
    with torch.inference_mode():
        queries = q + 0.0
        merging = partial(queries, k[:5], v[:5]).merge(partial(queries, k[5:], v[5:]))
        torch.testing.assert_close(merging.finish()[:, 2:], whole, equal_nan=True)


@torch.inference_mode()
def test_inference_tensors_that_changed_are_other_queries():
    queries, keys = torch.randn(5, 3), torch.randn(7, 3)
    before, same = partial(queries, keys, keys), partial(queries, keys, keys)
    assert before.merge(same).finish().shape == (5, 3)
    queries.mul_(2)
    with pytest.raises(EngineRefusal, match="same queries"):
        before.merge(partial(queries, keys, keys))


@pytest.mark.parametrize(("size", "value"), [(1e15, 1e30), (1e-30, 1e-20)])
def test_shares_of_values_are_merged_where_scores_times_values_are_no_numbers_or_refused(size, value):
    q, k, v = torch.rand(3, 4), size * torch.rand(8, 4), value * torch.rand(8, 2)
    options = {"score": regard.Dot(), "weights": regard.Proportional()}
    expected = attend(q, k, v, **options)
    shards = [(k[:5], v[:5]), (k[5:], v[5:])]
    one, other = (partial(q, *each, **options) for each in shards)
    with pytest.raises(EngineRefusal, match="Multiply all scores"):
        one.merge(other).finish()
    one, other = (partial(q.requires_grad_(), *each, **options) for each in shards)  # which keeps its parts
    torch.testing.assert_close(one.merge(other).finish(), expected)


def test_scores_of_users_that_differ_in_an_attribute_called_align_do_not_merge():
    class Aligned(regard.Dot):
        def __init__(self, align):
            super().__init__()
            self.align = align

    x = torch.randn(4, 3)
    with pytest.raises(EngineRefusal, match="same `score`"):
        partial(x, x, x, score=Aligned(1)).merge(partial(x, x, x, score=Aligned(2)))


def test_gradients_of_merged_partials_are_those_of_their_weights_where_queries_broadcast():
    # Scores of 1e17: torch.matmul rounds them by whether a gradient is wanted.
    torch.manual_seed(0)
    queries, keys = 1e8 * torch.randn(100, 64).double(), 1e8 * torch.randn(8, 7, 64).double()
    values = torch.ones(8, 7, 1).double().requires_grad_()
    shards = [(keys[:, part].requires_grad_(), values[:, part]) for part in (slice(0, 4), slice(4, 7))]
    one, other = (partial(queries.requires_grad_(), *each, weights=regard.Sparsemax()) for each in shards)
    one.merge(other).finish().sum().backward()
    torch.testing.assert_close(values.grad.sum((-1, -2)), torch.full((8,), 100.0).double())
