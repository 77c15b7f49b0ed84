"""Which kernels compute a problem, if any. Everyone asks here: the engine that runs, the planner, the plan, views."""

from __future__ import annotations

import torch

from regard.engines.cpu.cpu_kernels import CpuKernels
from regard.engines.cuda.cuda_kernels import CudaKernels
from regard.engines.kernels.protocol import Compiled, Kernels
from regard.engines.kernels.support import is_empty, unsupported
from regard.errors import EngineRefusal
from regard.problem import AttentionProblem

_TRUSTED = "kernels"
_KERNELS: dict[str, Kernels] = {"cpu": CpuKernels(), "cuda": CudaKernels()}


def kernels_for(device: torch.device) -> Kernels | None:
    """The kernels of a device; None where there are none."""
    return _KERNELS.get(device.type)


def why_unsupported(problem: AttentionProblem) -> str | None:
    """Why no kernels of its device can compute a problem; None if they can."""
    kernels = kernels_for(problem.grid.device)
    if kernels is None:
        return f"there are no kernels for {problem.grid.device.type}"
    if problem.compute_dtype not in kernels.dtypes:
        named = [str(each).removeprefix("torch.") for each in (*kernels.dtypes, problem.compute_dtype)]
        return f"the kernels compute in {', '.join(named[:-1])}, not {named[-1]}"
    return unsupported(problem) or kernels.lacks(problem)


def is_worthwhile(problem: AttentionProblem) -> bool:
    """Whether a problem is large enough for kernels to pay."""
    kernels, grid = kernels_for(problem.grid.device), problem.grid
    return kernels is not None and grid.n_queries * grid.n_keys >= kernels.worthwhile


def may_compile(problem: AttentionProblem, asked: bool | None = None) -> bool:
    """Whether there may be kernels for a problem, by a check that imports nothing; `why_plain` knows for sure."""
    if asked is False or not (asked or is_worthwhile(problem)):
        return False
    kernels = kernels_for(problem.grid.device)
    return kernels is not None and why_unsupported(problem) is None and kernels.missing() is None


def why_plain(problem: AttentionProblem, asked: bool | None = None, *, reads: bool = False) -> str | None:
    """Why a problem is computed in plain torch; None where kernels compute it.

    Args:
        problem: What is computed.
        asked: As `kernels` of `Tiled`. True asks what can be, since what is not compiled will be waited for.
        reads: Whether weights are read, as by a view.
    """
    if asked is False:
        return "kernels=False was asked for"
    reason, kernels = why_unsupported(problem), kernels_for(problem.grid.device)
    if reason is not None or kernels is None:
        return reason
    if asked is None and not is_worthwhile(problem):
        return f"the kernels pay from {kernels.worthwhile:,} pairs on"
    reason = kernels.unusable(problem.grid.device)
    return reason if reason is not None or asked else kernels.unready(problem, reads=reads)


def trust_kernels(problem: AttentionProblem) -> None:
    """Remember of a problem that kernels compute one like it, the same in all that matters to them."""
    problem.notes[_TRUSTED] = True


def compile_problem(problem: AttentionProblem, asked: bool | None = None, *, reads: bool = False) -> Compiled | None:
    """A problem for kernels; None where plain torch computes it.

    Raises:
        EngineRefusal: Kernels were asked for, and cannot compute it.
    """
    kernels = kernels_for(problem.grid.device)
    if kernels is not None and asked is None and not reads and _TRUSTED in problem.notes:
        return kernels.compile(problem)
    reason = why_plain(problem, asked, reads=reads)
    if reason is None and kernels is not None:
        return kernels.compile(problem)
    if asked and not is_empty(problem):
        raise EngineRefusal(f"Compiled kernels cannot compute this problem: {reason}. Leave `kernels` out.")
    return None
