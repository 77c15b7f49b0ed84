"""How many bytes an Arrow array takes once every entry is written out, as numbers that can be compared.

A dictionary, a run or a view holds once what stands in many rows, and a column of nulls holds nothing at all: a file of
a few hundred bytes can have more rows than there is memory.
"""

from __future__ import annotations

import importlib
from typing import Any

REFERENCE = 8
"""What an entry takes beside its contents where its size varies: an offset, or a place in a list."""

NUMBER = 8
"""What a number takes, however narrow it came: it is compared in float64."""

ROW = 32
"""What an entry of a column takes at least: as it came, as a number or a code, and as the place of its row."""


def column_size(array: Any) -> int:
    """The bytes that a `pyarrow.Array` takes as a column, or as a part of one."""
    return max(written_out(array), ROW * len(array))


def written_out(array: Any) -> int:
    """The bytes that a `pyarrow.Array` takes with every entry written out, or a few more where entries are shared."""
    arrow, compute = importlib.import_module("pyarrow"), importlib.import_module("pyarrow.compute")
    if isinstance(array, arrow.ExtensionArray):
        return written_out(array.storage)
    types, kind = arrow.types, array.type
    references = len(array) * REFERENCE
    if is_text(kind):
        return references + _sum(compute.binary_length(array))
    if is_view(kind):
        return references + int(_view_lengths(array).sum(dtype="int64"))
    if types.is_dictionary(kind) and is_text(kind.value_type):
        return references + _sum(compute.binary_length(array.dictionary).take(array.indices))
    if types.is_union(kind) and kind.mode == "dense":
        # Any number of rows may have one entry of a field.
        return references + len(array) * max(
            (_longest(array.field(place)) for place in range(kind.num_fields)), default=0
        )
    if types.is_struct(kind) or types.is_union(kind):
        return references + sum(written_out(array.field(place)) for place in range(kind.num_fields))
    if isinstance(array, arrow.ListArray | arrow.LargeListArray | arrow.FixedSizeListArray):
        return references + written_out(array.values if types.is_map(kind) else array.flatten())
    return len(array) * _longest(array)


def is_text(kind: Any) -> bool:
    """Whether the entries of a type are text or bytes, each as long as it is."""
    types = importlib.import_module("pyarrow").types
    return any(getattr(types, f"is_{name}")(kind) for name in ("string", "large_string", "binary", "large_binary"))


def is_view(kind: Any) -> bool:
    """Whether the entries of a type are text or bytes that point to where they lie; old pyarrow has none."""
    types = importlib.import_module("pyarrow").types
    return any(getattr(types, f"is_{name}_view", lambda kind: False)(kind) for name in ("string", "binary"))


def _view_lengths(array: Any) -> Any:
    """The lengths of such entries: each is the first of four integers."""
    numpy = importlib.import_module("numpy")
    views = numpy.frombuffer(array.buffers()[1], dtype="int32").reshape(-1, 4)
    return views[array.offset : array.offset + len(array), 0]


def _longest(array: Any) -> int:
    """The bytes that no entry of an array exceeds."""
    arrow, compute = importlib.import_module("pyarrow"), importlib.import_module("pyarrow.compute")
    types, kind = arrow.types, array.type
    if types.is_dictionary(kind):
        return _longest(array.dictionary)
    if types.is_run_end_encoded(kind):
        return max(_longest(array.values), REFERENCE)
    if is_text(kind):
        return REFERENCE + int(compute.max(compute.binary_length(array)).as_py() or 0)
    if is_view(kind):
        return REFERENCE + int(_view_lengths(array).max(initial=0))
    if types.is_nested(kind) and hasattr(array, "sizes"):  # a view of a list
        return REFERENCE + int(compute.max(array.sizes).as_py() or 0) * _longest(array.values)
    if types.is_nested(kind):
        return written_out(array)
    try:
        return max(int(kind.bit_width) // 8, NUMBER)
    except ValueError:
        return NUMBER


def _sum(lengths: Any) -> int:
    return int(importlib.import_module("pyarrow.compute").sum(lengths).as_py() or 0)
