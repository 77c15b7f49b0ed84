"""Whether a mask of PyTorch's is the causal one."""

from __future__ import annotations

import torch
from torch import Tensor

from regard.modes import is_hidden


def causal_mask(size: int, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> Tensor:
    """`(size, size)`: 0 where a query may look, −inf at the keys after it; in bool, True there."""
    dtype = torch.get_default_dtype() if dtype is None else dtype
    later = torch.ones(size, size, dtype=torch.bool, device=device).triu(1)
    return (
        later
        if dtype == torch.bool
        else torch.zeros(size, size, dtype=dtype, device=device).masked_fill(later, -torch.inf)
    )


def looks_causal(mask: Tensor | None) -> bool:
    """Whether a mask is the causal one, by comparing every entry; False while it cannot be read."""
    if not isinstance(mask, Tensor) or is_hidden(mask) or mask.ndim != 2 or mask.shape[0] != mask.shape[1]:
        return False
    return bool(torch.equal(mask, causal_mask(len(mask), mask.device, mask.dtype)))
