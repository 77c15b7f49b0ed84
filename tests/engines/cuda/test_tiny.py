"""Tiny calls in training: one launch forward and one back, which match the definition."""

from __future__ import annotations

import importlib

import pytest
import torch

pytest.importorskip("triton")

from regard import Allowed, Bias, Causal, Dot, ScaledDot, Softmax, Sparsemax, Window, attend
from regard.engines import ENGINES
from regard.engines.cuda import layout, program, tiny_calls
from regard.problem import make_problem

from .test_kernels import DEVICE

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

CAUSAL, WINDOW = Causal(align="start"), Window(before=1, after=2, align="end")


@pytest.fixture(autouse=True)
def tiny(monkeypatch, compiled_for_one_kind):
    monkeypatch.setattr(program, "SMALL", 1 << 18)
    # By what a CPU takes the definition would be quicker.
    attention = importlib.import_module("regard.attention")
    monkeypatch.setattr(attention, "choose", lambda problem, engine: ENGINES[engine or "tiled"])
    monkeypatch.setattr(tiny_calls, "_KNOWN", {})


@pytest.fixture
def launched(monkeypatch):
    """The names of the kernels that were launched for tiny calls."""
    names, launch = [], tiny_calls.launch

    def told(kernel, *arguments, **options):
        names.append(kernel.fn.__name__ if hasattr(kernel, "fn") else kernel.__name__)
        launch(kernel, *arguments, **options)

    monkeypatch.setattr(tiny_calls, "launch", told)
    return names


def vectors(*shapes, dtype=torch.float32, by_token=False):
    """Queries, keys and values; by token: heads lie side by side."""
    found = []
    for shape in shapes:
        *batch, n, dim = shape
        each = torch.randn(*batch[:-1], n, batch[-1], dim).transpose(-2, -3) if by_token else torch.randn(shape)
        found.append(each.to(DEVICE, dtype).requires_grad_())
    return found


def with_gradients(tensors, upstream, **options):
    torch.manual_seed(7)
    output = attend(*tensors, **options)
    return output, *torch.autograd.grad(output, tensors, upstream.to(output.dtype))


@pytest.mark.parametrize("by_token", [False, True])
@pytest.mark.parametrize("mask", [None, CAUSAL, WINDOW, Causal(align=-2)])
@pytest.mark.parametrize("batch", [(2, 3), (3,), (2, 1, 2)])
def test_the_definition_is_matched(batch, mask, by_token, launched):
    tensors = vectors((*batch, 7, 20), (*batch, 9, 20), (*batch, 9, 12), by_token=by_token)
    upstream = torch.randn(*batch, 7, 12, device=DEVICE)
    options = {"mask": mask, "dropout": 0.25}
    found = with_gradients(tensors, upstream, **options)
    again = with_gradients(tensors, upstream, **options)
    assert launched == ["pool_entry", "differentiate_entry"] * 2
    exact = [each.detach().double().requires_grad_() for each in tensors]
    expected = with_gradients(exact, upstream, engine="reference", **options)
    for got, same, wanted in zip(found, again, expected, strict=True):
        assert torch.equal(got, same)
        torch.testing.assert_close(got.double(), wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("shape", [(7, 9), (1, 9), (3, 7, 1), (2, 1, 1, 9), (2, 3, 7, 9)])
def test_masks_that_are_tensors(shape, launched):
    tensors = vectors((2, 3, 7, 20), (2, 3, 9, 20), (2, 3, 9, 12))
    upstream = torch.randn(2, 3, 7, 12, device=DEVICE)
    allowed = torch.rand(shape) < 0.6
    allowed[..., 0, :] &= len(shape) < 4  # one row, or one sequence, sees nothing
    for each in (allowed, allowed.mT.contiguous().mT, ~allowed):
        options = {"mask": Allowed(each.to(DEVICE)), "dropout": 0.25}
        found = with_gradients(tensors, upstream, **options)
        exact = [tensor.detach().double().requires_grad_() for tensor in tensors]
        for got, wanted in zip(found, with_gradients(exact, upstream, engine="reference", **options), strict=True):
            torch.testing.assert_close(got.double(), wanted, rtol=1e-4, atol=1e-5)
    assert launched == ["pool_entry", "differentiate_entry"] * 3


def test_a_mask_that_is_written_to_before_the_backward_pass_is_an_error(launched):
    q, k, v = vectors((2, 5, 8), (2, 5, 8), (2, 5, 8))
    allowed = torch.ones(5, 5, dtype=torch.bool, device=DEVICE)
    output = attend(q, k, v, mask=Allowed(allowed), dropout=0.2)
    allowed[:, 2:] = False
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        output.sum().backward()
    assert launched == ["pool_entry"]


def test_a_mask_that_a_hook_unpacks_otherwise(launched):
    tensors = vectors((2, 5, 8), (2, 5, 8), (2, 5, 8))
    upstream = torch.randn(2, 5, 8, device=DEVICE)
    mask = Allowed((torch.rand(5, 5, device=DEVICE) < 0.5).T)
    expected = with_gradients(tensors, upstream, mask=mask, dropout=0.2, engine="reference")
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor, unpacked_anew):
        found = with_gradients(tensors, upstream, mask=mask, dropout=0.2)
    assert launched
    for got, wanted in zip(found, expected, strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-5)


def test_padding_that_is_no_number_reaches_nothing(launched):
    q, k, v = vectors((2, 3, 6, 8), (2, 3, 6, 8), (2, 3, 6, 8))
    padding = torch.zeros(2, 1, 1, 6, dtype=torch.bool)
    padding[1, ..., 4:] = True
    with torch.no_grad():
        k[1, :, 4:], v[1, :, 5:] = torch.nan, torch.inf
    upstream = torch.randn(2, 3, 6, 8, device=DEVICE)
    for each in with_gradients((q, k, v), upstream, mask=Allowed(~padding.to(DEVICE)), dropout=0.2):
        assert each.isfinite().all()
    assert launched


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision(dtype, launched):
    tensors = vectors((2, 8, 32), (2, 8, 32), (2, 8, 32), dtype=dtype)
    upstream = torch.randn(2, 8, 32, device=DEVICE).to(dtype).float()
    found = with_gradients(tensors, upstream, mask=CAUSAL, dropout=0.5)
    assert launched
    exact = [each.detach().double().requires_grad_() for each in tensors]
    expected = with_gradients(exact, upstream, mask=CAUSAL, dropout=0.5, engine="reference")
    for got, wanted in zip(found, expected, strict=True):
        torch.testing.assert_close(got.double(), wanted, rtol=2e-2, atol=2e-2)


def test_without_dropout_and_with_another_temperature(launched):
    tensors = vectors((2, 5, 8), (2, 5, 8), (2, 5, 8))
    upstream = torch.randn(2, 5, 8, device=DEVICE)
    options = {"mask": WINDOW, "score": Dot(), "weights": Softmax(2.0)}
    found = with_gradients(tensors, upstream, **options)
    assert launched == ["pool_entry", "differentiate_entry"]
    exact = [each.detach().double().requires_grad_() for each in tensors]
    for got, wanted in zip(found, with_gradients(exact, upstream, engine="reference", **options), strict=True):
        torch.testing.assert_close(got.double(), wanted, rtol=1e-4, atol=1e-5)


def test_every_call_drops_others(launched):
    q, k, v = vectors((2, 8, 8), (2, 8, 8), (2, 8, 8))
    first, second, third = (attend(q, k, v, dropout=0.5) for _ in range(3))
    assert not torch.equal(first, second)
    assert not torch.equal(second, third)
    with torch.no_grad():
        assert not torch.equal(attend(q, k, v, dropout=0.5), third)
    assert launched == ["pool_entry"] * 4


def test_a_gradient_that_lies_otherwise(launched):
    tensors = vectors((2, 3, 6, 8), (2, 3, 6, 8), (2, 3, 6, 8))
    one = torch.ones((), device=DEVICE).expand(2, 3, 6, 8)
    for upstream in (one, torch.randn(2, 3, 8, 6, device=DEVICE).mT, torch.randn(2, 6, 3, 8, device=DEVICE)):
        upstream = upstream.transpose(-2, -3) if upstream.shape[1] == 6 else upstream
        exact = [each.detach().double().requires_grad_() for each in tensors]
        found = with_gradients(tensors, upstream, dropout=0.1)
        for got, wanted in zip(found, with_gradients(exact, upstream, dropout=0.1, engine="reference"), strict=True):
            torch.testing.assert_close(got.double(), wanted, rtol=1e-4, atol=1e-5)


def unpacked_anew(tensor):
    """What a hook that copies tensors to a host and back may make of one."""
    return tensor.clone(memory_format=torch.contiguous_format)


def unpacked_unaligned(tensor):
    return torch.empty(tensor.numel() + 1, dtype=tensor.dtype, device=DEVICE)[1:].view(tensor.shape).copy_(tensor)


def unpacked_by_columns(tensor):
    return tensor.mT.contiguous().mT


@pytest.mark.parametrize("unpack", [unpacked_anew, unpacked_unaligned, unpacked_by_columns])
@pytest.mark.parametrize("again", [False, True])
def test_inputs_that_hooks_unpack_otherwise(unpack, again, launched):
    packed = torch.randn(2, 6, 3, 4, 8, device=DEVICE, requires_grad=True)
    upstream = torch.randn(2, 4, 6, 8, device=DEVICE)

    def gradient(packed, engine=None):
        torch.manual_seed(7)
        output = attend(*packed.permute(2, 0, 3, 1, 4).unbind(0), dropout=0.2, engine=engine)
        (found,) = torch.autograd.grad(output, packed, upstream.to(output.dtype), create_graph=again)
        return torch.autograd.grad(found.square().sum(), packed)[0] if again else found

    expected = gradient(packed.detach().double().requires_grad_(), "reference")
    torch.testing.assert_close(gradient(packed).double(), expected, rtol=1e-3, atol=1e-4)
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor, unpack):
        torch.testing.assert_close(gradient(packed).double(), expected, rtol=1e-3, atol=1e-4)
    assert launched.count("differentiate_entry") == 2


@pytest.mark.parametrize("broken", [torch.nan, torch.inf])
def test_what_is_not_finite_reaches_those_alone_who_see_it(broken, launched):
    q, k, v = vectors((1, 6, 8), (1, 6, 8), (1, 6, 8))
    with torch.no_grad():
        k[0, 4, 0] = v[0, 5, 1] = broken
    upstream = torch.randn(1, 6, 8, device=DEVICE)
    upstream[0, 4:] = 0
    found = with_gradients((q, k, v), upstream, mask=Causal(), dropout=0.2)
    assert launched
    output, to_queries, _, _ = found
    assert output[0, :4].isfinite().all()
    assert to_queries[0, :4].isfinite().all()
    assert not output[0, 5].isfinite().all()
    expected = with_gradients((q, k, v), upstream, mask=Causal(), dropout=0.2, engine="tiled")
    for got, wanted in zip(found, expected, strict=True):
        torch.testing.assert_close(got, wanted, equal_nan=True)


@pytest.mark.parametrize("broken", [torch.nan, torch.inf])
@pytest.mark.parametrize("sign", [1, -1])
def test_a_broken_query_reaches_nothing_that_it_does_not_see(broken, sign, launched):
    q, k, v = vectors((1, 6, 8), (1, 6, 8), (1, 6, 8))
    with torch.no_grad():
        q[0, 4, 0] = broken * sign
        k[0, :, 0] = torch.tensor([1, -1, 1, 1, -1, 1], device=DEVICE)  # some scores are inf, some −inf
    upstream = torch.randn(1, 6, 8, device=DEVICE)
    found = with_gradients((q, k, v), upstream, mask=Causal(), dropout=0.2)
    assert launched
    output, to_queries, to_keys, to_values = found
    assert to_queries.isfinite().all()  # nothing is learned from a broken one
    assert to_keys[0, 5].isfinite().all()
    assert to_values[0, 5].isfinite().all()
    assert not output[0, 4].isfinite().any()
    for engine in ("tiled", "reference"):
        expected = with_gradients((q, k, v), upstream, mask=Causal(), dropout=0.2, engine=engine)
        for got, wanted in zip(found, expected, strict=True):
            torch.testing.assert_close(got, wanted, equal_nan=True)


def test_a_score_that_is_no_number_spoils_its_row(launched):
    q, k, v = vectors((1, 6, 8), (1, 6, 8), (1, 6, 8))
    with torch.no_grad():
        k[0, 4, 0] = torch.nan
    output = attend(q, k, v, mask=Causal(), dropout=0.2)
    assert launched
    assert output[0, 4:].isnan().all()


@pytest.mark.parametrize("mask", [CAUSAL, Allowed(torch.eye(5, device=DEVICE) == 0)])
def test_second_derivatives(mask, launched):
    tensors = vectors((2, 5, 6), (2, 5, 6), (2, 5, 6))
    upstream = torch.randn(2, 5, 6, device=DEVICE)

    def twice(tensors, engine=None):
        torch.manual_seed(3)
        output = attend(*tensors, mask=mask, dropout=0.3, engine=engine)
        first = torch.autograd.grad(output, tensors, upstream.to(output.dtype), create_graph=True)
        return torch.autograd.grad(sum(each.square().sum() for each in first), tensors)

    found = twice(tensors)
    assert "differentiate_entry" in launched
    exact = [each.detach().double().requires_grad_() for each in tensors]
    for got, wanted in zip(found, twice(exact, "reference"), strict=True):
        torch.testing.assert_close(got.double(), wanted, rtol=1e-3, atol=1e-4)


def test_gradients_of_some(launched):
    q, k, v = vectors((2, 5, 6), (2, 5, 6), (2, 5, 6))
    output = attend(q.detach(), k, v.detach(), dropout=0.3)
    output.sum().backward()
    assert "differentiate_entry" in launched
    assert q.grad is None
    assert v.grad is None
    assert k.grad is not None


def test_others_go_the_long_way(launched):
    (x,) = vectors((2, 8, 8))
    (long,) = vectors((2, 40, 8))
    (wide,) = vectors((2, 8, 256))
    (whole,) = vectors((2, 2, 8, 8))
    learned = ScaledDot(scale=torch.nn.Parameter(torch.ones((), device=DEVICE)))
    bias = ScaledDot() + Bias(torch.zeros(8, 8, device=DEVICE))
    for score in (learned, bias):
        attend(x, x, x, score=score, dropout=0.1)
    attend(x, x, x, weights=Sparsemax(), dropout=0.1)
    attend(x, x, x, weights=Softmax(sink=0.0), dropout=0.1)
    for each in (long, wide):
        attend(each, each, each, dropout=0.1)
    attend(whole, x, x, dropout=0.1)  # keys that several heads share
    attend(x, x, x, dropout=0.1, engine="tiled")
    assert not launched


def test_kinds_are_told_apart(launched):
    (x,) = vectors((2, 8, 8))
    for mask in (None, CAUSAL, WINDOW, Allowed(torch.rand(8, 8, device=DEVICE) < 0.5)):
        for score in (Dot(), ScaledDot()):
            torch.manual_seed(1)
            got = attend(x, x, x, score=score, mask=mask, dropout=0.1)
            torch.manual_seed(1)
            torch.testing.assert_close(got, attend(x, x, x, score=score, mask=mask, dropout=0.1, engine="reference"))
    assert len(launched) == 8
    assert len(tiny_calls._KNOWN) == 8


@pytest.mark.parametrize("negative", range(3))
def test_signs_that_are_to_be_turned(negative, launched):
    tensors = [each.detach() for each in vectors((2, 8, 8), (2, 8, 8), (2, 8, 8))]
    upstream = torch.randn(2, 8, 8, device=DEVICE)
    as_given = [each.clone().requires_grad_() for each in tensors]
    for each in (as_given, as_given):  # of a kind that is known by then
        with_gradients(each, upstream, dropout=0.2)
    tensors[negative] = torch._neg_view(-tensors[negative])
    turned = [each.requires_grad_() for each in tensors]
    expected = with_gradients(as_given, upstream, dropout=0.2)
    for got, wanted in zip(with_gradients(turned, upstream, dropout=0.2), expected, strict=True):
        torch.testing.assert_close(got, wanted)
    assert launched


def test_rates_of_dropout_are_told_apart():
    (x,) = vectors((2, 8, 8))
    for rate in (0.1, 0.5, 0.1):
        torch.manual_seed(1)
        got = attend(x, x, x, dropout=rate)
        torch.manual_seed(1)
        torch.testing.assert_close(got, attend(x, x, x, dropout=rate, engine="reference"))
    assert len(tiny_calls._KNOWN) == 2


def test_what_is_kept_has_a_bound(monkeypatch):
    monkeypatch.setattr(layout, "MOST_KEPT", 2)
    (x,) = vectors((2, 8, 8))
    for n in range(3, 8):
        attend(x[:, :n], x, x, dropout=0.1)
        assert len(tiny_calls._KNOWN) <= 2
    last = next(reversed(tiny_calls._KNOWN.values()))  # not the oldest
    for n in range(3, 8):
        upstream = torch.randn(2, 7, n + 8, device=DEVICE)[..., :8]
        attend(x[:, :7], x, x, dropout=0.1).backward(upstream)
    assert next(reversed(tiny_calls._KNOWN.values())) is last
    assert len(last.others) == 2


def test_a_kind_may_be_forgotten_by_another_thread(monkeypatch, launched):
    class Forgetful(dict):
        def __setitem__(self, kind, tiny):
            """Another thread forgets it at once."""

    monkeypatch.setattr(tiny_calls, "_KNOWN", Forgetful())
    (x,) = vectors((2, 8, 8))
    attend(x, x, x, dropout=0.1)
    assert launched == ["pool_entry"]


def test_what_cannot_be_is_refused_as_ever(launched):
    (x,) = vectors((2, 8, 8))
    for _ in range(2):
        with pytest.raises(ValueError, match="must"):
            attend(x, x[..., :4], x, dropout=0.1)
    call = tiny_calls.tiny_call(x, x, x, ScaledDot(), Softmax(), None, 0.1)
    assert call is not None
    assert tiny_calls.pool_known(call, x, x, x) is None
    problem = make_problem(x, x, x, score=ScaledDot(), weights=Softmax(), mask=None, dropout=0.1)
    assert tiny_calls.pool_admitted(call, problem, ENGINES["reference"]) is None
    assert not launched
