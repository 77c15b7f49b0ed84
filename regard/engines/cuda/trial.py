"""Whether Triton compiles and launches on a device: the smallest kernel that shows it."""

from __future__ import annotations

from contextlib import nullcontext

import torch

from regard.engines.cuda.kernels.trial import count
from regard.engines.cuda.stand_ins import stand_ins
from regard.engines.cuda.value_errors import told


def try_launch(device: torch.device) -> None:
    """Raise whatever Triton raises where it cannot compile, or launch what it compiled.

    What stays on a device for good is made here, and not while a graph is captured.
    """
    told(device)
    stand_ins(device)
    with torch.cuda.device(device) if device.type == "cuda" else nullcontext():
        count[(1,)](torch.empty(16, dtype=torch.int32, device=device), SIZE=16)
