"""Where queries stand among keys: what every positional mask and score shares.

Row i stands at key position i + offset. `align="start"` is offset 0; `align="end"` puts the last query on the last key
(offset n_keys − n_queries, as with a key-value cache); an integer is the offset itself; a tensor of integers gives one
offset for each batch row (left padding, caches of different lengths).
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Literal, SupportsIndex, TypeAlias

import torch
from torch import Tensor

from regard.errors import DtypeError, OptionError, ShapeError
from regard.tensors import stretches

Align: TypeAlias = Literal["start", "end"] | int | Tensor | None


@dataclass(frozen=True)
class Grid:
    """The size of a problem: `(*batch_shape, n_queries, n_keys)` pairs on a device."""

    batch_shape: tuple[int, ...]
    n_queries: int
    n_keys: int
    device: torch.device = torch.device("cpu")
    whole: bool = True  # whether these are all keys, not a part that others precede or follow

    @property
    def rows(self) -> range:
        """All queries."""
        return range(self.n_queries)

    @property
    def columns(self) -> range:
        """All keys."""
        return range(self.n_keys)


def check_align(align: Align, owner: str) -> None:
    """Raise unless `align` is one of the forms that the module's docstring lists."""
    if isinstance(align, Tensor):
        if align.dtype.is_floating_point or align.dtype == torch.bool:
            raise DtypeError(
                f"`align` of {owner} must hold integers: got a tensor of {align.dtype}. "
                f"Pass one integer offset for each batch row."
            )
        return
    if align is None or align in ("start", "end") or (isinstance(align, SupportsIndex) and not isinstance(align, bool)):
        return
    raise OptionError(
        f'`align` of {owner} must be "start", "end", an integer offset or a tensor of offsets: got {align!r}. '
        f'Pass align="end" for a key-value cache, and otherwise align="start".'
    )


def resolve_offset(align: Align, grid: Grid, owner: str) -> int | Tensor:
    """The offset of the queries among the keys: an integer, or a tensor `(*batch, 1, 1)`."""
    if not grid.whole:
        check_offset(align, owner)
    if align is None:
        if grid.n_queries != grid.n_keys:
            raise ShapeError(
                f"{owner} must be told how to align {grid.n_queries} queries with {grid.n_keys} keys. "
                f'Pass align="start", align="end" (a key-value cache) or an integer offset.'
            )
        return 0
    if isinstance(align, Tensor):
        return line_up(align, grid, trailing=0, owner=owner, name="align").to(grid.device)[..., None, None]
    if align == "start":
        return 0
    if align == "end":
        return grid.n_keys - grid.n_queries
    return operator.index(align)


def check_offset(align: Align, owner: str) -> None:
    """Raise unless queries are told their place where keys are a part of all."""
    if align is None or isinstance(align, str):
        raise OptionError(
            f"`align` of {owner} must be an integer offset where keys are a part of all: got {align!r}. "
            f"Pass the position of the first query among all keys, less that of the part's first key."
        )


def line_up(tensor: Tensor, grid: Grid, *, trailing: int, owner: str, name: str) -> Tensor:
    """`tensor` with its batch axes lined up with the problem's from the left.

    A tensor that describes sequences (lengths, offsets, document ids) has the batch axes first and `trailing` axes of
    its own last; the batch axes that it does not name (heads, usually) are filled with ones in between.
    """
    split = tensor.ndim - trailing
    batch_shape = tuple(tensor.shape[:split])
    missing = len(grid.batch_shape) - split
    fits = missing >= 0 and all(
        stretches(size, wanted) for size, wanted in zip(batch_shape, grid.batch_shape, strict=False)
    )
    if not fits:
        raise ShapeError(
            f"`{name}` of {owner} must have batch axes that line up with {grid.batch_shape} from the left: "
            f"got {tuple(tensor.shape)}. Pass one entry for each batch row."
        )
    return tensor.reshape((*batch_shape, *(1,) * missing, *tensor.shape[split:]))


def per_head(value: Tensor) -> Tensor:
    """A number, or one number for each head, shaped to broadcast with `(..., n_queries, n_keys)`."""
    return value.reshape(*value.shape, 1, 1)
