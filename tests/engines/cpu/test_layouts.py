"""Kernels take addresses: however tensors lie in memory, they read what the tensors say."""

import pytest
import torch

pytest.importorskip("numba")

from regard import Additive, Dot, Entmax, ScaledDot, Softmax, TopK, Uniform, attend
from regard.engines import Tiled

N, DIM = 70, 8


def expanded_rows():
    return torch.randn(1, DIM).expand(N, DIM)


def one_number():
    return torch.full((1, 1), 2.0).expand(N, DIM)


def unfolded():
    return torch.randn(N + DIM - 1).unfold(0, DIM, 1)


def transposed():
    return torch.randn(DIM, N).mT


def every_second_row():
    return torch.randn(2 * N, DIM)[::2]


def every_second_number():
    return torch.randn(N, 2 * DIM)[:, ::2]


def backwards_batch():
    return torch.randn(N, 2, DIM).transpose(0, 1)


def expanded_batch():
    return torch.randn(N, DIM).expand(2, 3, N, DIM)


LAYOUTS = [
    expanded_rows,
    one_number,
    unfolded,
    transposed,
    every_second_row,
    every_second_number,
    backwards_batch,
    expanded_batch,
]


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.__name__)
@pytest.mark.parametrize("place", range(3), ids=["queries", "keys", "values"])
@pytest.mark.parametrize(
    "options",
    [
        {"score": Dot()},
        {"score": ScaledDot()},
        {"score": Additive(DIM, DIM, 5)},
        {"weights": Entmax(1.5)},
        {"weights": TopK(3)},
        {"weights": Uniform()},
    ],
    ids=lambda options: str(*options.values()),
)
def test_any_layout_is_read_as_it_is(layout, place, options):
    torch.manual_seed(0)
    inputs = [torch.randn(N, DIM) for _ in range(3)]
    inputs[place] = layout()
    gathered = [each.clone().contiguous().requires_grad_() for each in inputs]
    laid_out = [each.detach().requires_grad_() for each in inputs]
    outputs = [attend(*each, **options, engine=Tiled(kernels=True)) for each in (laid_out, gathered)]
    torch.testing.assert_close(*outputs, rtol=1e-5, atol=1e-5)
    wanted = torch.linspace(-1, 1, outputs[0].numel()).reshape(outputs[0].shape)
    gradients = [torch.autograd.grad(o, i, wanted) for o, i in zip(outputs, (laid_out, gathered), strict=True)]
    for got, expected in zip(*gradients, strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)


def test_batch_entries_that_share_keys_share_their_copies():
    keys = torch.randn(500, DIM, dtype=torch.bfloat16).expand(64, 500, DIM)
    queries = torch.randn(64, 100, DIM, dtype=torch.bfloat16)
    from regard.engines.cpu.program import translate
    from regard.problem import make_problem

    program = translate(make_problem(queries, keys, keys, score=Dot(), weights=Softmax()))
    assert program.right.shape == program.values.shape == (1, 500, DIM)
