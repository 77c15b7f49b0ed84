"""The short way to PyTorch's kernels: what it takes comes out as the planner and `sdpa` would have it."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import regard
from regard import Allowed, Causal, Dot, ScaledDot, Softmax, attend, plan
from regard.engines.sdpa.shortcut import pool_plainly
from regard.errors import OptionError

B, H, N, M, D = 2, 3, 6, 8, 4


def drawn(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)).to(dtype)


def three(n: int = N, m: int = M, dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    return [
        drawn(B, H, n, D, dtype=dtype),
        drawn(B, H, m, D, seed=1, dtype=dtype),
        drawn(B, H, m, D, seed=2, dtype=dtype),
    ]


def plainly(tensors, score=None, weights=None, mask=None):
    return pool_plainly(*tensors, score or ScaledDot(), weights or Softmax(), mask)


TAKEN = {
    "as it is": (three(), {}),
    "square": (three(M), {}),
    "one query": (three(1), {}),
    "causal": (three(M), {"mask": Causal()}),
    "dot": (three(), {"score": Dot()}),
    "scale": (three(), {"score": ScaledDot(0.3)}),
    "temperature": (three(), {"weights": Softmax(temperature=0.7)}),
    "float64": (three(dtype=torch.float64), {}),
    "bfloat16": (three(dtype=torch.bfloat16), {}),
    "float16": (three(dtype=torch.float16), {}),
    "heads from a projection": (
        [each.mT.contiguous().mT.transpose(1, 2).contiguous().transpose(1, 2) for each in three()],
        {},
    ),
    "two axes": ([each[0, 0] for each in three()], {}),
    "three axes": ([each[0] for each in three()], {}),
    "three axes, causal": ([each[0] for each in three(M)], {"mask": Causal()}),
    "five axes": ([torch.stack([each, each + 1]) for each in three()], {}),
    "five axes, one head": ([torch.stack([each[:, :1], each[:, :1] + 1]) for each in three()], {}),
    "five axes that do not lie together": ([torch.stack([each, each + 1]).transpose(0, 2) for each in three()], {}),
    "expanded": ([each[:, :1].expand(B, H, -1, -1) for each in three()], {}),
}


@pytest.mark.parametrize("name", TAKEN)
def test_what_is_taken_is_what_sdpa_computes_bit_for_bit(name):
    tensors, options = TAKEN[name]
    assert plan(*tensors, **options).engine == "sdpa"
    assert torch.equal(plainly(tensors, **options), attend(*tensors, engine="sdpa", **options))
    gradients = []
    for engine in (None, "sdpa"):
        leaves = [each.detach().clone().requires_grad_() for each in tensors]
        output = attend(*leaves, engine=engine, **options)
        gradients.append(torch.autograd.grad(output, leaves, drawn(*output.shape, seed=3, dtype=output.dtype)))
    assert all(torch.equal(a, b) for a, b in zip(*gradients, strict=True))


@pytest.mark.parametrize("mask", [None, Causal()])
@pytest.mark.parametrize("number", [torch.inf, -torch.inf, torch.nan])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_numbers_that_are_not_finite_come_out_as_the_definition_has_them(place, number, mask):
    for entries in ((Ellipsis, 1, slice(None)), (Ellipsis, 1, 0)):
        tensors = [each.clone() for each in three(M)]
        tensors[place][entries] = number
        for given in (tensors, [each[0, 0] for each in tensors]):
            assert plainly(given, mask=mask) is None
            expected = attend(*given, mask=mask, engine="reference")
            torch.testing.assert_close(attend(*given, mask=mask), expected, equal_nan=True)


class Mine(ScaledDot):
    pass


class Ours(Softmax):
    pass


LEFT = {
    "a subclass of the score": (three(), {"score": Mine()}),
    "a subclass of the rule": (three(), {"weights": Ours()}),
    "a learned scale": (three(), {"score": ScaledDot(nn.Parameter(torch.tensor(0.3)))}),
    "a learned temperature": (three(), {"weights": Softmax(temperature=nn.Parameter(torch.tensor(0.3)))}),
    "a sink": (three(), {"weights": Softmax(sink=0.0)}),
    "another score": (three(), {"score": regard.Gated(D, D)}),
    "another rule": (three(), {"weights": regard.Sparsemax()}),
    "another mask": (three(), {"mask": Allowed(torch.ones(N, M, dtype=torch.bool))}),
    "an alignment": (three(), {"mask": Causal(align="end")}),
    "keys for all heads": ([three()[0], three()[1][:, :1], three()[2][:, :1]], {}),
    "wider values": ([*three()[:2], drawn(B, H, M, 9)], {}),
    "no keys": (three(m=0), {}),
    "no queries": (three(n=0), {}),
    "NaN": ([*three()[:2], torch.full((B, H, M, D), torch.nan)], {}),
    "infinity": ([torch.full((B, H, N, D), torch.inf), *three()[1:]], {}),
    "a masked score that overflows": ([each * 1e38 for each in three(M)], {"mask": Causal()}),
}


@pytest.mark.parametrize("name", LEFT)
def test_everything_else_is_left_to_the_planner(name):
    tensors, options = LEFT[name]
    assert plainly(tensors, **options) is None


def test_what_does_not_fit_is_left_to_the_checks_at_the_door():
    queries, keys, values = three()
    for wrong in (
        (queries, keys, values[..., :-1, :]),
        (queries[..., :-1], keys, values),
        (queries[:, :2], keys, values),
        (queries.double(), keys, values),
        (queries.long(), keys.long(), values.long()),
        (queries.tolist(), keys, values),
        (queries, keys.to("meta"), values),
    ):
        assert plainly(wrong) is None
    assert plainly(three(), mask=Causal()) is None  # as many queries as keys, or an alignment
    for dropout in (None, torch.tensor(0.0), "no"):
        with pytest.raises(OptionError, match="`dropout` must be in"):
            attend(queries, keys, values, dropout=dropout)


def test_autocast_is_left_to_the_planner():
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert plainly(three()) is None
        assert attend(*three()).dtype == torch.bfloat16


def test_where_pytorch_would_build_all_pairs_it_is_left_to_the_planner():
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        assert plainly(three()) is None
        assert plan(*three()).engine != "sdpa"


@pytest.mark.parametrize("broken", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("place", range(3))
@pytest.mark.parametrize("mask", [None, Causal()])
def test_what_is_not_finite_reaches_those_alone_who_see_it(mask, place, broken):
    results = []
    for engine in (None, "reference"):
        tensors = three(M)
        tensors[place][1, 2, -1, 0] = broken
        leaves = [each.requires_grad_() for each in tensors]
        output = attend(*leaves, mask=mask, engine=engine)
        results.append([output, *torch.autograd.grad(output, leaves, drawn(*output.shape, seed=3))])
    torch.testing.assert_close(*results, equal_nan=True)


@pytest.mark.parametrize("mask", [None, Causal()])
def test_it_can_be_differentiated_twice(mask):
    leaves = [each.requires_grad_() for each in three(5, 5, dtype=torch.float64)]
    assert torch.autograd.gradgradcheck(lambda *each: attend(*each, mask=mask), leaves)
