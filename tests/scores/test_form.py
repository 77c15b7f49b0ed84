"""Products that share a factor: the same numbers as torch.matmul, without its copies."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import regard
from regard import attend
from regard.engines import Tiled
from regard.tensors import product

LEFT = [(), (2,), (2, 3), (2, 3, 4), (1, 3), (0, 3)]
RIGHT = [(), (1,), (3,), (1, 1), (2, 1), (1, 3), (2, 3, 1), (2, 1, 1), (2, 1, 4), (5, 1, 1, 1), (0, 1)]


def broadcast(*shapes: tuple[int, ...]) -> bool:
    try:
        torch.broadcast_shapes(*shapes)
    except RuntimeError:
        return False
    return True


PAIRS = [pair for pair in itertools.product(LEFT, RIGHT) if broadcast(*pair)]


@pytest.mark.parametrize(("left", "right"), PAIRS)
def test_a_product_is_that_of_matmul_for_every_way_to_broadcast(left, right, draw):
    a, b = draw(*left, 5, 3).requires_grad_(), draw(*right, 3, 6, seed=1).requires_grad_()
    torch.testing.assert_close(product(a, b), a @ b)
    found = torch.autograd.grad(product(a, b).square().sum(), (a, b))
    torch.testing.assert_close(found, torch.autograd.grad((a @ b).square().sum(), (a, b)))


class _Largest(TorchDispatchMode):
    """Notes how many elements the largest new tensor has."""

    n_elements = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        results = function(*args, **(kwargs or {}))
        for each in results if isinstance(results, tuple | list) else (results,):
            if isinstance(each, torch.Tensor):
                self.n_elements = max(self.n_elements, each.untyped_storage().nbytes() // each.element_size())
        return results


GROUPS = [(engine, shared) for engine in ("reference", "tiled", Tiled(1 << 12)) for shared in ((2, 1), (1, 1))]


@pytest.mark.parametrize(("engine", "shared"), [*GROUPS, ("sdpa", (2, 1))])
def test_grouped_queries_copy_no_keys_forward_or_backward(engine, shared, draw):
    q, k, v = draw(2, 16, 8, 64), draw(*shared, 512, 64, seed=1), draw(*shared, 512, 64, seed=2)
    if engine == "sdpa":
        q, k, v = q[None], k[None], v[None]
    q, k, v = (each.requires_grad_() for each in (q, k, v))
    with _Largest() as trace:
        attend(q, k, v, engine=engine).sum().backward()
    scores, copied = 2 * 16 * 8 * 512, 2 * 16 * 512 * 64
    assert trace.n_elements <= scores < copied


@pytest.mark.parametrize("rule", [regard.Softmax(), regard.Sparsemax(), regard.Sigmoid()])
def test_gradients_of_shared_values_are_sums_over_those_that_share(rule, draw):
    q = draw(2, 3, 4, 7, 5)
    for shape in ((), (1,), (3, 1), (2, 1, 1), (2, 3, 4), (2, 1, 4)):
        k, v = draw(*shape, 9, 5, seed=1).requires_grad_(), draw(*shape, 9, 2, seed=2).requires_grad_()
        found = torch.autograd.grad(attend(q, k, v, weights=rule, engine=Tiled(256)).square().sum(), (k, v))
        plain = rule(q @ k.mT / 5**0.5) @ v
        torch.testing.assert_close(found, torch.autograd.grad(plain.square().sum(), (k, v)))
