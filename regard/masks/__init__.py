"""Which keys may a query look at? Masks combine with `&`, `|` and `~`."""

from regard.masks.allowed import Allowed
from regard.masks.base import Cover, Mask
from regard.masks.causal import Causal
from regard.masks.combine import And, Not, Or
from regard.masks.key_mask import KeyMask
from regard.masks.padding import Padding
from regard.masks.window import Window

__all__ = [
    "Allowed",
    "And",
    "Causal",
    "Cover",
    "KeyMask",
    "Mask",
    "Not",
    "Or",
    "Padding",
    "Window",
]
