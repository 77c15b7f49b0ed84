"""Kernels for the rows of tables: leave-one-out and pooling in one pass over the pairs, which are never stored."""

from __future__ import annotations

import numpy as np

from regard.engines.cpu.runtime.jit import exponential, helper, kernel, larger
from regard.engines.cpu.runtime.signatures import TABLES

TILE = 1024
"""How many rows are scored at a time: what is made of them stays in the first cache."""

FARTHEST = np.float32(40.0)
"""Scores this far below the best one found have weights that float32 cannot add to the others."""


@helper
def _score_tile(columns, n_quantities, query, factors, start, scores):  # type: ignore[no-untyped-def]
    """The scores of a query and the rows from `start` on, as many as `scores` has places."""
    size = scores.shape[0]
    scores[:] = np.float32(0.0)
    for column in range(columns.shape[0]):
        own, factor = query[column], factors[column]
        if factor == 0:
            continue
        keys = columns[column, start : start + size]
        if column < n_quantities:
            half = np.float32(-0.5) * factor
            for j in range(size):
                apart = own - keys[j]
                scores[j] += half * apart * apart
        else:
            for j in range(size):
                scores[j] -= np.float32(0.0) if keys[j] == own else factor


@kernel(**TABLES)
def hidden_rows(columns, n_quantities, targets, asked, factors, errors, slopes, sums):  # type: ignore[no-untyped-def]
    """The squared error of each hidden row's prediction from all other rows, and its gradient by the factors.

    Args:
        columns: each key column, quantities first, `(n_columns, n_rows)`, float32.
        n_quantities: how many of them are quantities, with the score −(q − k)²/2; the others have −1 where they differ.
        targets: `(n_targets, n_rows)`, float32.
        asked: the rows that are hidden, `(n_asked,)`.
        factors: what each column's score is multiplied by, `(n_columns,)`, float32.
        errors, slopes: where results go, `(n_asked,)` and `(n_asked, n_columns)`, float64.
        sums: scratch, `(n_columns + 1, n_targets + 1)`, float64: Σ w · score · target, of score 1 and target 1 as well.
    """
    n_columns, n_rows = columns.shape
    n_targets = targets.shape[0]
    scores = np.empty(TILE, np.float32)
    parts = np.empty(TILE, np.float32)
    for place in range(asked.shape[0]):
        own = asked[place]
        peak = np.float32(-np.inf)
        sums[:] = 0.0
        for start in range(0, n_rows, TILE):
            size = min(TILE, n_rows - start)
            _score_tile(columns, n_quantities, columns[:, own], factors, start, scores[:size])
            if start <= own < start + size:
                scores[own - start] = np.float32(-np.inf)
            best = np.float32(-np.inf)
            for j in range(size):
                best = larger(best, scores[j])
            if best < peak - FARTHEST or best == -np.inf:
                continue
            if best > peak:
                sums *= np.float64(exponential(peak - best))
                peak = best
            total = np.float32(0.0)
            for j in range(size):
                scores[j] = exponential(scores[j] - peak)
                total += scores[j]
            sums[0, 0] += total
            for target in range(n_targets):
                values = targets[target, start : start + size]
                total = np.float32(0.0)
                for j in range(size):
                    total += scores[j] * values[j]
                sums[0, target + 1] += total
            for column in range(n_columns):
                query = columns[column, own]
                if factors[column] == 0:
                    continue
                keys = columns[column, start : start + size]
                total = np.float32(0.0)
                if column < n_quantities:
                    for j in range(size):
                        apart = query - keys[j]
                        parts[j] = np.float32(-0.5) * scores[j] * apart * apart
                        total += parts[j]
                else:
                    for j in range(size):
                        parts[j] = np.float32(0.0) if keys[j] == query else -scores[j]
                        total += parts[j]
                sums[column + 1, 0] += total
                for target in range(n_targets):
                    values = targets[target, start : start + size]
                    total = np.float32(0.0)
                    for j in range(size):
                        total += parts[j] * values[j]
                    sums[column + 1, target + 1] += total
        error = 0.0
        for column in range(n_columns):
            slopes[place, column] = 0.0
        for target in range(n_targets):
            predicted = sums[0, target + 1] / sums[0, 0]
            missed = predicted - targets[target, own]
            error += missed * missed
            for column in range(n_columns):
                pull = sums[column + 1, target + 1] - predicted * sums[column + 1, 0]
                slopes[place, column] += 2.0 * missed * pull / sums[0, 0]
        errors[place] = error


@kernel(**TABLES)
def pooled_rows(columns, n_quantities, values, queries, factors, sums):  # type: ignore[no-untyped-def]
    """Σ w, Σ w² and Σ w·v of each query, up to a factor and its square, with w = exp(Σ_c f_c · a_c(q, k)).

    Scores and weights are in float32, sums of them in float64: so the average of equal values is that value, and their
    spread is 0.

    Args:
        columns: each key column, quantities first, `(n_columns, n_rows)`, float32.
        n_quantities: how many of them are quantities, with the score −(q − k)²/2; the others have −1 where they differ.
        values: `(n_values, n_rows)`, float64.
        queries: `(n_queries, n_columns)`, float32.
        factors: what each column's score is multiplied by, `(n_columns,)`, float32.
        sums: where results go, `(n_queries, 2 + n_values)`, float64.
    """
    n_rows = columns.shape[1]
    scores = np.empty(TILE, np.float32)
    for place in range(queries.shape[0]):
        peak = np.float32(-np.inf)
        found = sums[place]
        found[:] = 0.0
        for start in range(0, n_rows, TILE):
            size = min(TILE, n_rows - start)
            _score_tile(columns, n_quantities, queries[place], factors, start, scores[:size])
            best = np.float32(-np.inf)
            for j in range(size):
                best = larger(best, scores[j])
            if best < peak - FARTHEST:
                continue
            if best > peak:
                shrink = np.float64(exponential(peak - best))
                found *= shrink
                found[1] *= shrink
                peak = best
            total, squares = 0.0, np.float32(0.0)
            for j in range(size):
                scores[j] = exponential(scores[j] - peak)
                total += np.float64(scores[j])
                squares += scores[j] * scores[j]
            found[0] += total
            found[1] += squares
            for value in range(values.shape[0]):
                numbers = values[value, start : start + size]
                total = 0.0
                for j in range(size):
                    total += np.float64(scores[j]) * numbers[j]
                found[2 + value] += total
