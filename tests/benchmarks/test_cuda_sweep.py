"""What the planner would choose on a GPU, by what was measured there."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from benchmarks import cuda_sweep, results
from regard import ScaledDot, Softmax
from regard.engines.costs import dense_seconds, fused_seconds, work_of
from regard.engines.cuda.cuda_kernels import CudaKernels
from regard.masks import Cover
from regard.problem import make_problem

POINTS = results.read("cuda_sweep")["points"]
SECONDS = {"sdpa": fused_seconds, "tiled": CudaKernels().seconds, "reference": dense_seconds}


def work_on_a_gpu(point):
    """A point of the sweep as numbers, without its device."""
    batch, heads, n_queries, n_keys, dim = map(int, point["size"].split(" × "))
    training = point["pass"] == "training"
    q = torch.empty(batch, heads, n_queries, dim, dtype=torch.bfloat16, requires_grad=training)
    k = torch.empty(batch, heads, n_keys, dim, dtype=torch.bfloat16)
    options = {"score": ScaledDot(), "weights": Softmax()} | cuda_sweep.KINDS[point["kind"]]
    problem = make_problem(q, k, k, mask=cuda_sweep.MASKS[point["mask"]], **options)
    masked = problem.mask is not None and problem.visibility is not Cover.ALL
    return replace(work_of(problem), device=torch.device("cuda"), masked=masked)


def test_every_point_of_the_sweep_was_measured():
    sizes = {" × ".join(map(str, size)) for size in cuda_sweep.SIZES}
    assert {point["size"] for point in POINTS} == sizes
    n_kinds = len(cuda_sweep.KINDS) * len(cuda_sweep.MASKS) * len(cuda_sweep.PASSES)
    assert len(POINTS) == len(sizes) * n_kinds


@pytest.mark.parametrize("point", POINTS, ids=lambda p: f"{p['size']}, {p['kind']}, {p['mask']}, {p['pass']}")
def test_the_estimates_choose_what_was_quick(point):
    work, seconds = work_on_a_gpu(point), point["seconds"]
    chosen = min(seconds, key=lambda engine: SECONDS[engine](work))
    assert seconds[chosen] <= (1 + cuda_sweep.WITHIN) * min(seconds.values())


def test_many_keys_are_not_read_by_the_definition():
    """One query of 32 heads over 131,072 keys took 5.6 ms so, and 0.13 by kernels."""
    point = {"size": "1 × 32 × 1 × 131072 × 128", "pass": "forward", "kind": "soft-capped", "mask": "none"}
    work = work_on_a_gpu(point)
    assert SECONDS["tiled"](work) < SECONDS["reference"](work)
