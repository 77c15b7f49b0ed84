"""The batch axes that a mask's own tensors have."""

from __future__ import annotations

from typing import NamedTuple

from regard.tensors import broadcast_shapes


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
        try:
            return broadcast_shapes(from_left, from_right)
        except ValueError:
            return self.left + self.right


def merge(*parts: Axes) -> Axes:
    """The axes of several masks together. Sizes that clash are left for `check` to name."""
    left = _together([part.left[::-1] for part in parts])[::-1]
    return Axes(left, _together([part.right for part in parts]), max(part.heads for part in parts))


def _together(shapes: list[tuple[int, ...]]) -> tuple[int, ...]:
    try:
        return broadcast_shapes(*shapes)
    except ValueError:
        # Whatever is taken, one of the masks does not fit it, and says so.
        return max(shapes, key=len)
