"""A kernel that was launched before is launched again as it is; anything that it was compiled for makes another one."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton")

from regard import Dot, SoftCap, Softmax
from regard.engines.cuda.batch import Batch
from regard.engines.cuda.launcher import launch
from regard.engines.cuda.layout import Layout, layout_of
from regard.engines.cuda.program import translate
from regard.problem import make_problem


class Kernel:
    """What Triton makes of a function of two arguments and two constants, and what it compiles it to."""

    arg_names = ("x", "y", "A", "B")

    def __init__(self):
        self.compilations, self.launches = [], []

    def __getitem__(self, grid):
        def run(*arguments, **constants):
            self.compilations.append((grid, arguments, constants))
            return Compiled(self.launches)

        return run


class Compiled:
    def __init__(self, launches):
        self.launches = launches

    def __getitem__(self, grid):
        return lambda *arguments: self.launches.append((grid, arguments))


def run(kernel, layout, x, *, variant=(), n_programs=3):
    constants = {"B": 2, "A": 1}
    launch(kernel, n_programs, (x, 5), constants, {"num_warps": 4}, layout=layout, variant=variant, fresh=(x,))


def test_a_kernel_is_compiled_once_and_its_constants_keep_their_order():
    kernel, layout, x = Kernel(), Layout(Batch((), ((), (), ())), ()), torch.empty(64)
    run(kernel, layout, x)
    run(kernel, layout, x, n_programs=7)
    assert kernel.compilations == [((3,), (x, 5), {"B": 2, "A": 1, "num_warps": 4})]
    assert kernel.launches == [((7, 1, 1), (x, 5, 1, 2))]


def test_another_variant_and_another_alignment_are_other_kernels():
    kernel, layout, x = Kernel(), Layout(Batch((), ((), (), ())), ()), torch.empty(64)
    run(kernel, layout, x)
    run(kernel, layout, x, variant=("safe",))
    run(kernel, layout, x[1:])  # which begins at no multiple of 16 bytes
    run(kernel, Layout(Batch((), ((), (), ())), ()), x)
    assert len(kernel.compilations) == 4
    assert not kernel.launches


def program_of(q, **options):
    return translate(make_problem(q, q, q, score=SoftCap(Dot(), 2.0), weights=Softmax(), **options))


def test_calls_of_one_kind_share_a_layout():
    one, two = program_of(torch.randn(2, 20, 8)), program_of(torch.randn(2, 20, 8))
    assert one.layout is two.layout
    others = [
        program_of(torch.randn(2, 21, 8)),
        program_of(torch.randn(20, 2, 8).transpose(0, 1)),
        program_of(torch.randn(2, 20, 8).to(torch.bfloat16)),
        program_of(torch.randn(2 * 20 * 8 + 1)[1:].view(2, 20, 8)),
        program_of(torch.randn(2, 20, 8), dropout=0.5),
    ]
    assert len({id(each.layout) for each in (one, *others)}) == 6


def test_what_needs_more_than_three_batch_axes_has_no_layout():
    scattered = torch.empty(2, 2, 2, 2, 3, 4).permute(3, 2, 1, 0, 4, 5)
    plain = torch.empty(2, 2, 2, 2, 3, 4)
    assert layout_of((), (2, 2, 2, 2), [(scattered, 2), (plain, 2)]) is None
