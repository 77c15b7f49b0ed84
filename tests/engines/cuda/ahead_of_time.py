"""Compiles the kernels of cases for an H200 where there is no GPU, and says how much shared memory each takes.

    python tests/engines/cuda/ahead_of_time.py "Gaussian | Softmax | Allowed | bfloat16 | 64" ... [--forward | --read]

What Triton's interpreter takes, its compiler may refuse.
"""

from __future__ import annotations

import argparse
import os

if __name__ == "__main__":
    os.environ.pop("TRITON_INTERPRET", None)  # Triton reads it when it is imported

import torch
from triton.backends.compiler import GPUTarget
from triton.runtime import driver, jit

from regard.engines.cuda import launcher
from regard.engines.cuda.cuda_kernels import CudaKernels
from regard.engines.cuda.launch import Launch
from regard.engines.kernels import dispatch
from regard.testing import Case, Sizes

LIMIT = 232_448  # bytes of shared memory that a block of an H200 may take


class Absent:
    """The driver of a GPU that is not there."""

    def get_current_device(self):
        return 0

    def get_current_stream(self, device):
        return 0

    def get_current_target(self):
        return GPUTarget("cuda", 90, 32)

    def get_active_torch_device(self):
        return torch.device("cpu")


def read(readable, problem):
    """Have every reading of a view compiled."""
    rows = *problem.grid.batch_shape, problem.grid.n_queries
    targets = {name: torch.zeros(rows) for name in ("entropy", "least", "total", "most", "count")}
    targets |= {"top_weights": torch.zeros(*rows, 8), "top_index": torch.zeros(*rows, 8, dtype=torch.long)}
    targets["received"] = torch.zeros(*problem.grid.batch_shape, problem.grid.n_keys)
    targets["picture"] = torch.zeros(*problem.grid.batch_shape, 20, 30)
    with torch.no_grad():
        statistics = readable.statistics()
        readable.read(statistics, targets)
        readable.weights(statistics, range(10), range(20))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="+", help="score | rule | mask | dtype | dim")
    parser.add_argument("--forward", action="store_true", help="no gradients")
    parser.add_argument("--read", action="store_true", help="what a view reads")
    options = parser.parse_args()
    driver.set_active(Absent())
    dispatch._KERNELS["cpu"] = CudaKernels()
    Launch._precision = property(lambda launch: "whole" if launch.is_whole else "tf32x3")
    launcher._compile = lambda launches: None  # one after the other, here
    launch, seen, failed = jit.JITFunction.run, set(), 0

    def compile_only(kernel, *arguments, grid, warmup, **settings):
        nonlocal failed
        name = f"{kernel.fn.__name__}{', safe' if settings.get('SAFE') else ''}"
        try:
            made = launch(kernel, *arguments, grid=grid, warmup=True, **settings)
        except Exception as error:
            failed += 1
            print(f"  {name}: {type(error).__name__}: {error}"[:300], flush=True)
            return None
        if made.hash not in seen:
            seen.add(made.hash)
            failed += made.metadata.shared > LIMIT
            print(f"  {name}: {made.metadata.shared:,} bytes of shared memory", flush=True)
        return None  # what is kept would be launched

    jit.JITFunction.run = compile_only
    for text in options.cases:
        print(text, flush=True)
        score, rule, mask, dtype, dim = (part.strip() for part in text.split("|"))
        size = Sizes(n_queries=200, n_keys=300, dim=int(dim), value_dim=int(dim))
        problem = Case(score, rule, mask, getattr(torch, dtype), "cpu", size).make(getattr(torch, dtype))
        reason = dispatch.why_unsupported(problem)
        if reason is not None:
            raise SystemExit(reason)
        compiled = CudaKernels().compile(problem)
        if options.read:
            read(compiled.readable(lambda share: None), problem)
            continue
        pooled = compiled.pool()
        if not options.forward:
            needed = [each.is_floating_point() for each in problem.inputs]
            centre = {"none": None, "output": pooled.output, "slope": pooled.slope_mean}[problem.rule.centre]
            compiled.gradients(needed, pooled.statistics, centre, torch.ones_like(pooled.output))
    print(f"{len(seen)} kernels compiled, {failed} failed")
    return int(failed > 0)


if __name__ == "__main__":
    raise SystemExit(main())
