"""A boolean for each key."""

from __future__ import annotations

from functools import cached_property

import torch
from torch import Tensor
from torch.nn.functional import pad

from regard import modes
from regard.errors import ShapeError
from regard.grid import Grid, line_up
from regard.masks.batch_axes import Axes
from regard.masks.index_arithmetic import as_slice, pack, pick
from regard.masks.mask import Cover, Mask
from regard.masks.mask_checks import bool_tensor, described
from regard.masks.ranges import marked


class KeyMask(Mask):
    """Every query attends to the keys that the tensor names: tensor[column].

    Args:
        tensor: bool, `(..., n_keys)`, True where the key may be seen. Its batch axes line up from the left, so
            `(batch, n_keys)` serves `(batch, heads)`.

    Example:
        >>> import torch
        >>> print(KeyMask(torch.tensor([True, True, False, True])).picture(2, 4))
        ##·#
        ##·#
    """

    def __init__(self, tensor: Tensor) -> None:
        tensor = bool_tensor(tensor, "KeyMask", "tensor", "Pass tensor.bool(), or ~tensor if True means padding.")
        if tensor.ndim == 0:
            raise ShapeError(
                "`tensor` of KeyMask must have an axis of keys, (..., n_keys): got (). Pass one entry for each key."
            )
        self.tensor = tensor.detach().clone()

    def check(self, grid: Grid) -> None:
        super().check(grid)
        if self.tensor.shape[-1] != grid.n_keys:
            raise ShapeError(
                f"`tensor` of KeyMask must have one entry for each of the {grid.n_keys} keys: "
                f"got {tuple(self.tensor.shape)}. Build it from these keys."
            )
        self._lined_up(grid)

    def allows(self, rows: Tensor, columns: Tensor, grid: Grid) -> Tensor:
        return pick(self._lined_up(grid), rows, columns)

    def tile(self, rows: range, columns: range, grid: Grid) -> Tensor:
        return self._lined_up(grid)[..., as_slice(columns)]

    def cover(self, rows: range, columns: range, grid: Grid) -> Cover:
        if not rows or not columns:
            return Cover.NONE
        start, stop = columns[0], columns[-1] + 1
        everywhere, somewhere = (self._seen_before[stop] - self._seen_before[start]).tolist()
        if somewhere == 0:
            return Cover.NONE
        return Cover.ALL if everywhere == stop - start else Cover.SOME

    def live(self, rows: range, grid: Grid) -> list[range]:
        return list(self._live) if rows else []

    def bounds(self, rows: range, grid: Grid) -> tuple[Tensor, Tensor] | None:
        if modes.waits(self.tensor) or self._run is None:  # on a GPU a row of bytes serves as well
            return None
        first, stop = (line_up(end, grid, trailing=1, owner="KeyMask", name="tensor") for end in self._run)
        shape = (*first.shape[:-1], len(rows))
        return first.expand(shape), stop.expand(shape)

    def indices(self, rows: range, grid: Grid) -> Tensor:
        shown = pack(self._lined_up(grid))  # (..., 1, width)
        return shown.expand(*shown.shape[:-2], len(rows), -1)

    def count_bound(self, grid: Grid) -> int:
        return self._most

    def known_counts(self, rows: range, grid: Grid) -> Tensor:
        counts = self._lined_up(grid).sum(-1)
        return counts.expand(*counts.shape[:-1], len(rows))

    def arguments(self) -> tuple[object, ...]:
        return (self.tensor,)

    def tensors(self) -> tuple[Tensor, ...]:
        return (self.tensor,)

    def batch_axes(self) -> Axes:
        return Axes(left=tuple(self.tensor.shape[:-1]))

    def _moved(self, device: torch.device) -> Mask:
        return KeyMask(self.tensor.to(device))

    def _lined_up(self, grid: Grid) -> Tensor:
        """The tensor, `(*batch, 1, n_keys)`."""
        return line_up(self.tensor, grid, trailing=1, owner="KeyMask", name="tensor")[..., None, :]

    @cached_property
    def _seen_before(self) -> Tensor:
        """How many keys before each column every batch entry sees, and how many any: `(n_keys + 1, 2)`, on the host."""
        n_keys = self.tensor.shape[-1]
        before = torch.zeros(n_keys + 1, 2, dtype=torch.int32)
        if self.tensor.numel():
            entries = self.tensor.reshape(-1, n_keys)
            before[1:, 0] = entries.all(0).cpu().cumsum(0, dtype=torch.int32)
            before[1:, 1] = entries.any(0).cpu().cumsum(0, dtype=torch.int32)
        return before

    @cached_property
    def _live(self) -> list[range]:
        n_keys = self.tensor.shape[-1]
        return marked(self.tensor.reshape(-1, n_keys).any(0).cpu(), 1, n_keys) if self.tensor.numel() else []

    @cached_property
    def _run(self) -> tuple[Tensor, Tensor] | None:
        """The first key that each batch entry sees and the one after its last, `(*batch, 1)`; None if it has gaps."""
        n_keys = self.tensor.shape[-1]
        column = torch.arange(n_keys, device=self.tensor.device)
        # One column more, which nobody sees: of no keys at all there would be no least.
        first = pad(column.masked_fill(~self.tensor, n_keys), (0, 1), value=n_keys).amin(-1, keepdim=True)
        stop = pad((column + 1).masked_fill(~self.tensor, 0), (0, 1)).amax(-1, keepdim=True)
        counts = self.tensor.sum(-1, keepdim=True)
        return (first, stop) if bool((counts == (stop - first).clamp(min=0)).all()) else None

    @cached_property
    def _most(self) -> int:
        return int(self.tensor.sum(-1).max()) if self.tensor.numel() else 0

    def __repr__(self) -> str:
        return f"KeyMask({described(self.tensor)})"
