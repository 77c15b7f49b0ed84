"""Kernels in forked children, in other processes, and while the interpreter ends."""

import os
from textwrap import dedent

import pytest

pytest.importorskip("numba")

# Torch's own threads do not survive a fork: a child must have one thread, as torch's DataLoader sees to.
# Python 3.12 warns of every fork of a process with threads.
QUIET = {"PYTHONWARNINGS": "ignore::DeprecationWarning"}

CALLED = """
import multiprocessing, os, signal, sys
import torch
from regard import Additive, Entmax, attend
from regard.engines.tiled import Tiled

signal.alarm(80)  # a child that hangs ends, too

def call(seed=0):
    generator = torch.Generator().manual_seed(seed)
    q, k, v = (torch.randn(2, 300, 16, generator=generator, requires_grad=True) for _ in range(3))
    output = attend(q, k, v, engine=Tiled(kernels=True), weights=Entmax(1.5))
    return torch.cat([output.detach(), *torch.autograd.grad(output.square().sum(), (q, k, v))])

def alone(seed):
    torch.set_num_threads(1)
    return call(seed).tolist()

class Calls(torch.utils.data.Dataset):
    def __len__(self):
        return 6
    def __getitem__(self, place):
        return call(place)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_forked_children_start_threads_of_their_own(child):
    code = """
    torch.set_num_threads(2)
    from regard.engines.cpu.runtime import thread_pool
    expected = call()
    for _ in range(3):
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                assert thread_pool._pool == (0, None)
                assert len({name for name in thread_pool.run([os.getpid] * 4)}) == 1 and thread_pool._pool[0]
                torch.set_num_threads(1)
                assert torch.equal(call(), expected)
                status = 0
            finally:
                os._exit(status)
        assert os.waitpid(pid, 0)[1] == 0
        assert torch.equal(call(), expected)
    """
    child(CALLED + dedent(code), **QUIET)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_child_that_is_forked_while_kernels_have_the_cores_ends_well(child):
    code = """
    torch.set_num_threads(2)
    from regard.engines.cpu.runtime import thread_pool
    for around in (thread_pool.undisturbed, thread_pool.disturbed):
        with thread_pool.undisturbed(), around():
            pid = os.fork()
        if pid == 0:
            os._exit("threads" in thread_pool._inside.__dict__)
        assert os.waitpid(pid, 0)[1] == 0
        assert torch.get_num_threads() == thread_pool.count() == 2
    """
    child(CALLED + dedent(code), **QUIET)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_data_loader_may_attend(child):
    code = """
    torch.set_num_threads(2)
    expected = torch.stack([call(place) for place in range(6)])
    loader = torch.utils.data.DataLoader(Calls(), batch_size=2, num_workers=2, multiprocessing_context="fork")
    for _ in range(2):
        assert torch.equal(torch.cat(list(loader)), expected)
    assert torch.equal(call(), expected[0])
    """
    child(CALLED + dedent(code), **QUIET)


def test_other_processes_give_the_same_numbers(child):
    code = """
    if __name__ == "__main__":
        torch.set_num_threads(2)
        expected = [call(seed).tolist() for seed in range(4)]
        for method in {"fork", "spawn"} & set(multiprocessing.get_all_start_methods()):
            with multiprocessing.get_context(method).Pool(2) as pool:
                assert pool.map(alone, range(4)) == expected
    """
    child(CALLED + dedent(code), **QUIET)


def test_a_call_while_the_interpreter_ends_goes_on_alone(child):
    code = """
    import atexit
    torch.set_num_threads(2)
    expected = call()
    atexit.register(lambda: print(torch.equal(call(), expected)))
    """
    assert child(CALLED + dedent(code)) == "True\n"
