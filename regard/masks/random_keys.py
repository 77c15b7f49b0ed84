"""A few keys for each query, drawn by lot."""

from __future__ import annotations

import hashlib
from typing import TypeVar

import torch
from torch import Tensor

from regard.masks.base import Cover, Mask
from regard.masks.checks import integer, whole_number
from regard.masks.index import contains, positions, spread
from regard.positions import Grid

_ROUNDS = 20  # After these a key that was never swapped is one in a million.
_WORD = 0xFFFFFFFF  # Hashes are of 32 bits, in int64.

Word = TypeVar("Word", int, Tensor)


class RandomKeys(Mask):
    """Each query sees `per_query` keys drawn without replacement, all of them if there are no more.

    The draw is a function of (seed, row, n_keys) and of nothing else: the same in every call, in every batch entry, on
    every device and however the rows are split. A row takes O(per_query) and does not need the others.

    Args:
        per_query: how many keys each query sees.
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
        self._last: tuple[tuple[range, int, torch.device], Tensor] | None = None

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
        asked = rows, grid.n_keys, grid.device
        # Kept, because the tiles of one strip of rows follow each other, and need the same draw.
        last = self._last
        if last is None or last[0] != asked:
            last = self._last = asked, self._draw(positions(rows, grid.device)[:, None], grid.n_keys)
        return last[1]

    def _draw(self, rows: Tensor, n_keys: int) -> Tensor:
        """The keys of each row, ascending: `(..., r, 1)` to `(..., r, per_query)`."""
        digest = hashlib.blake2b(str(self.seed).encode(), digest_size=8).digest()
        first, second = int.from_bytes(digest[:4], "little"), int.from_bytes(digest[4:], "little")
        ranks = torch.arange(self.per_query, device=rows.device)
        low, high = rows & _WORD, rows >> 32
        return shuffled(ranks, n_keys, _hash(low ^ first), _hash(_hash(low ^ second) ^ high)).sort(-1).values

    def __repr__(self) -> str:
        return f"RandomKeys(per_query={self.per_query}, seed={self.seed})"


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
    place = ranks
    for turn in range(_ROUNDS):
        first, second = _hash(first ^ turn), _hash(second + turn & _WORD)
        # 62 bits: so many more than n needs that the remainder is fair.
        total = ((first >> 2 << 32) + second) % n
        partner = total - place
        partner = torch.where(partner < 0, partner + n, partner)
        later = torch.maximum(place, partner)
        coin = _hash(_hash((later ^ later >> 32) & _WORD ^ first) ^ second)
        place = torch.where(coin & 1 == 1, partner, place)
    return place


def _hash(word: Word) -> Word:
    """Another 32-bit word. No product reaches 2⁶³, so nothing overflows and every device computes the same."""
    word = word ^ 0x5BF03635
    word = ((word ^ word >> 15) * 0x2C1B3C6D) & _WORD
    word = ((word ^ word >> 12) * 0x297A2D39) & _WORD
    return word ^ word >> 15
