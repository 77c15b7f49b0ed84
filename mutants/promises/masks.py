"""What masks promise: what they allow, and what they say of whole tiles."""

from __future__ import annotations

from mutants.hunt import Mutant

MASKS = (
    Mutant(
        "a causal query does not see what follows",
        "regard/masks/band.py",
        "early_enough = None if last is None else columns <= rows + last",
        "early_enough = None if last is None else columns <= rows + last + 1",
        ("tests/masks/test_causal.py",),
    ),
    Mutant(
        "the cover of a band",
        "regard/masks/band.py",
        "too_late = self.after is not None and farthest > self.after",
        "too_late = self.after is not None and nearest > self.after",
        ("tests/masks/test_causal.py", "tests/masks/test_window.py"),
    ),
    Mutant(
        "align='end' puts the last query on the last key",
        "regard/grid.py",
        "return grid.n_keys - grid.n_queries",
        "return grid.n_queries - grid.n_keys",
        ("tests/test_grid.py", "tests/masks/test_causal.py"),
    ),
    Mutant(
        "a position must be told where numbers differ",
        "regard/grid.py",
        "if grid.n_queries != grid.n_keys:",
        "if False:",
        ("tests/test_grid.py", "tests/masks/test_causal.py"),
    ),
    Mutant(
        "the cover of Strided",
        "regard/masks/strided.py",
        "return Cover.ALL if self.stride == 1 or least == greatest else Cover.SOME",
        "return Cover.ALL",
        ("tests/masks/test_strided.py",),
    ),
    Mutant(
        "the cover of NotSelf",
        "regard/masks/not_self.py",
        "if least > 0 or greatest < 0:",
        "if least >= 0 or greatest <= 0:",
        ("tests/masks/test_not_self.py",),
    ),
    Mutant(
        "the cover of GlobalKeys",
        "regard/masks/global_keys.py",
        "return Cover.ALL if n_seen == columns[-1] + 1 - columns[0] else Cover.SOME",
        "return Cover.ALL",
        ("tests/masks/test_global_keys.py",),
    ),
    Mutant(
        "the cover of BlockLayout",
        "regard/masks/block_layout.py",
        "return Cover.ALL if everywhere == (bottom - top) * (right - left) else Cover.SOME",
        "return Cover.ALL",
        ("tests/masks/test_block_layout.py",),
    ),
    Mutant(
        "the cover of Padding",
        "regard/masks/padding.py",
        "return Cover.ALL if columns[-1] < shortest else Cover.SOME",
        "return Cover.ALL if columns[0] < shortest else Cover.SOME",
        ("tests/masks/test_padding.py",),
    ),
    Mutant(
        "the cover of KeyMask",
        "regard/masks/key_mask.py",
        "return Cover.ALL if everywhere == stop - start else Cover.SOME",
        "return Cover.ALL",
        ("tests/masks/test_key_mask.py",),
    ),
    Mutant(
        "the cover of SameDocument",
        "regard/masks/same_document.py",
        "return Cover.ALL if bool((least == greatest).all()) else Cover.SOME",
        "return Cover.ALL",
        ("tests/masks/test_same_document.py",),
    ),
    Mutant(
        "the cover of Selected",
        "regard/masks/selected.py",
        "return Cover.NONE if greatest == 0 else Cover.ALL",
        "return Cover.NONE",
        ("tests/masks/test_selected.py",),
    ),
    Mutant(
        "the cover of Allowed",
        "regard/masks/allowed.py",
        "return Cover.ALL if bool(tile.all()) else Cover.SOME",
        "return Cover.ALL",
        ("tests/masks/test_allowed.py",),
    ),
    Mutant(
        "the cover of RandomKeys",
        "regard/masks/random_keys.py",
        "return Cover.ALL if grid.n_keys <= self.per_query else Cover.SOME",
        "return Cover.ALL",
        ("tests/masks/test_random_keys.py",),
    ),
    Mutant(
        "the cover of PerHead",
        "regard/masks/per_head.py",
        "if len(covers) > 1:",
        "if len(covers) > 9:",
        ("tests/masks/test_per_head.py",),
    ),
    Mutant(
        "the cover of a and b",
        "regard/masks/boolean.py",
        "settles, agrees = Cover.NONE, Cover.ALL",
        "settles, agrees = Cover.ALL, Cover.NONE",
        ("tests/masks/test_boolean.py",),
    ),
)
