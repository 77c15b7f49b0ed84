"""A model's attention layers and their names: all of them, or those that somebody names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches

from torch import nn

from regard.errors import MissingKey, OptionError
from regard.nn.hosts import HOSTS, host_of

Layers = Sequence[str | int] | str | int | None


def choose_layers(
    model: nn.Module, layers: Layers, purpose: str = "record", *, running: bool = True
) -> dict[str, nn.Module]:
    """The attention layers of a model by their names: all, or those that are named.

    A layer is named by its number, its name, or that of a part of the model that holds it: "encoder.layer.3" is every
    attention layer inside.

    Args:
        model: Any module.
        layers: Names or numbers; all if left out.
        purpose: What they are for, for an error's text.
        running: Whether those of another library must run on regard.
    """
    check_model(model)
    found = find_layers(model)
    if not found:
        raise OptionError(
            f"{type(model).__name__} has no attention layer of regard.nn: nothing to {purpose}. "
            f"Call regard.nn.convert(model) for one with PyTorch's layers{_how_to_host()}."
        )
    if layers is None:
        chosen = list(found)
    else:
        wanted = _several(layers)
        inside = {each: within(each, list(found)) for each in wanted}
        unknown = [each for each, names in inside.items() if not names]
        if unknown:
            there = offered(unknown, list(found), list(found))
            raise OptionError(f"`layers` must name attention layers of the model: got {unknown}. {there}")
        chosen = list(dict.fromkeys(name for names in inside.values() for name in names))
    for name in chosen:
        host = host_of(found[name])
        refusal = None if host is None or not running else host.refusal(found[name])
        if refusal is not None:
            raise OptionError(f"{name}: {refusal}")
    return {name: found[name] for name in chosen}


def _several(layers: Sequence[str | int] | str | int) -> list[str | int]:
    wanted = (
        [layers] if isinstance(layers, str | int) else list(layers) if isinstance(layers, list | tuple | range) else []
    )
    if not wanted or not all(isinstance(each, str | int) and not isinstance(each, bool) for each in wanted):
        raise OptionError(f"`layers` must be names or numbers of layers: got {layers!r}. Leave it out for all of them.")
    return wanted


def check_model(model: object) -> None:
    """Raise unless it is a module of PyTorch."""
    if not isinstance(model, nn.Module):
        got = repr(model) if isinstance(model, str) else type(model).__name__
        raise OptionError(
            f"`model` must be a torch.nn.Module: got {got}. Build or load it first, as with "
            f"regard.integrations.transformers.load(folder)."
        )


def find_layers(model: nn.Module) -> dict[str, nn.Module]:
    """Every attention layer of a model, by its name: ours, and those of libraries whose attention regard computes."""
    from regard.nn.base_layer import AttentionLayer

    return {
        name: module
        for name, module in model.named_modules()
        if isinstance(module, AttentionLayer) or host_of(module) is not None
    }


def within(layer: str | int, names: Sequence[str]) -> list[str]:
    """The names that a number, a name, or the name of what holds layers stands for."""
    if isinstance(layer, int):
        return [names[layer]] if -len(names) <= layer < len(names) else []
    return [layer] if layer in names else [name for name in names if name.startswith(f"{layer}.")]


def one_of(layer: str | int, known: Mapping[str, object], every: Sequence[str]) -> str:
    """The one name among those that are known that a name, or a number among all layers of a model, stands for."""
    names = list(known)
    found = [each for each in within(layer, every if isinstance(layer, int) else names) if each in known]
    if not found:
        raise MissingKey(f"No layer {layer!r} was recorded. {offered([layer], names, every)}")
    if len(found) > 1:
        raise MissingKey(f"{layer!r} must stand for one layer: it holds {listed(found)}. Name one of them.")
    return found[0]


def offered(wanted: Sequence[str | int], names: Sequence[str], every: Sequence[str]) -> str:
    """A sentence that says what there is, with what is near to a wrong name in front.

    Args:
        wanted: What was asked for.
        names: What there is.
        every: All layers of the model, among which numbers count.
    """
    texts = [name for name in wanted if isinstance(name, str)]
    # Of a model within another, as a wrapper has it, names have more in front.
    near = [each for name in texts for each in names if f".{name}." in f".{each}."][:3]
    near += [each for name in texts for each in get_close_matches(name, names, 3, 0.5)]
    meant = f"Near to that: {listed(list(dict.fromkeys(near)))}. " if near else ""
    numbers = [every.index(name) for name in names]
    whole = f"0 to {len(names) - 1}" if numbers == list(range(len(names))) and len(names) > 1 else listed(numbers)
    numbered = f", by number {whole}" if any(isinstance(each, int) for each in wanted) else ""
    return f"{meant}There are {listed(names)}{numbered}."


def listed(names: Sequence[str | int]) -> str:
    """Names for an error's text, the first of them if there are many."""
    shown = ", ".join(repr(name) for name in names[:8])
    return shown if len(names) <= 8 else f"{shown} and {len(names) - 8} more"


def _how_to_host() -> str:
    known = bool(HOSTS)
    return (
        "; of transformers, only models that follow its AttentionInterface run on regard (docs/architectures.md)"
        if known
        else "; for a model of transformers, import regard.integrations.transformers first"
    )
