"""Batch entries that share a call give what they give one by one, bit for bit."""

import pytest
import torch

pytest.importorskip("numba")

from regard import Conic, Entmax, Sigmoid, Softmax, attend
from regard.engines import Tiled
from regard.engines.cpu.passes import batched_calls

ENGINE = Tiled(kernels=True)


def tensors(layout):
    torch.manual_seed(0)
    made = [torch.randn(6, 5, 40, 8) for _ in range(3)]
    if layout == "heads inside":  # as a projection leaves them: (batch, n, heads, dim)
        made = [each.transpose(1, 2).contiguous().transpose(1, 2) for each in made]
    elif layout == "shared keys":
        made = [made[0], made[1][:, :1], made[2][:, :1]]
    return [each.requires_grad_() for each in made]


def results(inputs, rule):
    output = attend(*inputs, weights=rule, engine=ENGINE)
    wanted = [each for each in inputs if each.requires_grad]
    weighting = torch.linspace(-1, 1, output.numel()).reshape(output.shape)
    return [output, *torch.autograd.grad(output, wanted, weighting)]


@pytest.mark.parametrize(
    "rule",
    [Softmax(), Conic(), Sigmoid(), Entmax(1.5), Entmax(torch.tensor([1.2, 1.5, 2.0, 1.7, 3.0])), Softmax(sink=0.5)],
    ids=str,
)
@pytest.mark.parametrize("layout", ["contiguous", "heads inside", "shared keys"])
@pytest.mark.parametrize("needed", [(True, True, True), (False, False, True)], ids=["all", "values alone"])
def test_groups_change_nothing(monkeypatch, rule, layout, needed):
    inputs = [each.detach().requires_grad_(need) for each, need in zip(tensors(layout), needed, strict=True)]
    sizes = []
    monkeypatch.setattr(
        "regard.engines.cpu.passes.forward.pool_group",
        lambda program, way, group, *sums: (
            sizes.append(len(group)),
            batched_calls.pool_group(program, way, group, *sums),
        )[1],
    )
    together = results(inputs, rule)
    assert isinstance(rule, Entmax) or max(sizes) > 1
    monkeypatch.setattr(batched_calls, "GROUP_PAIRS", 0)
    for each, wanted in zip(together, results(inputs, rule), strict=True):
        assert torch.equal(each, wanted)
