"""Compiled kernels for CPUs: the same attention as `engines/tiled.py`, faster. Numba is imported on first use."""

from __future__ import annotations

import warnings
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING

from regard.engines.cpu.needed_kernels import needed_kernels
from regard.engines.kernels.support import is_empty, unsupported
from regard.engines.torch_internals import sgemm_address
from regard.errors import EngineRefusal
from regard.problem import AttentionProblem

if TYPE_CHECKING:
    from regard.engines.cpu.cpu_kernels import Compiled

# Pairs of a batch entry from which a kernel's own loop is cheaper than torch's over all entries at once.
WORTHWHILE = 1 << 12


@cache
def missing() -> str | None:
    """Why there cannot be compiled kernels here, by a look that imports nothing; None if there may be."""
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
            import regard.engines.cpu.runtime.background_compilation  # noqa: F401
        except ImportError as error:  # such as a Numba that is older than NumPy
            reason = f"Numba is installed but cannot be imported: {error}"
            warnings.warn(f"regard runs in plain torch, which is slower. {reason}", RuntimeWarning, stacklevel=2)
    return reason


def is_worthwhile(problem: AttentionProblem) -> bool:
    """Whether a problem is large enough for kernels to pay."""
    return problem.grid.n_queries * problem.grid.n_keys >= WORTHWHILE


def may_compile(problem: AttentionProblem, kernels: bool | None = None) -> bool:
    """Whether there may be kernels for a problem, by a look that imports nothing; `why_plain` knows for sure."""
    worthwhile = kernels is True or is_worthwhile(problem)
    return kernels is not False and worthwhile and unsupported(problem) is None and missing() is None


def why_plain(problem: AttentionProblem, kernels: bool | None = None, *, reads: bool = False) -> str | None:
    """Why a problem is computed in plain torch; None where kernels compute it.

    Everyone who wants to know asks here: the engine that runs, the planner, the plan that explains.

    Args:
        problem: What is computed.
        kernels: As for `Tiled`. True asks what can be, since what is not compiled will be waited for.
        reads: Whether weights are read, as by a view.
    """
    if kernels is False:
        return "kernels=False was asked for"
    reason = unsupported(problem)
    if reason is None and kernels is None and not is_worthwhile(problem):
        return f"the kernels pay from {WORTHWHILE:,} pairs on"
    reason = unusable() if reason is None else reason
    if reason is not None or kernels is True:
        return reason
    from regard.engines.cpu.runtime import background_compilation as warming

    needed = needed_kernels(problem, reads=reads)
    return None if warming.are_ready(needed) else warming.why_not_ready(needed)


def compile_problem(problem: AttentionProblem, kernels: bool | None = None, *, reads: bool = False) -> Compiled | None:
    """A problem in the words of the kernels; None where plain torch computes it.

    Raises:
        EngineRefusal: Kernels were asked for, and cannot compute it.
    """
    reason = why_plain(problem, kernels, reads=reads)
    if reason is not None:
        if kernels is True and not is_empty(problem):
            raise EngineRefusal(f"Compiled kernels cannot compute this problem: {reason}. Leave `kernels` out.")
        return None
    from regard.engines.cpu.cpu_kernels import Compiled
    from regard.engines.cpu.program import translate

    return Compiled(translate(problem))
