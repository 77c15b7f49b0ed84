"""Numbers that a score or a rule holds: fixed, or learned."""

from __future__ import annotations

from torch import Tensor, nn

from regard.errors import OptionError
from regard.modes import is_hidden


def keep(owner: nn.Module, name: str, value: float | Tensor | None) -> None:
    """Keep a number on a module: a float as it is, a Tensor as a buffer, an `nn.Parameter` as learned."""
    if isinstance(value, Tensor) and not isinstance(value, nn.Parameter):
        owner.register_buffer(name, value)
    else:
        setattr(owner, name, value)


def keep_positive(owner: nn.Module, name: str, value: float | Tensor) -> None:
    """`keep`, for a number that must be above 0."""
    positive = is_hidden(value) or bool((value.detach() > 0).all()) if isinstance(value, Tensor) else value > 0
    if not positive:
        raise OptionError(f"`{name}` of {type(owner).__name__} must be positive: got {value}. Pass a number above 0.")
    keep(owner, name, value if isinstance(value, Tensor) else float(value))


def as_text(value: float | Tensor) -> str:
    """A number in a repr, or what there is instead of it: "1.5", "learned", "3 learned", "3 numbers"."""
    if not isinstance(value, Tensor):
        return f"{value:g}"
    what = "learned" if value.requires_grad else "numbers" if value.ndim else f"{float(value):g}"
    return f"{value.numel()} {what}" if value.ndim else what
