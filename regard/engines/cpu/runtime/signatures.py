"""What each argument of a kernel is, by its name.

So a kernel has one signature, known before anyone calls it: it is compiled once, ahead, and never again because someone
passed another kind of array. Arrays are contiguous.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from numba.core import types

_REAL, _DOUBLE, _WHOLE, _HASH = types.float32, types.float64, types.int64, types.uint32


def array(kind: Any, axes: int) -> Any:
    """The type of a contiguous array."""
    return types.Array(kind, axes, "C")


_NAMES: dict[Any, str] = {
    _WHOLE: """sgemm left_stride right_stride values_stride gradient_stride dim value_dim n_columns origin begin start
        first_column rule""",
    _DOUBLE: "alpha",
    _REAL: "factor",
    _HASH: "limit",
    array(_REAL, 1): "numbers table peak peaks totals row_peaks offsets deltas weight",
    array(_REAL, 2): """left right values gradient tile second kept by_row by_column pairs scores found strip weights
        best pooled matrix turned slopes top_weights d_scores d_left d_right to_left to_right to_values to_by_row
        to_by_column right_sum values_sum""",
    array(_REAL, 3): "queries scratch",
    array(
        _DOUBLE, 1
    ): """scales threshold thresholds smallest largest total_slope total_slopes entropy received d_weight
        to_numbers to_table least total most count""",
    array(_DOUBLE, 2): "picture",
    array(_WHOLE, 1): "codes first stop counts row_bins column_bins",
    array(_WHOLE, 2): "index keys best_keys top_index",
    array(_HASH, 1): "row_hashes column_hashes",
    array(types.boolean, 1): "doubtful",
    array(types.boolean, 2): "allowed",
}
_TYPES = {name: kind for kind, names in _NAMES.items() for name in names.split()}

# Where an argument is something else than its name says elsewhere.
ADDRESSES = dict.fromkeys(("left", "right", "values", "gradient"), _WHOLE)  # of matrices that products alone touch
SINGLE = {"scale": _REAL}
CHANNELS = {"keys": array(_REAL, 4), "scale": _DOUBLE}
PACKED_KEYS, PACKED_QUERIES = {"packed": array(_REAL, 4)}, {"packed": array(_REAL, 3)}
CANDIDATES = {
    "most": _WHOLE,
    "candidates": types.Tuple(  # type: ignore[attr-defined]
        (array(_REAL, 2), array(_WHOLE, 2), array(_WHOLE, 1), array(_WHOLE, 1), array(_REAL, 1))
    ),
}
# With an axis for batch entries before.
ENTRIES = {
    **dict.fromkeys(ADDRESSES, array(_WHOLE, 1)),
    **dict.fromkeys(("peaks", "totals", "offsets", "deltas"), array(_REAL, 2)),
    "scales": array(_DOUBLE, 2),
    **dict.fromkeys(("pooled", "best", "to_left", "to_right", "to_values"), array(_REAL, 3)),
    "best_keys": array(_WHOLE, 3),
}
# Of tables, whose columns are rows of a matrix.
TABLES = {
    "n_quantities": _WHOLE,
    "asked": array(_WHOLE, 1),
    "factors": array(_REAL, 1),
    **dict.fromkeys(("columns", "targets", "queries"), array(_REAL, 2)),
    "errors": array(_DOUBLE, 1),
    **dict.fromkeys(("values", "slopes", "sums"), array(_DOUBLE, 2)),
}


def signature_of(function: Callable[..., Any], others: dict[str, Any]) -> tuple[Any, ...]:
    """The types of a kernel's arguments.

    Args:
        function: The kernel.
        others: What some of its arguments are, where their names mean something else.
    """
    names = list(inspect.signature(function).parameters)
    unknown = [name for name in names if name not in _TYPES and name not in others]
    if unknown:
        raise TypeError(
            f"Arguments of kernels must have a type in {__name__}: {function.__name__} has {', '.join(unknown)}. "
            f"Add the name there, or pass its type to @kernel."
        )
    return tuple(others.get(name, _TYPES.get(name)) for name in names)
