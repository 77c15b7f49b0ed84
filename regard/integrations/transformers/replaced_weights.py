"""What a checkpoint has of replaced rules, scores and masks: read into a model whose layers were given the same."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor, nn

from regard.errors import CheckpointError
from regard.integrations.transformers.replacing import DESCRIPTION, NAME, as_text

_INSIDE = f".{NAME}."


def load_replaced(folder: Path, files: list[Path], model: nn.Module) -> None:
    """Give replaced parts of a model what was saved of them.

    Raises:
        CheckpointError: The checkpoint has something that nothing takes, or not all that is taken.
    """
    saved = {name: each for file in files for name, each in _saved(file)}
    if not saved:
        return
    wanted = [name for name in model.state_dict() if _INSIDE in name]
    found: dict[str, Tensor] = {}
    taken: dict[str, str] = {}
    for name, each in saved.items():
        # Of a model with a head, names have more in front than of the same model without.
        near = [own for own in wanted if own.endswith(f".{name}") or name.endswith(f".{own}")]
        names = [name] if name in wanted else near
        if len(names) > 1 or any(own in taken for own in names):
            raise CheckpointError(
                f"{folder} must say what {names[0]} is: {name} may be that of {', '.join(near)}, or it is "
                f"{taken.get(names[0], 'another')}. Load the whole model that was saved."
            )
        if not names:
            layer, _, part = name.rpartition(_INSIDE)
            said = saved.get(f"{layer}{_INSIDE}{DESCRIPTION}")
            raise CheckpointError(
                f"{folder} must be loaded with what it was saved with: nothing takes {name}. {layer} had "
                f"{part if said is None else as_text(said)}. Replace the same: load(folder, replace=function), where "
                f"function(model) calls regard.integrations.transformers.replace on it."
            )
        found[names[0]], taken[names[0]] = each, name
    lacking = sorted((name for name in wanted if name not in found), key=lambda name: name.endswith(DESCRIPTION))
    if lacking:
        raise CheckpointError(
            f"{folder} must have what is replaced: it lacks {lacking[0]}, and has {', '.join(sorted(saved)[:3])}. "
            f"Replace what it was saved with, and more when it is loaded."
        )
    try:
        model.load_state_dict(found, strict=False)
    except RuntimeError as error:
        raise CheckpointError(
            f"{folder} must have what is replaced: {error}. Replace what it was saved with."
        ) from error


def _saved(file: Path) -> Iterator[tuple[str, Tensor]]:
    """The entries of a file that replaced parts have."""
    if file.suffix == ".safetensors":
        from safetensors import safe_open

        with safe_open(file, "pt") as opened:
            yield from [(name, opened.get_tensor(name)) for name in opened.keys() if _INSIDE in name]  # noqa: SIM118
    else:
        read = torch.load(file, map_location="cpu", weights_only=True)
        yield from ((name, each) for name, each in read.items() if _INSIDE in name)
