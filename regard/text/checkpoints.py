"""Weights from files."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

import torch
from torch import Tensor, nn

from regard.errors import CheckpointError, RegardError

Model = TypeVar("Model", bound=nn.Module)


def build_empty(build: Callable[[], Model], described: str, layers: object, names: Iterable[str]) -> Model:
    """A model that a file describes, without memory for its weights: a few bytes may ask for terabytes.

    Args:
        build: Makes the model.
        described: The file that says how, for the error.
        layers: How many layers it is to have: no more than there are weights.
        names: Those of the weights that it is to take.

    Raises:
        CheckpointError: The sizes make no model.
    """
    count = len(list(names))
    if isinstance(layers, bool) or not isinstance(layers, int) or not 0 <= layers <= count:
        raise CheckpointError(
            f"{described} must describe a model of its weights: it says {layers!r} layers, and there are {count} "
            f"weights."
        )
    try:
        with torch.device("meta"):
            return build()
    except (RegardError, ArithmeticError, KeyError, TypeError, ValueError, RuntimeError) as error:
        raise CheckpointError(f"{described} must describe a model that can be built: {error}") from None


def load_strictly(
    model: nn.Module, weights: dict[str, Tensor], *, assign: bool = False, source: str = "The weights"
) -> None:
    """Load weights whose names and shapes must be the model's; otherwise say which are not.

    Args:
        model: What they are for.
        weights: By name, as in `model.state_dict()`.
        assign: Whether the model takes these tensors themselves, not copies of them.
        source: Where they are from, for the error.

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
            f"{source} must be those of a {type(model).__name__}: missing {missing or 'nothing'}, unknown "
            f"{unknown or 'nothing'}, of another shape {other or 'nothing'}. Build the model as it was when they "
            f"were saved."
        )
    model.load_state_dict(weights, assign=assign)
