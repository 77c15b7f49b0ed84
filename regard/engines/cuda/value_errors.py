"""Errors that depend on values: a kernel tells them to the host's memory, and the next call raises.

Nobody waits for the device to say. Rows that such an error concerns are NaN. Where the host asks while the call at
fault still runs, the same error may be raised once more by the call after that.
"""

from __future__ import annotations

import torch
from torch import Tensor

from regard.errors import OptionError, ScoreError

_TOLD: dict[torch.device, Tensor] = {}


def told(device: torch.device) -> Tensor:
    """One number that kernels of a device write to, where the host can read it without waiting.

    1: proportional weights of a negative score; 2: an alpha of Entmax out of its range.
    """
    if device not in _TOLD:
        _TOLD[device] = torch.zeros(1, dtype=torch.int32, pin_memory=device.type == "cuda")
    return _TOLD[device]


def raise_told(device: torch.device) -> None:
    """Raise what was told since this was last asked.

    Raises:
        ScoreError: Proportional weights of a negative score.
        OptionError: An alpha of Entmax out of its range.
    """
    number = _TOLD.get(device)
    what = 0 if number is None else number.item()
    if number is not None and what:
        number.zero_()
        if what == 2:
            raise OptionError(
                "`alpha` of Entmax must be in (1, 4]: an earlier call on this device got another, and its rows are "
                "NaN. Use Softmax() for alpha = 1; clamp a learned alpha."
            )
        raise ScoreError(
            "Proportional() must have scores that are not negative: an earlier call on this device got one, and its "
            "rows are NaN. Use Softmax() for scores of any sign."
        )
