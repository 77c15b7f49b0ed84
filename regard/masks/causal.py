"""The causal mask."""

from __future__ import annotations

from regard.grid import Align
from regard.masks.band import Band


class Causal(Band):
    """Each query attends to the keys up to its own position, itself included: column ≤ row + offset.

    Args:
        align: where queries stand among keys; it must be given when their numbers differ. `"start"`: query i at key i.
            `"end"`: the last query at the last key, as with a key-value cache. An integer: query i at key i + align. A
            tensor of integers: one offset for each batch row.

    Example:
        >>> print(Causal().picture(4))
        #···
        ##··
        ###·
        ####
        >>> print(Causal(align="end").picture(2, 5))
        ####·
        #####
    """

    def __init__(self, align: Align = None) -> None:
        super().__init__(before=None, after=0, align=align)
