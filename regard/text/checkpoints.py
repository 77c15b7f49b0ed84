"""Weights from files."""

from __future__ import annotations

from torch import Tensor, nn

from regard.errors import CheckpointError


def load_strictly(model: nn.Module, weights: dict[str, Tensor], *, assign: bool = False) -> None:
    """Load weights whose names and shapes must be the model's; otherwise say which are not.

    Args:
        model: What they are for.
        weights: By name, as in `model.state_dict()`.
        assign: Whether the model takes these tensors themselves, not copies of them.

    Example:
        >>> import torch
        >>> load_strictly(nn.Linear(2, 1), {"weight": torch.ones(1, 2)})
        Traceback (most recent call last):
        ...
        regard.errors.CheckpointError: The weights must be those of a Linear: missing ['bias'], unknown nothing, of ...
    """
    own = model.state_dict()
    missing, unknown = sorted(set(own) - set(weights)), sorted(set(weights) - set(own))
    other = [
        f"{key} {tuple(weights[key].shape)} for {tuple(own[key].shape)}"
        for key in sorted(own.keys() & weights.keys())
        if own[key].shape != weights[key].shape
    ]
    if missing or unknown or other:
        raise CheckpointError(
            f"The weights must be those of a {type(model).__name__}: missing {missing or 'nothing'}, unknown "
            f"{unknown or 'nothing'}, of another shape {other or 'nothing'}. Build the model as it was when they "
            f"were saved."
        )
    model.load_state_dict(weights, assign=assign)
