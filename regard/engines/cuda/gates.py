"""Gates as factors: σ(g + h) = 1 / (1 + e^−g · e^−h), so that a pair takes a multiplication and no exponential."""

from __future__ import annotations

import torch
from torch import Tensor

from regard.engines.cuda.kernels.tile_scores import gate_factors
from regard.engines.cuda.launch_settings import blocks_of
from regard.engines.cuda.launcher import on_device

GATES = 1024  # that a program turns into factors


def factors_of(gates: Tensor) -> Tensor:
    """e^−g of gates, in float32, lying together."""
    gates = gates.contiguous()
    factors = torch.empty_like(gates, dtype=torch.float32)
    with on_device(gates.device):
        gate_factors[(blocks_of(gates.numel(), GATES),)](gates, factors, gates.numel(), SIZE=GATES)
    return factors
