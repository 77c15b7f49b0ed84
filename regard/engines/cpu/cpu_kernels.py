"""The compiled kernels for CPUs, as the protocol has them. Numba is imported when they are first used."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import torch

from regard.engines import cpu
from regard.engines.cpu.kernel_costs import cpu_bytes, cpu_seconds
from regard.engines.cpu.needed_kernels import needed_kernels
from regard.engines.kernels.protocol import Compiled, Kernels
from regard.engines.kernels.support import inner_rule
from regard.problem import AttentionProblem
from regard.scores.form import ChannelForm
from regard.weights import Entmax

if TYPE_CHECKING:
    from regard.engines.work import Work


class CpuKernels(Kernels):
    """Loops that Numba compiles, around the matrix product of torch's own library."""

    dtypes: ClassVar[frozenset[torch.dtype]] = frozenset({torch.float32})
    worthwhile: ClassVar[int] = 1 << 12

    def missing(self) -> str | None:
        return cpu.missing()

    def unusable(self, device: torch.device) -> str | None:
        return cpu.unusable()

    def unready(self, problem: AttentionProblem, *, reads: bool) -> str | None:
        from regard.engines.cpu.runtime import background_compilation

        needed = needed_kernels(problem, reads=reads)
        return None if background_compilation.are_ready(needed) else background_compilation.why_not_ready(needed)

    def lacks(self, problem: AttentionProblem) -> str | None:
        if type(problem.form) is ChannelForm and inner_rule(problem.rule)[1]:
            return f"the kernels do not have {type(problem.score).__name__} under a choice of keys"
        rule = problem.rule
        if isinstance(rule, Entmax) and rule.learned():
            return f"the kernels do not have a learned alpha of {type(rule).__name__}"
        return None

    def bytes(self, problem: AttentionProblem) -> int:
        return cpu_bytes(problem)

    def seconds(self, work: Work) -> float:
        return cpu_seconds(work)

    def compile(self, problem: AttentionProblem) -> Compiled:
        from regard.engines.cpu.compiled_problem import CpuProblem
        from regard.engines.cpu.program import translate

        return CpuProblem(translate(problem))
