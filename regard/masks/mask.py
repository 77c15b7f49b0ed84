"""What every mask answers: which pairs of a tile are allowed, and which keys a row attends to."""

from __future__ import annotations

import enum
from typing import NoReturn

import torch
from torch import Tensor

from regard.errors import DtypeError
from regard.grid import Grid
from regard.masks.batch_axes import Axes
from regard.masks.index_arithmetic import between, blocks, pack, positions
from regard.masks.mask_checks import check_devices, same_device

_BLOCK = 1 << 20  # Pairs that a streamed pass holds at a time.


class Cover(enum.Enum):
    """What a mask says about a whole tile, for every batch entry together."""

    ALL = "all"
    NONE = "none"
    SOME = "some"


class Mask:
    """Which keys each query may attend to: True means *may attend*.

    A subclass must define `allows`; every other method has a default that follows from it, and is there to be
    overridden where the mask knows a shorter way. Row and column ranges ascend. No method builds n_queries × n_keys
    unless the user gave a tensor of that size.

    A mask is a value: it keeps copies of the small tensors that it is given, and answers the same for ever. Engines may
    ask it from several threads at once.

    Example:
        >>> from regard.masks import Mask
        >>> class Even(Mask):
        ...     def allows(self, rows, columns, grid):
        ...         return columns % 2 == 0
        >>> print(Even().picture(3))
        #·#
        #·#
        #·#
    """

    # What it is for a problem -------------------------------------------------------------------------------------

    def check(self, grid: Grid) -> None:
        """Raise if the mask does not fit the problem. The other methods trust that it does."""
        check_devices(self.tensors(), grid, type(self).__name__)

    def allows(self, rows: Tensor, columns: Tensor, grid: Grid) -> Tensor:
        """Whether each pair is allowed: bool, broadcastable to `(*batch_shape, r, c)`. The definition of the mask.

        Args:
            rows: `(..., r, 1)`, int64, in range(n_queries).
            columns: `(..., 1 or r, c)`, int64, in range(n_keys): one list of keys for all rows, or one for each.
            grid: the size of the problem. Leading axes of `rows` and `columns` broadcast with its batch axes.
        """
        raise NotImplementedError(f"{type(self).__name__} must define allows(rows, columns, grid).")

    def tile(self, rows: range, columns: range, grid: Grid) -> Tensor:
        """Whether each pair of a tile is allowed: bool, broadcastable to `(*batch_shape, len(rows), len(columns))`."""
        return self.allows(positions(rows, grid.device)[:, None], positions(columns, grid.device)[None, :], grid)

    def cover(self, rows: range, columns: range, grid: Grid) -> Cover:
        """ALL or NONE where every or no pair of the tile is allowed in every batch entry; SOME where that is not known.

        It costs O(rows + columns) or less. An empty tile is NONE.
        """
        return Cover.SOME if rows and columns else Cover.NONE

    def live(self, rows: range, grid: Grid) -> list[range]:
        """Ranges of columns outside of which none of `rows` attends to anything in any batch entry: where the work is.

        They ascend and do not touch. What they hold may be more than is allowed; it costs microseconds rather than a
        question for each tile. The default halves the columns and asks `cover`.

        Example:
            >>> from regard.masks import GlobalKeys, Window
            >>> mask = Window(before=255, after=0) | GlobalKeys([0, 1, 2, 3])
            >>> mask.live(range(1024, 1152), Grid((), 4096, 4096))
            [range(0, 4), range(769, 1152)]
        """
        if not rows or not grid.n_keys:
            return []
        if type(self).cover is Mask.cover:
            return [grid.columns]  # It never says NONE: there is nothing to find.
        from regard.masks import ranges

        return ranges.search(self, rows, grid)

    def block_table(self, grid: Grid, height: int, width: int) -> Tensor:
        """What it says of every tile of that size, for kernels: int8 `(..., row tiles, column tiles)` on the device.

        0 is none, 2 is all, and 1 is some, or not known; leading axes broadcast with the batch axes.

        Example:
            >>> from regard.masks import Causal
            >>> Causal().block_table(Grid((), 8, 8), 4, 2)
            tensor([[1, 1, 0, 0],
                    [2, 2, 1, 1]], dtype=torch.int8)
        """
        from regard.masks import block_table

        bounds = self.bounds(grid.rows, grid) if grid.n_queries and grid.n_keys else None
        if bounds is None:
            return block_table.by_cover(self, grid, height, width)
        return block_table.from_bounds(*bounds, grid, height, width)

    # The keys of a row -------------------------------------------------------------------------------------------

    def bounds(self, rows: range, grid: Grid) -> tuple[Tensor, Tensor] | None:
        """The first column that each row attends to and the one after its last, where it attends to all between.

        Two int64 tensors `(..., len(rows))`, broadcastable to `(*batch_shape, len(rows))`: a row attends to exactly the
        columns first ≤ column < stop, and none if stop ≤ first. A kernel compares with them and needs no bool tile.
        None where rows attend to more than one run of columns, or where that is not known.
        """
        return None

    def indices(self, rows: range, grid: Grid) -> Tensor:
        """The columns of each row, ascending, then −1 to the width of the widest: int64 `(..., r, width)`."""
        bounds = self.bounds(rows, grid)
        if bounds is not None:
            return between(*bounds)
        strip = self.tile(rows, grid.columns, grid)
        return pack(strip.expand(*strip.shape[:-2], len(rows), grid.n_keys))

    def count_bound(self, grid: Grid) -> int | None:
        """No row attends to more keys than this; None where nothing better than n_keys is known cheaply."""
        return None

    def known_counts(self, rows: range, grid: Grid) -> Tensor | None:
        """How many keys each row attends to, int64 `(..., len(rows))`; None where no formula gives it."""
        bounds = self.bounds(rows, grid)
        return None if bounds is None else (bounds[1] - bounds[0]).clamp_(min=0)

    def any_allowed(self, rows: range, grid: Grid) -> Tensor:
        """Whether each row is not fully masked: bool `(..., len(rows))`."""
        counts = self.known_counts(rows, grid)
        if counts is not None:
            return counts > 0
        bound = self.count_bound(grid)
        if bound is not None and 8 * bound <= grid.n_keys:
            return (self.indices(rows, grid) >= 0).any(-1)
        seen = torch.zeros(len(rows), dtype=torch.bool, device=grid.device)
        for columns in blocks(grid.columns, _BLOCK // max(len(rows), 1)):
            cover = self.cover(rows, columns, grid)
            if cover is Cover.ALL:
                return torch.ones_like(seen)
            if cover is Cover.SOME:
                seen = seen | self.tile(rows, columns, grid).any(-1)
                if bool(seen.all()):
                    break
        return seen

    # What it holds ------------------------------------------------------------------------------------------------

    def tensors(self) -> tuple[Tensor, ...]:
        """The tensors that must be on the problem's device."""
        return ()

    def arguments(self) -> tuple[object, ...]:
        """What the mask can be made of again: numbers, strings, tensors, masks, and tuples of those."""
        return ()

    def batch_axes(self) -> Axes:
        """The batch axes of its own tensors, for `density` and `picture`."""
        return Axes()

    def to(self, device: torch.device | str) -> Mask:
        """This mask with its tensors on `device`."""
        wanted = torch.device(device)
        return self if all(same_device(tensor.device, wanted) for tensor in self.tensors()) else self._moved(wanted)

    def _moved(self, device: torch.device) -> Mask:
        raise NotImplementedError(f"{type(self).__name__} holds tensors and must define _moved(device).")

    # What people look at ------------------------------------------------------------------------------------------

    def density(self, n_queries: int, n_keys: int | None = None) -> float:
        """The share of allowed pairs, over the batch axes of the mask's own tensors; 0 where there are no pairs.

        Args:
            n_queries: the number of queries.
            n_keys: the number of keys; as many as queries if not given.

        Example:
            >>> from regard.masks import Causal
            >>> Causal().density(4)
            0.625
        """
        from regard.masks import survey

        return survey.density(self, n_queries, n_keys)

    def picture(self, n_queries: int = 8, n_keys: int | None = None) -> str:
        """A text drawing: a line for each query, `#` where it may attend and `·` where it may not.

        Batch entries stand side by side, the first four of them.

        Example:
            >>> from regard.masks import Window
            >>> print(Window(before=1, after=0).picture(4))
            #···
            ##··
            ·##·
            ··##
        """
        from regard.masks import survey

        return survey.picture(self, n_queries, n_keys)

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"

    # How masks combine --------------------------------------------------------------------------------------------

    def __and__(self, other: Mask) -> Mask:
        from regard.masks.boolean import And

        return And(self, _must_be_mask(other, "&"))

    def __or__(self, other: Mask) -> Mask:
        from regard.masks.boolean import Or

        return Or(self, _must_be_mask(other, "|"))

    # `tensor & mask` arrives here, because torch does not know what a mask is.
    def __rand__(self, other: object) -> Mask:
        return _must_be_mask(other, "&") & self

    def __ror__(self, other: object) -> Mask:
        return _must_be_mask(other, "|") | self

    def __invert__(self) -> Mask:
        from regard.masks.boolean import Not

        return Not(self)

    def __bool__(self) -> NoReturn:
        # `a and b` would be b, in silence.
        raise DtypeError(
            f"a mask must stay a mask, with a yes or no for each pair: got {self!r} where Python wants one yes or no. "
            f"To combine masks use &, | and ~ in place of and, or and not; to see whether there is one, `is None`."
        )


def _must_be_mask(other: object, operator: str) -> Mask:
    if isinstance(other, Mask):
        return other
    fix = "wrap it in Allowed(tensor)" if isinstance(other, Tensor) else "pass a mask on both sides"
    raise DtypeError(f"`{operator}` must stand between two masks: got {type(other).__name__}. To combine them, {fix}.")
