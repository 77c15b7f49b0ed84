"""Compiled kernels for CPUs: the same attention as `engines/tiled.py`, faster. Numba is imported on first use."""

from __future__ import annotations

import warnings
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING

from regard.engines.cpu.blas import sgemm_address
from regard.engines.cpu.vocabulary import in_words
from regard.problem import AttentionProblem

if TYPE_CHECKING:
    from regard.engines.cpu.compiled import Compiled

# Pairs of a batch entry from which a kernel's own loop is cheaper than torch's over all entries at once.
WORTHWHILE = 1 << 12


@cache
def missing() -> str | None:
    """Why there are no compiled kernels here; None if there are."""
    if find_spec("numba") is None:
        return "Numba is not installed: pip install regard[fast]"
    if sgemm_address() is None:
        return "torch's library does not show its matrix product (sgemm)"
    return None


@cache
def unusable() -> str | None:
    """Why compiled kernels cannot be used here, having tried to load them; None if they can."""
    reason = missing()
    if reason is None:
        try:
            import regard.engines.cpu.compiled  # noqa: F401
        except ImportError as error:  # such as a Numba that is older than NumPy
            reason = f"Numba is installed but cannot be imported: {error}"
            warnings.warn(f"regard runs in plain torch, which is slower. {reason}", RuntimeWarning, stacklevel=2)
    return reason


def speaks(problem: AttentionProblem) -> bool:
    """Whether there are kernels here, and words in them for a problem."""
    return in_words(problem) and missing() is None


def compile_problem(problem: AttentionProblem, *, always: bool = False) -> Compiled | None:
    """A problem in the words of the kernels; None where they have none for it, or it is too small to be worth it."""
    grid = problem.grid
    if not (always or grid.n_queries * grid.n_keys >= WORTHWHILE) or not speaks(problem) or unusable() is not None:
        return None
    from regard.engines.cpu.compiled import Compiled
    from regard.engines.cpu.programs import translate

    return Compiled(translate(problem))
