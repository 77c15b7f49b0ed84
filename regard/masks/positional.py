"""What masks share that ask how far a key is from where its query stands."""

from __future__ import annotations

from functools import cached_property

import torch
from torch import Tensor

from regard.grid import Align, Grid, check_align, resolve_offset
from regard.masks.batch_axes import Axes
from regard.masks.mask import Mask


class Positional(Mask):
    """A mask of the distance column − (row + offset), where `align` gives the offset."""

    def __init__(self, align: Align = None) -> None:
        check_align(align, type(self).__name__)
        self.align = align.detach().to(torch.int64, copy=True) if isinstance(align, Tensor) else align

    def check(self, grid: Grid) -> None:
        super().check(grid)
        self.offset(grid)

    def offset(self, grid: Grid) -> int | Tensor:
        """Row i stands at key position i + offset: an integer, or a tensor that broadcasts with `(*batch, r, c)`."""
        return resolve_offset(self.align, grid, type(self).__name__)

    def distances(self, rows: range, columns: range, grid: Grid) -> tuple[int, int]:
        """The least and the greatest distance column − (row + offset) in a tile that is not empty."""
        least, greatest = self.offsets(grid)
        return columns[0] - (rows[-1] + greatest), columns[-1] - (rows[0] + least)

    def offsets(self, grid: Grid) -> tuple[int, int]:
        """The least and the greatest offset of any batch entry."""
        if isinstance(self.align, Tensor):
            return self._tensor_offsets
        offset = self.offset(grid)
        assert isinstance(offset, int)
        return offset, offset

    @cached_property
    def _tensor_offsets(self) -> tuple[int, int]:
        # Read once: on a GPU each reading waits for the device.
        assert isinstance(self.align, Tensor)
        if self.align.numel() == 0:
            return 0, 0
        least, greatest = torch.stack(self.align.aminmax()).tolist()
        return least, greatest

    @cached_property
    def _every_offset(self) -> list[int]:
        """The offsets of the batch entries, ascending, each once."""
        assert isinstance(self.align, Tensor)
        return self.align.unique().tolist()  # type: ignore[no-any-return]

    def arguments(self) -> tuple[object, ...]:
        return (self.align,)

    def tensors(self) -> tuple[Tensor, ...]:
        return (self.align,) if isinstance(self.align, Tensor) else ()

    def batch_axes(self) -> Axes:
        return Axes(left=tuple(self.align.shape) if isinstance(self.align, Tensor) else ())

    def _moved(self, device: torch.device) -> Mask:
        assert isinstance(self.align, Tensor)
        moved = object.__new__(type(self))
        moved.__dict__.update(self.__dict__, align=self.align.to(device))
        return moved

    def _shown(self, *arguments: str) -> str:
        """The repr with these arguments, and the alignment where it was given."""
        if isinstance(self.align, Tensor):
            arguments += (f"align=<offsets {tuple(self.align.shape)}>",)
        elif self.align is not None:
            arguments += (f"align={self.align!r}",)
        return f"{type(self).__name__}({', '.join(arguments)})"

    def __repr__(self) -> str:
        return self._shown()
