"""Mask functions of transformers, read as masks of regard.

transformers describes which pairs are allowed by functions of (batch, head, query, key), made by a few factories and
joined with `and_masks` and `or_masks`. What a factory made is known by its code, and what it was given by its closure.
A function that nobody knows is evaluated by tiles.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from types import CodeType
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.nn.functional import pad
from transformers import masking_utils

from regard.grid import Align, Grid
from regard.integrations.transformers.evaluated_mask import Evaluated
from regard.masks import Causal, Cover, KeyMask, Mask, SameDocument, Window
from regard.modes import is_tracing

MaskFunction: TypeAlias = Callable[[Any, Any, Any, Any], Any]
Offset: TypeAlias = int | Tensor


class MaskReader:
    """Reads mask functions for one problem: `read(function)` is the mask, None where every pair is allowed.

    Args:
        grid: The problem, with one batch axis.
        query_start: The position of the first query, as mask functions count.
        key_start: That of the first key.
        use_vmap: Whether functions that are not known take one pair at a time.
    """

    def __init__(self, grid: Grid, query_start: Offset, key_start: Offset, use_vmap: bool) -> None:
        self.grid, self.use_vmap = grid, use_vmap
        self.query_start, self.key_start = query_start, key_start

    def read(self, function: MaskFunction) -> Mask | None:
        """The mask that a function describes."""
        if function is masking_utils.causal_mask_function:
            return self._shown(Causal(self.align))
        if function is masking_utils.bidirectional_mask_function:
            return None
        known = _READERS.get(getattr(function, "__code__", None))
        if known is None:
            return Evaluated(function, self.query_start, self.key_start, self.grid.batch_shape[0], self.use_vmap)
        return known(self, **_closure(function))

    def padding(self, attention_mask: Tensor) -> Mask | None:
        """The mask of a tensor `(batch, seen tokens)`, True where a token is no padding; what is beyond it is not."""
        return self._read_padding(padding_mask=attention_mask)

    # One method for each factory, with the names of its closure --------------------------------------------------

    def _read_and(self, mask_functions: tuple[MaskFunction, ...]) -> Mask | None:
        parts = [mask for mask in map(self.read, mask_functions) if mask is not None]
        return reduce(lambda one, other: one & other, parts) if parts else None

    def _read_or(self, mask_functions: tuple[MaskFunction, ...]) -> Mask | None:
        parts = [self.read(each) for each in mask_functions]
        some = [mask for mask in parts if mask is not None]
        return None if len(some) < len(parts) else reduce(lambda one, other: one | other, some)

    def _read_offsets(self, mask_function: MaskFunction, q_offset: Offset, kv_offset: Offset) -> Mask | None:
        starts = self.query_start + q_offset, self.key_start + kv_offset
        return MaskReader(self.grid, *starts, self.use_vmap).read(mask_function)

    def _read_sliding(self, sliding_window: int) -> Mask | None:
        if sliding_window < 1:  # as configurations say that no layer has a window: such a mask is made, and not used
            return ~Window(before=None, after=-sliding_window, align=self.align)
        return self._shown(Window(before=sliding_window - 1, after=None, align=self.align))

    def _read_both_sides(self, sliding_window: int) -> Mask | None:
        return self._shown(Window(before=sliding_window, after=sliding_window, align=self.align))

    def _read_chunked(self, chunk_size: int, left_padding: Tensor) -> Mask | None:
        start = left_padding.to(self.grid.device)[:, None]
        chunks = [(where - start) // chunk_size for where in self._positions]
        return self._shown(SameDocument(*chunks))

    def _read_packed(self, packed_sequence_mask: Tensor) -> Mask | None:
        return self._shown(SameDocument(*(packed_sequence_mask[:, where] for where in self._positions)))

    def _read_blocks(self, block_sequence_ids: Tensor) -> Mask | None:
        of_queries, of_keys = (block_sequence_ids[:, where] for where in self._positions)
        # Tokens outside of every block, −1, are no block together: their keys are told another id.
        return self._shown(SameDocument(of_queries, of_keys.masked_fill(of_keys < 0, -2)))

    def _read_padding(self, padding_mask: Tensor) -> Mask | None:
        _, keys = self._positions
        # A cache of a fixed size has more keys than the tensor tells of, none of which is there yet.
        beyond = self.grid.n_keys if isinstance(self.key_start, Tensor) else self.key_start + self.grid.n_keys
        return self._shown(KeyMask(pad(padding_mask.bool(), (0, max(beyond - padding_mask.shape[-1], 0)))[:, keys]))

    # What they share ---------------------------------------------------------------------------------------------

    @property
    def align(self) -> Align:
        offset = self.query_start - self.key_start
        # The plain one, where queries are keys, goes straight to PyTorch's kernels.
        plain = not isinstance(offset, Tensor) and offset == 0 and self.grid.n_queries == self.grid.n_keys
        return None if plain else offset

    @property
    def _positions(self) -> tuple[Tensor, Tensor]:
        """The positions of queries and of keys, as mask functions count."""
        queries, keys = (
            torch.arange(n, device=self.grid.device) + start
            for n, start in ((self.grid.n_queries, self.query_start), (self.grid.n_keys, self.key_start))
        )
        return queries, keys

    def _shown(self, mask: Mask) -> Mask | None:
        """The mask, unless it allows every pair: one query sees all of a cache, and most batches have no padding."""
        if is_tracing():
            return mask  # nobody sees what tensors hold
        everything = mask.cover(self.grid.rows, self.grid.columns, self.grid) is Cover.ALL
        return None if everything else mask


def _closure(function: Any) -> dict[str, Any]:
    """What a function closes over, by name."""
    names = function.__code__.co_freevars
    return {name: cell.cell_contents for name, cell in zip(names, function.__closure__ or (), strict=True)}


def _readers() -> dict[CodeType | None, Callable[..., Mask | None]]:
    """The method that reads what each factory makes, by the code that its functions share."""
    some, causal = torch.zeros(1, 1, dtype=torch.long), masking_utils.causal_mask_function
    made: dict[str, tuple[tuple[Any, ...], Callable[..., Mask | None]]] = {
        "and_masks": ((causal,), MaskReader._read_and),
        "or_masks": ((causal,), MaskReader._read_or),
        "add_offsets_to_mask_function": ((causal, 0, 0), MaskReader._read_offsets),
        "sliding_window_overlay": ((1,), MaskReader._read_sliding),
        "sliding_window_bidirectional_overlay": ((1,), MaskReader._read_both_sides),
        "chunked_overlay": ((1, some), MaskReader._read_chunked),
        "packed_sequence_mask_function": ((some,), MaskReader._read_packed),
        "blockwise_overlay": ((some,), MaskReader._read_blocks),
        "padding_mask_function": ((some,), MaskReader._read_padding),
    }
    # A factory that another version of transformers does not have makes nothing that could arrive here.
    return {
        getattr(masking_utils, name)(*given).__code__: reader
        for name, (given, reader) in made.items()
        if hasattr(masking_utils, name)
    }


_READERS = _readers()
