"""Checks of inputs: one function a concern, each with an error that names the fix."""

from __future__ import annotations

import inspect
from collections.abc import Iterable

import torch
from torch import Tensor

from regard.errors import DeviceError, DtypeError, EngineRefusal, OptionError, ShapeError
from regard.masks import Mask
from regard.modes import is_jit_tracing
from regard.scores import Score
from regard.tensors import broadcast_shapes, is_autocast_on
from regard.weights import Weights

DTYPES = frozenset({torch.float64, torch.float32, torch.float16, torch.bfloat16})


def check_kinds(queries: object, keys: object, values: object, score: object, weights: object, mask: object) -> None:
    """Raise unless each argument is of its kind."""
    for name, tensor in (("queries", queries), ("keys", keys), ("values", values)):
        if not isinstance(tensor, Tensor):
            raise DtypeError(
                f"`{name}` must be a torch.Tensor: got {type(tensor).__name__}. Convert it with torch.as_tensor."
            )
        if tensor.is_nested:
            raise ShapeError(
                f"`{name}` must be an ordinary tensor: got a nested one. Pad it, "
                f"torch.nested.to_padded_tensor({name}, 0.0), and pass mask=Padding(lengths)."
            )
    check_options(score, weights, mask)


def check_options(score: object, weights: object, mask: object) -> None:
    """Raise unless they are a score, a rule, and a mask or None."""
    for name, value, kind in (("score", score, Score), ("weights", weights, Weights), ("mask", mask, Mask)):
        if not isinstance(value, kind) and not (value is None and kind is Mask):
            raise OptionError(f"`{name}` must be a regard {kind.__name__}: got {_shown(value)}. {_hint(name, value)}")


def _hint(name: str, value: object) -> str:
    """What to pass instead."""
    if isinstance(value, type) and issubclass(value, Score | Weights | Mask):
        return f"Make an object of it: {value.__name__}({', '.join(_needed(value))})."
    if name == "score" and callable(value):
        return "Wrap the function: score=Custom(function)."
    if name == "mask" and isinstance(value, Tensor):
        if value.dtype == torch.bool:
            return "Wrap it: mask=Allowed(tensor)."
        return (
            "To add numbers to scores use score=ScaledDot() + Bias(tensor); for true and false, Allowed(tensor.bool())."
        )
    example = {"score": "ScaledDot()", "weights": "Softmax()", "mask": "Causal()"}[name]
    return f"Pass one such as {example}."


def _needed(kind: type) -> list[str]:
    """The arguments without which no object of it can be made, as a call has them."""
    return [
        f"{each.name}=..."
        for each in inspect.signature(kind).parameters.values()
        if each.default is each.empty and each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)
    ]


def _shown(value: object) -> str:
    if isinstance(value, type):
        return value.__name__
    return repr(value) if isinstance(value, str) else type(value).__name__


def autocast_dtype_of(*tensors: Tensor) -> torch.dtype | None:
    """The dtype that autocast asks for; None where it is off, or does not apply to these tensors."""
    device = tensors[0].device.type
    if not is_autocast_on(device):
        return None
    applies = all(each.is_floating_point() and each.dtype != torch.float64 for each in tensors)
    return torch.get_autocast_dtype(device) if applies else None


def check_dtypes(queries: Tensor, keys: Tensor, values: Tensor) -> None:
    """Raise unless all have one dtype that is computed in."""
    for name, tensor in (("queries", queries), ("keys", keys), ("values", values)):
        if tensor.dtype not in DTYPES:
            raise DtypeError(
                f"`{name}` must be float64, float32, float16 or bfloat16: got {_short(tensor.dtype)}. "
                f"Convert with {name}.float()."
            )
    if not queries.dtype == keys.dtype == values.dtype:
        raise DtypeError(
            f"`queries`, `keys` and `values` must have the same dtype: got {_short(queries.dtype)}, "
            f"{_short(keys.dtype)} and {_short(values.dtype)}. Convert them to one, or run under torch.autocast."
        )


def check_shapes(queries: Tensor, keys: Tensor, values: Tensor) -> None:
    """Raise unless rows and batch axes fit together."""
    for name, tensor in (("queries", queries), ("keys", keys), ("values", values)):
        if tensor.ndim < 2:
            raise ShapeError(
                f"`{name}` must have at least two axes, (..., n, dim): got {tuple(tensor.shape)}. "
                f"Use {name}.unsqueeze(0) for one vector, .unsqueeze(-1) for numbers."
            )
    if keys.shape[-2] != values.shape[-2]:
        raise ShapeError(
            f"`keys` and `values` must have the same number of rows: got keys {tuple(keys.shape)} and values "
            f"{tuple(values.shape)}. Pass one value for each key."
        )
    try:
        broadcast_shapes(queries.shape[:-2], keys.shape[:-2], values.shape[:-2])
    except ValueError:
        raise ShapeError(
            f"The batch axes of `queries`, `keys` and `values` must broadcast: got queries {tuple(queries.shape)}, "
            f"keys {tuple(keys.shape)} and values {tuple(values.shape)}. {_batch_hint(queries, keys, values)}"
        ) from None


def _batch_hint(queries: Tensor, keys: Tensor, values: Tensor) -> str:
    """How batch axes can be made to broadcast."""
    heads, groups = (tuple(each.shape[-3:-2]) for each in (queries, keys))
    if heads and groups == tuple(values.shape[-3:-2]) and groups > (1,) and heads[0] % groups[0] == 0:
        return (
            f"If {heads[0]} heads of queries share {groups[0]} of keys, group them: "
            f"queries.unflatten(-3, ({groups[0]}, {heads[0] // groups[0]})), keys.unsqueeze(-3), "
            f"values.unsqueeze(-3), and .flatten(-4, -3) of the output."
        )
    return "Give them the same batch axes, with size 1 where one entry serves all."


def check_devices(queries: Tensor, keys: Tensor, values: Tensor) -> None:
    """Raise unless all are on one device."""
    if not queries.device == keys.device == values.device:
        raise DeviceError(
            f"`queries`, `keys` and `values` must be on one device: got {queries.device}, {keys.device} and "
            f"{values.device}. "
            f"Move them with .to({str(queries.device)!r})."
        )


def check_parts(tensors: Iterable[Tensor], device: torch.device, score: object) -> None:
    """Raise unless what a score has is where queries are."""
    for tensor in tensors:
        if tensor.device != device:
            name = type(score).__name__
            raise DeviceError(
                f"`score` must be on the device of the queries: got {name} on {tensor.device} and queries on {device}. "
                f"Move it with score.to({str(device)!r})."
            )


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def check_dropout(dropout: object) -> None:
    """Raise unless it is a share of weights."""
    if not isinstance(dropout, int | float) or not 0 <= dropout < 1:
        raise OptionError(f"`dropout` must be in [0, 1): got {dropout!r}. It is the share of weights that are dropped.")


def refuse_jit_trace() -> None:
    """Refuse to go on under torch.jit.trace, which sees neither compiled kernels nor decisions on sizes and values."""
    if is_jit_tracing():
        raise EngineRefusal(
            "Under torch.jit.trace attention must be softmax(scale · QKᵀ)V, without a mask, dropout or a view: got "
            "something else. A trace would keep what was decided for these sizes and numbers, and miss compiled "
            "kernels. Use torch.compile or torch.export, which take every score, rule and mask."
        )
