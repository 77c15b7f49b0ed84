"""Key-value caches for autoregressive decoding."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from regard.errors import DtypeError, OptionError, ShapeError

_FIRST_ROOM = 64  # tokens that a cache has room for at first; then it doubles


class LayerCache:
    """The keys and values of one attention layer, `(batch, heads, length, dim)` each.

    Args:
        is_fixed: Whether they are given once and stay: those of a memory, which a decoder attends to with every token.
            The queries of one call then follow those of the call before.
    """

    def __init__(self, *, is_fixed: bool = False) -> None:
        self.is_fixed = is_fixed
        self.length = 0
        self._n_queries = 0  # that have attended, where the pairs are fixed
        self._room: tuple[Tensor, Tensor] | None = None

    @property
    def position(self) -> int:
        """Where the next query stands: after the tokens so far, which are the pairs unless those are fixed."""
        return self._n_queries if self.is_fixed else self.length

    @property
    def has_memory(self) -> bool:
        """Whether it has the keys and values of a memory, which stay."""
        return self.is_fixed and self._room is not None

    def recall(self, batch: int, length: int) -> tuple[Tensor, Tensor]:
        """The keys and values of the memory, which must be of that size: those of another were never computed."""
        keys, values = self.pairs()
        if (keys.shape[0], keys.shape[-2]) != (batch, length):
            raise ShapeError(
                f"A fixed cache serves the memory that it was given first, {keys.shape[0]} sequences of "
                f"{keys.shape[-2]}: got {batch} of {length}. Make a new cache for another memory; where sequences were "
                f"taken from the batch, reorder() the cache with them."
            )
        return keys, values

    def advance(self, n_queries: int) -> None:
        """Note that so many queries have attended."""
        self._n_queries += n_queries

    def extend(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Add keys and values; returns all that there are."""
        if self.has_memory:
            raise OptionError("A fixed cache takes keys and values once: it has some. Make a new one for a new memory.")
        self._check(keys, values)
        length = self.length + keys.shape[-2]
        if self.is_fixed:
            self._room = keys, values
        else:
            old_keys, old_values = (None, None) if self._room is None else self._room
            self._room = (
                _with_room(old_keys, keys, self.length, length),
                _with_room(old_values, values, self.length, length),
            )
        self.length = length
        return self.pairs()

    def _check(self, keys: Tensor, values: Tensor) -> None:
        if keys.shape[:-1] != values.shape[:-1]:
            raise ShapeError(
                f"Every key must have its value: got keys {tuple(keys.shape)} and values {tuple(values.shape)}. "
                f"All axes but the last are the same."
            )
        for old, new in () if self._room is None else zip(self._room, (keys, values), strict=True):
            if old.shape[:-2] != new.shape[:-2] or old.shape[-1] != new.shape[-1]:
                raise ShapeError(
                    f"What joins a cache must be of its batch, heads and size: it has {tuple(old.shape[:-2])} of size "
                    f"{old.shape[-1]}, got {tuple(new.shape[:-2])} of size {new.shape[-1]}. "
                    f"Make a new cache for other sequences, or reorder() this one."
                )
            if old.dtype != new.dtype:
                raise DtypeError(
                    f"What joins a cache must be of its dtype, {old.dtype}: got {new.dtype}. Make a new cache."
                )

    def pairs(self) -> tuple[Tensor, Tensor]:
        """The keys and values so far."""
        if self._room is None:
            raise OptionError("The cache is empty: it has no keys and values yet. Call the layer with it first.")
        keys, values = self._room
        return keys[..., : self.length, :], values[..., : self.length, :]

    def reorder(self, index: Tensor) -> None:
        """Take the sequences at these places of the batch, each as often as it is named: for beam search."""
        if self._room is not None:
            keys, values = self._room
            self._room = keys.index_select(0, index), values.index_select(0, index)

    @property
    def nbytes(self) -> int:
        """The memory that it holds."""
        return 0 if self._room is None else sum(each.nbytes for each in self._room)


class KeyValueCache:
    """The caches of a decoder's layers: one that grows for self-attention, one that is fixed for the memory.

    Args:
        n_layers: How many layers the decoder has.

    Example:
        >>> import torch
        >>> from regard import nn
        >>> decoder = nn.Decoder(nn.DecoderLayer(8, 2, batch_first=True), 2).eval()
        >>> memory, tokens = torch.rand(1, 5, 8), torch.rand(1, 3, 8)
        >>> cache = nn.KeyValueCache(2)
        >>> steps = [decoder(tokens[:, i : i + 1], memory, cache=cache) for i in range(3)]
        >>> mask = nn.Transformer.generate_square_subsequent_mask(3)
        >>> torch.allclose(torch.cat(steps, 1), decoder(tokens, memory, tgt_mask=mask), atol=1e-6)
        True
    """

    def __init__(self, n_layers: int) -> None:
        self.layers = [(LayerCache(), LayerCache(is_fixed=True)) for _ in range(n_layers)]

    @property
    def length(self) -> int:
        """How many tokens have been written."""
        return self.layers[0][0].length if self.layers else 0

    def reorder(self, index: Tensor) -> None:
        """Take the sequences at these places of the batch, each as often as it is named: for beam search."""
        for cache in self._all():
            cache.reorder(index)

    @property
    def nbytes(self) -> int:
        """The memory that it holds."""
        return sum(cache.nbytes for cache in self._all())

    def _all(self) -> Iterator[LayerCache]:
        for pair in self.layers:
            yield from pair


def _with_room(old: Tensor | None, new: Tensor, start: int, length: int) -> Tensor:
    """What there was and what is new, in memory that has room for more where no gradient may need what there was."""
    if torch.is_grad_enabled():  # also of keys that need none: those of queries are computed from them
        return new if old is None else torch.cat([old[..., :start, :], new], -2)
    sealed = old is not None and old.is_inference() and not torch.is_inference_mode_enabled()
    if old is None or old.shape[-2] < length or sealed:
        room = new.new_empty(*new.shape[:-2], max(_FIRST_ROOM, 2 * length), new.shape[-1])
        if old is not None:
            room[..., :start, :] = old[..., :start, :]
        old = room
    old[..., start:length, :] = new
    return old
