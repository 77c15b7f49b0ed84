"""Weights from files."""

from __future__ import annotations

from torch import Tensor, nn

from regard.errors import CheckpointError


def load_strictly(model: nn.Module, weights: dict[str, Tensor]) -> None:
    """Load weights whose names and shapes must be the model's; otherwise say which are not."""
    own = model.state_dict()
    missing, unknown = sorted(set(own) - set(weights)), sorted(set(weights) - set(own))
    other = sorted(key for key in own.keys() & weights.keys() if own[key].shape != weights[key].shape)
    if missing or unknown or other:
        raise CheckpointError(
            f"The weights do not fit {type(model).__name__}: missing {missing or 'nothing'}, unknown "
            f"{unknown or 'nothing'}, of another shape {other or 'nothing'}."
        )
    model.load_state_dict(weights)
