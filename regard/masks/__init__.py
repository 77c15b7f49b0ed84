"""Masks: which keys a query may attend to. They combine with `&`, `|` and `~`."""

from regard.masks.allowed import Allowed
from regard.masks.block_layout import BlockLayout
from regard.masks.boolean import And, Not, Or
from regard.masks.causal import Causal
from regard.masks.global_keys import GlobalKeys
from regard.masks.key_mask import KeyMask
from regard.masks.mask import Cover, Mask
from regard.masks.not_self import NotSelf
from regard.masks.padding import Padding
from regard.masks.per_head import PerHead
from regard.masks.random_keys import RandomKeys
from regard.masks.same_document import SameDocument
from regard.masks.selected import Selected
from regard.masks.strided import Strided
from regard.masks.where import Where
from regard.masks.window import Window

__all__ = [
    "Allowed",
    "And",
    "BlockLayout",
    "Causal",
    "Cover",
    "GlobalKeys",
    "KeyMask",
    "Mask",
    "Not",
    "NotSelf",
    "Or",
    "Padding",
    "PerHead",
    "RandomKeys",
    "SameDocument",
    "Selected",
    "Strided",
    "Where",
    "Window",
]
