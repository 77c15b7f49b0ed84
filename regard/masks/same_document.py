"""Several documents packed into one sequence."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from functools import cached_property

import torch
from torch import Tensor

from regard import modes
from regard.errors import ShapeError
from regard.grid import Grid, line_up
from regard.masks.batch_axes import Axes, merge
from regard.masks.index_arithmetic import as_slice, pick
from regard.masks.mask import Cover, Mask
from regard.masks.mask_checks import described, whole_tensor
from regard.masks.ranges import joined
from regard.tensors import broadcast_shapes


class SameDocument(Mask):
    """Each query attends to the keys of its own document: query_ids[row] = key_ids[column].

    Args:
        query_ids: integers, `(..., n_queries)`: the document of each query. Batch axes line up from the left, so
            `(batch, n_queries)` serves `(batch, heads)`.
        key_ids: integers, `(..., n_keys)`; the same as `query_ids` if not given. Where ids ascend, whole tiles are
            known to be of different documents.

    Example:
        >>> print(SameDocument([0, 0, 0, 1, 1]).picture(5))
        ###··
        ###··
        ###··
        ···##
        ···##
    """

    def __init__(self, query_ids: Tensor | Sequence[int], key_ids: Tensor | Sequence[int] | None = None) -> None:
        self.query_ids = _ids(query_ids, "query_ids")
        self.key_ids = None if key_ids is None else _ids(key_ids, "key_ids")

    def check(self, grid: Grid) -> None:
        super().check(grid)
        if self.query_ids.shape[-1] != grid.n_queries:
            raise ShapeError(
                f"`query_ids` of SameDocument must have one entry for each of the {grid.n_queries} queries: "
                f"got {tuple(self.query_ids.shape)}. Pass the document of each query."
            )
        if self._keys.shape[-1] != grid.n_keys:
            got = "none" if self.key_ids is None else f"{tuple(self.key_ids.shape)}"
            raise ShapeError(
                f"`key_ids` of SameDocument must have one entry for each of the {grid.n_keys} keys: got {got}, "
                f"with query_ids {tuple(self.query_ids.shape)}. Pass the document of each key."
            )
        self._lined_up(self.query_ids, grid)
        self._lined_up(self._keys, grid)

    def allows(self, rows: Tensor, columns: Tensor, grid: Grid) -> Tensor:
        of_rows = pick(self._lined_up(self.query_ids, grid)[..., :, None], rows, columns)
        return of_rows == pick(self._lined_up(self._keys, grid)[..., None, :], rows, columns)

    def tile(self, rows: range, columns: range, grid: Grid) -> Tensor:
        of_rows = self._lined_up(self.query_ids, grid)[..., as_slice(rows), None]
        return of_rows == self._lined_up(self._keys, grid)[..., None, as_slice(columns)]

    def cover(self, rows: range, columns: range, grid: Grid) -> Cover:
        query_ids, key_ids = self._on_host
        queries = self._lined_up(query_ids, grid)[..., as_slice(rows)]
        keys = self._lined_up(key_ids, grid)[..., as_slice(columns)]
        if queries.numel() == 0 or keys.numel() == 0:
            return Cover.NONE
        query_least, query_greatest = queries.aminmax(dim=-1)
        key_least, key_greatest = keys.aminmax(dim=-1)
        if bool(((query_greatest < key_least) | (key_greatest < query_least)).all()):
            return Cover.NONE
        least, greatest = torch.minimum(query_least, key_least), torch.maximum(query_greatest, key_greatest)
        return Cover.ALL if bool((least == greatest).all()) else Cover.SOME

    def live(self, rows: range, grid: Grid) -> list[range]:
        if not rows:
            return []
        found: list[range] = []
        for starts, spans in self._stretches:
            found += spans[bisect_right(starts, rows[0]) - 1 : bisect_right(starts, rows[-1])]
        return joined(found)

    def bounds(self, rows: range, grid: Grid) -> tuple[Tensor, Tensor] | None:
        # On a GPU nobody asks: kernels take the spans, and compare documents besides.
        return None if modes.waits(self.query_ids) or not self._unbroken else self.spans(rows, grid)

    def spans(self, rows: range, grid: Grid) -> tuple[Tensor, Tensor]:
        """The first key of each row's document and the one after its last, as `bounds`; others may lie between."""
        first, stop = (self._lined_up(end, grid)[..., as_slice(rows)] for end in self._spans)
        return first, stop

    def ids(self, grid: Grid) -> tuple[Tensor, Tensor]:
        """The document of each row and of each column, `(..., n)`."""
        return self._lined_up(self.query_ids, grid), self._lined_up(self._keys, grid)

    def indices(self, rows: range, grid: Grid) -> Tensor:
        start, stop = self._runs(rows, grid)
        n_seen = stop - start
        width = int(n_seen.max()) if n_seen.numel() else 0
        slots = start[..., None] + torch.arange(width, device=grid.device)  # (..., r, width)
        order = self._lined_up(self._sorted_keys.indices, grid).expand(*slots.shape[:-2], -1)
        columns = order.gather(-1, slots.clamp(max=max(grid.n_keys - 1, 0)).flatten(-2)).reshape(slots.shape)
        return torch.where(slots < stop[..., None], columns, -1)

    def count_bound(self, grid: Grid) -> int:
        return self._longest

    def known_counts(self, rows: range, grid: Grid) -> Tensor:
        start, stop = self._runs(rows, grid)
        return stop - start

    def arguments(self) -> tuple[object, ...]:
        return self.query_ids, self.key_ids

    def tensors(self) -> tuple[Tensor, ...]:
        return (self.query_ids,) if self.key_ids is None else (self.query_ids, self.key_ids)

    def batch_axes(self) -> Axes:
        return merge(Axes(tuple(self.query_ids.shape[:-1])), Axes(tuple(self._keys.shape[:-1])))

    def _moved(self, device: torch.device) -> Mask:
        return SameDocument(self.query_ids.to(device), None if self.key_ids is None else self.key_ids.to(device))

    @property
    def _keys(self) -> Tensor:
        return self.query_ids if self.key_ids is None else self.key_ids

    def _lined_up(self, ids: Tensor, grid: Grid) -> Tensor:
        """Ids of queries or keys, `(*batch, length)`."""
        name = "query_ids" if self.key_ids is None or ids is self.query_ids else "key_ids"
        return line_up(ids, grid, trailing=1, owner="SameDocument", name=name)

    def _runs(self, rows: range, grid: Grid) -> tuple[Tensor, Tensor]:
        """Where the keys of each row's document begin and end among the sorted keys: `(..., r)` each."""
        start, stop = (self._lined_up(end, grid)[..., as_slice(rows)] for end in self._sorted_runs)
        return start, stop

    @cached_property
    def _sorted_runs(self) -> tuple[Tensor, Tensor]:
        """`_runs` of all rows, with batch axes that line up from the left."""
        queries, keys = _side_by_side(self.query_ids, self._sorted_keys.values)
        return torch.searchsorted(keys, queries), torch.searchsorted(keys, queries, right=True)

    @cached_property
    def _spans(self) -> tuple[Tensor, Tensor]:
        """The first key of each row's document and the one after its last, 0 and 0 if it has none."""
        start, stop = self._sorted_runs
        if self._keys.shape[-1] == 0:
            return torch.zeros_like(start), torch.zeros_like(stop)
        _, order = _side_by_side(start, self._sorted_keys.indices)
        first = order.gather(-1, start.clamp(max=order.shape[-1] - 1))
        last = order.gather(-1, (stop - 1).clamp_(min=0))
        return torch.where(start < stop, first, 0), torch.where(start < stop, last + 1, 0)

    @cached_property
    def _unbroken(self) -> bool:
        """Whether every document that is asked for has its keys side by side."""
        (first, stop), (start, end) = self._spans, self._sorted_runs
        return bool((stop - first == end - start).all())

    @cached_property
    def _stretches(self) -> list[tuple[list[int], list[range]]]:
        """For each batch entry, the rows where another document begins and the span of its keys; on the host."""
        first, stop = (end.reshape(-1, end.shape[-1]).cpu() for end in self._spans)
        begins = torch.ones_like(first, dtype=torch.bool)
        begins[:, 1:] = (first.diff() != 0) | (stop.diff() != 0)
        return [
            (rows.nonzero().flatten().tolist(), list(map(range, firsts[rows].tolist(), stops[rows].tolist())))
            for rows, firsts, stops in zip(begins, first, stop, strict=True)
        ]

    @cached_property
    def _sorted_keys(self) -> torch.return_types.sort:
        # Stable, so that the keys of one document stay in their order.
        return self._keys.sort(dim=-1, stable=True)

    @cached_property
    def _on_host(self) -> tuple[Tensor, Tensor]:
        # `cover` is asked once for each tile; on a GPU each answer would wait for the device.
        query_ids = self.query_ids.cpu()
        return query_ids, query_ids if self.key_ids is None else self.key_ids.cpu()

    @cached_property
    def _longest(self) -> int:
        """The most keys that any document has."""
        keys = self._sorted_keys.values
        if keys.numel() == 0:
            return 0
        n_keys = torch.searchsorted(keys, keys, right=True) - torch.searchsorted(keys, keys)
        return int(n_keys.max())

    def __repr__(self) -> str:
        keys = "" if self.key_ids is None else f", key_ids={described(self.key_ids)}"
        return f"SameDocument(query_ids={described(self.query_ids)}{keys})"


def _side_by_side(left: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
    """Two tensors `(*batch, length)` with the same batch axes: they line up from the left, and broadcast."""
    rank = max(left.ndim, right.ndim)
    left, right = (each.reshape(*each.shape[:-1], *(1,) * (rank - each.ndim), each.shape[-1]) for each in (left, right))
    lead = broadcast_shapes(left.shape[:-1], right.shape[:-1])
    return left.expand(*lead, -1).contiguous(), right.expand(*lead, -1).contiguous()


def _ids(value: Tensor | Sequence[int], name: str) -> Tensor:
    ids = whole_tensor(value, "SameDocument", name)
    if ids.ndim == 0:
        raise ShapeError(
            f"`{name}` of SameDocument must have an axis of positions, (..., n): got (). Pass the document of each."
        )
    return ids
