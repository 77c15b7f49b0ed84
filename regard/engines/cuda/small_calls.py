"""Small calls without gradients, made again: one launch of a kernel that was launched for such a call before.

At sixteen queries a kernel takes ten microseconds, and making a problem, a plan and a program of a call ten times as
long. What follows from the kind of a call (scores, rules and masks that hold numbers alone; shapes, strides, dtypes) is
kept with its launch; what is left is room for the output.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from regard.engines import torch_internals
from regard.engines.cuda.launcher import launch, on_device
from regard.engines.cuda.layout import Layout, keep
from regard.engines.cuda.stand_ins import is_permanent
from regard.engines.cuda.value_errors import raise_told
from regard.masks import Causal, Mask, Window
from regard.modes import is_capturing
from regard.problem import AttentionProblem
from regard.scores import Score
from regard.weights import Weights

LAUNCHED = "launched"  # the note of a problem about its launch, where it is wanted
PLAIN = (int, float, str, bool, type(None))

_KNOWN: dict[Hashable, Launched] = {}


class Launched(NamedTuple):
    """A launch that was all of a forward pass. Where it is kept, no tensor is, but those that a device has for good."""

    kernel: Any
    n_programs: int
    arguments: tuple[Any, ...]  # inputs and outputs first
    constants: dict[str, Any]
    options: dict[str, int]
    layout: Layout
    variant: Hashable


def kind_of_call(
    queries: Tensor, keys: Tensor, values: Tensor, score: Score, weights: Weights, mask: Mask | None
) -> Hashable | None:
    """All that the launch of a call depends on beside the numbers in its tensors; None where that is not known."""
    if not type(queries) is type(keys) is type(values) is Tensor:
        return None
    if torch.is_grad_enabled() and (queries.requires_grad or keys.requires_grad or values.requires_grad):
        return None
    return kind_of_parts(queries, keys, values, score, weights, mask)


def kind_of_parts(
    queries: Tensor, keys: Tensor, values: Tensor, score: Score, weights: Weights, mask: Mask | None
) -> Hashable | None:
    """The same, of tensors that may have a gradient."""
    if torch.is_autocast_enabled(queries.device.type):
        return None
    if queries.is_neg() or keys.is_neg() or values.is_neg():
        return None  # whoever makes a problem of them turns their signs
    parts = _plain(score), _plain(weights), _plain_mask(mask)
    if None in parts:
        return None
    tensors = [
        (each.shape, each.stride(), each.dtype, each.device, each.data_ptr() % 16) for each in (queries, keys, values)
    ]
    return *parts, *tensors, torch_internals.allows_tf32()


def _plain(module: nn.Module) -> Hashable | None:
    """A score or rule of this library that holds numbers alone, as its type and those; None for others."""
    kind = type(module)
    if not isinstance(module, nn.Module):
        return None  # whoever makes a problem of it says what is wrong
    if not kind.__module__.startswith("regard.") or module._parameters or module._buffers:
        return None
    found: list[Any] = [kind]
    for name, value in module.__dict__.items():
        if name[0] != "_" and name != "training":
            if not isinstance(value, PLAIN):
                return None
            found += [name, value]
    for child in module._modules.values():
        inner = None if child is None else _plain(child)
        if inner is None:
            return None
        found.append(inner)
    return tuple(found)


def _plain_mask(mask: Mask | None) -> Hashable | None:
    if mask is None:
        return "all"
    if type(mask) not in (Causal, Window) or not all(isinstance(each, PLAIN) for each in mask.__dict__.values()):
        return None
    return type(mask), *mask.__dict__.values()


def pool_again(kind: Hashable, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor | None:
    """The output of a call of a kind that was made before, `(..., n_queries, value_dim)`; None for others."""
    known = _KNOWN.get(kind)
    if known is None:
        return None
    raise_told(queries.device)
    kernel, n_programs, (inputs, outputs, *others), constants, options, layout, variant = known
    shape = outputs[0]
    output = torch.empty(shape, dtype=values.dtype, device=values.device)
    peaks, totals = torch.empty((2, *shape[:-1]), dtype=torch.float32, device=values.device).unbind()
    given = (
        (queries, inputs[1], keys, inputs[3], values, inputs[5], *inputs[6:]),
        (output, outputs[1], peaks, totals, *outputs[4:]),
    )
    with on_device(queries.device):
        launch(kernel, n_programs, (*given, *others), constants, options, layout=layout, variant=variant)
    return output


def watch(problem: AttentionProblem) -> None:
    """Have the launch of a problem noted, for `remember`."""
    if not is_capturing(problem.grid.device):  # whose memory is not for others
        problem.notes[LAUNCHED] = None


def remember(kind: Hashable, problem: AttentionProblem) -> None:
    """Keep the launch of a problem for calls of its kind, where one launch with the inputs as they lie was all."""
    made: Launched | None = problem.notes.get(LAUNCHED)
    if made is None:
        return
    (inputs, outputs, *others) = made.arguments
    given = problem.queries, problem.keys, problem.values
    if len(inputs) // 2 != len(given) or outputs[0].shape != problem.output_shape:
        return
    if any(each.data_ptr() != given.data_ptr() for each, given in zip(inputs[:6:2], given, strict=True)):
        return
    # A tensor that was made for this call, as for a sink, would be written by one stream and read by others; and who
    # captures a graph would have its address when it is forgotten here.
    if not all(map(is_permanent, _tensors(others))):
        return
    strides = tuple([None if isinstance(part, Tensor) else part for part in inputs])
    # Outputs are made anew: the shape stands for the first.
    kept = strides, (problem.output_shape, outputs[1], None, None, *outputs[4:]), *others
    keep(_KNOWN, kind, made._replace(arguments=kept))


def _tensors(parts: Iterable[Any]) -> Iterator[Tensor]:
    """All tensors in tuples of tuples."""
    for part in parts:
        if isinstance(part, Tensor):
            yield part
        elif isinstance(part, tuple):
            yield from _tensors(part)
