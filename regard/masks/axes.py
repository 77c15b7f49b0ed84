"""The batch axes that a mask's own tensors have."""

from __future__ import annotations

from typing import NamedTuple

from regard.masks.index import broadcast_shape


class Axes(NamedTuple):
    """Batch axes that line up with the problem's from the left, and batch axes that do from the right.

    Tensors that describe sequences (lengths, ids, offsets) line up from the left; those with rows and columns from the
    right. `heads` is how many of the rightmost are known to be heads, which nothing from the left describes.
    """

    left: tuple[int, ...] = ()
    right: tuple[int, ...] = ()
    heads: int = 0

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """The smallest batch that holds both: they share axes where they can, otherwise stand side by side."""
        rank = max(len(self.left) + self.heads, len(self.right))
        from_left = self.left + (1,) * (rank - len(self.left))
        from_right = (1,) * (rank - len(self.right)) + self.right
        if all(a == b or 1 in (a, b) for a, b in zip(from_left, from_right, strict=True)):
            return broadcast_shape(from_left, from_right)
        return self.left + self.right


def merge(*parts: Axes) -> Axes:
    """The axes of several masks together. Sizes that clash are left for `check` to name."""
    left = broadcast_shape(*(part.left[::-1] for part in parts))[::-1]
    return Axes(left, broadcast_shape(*(part.right for part in parts)), max(part.heads for part in parts))
