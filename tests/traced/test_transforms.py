"""torch.func gives the numbers of eager mode."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from regard import (
    Bias,
    Causal,
    Custom,
    Entmax,
    Gaussian,
    GlobalKeys,
    OneHot,
    Padding,
    RandomKeys,
    ScaledDot,
    TopK,
    attend,
)
from regard.errors import EngineRefusal

HEADS, N_QUERIES, N_KEYS, DIM = 3, 13, 19, 4


def three() -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    shapes = (2, HEADS, N_QUERIES, DIM), (2, HEADS, N_KEYS, DIM), (2, HEADS, N_KEYS, 5)
    return [torch.randn(shape, generator=generator) for shape in shapes]


TRANSFORMED: dict[str, dict[str, Any]] = {
    "plain": {},
    "causal": {"mask": Causal(align="end")},
    "Entmax": {"weights": Entmax(1.5), "mask": GlobalKeys([1, -1]) | RandomKeys(3, seed=0)},
    "TopK": {"weights": TopK(3)},
    "OneHot": {"weights": OneHot()},
    "Gaussian": {"score": Gaussian(2.0)},
    "Custom": {"score": Custom(lambda q, k: q @ k.mT)},
    "Bias": {"score": ScaledDot() + Bias(torch.rand(1, N_KEYS)), "mask": Padding(7)},
}


@pytest.mark.parametrize("options", TRANSFORMED.values(), ids=TRANSFORMED)
def test_vmap_maps_over_queries_keys_and_values(options):
    queries, keys, values = three()
    wanted = attend(queries, keys, values, **options)
    torch.testing.assert_close(torch.vmap(lambda *each: attend(*each, **options))(queries, keys, values), wanted)
    # Over the heads of queries alone.
    over_heads = torch.vmap(lambda each: attend(each, keys[:, 0], values[:, 0], **options), in_dims=1, out_dims=1)
    torch.testing.assert_close(over_heads(queries), attend(queries, keys[:, :1], values[:, :1], **options))


@pytest.mark.parametrize("options", TRANSFORMED.values(), ids=TRANSFORMED)
def test_func_grad_has_the_gradients_of_eager_mode(options):
    tensors = [each.requires_grad_() for each in three()]

    def loss(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        return attend(queries, keys, values, **options).square().sum()

    wanted = torch.autograd.grad(loss(*tensors), tensors)
    plain = [each.detach() for each in tensors]
    torch.testing.assert_close(torch.func.grad(loss, argnums=(0, 1, 2))(*plain), wanted)
    torch.testing.assert_close(torch.vmap(torch.func.grad(loss, argnums=(0, 1, 2)))(*plain), wanted)


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")  # torch.func's own
def test_jacobians_and_hessians():
    queries, keys, values = (each[0, 0].double() for each in three())
    jacobian = torch.func.jacrev(lambda each: attend(queries, keys, each))(values)  # (queries, dims, keys, dims)
    alpha = (queries @ keys.T / DIM**0.5).softmax(-1)
    torch.testing.assert_close(jacobian, torch.einsum("qk,vw->qvkw", alpha, torch.eye(5, dtype=torch.float64)))

    def loss(each: Tensor) -> Tensor:
        return attend(each, keys, values, mask=Causal(align="end")).square().sum()

    wanted = torch.autograd.functional.hessian(loss, queries)
    torch.testing.assert_close(torch.func.hessian(loss)(queries), wanted)


def test_dropout_under_vmap_must_be_told_what_is_random():
    def function(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        return attend(queries, keys, values, dropout=0.5)

    queries, keys, values = three()
    with pytest.raises(RuntimeError, match="randomness"):
        torch.vmap(function)(queries, keys, values)
    same = [queries[:1].expand(2, -1, -1, -1), keys[:1].expand(2, -1, -1, -1), values[:1].expand(2, -1, -1, -1)]
    first, second = torch.vmap(function, randomness="same")(*same)
    torch.testing.assert_close(first, second)
    first, second = torch.vmap(function, randomness="different")(*same)
    assert not torch.allclose(first, second)


def test_transforms_take_the_definition_alone():
    with pytest.raises(EngineRefusal, match="'reference' inside a transform"):
        torch.vmap(lambda *each: attend(*each, engine="tiled"))(*three())
