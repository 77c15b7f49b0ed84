"""Claims about the descent from many starts."""

from __future__ import annotations

import torch
from torch import Tensor

from regard.database.bfgs import begun, descended

LOW, HIGH = torch.full((2,), -10.0).double(), torch.full((2,), 10.0).double()


def valley(places: Tensor) -> tuple[Tensor, Tensor]:
    """Rosenbrock's, and 0.1 more so that its least value is not 0."""
    x = places.detach().clone().requires_grad_()
    values = (1 - x[:, 0]).square() + 20 * (x[:, 1] - x[:, 0].square()).square() + 0.1
    (gradients,) = torch.autograd.grad(values.sum(), x)
    return values.detach(), gradients


def test_a_curved_valley_is_followed_to_its_end() -> None:
    starts = torch.tensor([[-1.5, 2.0], [3.0, -3.0], [0.0, 0.0]], dtype=torch.float64)
    points = descended(valley, begun(valley, starts), LOW, HIGH, 200, tolerance=1e-12)
    assert torch.allclose(points.places, torch.ones(3, 2, dtype=torch.float64), atol=1e-3)


def test_bounds_hold() -> None:
    high = torch.tensor([0.5, 10.0], dtype=torch.float64)
    points = descended(valley, begun(valley, torch.zeros(1, 2, dtype=torch.float64)), LOW, high, 100)
    assert torch.allclose(points.places, torch.tensor([[0.5, 0.25]], dtype=torch.float64), atol=1e-3)


def test_a_coordinate_that_is_off_stays_off() -> None:
    def bowl(places: Tensor) -> tuple[Tensor, Tensor]:
        factors = places.exp()
        return (factors - 3).square().sum(-1) + 1, 2 * (factors - 3) * factors

    start = torch.tensor([[0.0, -torch.inf]], dtype=torch.float64)
    points = descended(bowl, begun(bowl, start), LOW, HIGH, 50)
    assert points.places[0, 1] == -torch.inf
    assert torch.allclose(points.places[0, 0].exp(), torch.tensor(3.0).double(), atol=1e-3)
