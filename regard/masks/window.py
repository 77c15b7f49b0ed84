"""The neighbourhood of each query."""

from __future__ import annotations

from regard.grid import Align
from regard.masks.band import Band
from regard.masks.mask_checks import whole_number


class Window(Band):
    """Each query attends to the keys near its own position, itself included: −before ≤ column − (row + offset) ≤ after.

    Args:
        before: how many keys before its own a query attends to; None for all of them.
        after: how many keys after its own; None for all of them.
        align: where queries stand among keys, as for `Causal`; it must be given when their numbers differ.

    Example:
        >>> print(Window(before=2, after=1).picture(6))
        ##····
        ###···
        ####··
        ·####·
        ··####
        ···###
    """

    def __init__(self, before: int | None, after: int | None, align: Align = None) -> None:
        before = None if before is None else whole_number(before, "Window", "before", 0, most=None)
        after = None if after is None else whole_number(after, "Window", "after", 0, most=None)
        super().__init__(before, after, align)

    def arguments(self) -> tuple[object, ...]:
        return self.before, self.after, self.align

    def __repr__(self) -> str:
        return self._shown(f"before={self.before}", f"after={self.after}")
