"""The operators that a traced call becomes keep torch's rules for operators."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from regard import Additive, Causal, Dot, Entmax, Gated, Laplacian, Padding, Sigmoid, SoftCap, Softmax, TopK, attend
from regard.engines.cpu.runtime import background_compilation
from regard.errors import EngineRefusal
from regard.traced import routes
from regard.traced.operators import attend_operator, backward_operator
from regard.traced.routes import attend_traced

HEADS, N_QUERIES, N_KEYS, DIM = 3, 13, 19, 4


def three() -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    shapes = (2, HEADS, N_QUERIES, DIM), (2, HEADS, N_KEYS, DIM), (2, HEADS, N_KEYS, 5)
    return [torch.randn(shape, generator=generator) for shape in shapes]


def operator_arguments(monkeypatch: pytest.MonkeyPatch, **options: Any) -> tuple[Any, ...]:
    """What `attend` gives the operator for these options."""
    seen: list[tuple[Any, ...]] = []

    def spy(*arguments: Any) -> tuple[Tensor, Tensor]:
        seen.append(arguments)
        return attend_operator(*arguments)  # type: ignore[no-any-return]

    monkeypatch.setattr(routes, "attend_operator", spy)
    leaves = [each.requires_grad_() for each in three()]
    given = {"score": Dot(), "weights": Softmax(), "mask": None, "dropout": 0.0, "engine": None, **options}
    attend_traced(*leaves, **given)
    values, tensors, *rest = seen[0]
    leaves = [each.detach().requires_grad_(each.requires_grad) for each in (values, *tensors)]
    return leaves[0], leaves[1:], *rest


OPERATORS = {
    "dot": {"score": SoftCap(Dot(), 5.0), "mask": Causal(align="end"), "engine": "tiled"},
    "dot, by the definition": {"score": Gated(DIM, DIM), "mask": Padding(torch.tensor([3, 9]))},
    "dot, by sdpa": {"mask": Causal(align="start"), "engine": "sdpa"},
    "channel": {"score": Additive(DIM, DIM, 3), "weights": Entmax(nn.Parameter(torch.tensor(1.5))), "engine": "tiled"},
    "channel, with dropout": {"score": Laplacian(2.0), "weights": TopK(3), "engine": "tiled", "dropout": 0.1},
}


@pytest.mark.parametrize("options", OPERATORS.values(), ids=OPERATORS)
def test_the_operators_pass_opcheck(options, monkeypatch):
    arguments = operator_arguments(monkeypatch, **options)
    torch.library.opcheck(attend_operator, arguments)
    output, statistics = attend_operator(*arguments)
    values, tensors, numbers, seed, text, _, _ = arguments
    needed = [each.requires_grad for each in (values, *tensors)]
    inputs = values.detach(), [each.detach() for each in tensors]
    torch.library.opcheck(
        backward_operator,
        (torch.randn_like(output), output.detach(), statistics.detach(), *inputs, numbers, seed, text, needed),
    )


def test_the_operators_stop_at_first_derivatives(monkeypatch):
    arguments = operator_arguments(monkeypatch, **OPERATORS["dot"])
    output, _ = attend_operator(*arguments)
    (first,) = torch.autograd.grad(output.square().sum(), arguments[0], create_graph=True)
    with pytest.raises(EngineRefusal, match="first derivatives"):
        first.sum().backward()


def test_the_operators_run_under_vmap_entry_by_entry(monkeypatch):
    values, tensors, *rest = operator_arguments(monkeypatch, **OPERATORS["dot"])
    stacked = torch.stack([values, 2 * values]).detach()

    def pooled(each: Tensor) -> Tensor:
        return attend_operator(each, [tensor.detach() for tensor in tensors], *rest)[0].square().sum()  # type: ignore[no-any-return]

    torch.testing.assert_close(torch.vmap(pooled)(stacked), torch.stack([pooled(each) for each in stacked]))


OPTIONS: dict[str, Any] = {"score": Dot(), "mask": None, "dropout": 0.0, "engine": "tiled"}


def test_a_backward_pass_goes_the_way_of_its_forward_pass(monkeypatch):
    leaves = [torch.randn(2, 300, 16, requires_grad=True) for _ in range(3)]
    found = []
    for later in (False, True):  # whether kernels become ready between the two
        monkeypatch.setattr(background_compilation, "are_ready", lambda names: False)
        output = attend_traced(*leaves, weights=Sigmoid(), **OPTIONS)
        monkeypatch.setattr(background_compilation, "are_ready", lambda names, later=later: later)
        found.append(torch.autograd.grad(output.square().sum(), leaves))
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


def test_gradients_of_huge_scores_are_those_of_the_weights_before(monkeypatch):
    monkeypatch.setattr(background_compilation, "are_ready", lambda names: False)
    leaves = [(torch.randn(2, 300, 16) * size).requires_grad_() for size in (3e3, 3e3, 1.0)]
    found = [
        torch.autograd.grad(output.square().sum(), leaves)
        for output in (attend_traced(*leaves, weights=Softmax(), **OPTIONS), attend(*leaves, **OPTIONS))
    ]
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))
