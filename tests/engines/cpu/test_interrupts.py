"""Ctrl-C is heard within a second, since no compiled call takes long."""

import pytest
import torch

pytest.importorskip("numba")

from regard import TopK, attend
from regard.engines.cpu.kernels import tile_loops
from regard.engines.cpu.traversal import by_lists
from regard.engines.tiled import Tiled

KERNELS = Tiled(kernels=True)

INTERRUPTED = """
import os, signal, sys, threading, time
import torch
from regard import Additive, Entmax, TopK, attend, weigh
from regard.engines.tiled import Tiled

torch.set_num_threads(2)
torch.manual_seed(0)
KERNELS = Tiled(kernels=True)

def inputs(n, heads=1):
    return [torch.randn(heads, n, 64, requires_grad=True) for _ in range(3)]

def forward(n, heads, **options):
    tensors = inputs(n, heads)
    return lambda: attend(*tensors, engine=KERNELS, **options)

def backward(n, heads, **options):
    output = attend(*inputs(n, heads), engine=KERNELS, **options)
    return lambda: output.backward(torch.ones_like(output), retain_graph=True)

def view(n, heads, **options):
    with torch.no_grad():
        tensors = inputs(n, heads)
        return lambda: weigh(*tensors, engine=KERNELS, **options).collect(top=4, received=True)

def check(**options):
    q, k, v = inputs(200, 2)
    results = []
    for engine in (KERNELS, Tiled(kernels=False)):
        output = attend(q, k, v, engine=engine, **options)
        results.append([output, *torch.autograd.grad(output.square().sum(), (q, k, v))])
    for one, other in zip(*results):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-3)

def interrupt(work):
    '''Seconds from the signal to the exception.'''
    sent = []
    def send():
        sent.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)
    timer = threading.Timer(0.15, send)
    timer.start()
    try:
        while not sent or time.monotonic() < sent[0] + 30:
            work()
    except KeyboardInterrupt:
        return time.monotonic() - sent[0]
    finally:
        timer.cancel()
    raise AssertionError("it was not interrupted")

KINDS = {
    "dot": (8192, {}),
    "additive": (4096, {"score": Additive(64, 64, 64)}),
    "entmax": (8192, {"weights": Entmax(1.5)}),
    "top": (8192, {"weights": TopK(32)}),
}
for name in sys.argv[1:] or os.environ["KINDS"].split():
    n, options = KINDS[name]
    check(**options)
    works = [forward(n, 64, **options), backward(n, 2, **options)]
    if name == "dot":
        works.append(view(n, 64))
    for work in works:
        # Others may have the cores: one of a few tries shows that nothing is in the way.
        tries = []
        while not tries or (tries[-1] > 1 and len(tries) < 4):
            tries.append(interrupt(work))
        assert tries[-1] <= 1, (name, work, tries)
        check(**options)
"""


@pytest.mark.parametrize("kinds", ["dot additive", "entmax top"])
def test_ctrl_c_is_heard_within_a_second_and_the_next_call_is_right(child, kinds):
    child(INTERRUPTED, KINDS=kinds)


@pytest.mark.parametrize(
    ("n_queries", "n_keys", "dim"), [(1, 1_000_000, 64), (512, 50_000, 64), (300, 2_000, 4096), (256, 600, 16384)]
)
def test_no_compiled_call_takes_long(monkeypatch, n_queries, n_keys, dim):
    """Ctrl-C is heard between calls: by multiply-adds, of which a core does some 4e10 a second, not by a clock."""
    work, read = [], []

    def pool_span(*arguments):
        n_columns, pooled = arguments[10], arguments[-3]
        work.append(len(pooled) * n_columns * 2 * dim)
        read.append(n_columns * 2 * dim)
        return 0.0

    monkeypatch.setattr(tile_loops, "pool_span", pool_span)
    keys = torch.zeros(1, dim).expand(n_keys, dim)
    attend(torch.zeros(n_queries, dim), keys, keys, engine=KERNELS)
    assert sum(work) == n_queries * n_keys * 2 * dim
    assert max(work) <= 3e9
    assert max(read) <= 1e8  # numbers that come from memory


def test_long_lists_are_cut(monkeypatch):
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 60, 16, requires_grad=True) for _ in range(3))

    def call(pairs):
        monkeypatch.setattr(by_lists, "BLOCK_PAIRS", pairs)
        output = attend(q, k, v, engine=KERNELS, weights=TopK(40))
        return [output, *torch.autograd.grad(output.square().sum(), (q, k, v))]

    for one, other in zip(call(4), call(1 << 18), strict=True):  # 7 keys at a time
        torch.testing.assert_close(one, other)
