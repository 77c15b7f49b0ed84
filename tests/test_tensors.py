"""Small things that torch does not have, or not quite."""

from __future__ import annotations

import pytest
import torch

from regard.tensors import are_finite, broadcast_shapes, is_finite, take


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_one_entry_that_is_not_finite_is_found_wherever_it_is(dtype):
    for broken in (torch.nan, torch.inf, -torch.inf):
        for place in range(3):
            tensors = [torch.randn(4, 50).to(dtype) for _ in range(3)]
            assert is_finite(*tensors)
            assert are_finite(*tensors)
            tensors[place][3, 7] = broken
            assert not is_finite(*tensors)
            assert not are_finite(*tensors)


def test_infinities_that_would_cancel_are_found():
    assert not is_finite(torch.tensor([torch.inf, 1.0]), torch.tensor([-torch.inf, 1.0]))
    assert not is_finite(torch.tensor([torch.inf, -torch.inf]))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_a_sum_that_overflows_is_looked_at_again(dtype):
    assert is_finite(torch.full((100,), torch.finfo(dtype).max, dtype=dtype))
    assert not is_finite(torch.tensor([torch.finfo(dtype).max] * 100 + [torch.nan], dtype=dtype))
    assert are_finite(*[torch.full((100,), torch.finfo(dtype).max, dtype=dtype)] * 3)


def test_nobody_knows_what_three_tensors_hold_on_the_meta_device_even_beside_others():
    assert are_finite(*[torch.ones(4, device="meta")] * 3)
    assert are_finite(torch.ones(4, device="meta"), torch.ones(4), torch.ones(4))


def test_the_check_leaves_no_graph():
    leaf = torch.ones(3, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(pytest.fail, pytest.fail):
        assert is_finite(leaf, leaf * 2)


@pytest.mark.parametrize(
    "shapes", [[()], [(2, 3)], [(2, 3), (2, 3)], [(1, 3), (2, 1)], [(3,), (2, 1)], [(0,), (1,)], []]
)
def test_shapes_broadcast_as_torch_has_it(shapes):
    assert broadcast_shapes(*shapes) == tuple(torch.broadcast_shapes(*shapes))


def test_shapes_that_do_not_broadcast_are_an_error():
    with pytest.raises(ValueError, match="do not broadcast"):
        broadcast_shapes((2, 3), (2,))


def test_all_of_an_axis_is_the_tensor_itself():
    rows = torch.rand(4, 3)
    assert take(rows, -2, range(4)) is rows
    assert torch.equal(take(rows, -2, range(1, 3)), rows[1:3])
