"""A few keys for each query, drawn by lot."""

from __future__ import annotations

import hashlib
from typing import TypeVar

import torch
from torch import Tensor

from regard.grid import Grid
from regard.masks.index_arithmetic import contains, positions, spread
from regard.masks.mask import Cover, Mask
from regard.masks.mask_checks import integer, whole_number
from regard.modes import constant
from regard.tensors import broadcast_shapes

_ROUNDS = 20  # After these a key that was never swapped is one in a million.
_WORD = 0xFFFFFFFF  # Hashes are of 32 bits, in int64.
_FEW = 32  # Fewer rows than this are drawn alone; more, as part of a block
_ROWS, _PAIRS = 1 << 10, 1 << 18  # of at most so many rows and pairs.
_MOST_KEPT, _MOST_DRAWS = 1 << 22, 256  # Pairs (32 MB) and draws that a mask remembers.

Word = TypeVar("Word", int, Tensor)


class RandomKeys(Mask):
    """Each query attends to `per_query` keys drawn without replacement, all of them if there are no more.

    The draw is a function of (seed, row, n_keys) and of nothing else: the same in every call, in every batch entry, on
    every device and however the rows are split. A row takes O(per_query) and does not need the others.

    Args:
        per_query: how many keys each query attends to.
        seed: any integer; another seed is another draw.

    Example:
        >>> print(RandomKeys(per_query=2, seed=0).picture(4, 8))
        ··#··#··
        #···#···
        ···#···#
        ·····##·
    """

    def __init__(self, per_query: int, seed: int) -> None:
        self.per_query = whole_number(per_query, "RandomKeys", "per_query", 1)
        self.seed = integer(seed, "RandomKeys", "seed")
        self._kept: dict[tuple[range, int, torch.device], Tensor] = {}

    def allows(self, rows: Tensor, columns: Tensor, grid: Grid) -> Tensor:
        if grid.n_keys <= self.per_query:
            return torch.ones_like(columns, dtype=torch.bool)
        return contains(self._draw(rows, grid.n_keys), columns)

    def tile(self, rows: range, columns: range, grid: Grid) -> Tensor:
        return spread(self._strip(rows, grid), columns)

    def cover(self, rows: range, columns: range, grid: Grid) -> Cover:
        if not rows or not columns:
            return Cover.NONE
        return Cover.ALL if grid.n_keys <= self.per_query else Cover.SOME

    def live(self, rows: range, grid: Grid) -> list[range]:
        return [grid.columns] if rows and grid.n_keys else []  # Keys are drawn from everywhere.

    def indices(self, rows: range, grid: Grid) -> Tensor:
        return self._strip(rows, grid).clone()

    def count_bound(self, grid: Grid) -> int:
        return min(self.per_query, grid.n_keys)

    def known_counts(self, rows: range, grid: Grid) -> Tensor:
        return torch.full((len(rows),), self.count_bound(grid), device=grid.device)

    def _strip(self, rows: range, grid: Grid) -> Tensor:
        """The keys of each of `rows`, ascending."""
        if grid.n_keys <= self.per_query:
            return positions(grid.columns, grid.device).expand(len(rows), -1)
        if rows.step != 1 or len(rows) < _FEW:
            return self._drawn(rows, grid)
        # In blocks that do not depend on who asks: a large draw costs less a row, and every engine finds it again.
        size = max(min(_ROWS, _PAIRS // self.per_query), 1)
        parts = []
        for start in range(rows.start - rows.start % size, rows.stop, size):
            drawn = self._drawn(range(start, min(start + size, grid.n_queries)), grid)
            parts.append(drawn[max(rows.start - start, 0) : rows.stop - start])
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def _drawn(self, rows: range, grid: Grid) -> Tensor:
        # Kept, because the same rows are asked for again: tile after tile, backward after forward, step after step.
        asked = rows, grid.n_keys, grid.device
        drawn = self._kept.get(asked)
        if drawn is None:
            drawn = self._draw(positions(rows, grid.device)[:, None], grid.n_keys)
            n_pairs = sum(each.numel() for each in tuple(self._kept.values())) + drawn.numel()
            if n_pairs > _MOST_KEPT or len(self._kept) == _MOST_DRAWS:
                self._kept = {}
            self._kept[asked] = drawn
        return drawn

    def _draw(self, rows: Tensor, n_keys: int) -> Tensor:
        """The keys of each row, ascending: `(..., r, 1)` to `(..., r, per_query)`."""
        first, second = _words(self.seed)
        ranks = torch.arange(self.per_query, device=rows.device)
        low, high = rows & _WORD, rows >> 32
        return shuffled(ranks, n_keys, _hash(low ^ first), _hash(_hash(low ^ second) ^ high)).sort(-1).values

    def arguments(self) -> tuple[object, ...]:
        return self.per_query, self.seed

    def __repr__(self) -> str:
        return f"RandomKeys(per_query={self.per_query}, seed={self.seed})"


@constant
def _words(seed: int) -> tuple[int, int]:
    """Two words of 32 bits that any integer chooses."""
    digest = hashlib.blake2b(str(seed).encode(), digest_size=8).digest()
    return int.from_bytes(digest[:4], "little"), int.from_bytes(digest[4:], "little")


def shuffled(ranks: Tensor, n: int, first: Tensor, second: Tensor) -> Tensor:
    """Where each rank lands in a shuffle of range(n) that two words choose.

    The swap-or-not shuffle (Hoang, Morris and Rogaway, 2012): in each round a random K pairs x with K − x mod n, and a
    coin that both of a pair toss alike says whether they change places. It is a permutation for every n, and each rank
    finds its place without the others.

    Args:
        ranks: int64, in range(n).
        n: how many are shuffled.
        first, second: int64, in range(2³²); they broadcast with `ranks`.
    """
    place = ranks.expand(broadcast_shapes(ranks.shape, first.shape, second.shape))
    for turn in range(_ROUNDS):
        first, second = _hash(torch.stack([first ^ turn, second + turn & _WORD])).unbind()
        # 62 bits: so many more than n needs that the remainder is fair.
        total = ((first >> 2 << 32) + second) % n
        partner = total - place
        partner += (partner >> 63) & n  # n where it is negative
        coin = torch.maximum(place, partner)
        if n > _WORD:
            coin = (coin ^ coin >> 32) & _WORD
        coin = _hash_in_place(_hash_in_place(coin.bitwise_xor_(first)).bitwise_xor_(second))
        place = torch.where(coin.bitwise_and_(1) == 1, partner, place)
    return place


def _hash_in_place(word: Tensor) -> Tensor:
    """`_hash` for the many: most of the time would go into new memory for each step."""
    word ^= 0x5BF03635
    word ^= word >> 15
    word *= 0x2C1B3C6D
    word &= _WORD
    word ^= word >> 12
    word *= 0x297A2D39
    word &= _WORD
    word ^= word >> 15
    return word


def _hash(word: Word) -> Word:
    """Another 32-bit word. No product reaches 2⁶³, so nothing overflows and every device computes the same."""
    word = word ^ 0x5BF03635
    word = ((word ^ word >> 15) * 0x2C1B3C6D) & _WORD
    word = ((word ^ word >> 12) * 0x297A2D39) & _WORD
    return word ^ word >> 15
