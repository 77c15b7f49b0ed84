"""What kernels take together, named once.

A kernel's argument that is named as in `RECORDS` is such a record. Python hands over its fields one by one, `*record`:
that is faster. Of several batch entries, addresses are arrays, and sums have an axis more.
"""

from __future__ import annotations

from typing import Any, NamedTuple


class Products(NamedTuple):
    """The raw scores of a block of rows, left · right, by addresses; `dim` < 0: there are none to compute."""

    sgemm: Any  # the address of BLAS's product
    left: Any
    left_stride: Any  # how many numbers apart rows are
    right: Any
    right_stride: Any
    dim: Any


class Steps(NamedTuple):
    """What is done to raw scores: a code for each step, and the numbers that it takes."""

    codes: Any  # (n_steps,)
    by_row: Any  # (n_steps, n_rows)
    by_column: Any  # (n_steps, n_keys)
    numbers: Any  # (n_steps,)
    pairs: Any  # (n_rows, n_columns): a bias for each pair of a span or list; (1, 0) for none
    table: Any


class Seen(NamedTuple):
    """Which pairs of a span are allowed: all, where everything is empty."""

    first: Any  # (n_rows,): the first column that a row sees, and
    stop: Any  # the one after the last
    allowed: Any  # (n_rows, n_columns), or (1, 0)


class Dropout(NamedTuple):
    """Which weights are dropped, see `engines/dropout.py`: none, where there are no hashes."""

    row_hashes: Any
    column_hashes: Any
    limit: Any
    factor: Any


class RowSums(NamedTuple):
    """Where a block of rows gathers its sums."""

    peaks: Any  # (n_rows,)
    totals: Any  # (n_rows,)
    pooled: Any  # (n_rows, value_dim)
    best: Any  # (n_rows, k): the best scores of a row, as `best_k.best_strip` has them; k may be 0; by tiles alone
    best_keys: Any  # (n_rows, k): their keys


class RowFacts(NamedTuple):
    """What a backward pass knows of a block of rows."""

    offsets: Any  # (n_rows,), see `row_steps.weigh_row`
    scales: Any  # (n_rows,)
    deltas: Any  # (n_rows,): dO·u


class Gradients(NamedTuple):
    """Where gradients are added: those of matrices are empty if they are not wanted."""

    to_left: Any  # (n_rows, dim)
    to_right: Any  # (n_keys, dim), or transposed
    to_values: Any  # (n_keys, value_dim), or transposed
    to_by_row: Any  # (n_steps, n_rows)
    to_by_column: Any  # (n_steps, n_keys)
    to_numbers: Any  # (n_steps,)
    to_table: Any


RECORDS: dict[str, Any] = {
    "products": Products,
    "steps": Steps,
    "seen": Seen,
    "dropout": Dropout,
    "row_sums": RowSums,
    "facts": RowFacts,
    "gradients": Gradients,
}
"""By the names of arguments."""
