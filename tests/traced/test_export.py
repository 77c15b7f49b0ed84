"""What torch.export stores gives the numbers of eager mode."""

from __future__ import annotations

import io

import pytest
import torch
from torch import Tensor, nn

from regard import Additive, Causal, Entmax, Padding, attend

HEADS, N_QUERIES, N_KEYS, DIM = 3, 13, 19, 4


def three(n_queries: int = N_QUERIES) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    shapes = (2, HEADS, n_queries, DIM), (2, HEADS, N_KEYS, DIM), (2, HEADS, N_KEYS, 5)
    return [torch.randn(shape, generator=generator) for shape in shapes]


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.score = Additive(DIM, DIM, 6)
        self.rule = Entmax(nn.Parameter(torch.tensor(1.5)))
        self.mask = Causal(align="end") & Padding(torch.tensor([12, 19]))

    def forward(self, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        return attend(queries, keys, values, score=self.score, weights=self.rule, mask=self.mask)


@pytest.mark.filterwarnings("ignore:The given buffer is not writable")  # torch.export.load's own, in torch 2.10
def test_an_exported_module_is_saved_loaded_and_run_at_another_size():
    layer, tensors = Layer(), tuple(three())
    n_queries = torch.export.Dim("n_queries", min=2, max=100)
    program = torch.export.export(layer, tensors, dynamic_shapes=({2: n_queries}, None, None))
    stored = io.BytesIO()
    torch.export.save(program, stored)
    stored.seek(0)
    loaded = torch.export.load(stored).module()
    for size in (N_QUERIES, 8):
        tensors = tuple(three(size))
        torch.testing.assert_close(loaded(*tensors), layer(*tensors))


def test_export_by_way_of_the_compiler_works_too():
    layer, tensors = Layer(), tuple(three())
    program = torch.export.export(layer, tensors, strict=True)
    torch.testing.assert_close(program.module()(*tensors), layer(*tensors))
