"""Scores of distances are functions of ‖q − k‖ / bandwidth alone: the unit in which both are told does not matter."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from regard import Boxcar, Cosine, Epanechnikov, Gaussian, Laplacian, Proportional, Softmax, Triangular, attend
from regard.engines import Tiled

ENGINES = {"reference": "reference", "tiled": Tiled(tile_elements=64, kernels=False), "kernels": Tiled(kernels=True)}
UNITS = [1e-42, 1e-25, 1e-19, 1.0, 1e20, 1e37]
KINDS = [Boxcar, Epanechnikov, Triangular, Gaussian, Laplacian]


def pooled(kind, width, tensors, engine):
    rule = Softmax() if kind in (Gaussian, Laplacian) else Proportional()
    return attend(*tensors, score=kind(width), weights=rule, engine=engine)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("kind", KINDS)
def test_tiny_and_huge_distances_are_those_of_float64(kind, unit, engine):
    queries, values = torch.tensor([[1.0], [2.2]]) * unit, torch.tensor([[0.0], [2.0], [4.0]])
    keys = torch.tensor([[1.0], [2.0], [3.0]]) * unit
    tensors = [each.requires_grad_() for each in (queries, keys, values)]
    wide = [each.detach().double().requires_grad_() for each in tensors]
    output, expected = pooled(kind, 1.5 * unit, tensors, ENGINES[engine]), pooled(kind, 1.5 * unit, wide, "reference")
    torch.testing.assert_close(output.double(), expected, rtol=1e-5, atol=1e-6)
    found = torch.autograd.grad(output.sum(), tensors, materialize_grads=True)
    for gradient, wanted in zip(found, torch.autograd.grad(expected.sum(), wide, materialize_grads=True), strict=True):
        wanted = wanted.float()
        assert torch.equal(gradient.isfinite(), wanted.isfinite())  # a gradient of 1e42 is no float32
        near = float(wanted.abs().amax()) * 1e-4
        torch.testing.assert_close(gradient, wanted, rtol=1e-4, atol=near if near < torch.inf else 0.0)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("unit", [1e-25, 1.0, 1e20])
@pytest.mark.parametrize("kind", [Epanechnikov, Triangular, Gaussian, Laplacian])
def test_a_learned_bandwidth_is_learned_in_any_unit(kind, unit, engine):
    keys, values = torch.tensor([[1.0], [2.0], [3.0], [50.0]]) * unit, torch.tensor([[0.0], [2.0], [4.0], [8.0]])
    width = nn.Parameter(torch.tensor(1.5 * unit))
    pooled(kind, width, (keys[1:3], keys, values), ENGINES[engine]).sum().backward()
    wide = nn.Parameter(width.detach().double())
    pooled(kind, wide, (keys[1:3].double(), keys.double(), values.double()), "reference").sum().backward()
    torch.testing.assert_close(width.grad.double() * unit, wide.grad * unit, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("kind", [Gaussian, Laplacian])
def test_each_dimension_may_have_a_unit_of_its_own(kind, draw):
    units = torch.tensor([1e-25, 1.0, 1e20])
    queries, keys, values = draw(4, 3).float(), draw(5, 3, seed=1).float(), draw(5, 2, seed=2).float()
    expected = attend(queries, keys, values, score=kind(torch.tensor([0.5, 1.0, 2.0])))
    output = attend(queries * units, keys * units, values, score=kind(torch.tensor([0.5, 1.0, 2.0]) * units))
    torch.testing.assert_close(output, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("unit", [1e-25, 1.0, 1e25])
def test_cosine_knows_no_unit(unit, draw):
    queries, keys, values = draw(4, 3).float(), draw(5, 3, seed=1).float(), draw(5, 2, seed=2).float()
    expected = attend(queries, keys, values, score=Cosine())
    for engine in ENGINES.values():
        leaf = (queries * unit).requires_grad_()
        output = attend(leaf, keys * unit, values, score=Cosine(), engine=engine)
        torch.testing.assert_close(output, expected)
        assert torch.autograd.grad(output.sum(), leaf)[0].isfinite().all()


def test_a_unit_costs_no_digits_far_from_the_origin():
    # Differences of 1 at 1e7, in a unit of 3e-21: divided by the bandwidth first, they would be off by a tenth.
    unit = 3e-21
    keys = (torch.tensor([[1e7], [1e7 + 1], [1e7 + 2]]).double() * unit).float()
    exact = (keys.double() - keys.double()[0]).square() / (2 * (2 * unit) ** 2)
    torch.testing.assert_close(Gaussian(2 * unit)(keys[:1], keys)[0].double(), -exact.flatten(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("width", [1e-200, 1e155, 1e300])
def test_a_bandwidth_beyond_float32_is_one_that_meets_no_other_point_or_all(width):
    points = torch.tensor([[1.0], [2.0], [3.0]])
    expected = points if width < 1 else points.mean().expand(3, 1)
    for kind in KINDS:
        torch.testing.assert_close(pooled(kind, width, (points, points, points), "reference"), expected)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("kind", [Epanechnikov, Triangular])
def test_a_point_so_far_that_its_square_overflows_sends_the_radius_no_nan(kind, engine):
    radius = nn.Parameter(torch.tensor(2.0))
    keys = torch.tensor([[0.5], [1.0], [1e30]])
    pooled(kind, radius, (torch.zeros(1, 1), keys, keys.clamp(max=9)), ENGINES[engine]).sum().backward()
    assert radius.grad.isfinite()
    assert radius.grad != 0


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("kind", [Epanechnikov, Triangular, Gaussian, Laplacian])
def test_a_bandwidth_of_half_precision_is_squared_in_float32(kind, dtype, engine):
    points = torch.tensor([[1.0], [2.0], [3.0]]) * 2**-9  # 1 / bandwidth² overflows float16
    values = torch.tensor([[0.0], [2.0], [4.0]])
    found, wanted = (
        [each.to(to).requires_grad_() for each in (points, points, values)] for to in (dtype, torch.float64)
    )
    widths = [nn.Parameter(torch.tensor(1.5 * 2**-9, dtype=to)) for to in (dtype, torch.float64)]
    output = pooled(kind, widths[0], found, ENGINES[engine])
    expected = pooled(kind, widths[1], wanted, "reference")
    torch.testing.assert_close(output.double(), expected, rtol=1e-2, atol=1e-2)
    output[0].backward()
    expected[0].backward()
    for one, two in zip((*found, widths[0]), (*wanted, widths[1]), strict=True):
        torch.testing.assert_close(one.grad.double(), two.grad, rtol=2e-2, atol=2e-2 * float(two.grad.abs().amax()))


@pytest.mark.parametrize("width", [1e-200, 1e155])
@pytest.mark.parametrize("kind", KINDS)
def test_bandwidths_beyond_half_precision_are_the_nearest_key_or_all(kind, width):
    keys = torch.tensor([[1.0], [2.0], [3.0]], dtype=torch.float16)
    output = pooled(kind, width, (keys[:1], keys, keys), "reference")
    assert output.item() == (1.0 if width < 1 else 2.0)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("kind", [Epanechnikov, Triangular, Gaussian])
def test_slopes_of_a_small_unit_times_large_values_stay_in_float32(kind, engine):
    """dP times the slope of a squared distance is 1e39 here, and times a difference 1e31 again."""
    tensors = [torch.tensor([[0.6]]) * 1e-8, torch.tensor([[0.0], [1.0]]) * 1e-8, torch.tensor([[1.0], [-1.0]]) * 1e23]
    found = []
    for dtype, each in ((torch.float32, ENGINES[engine]), (torch.float64, "reference")):
        leaves = [tensor.to(dtype).requires_grad_() for tensor in tensors]
        found.append(torch.autograd.grad(pooled(kind, 2e-8, leaves, each).sum(), leaves[:2]))
    for gradient, wanted in zip(*found, strict=True):
        torch.testing.assert_close(gradient.double(), wanted, rtol=1e-4, atol=0)
