"""The pool of threads: what it promises to calls and to torch."""

import gc
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial

import pytest
import torch

pytest.importorskip("numba")

from regard import Additive, Entmax, Gated, TopK, attend, weigh
from regard.engines import torch_internals
from regard.engines.cpu.runtime import thread_pool
from regard.engines.tiled import Tiled
from regard.view import passes

KERNELS = Tiled(kernels=True)
PATIENCE = 30  # seconds after which something hangs


@pytest.fixture
def no_pools(monkeypatch, two_threads):
    """As at the start of a process."""
    monkeypatch.setattr(thread_pool, "_pool", (0, None))


def names_of_threads(n_tasks, meeting=None):
    def task():
        if meeting is not None:
            meeting.wait(PATIENCE)
        return threading.current_thread().name

    return set(thread_pool.run([task] * n_tasks))


def test_results_come_in_the_order_of_the_tasks(two_threads):
    def task(place):
        time.sleep(0.01 * (place % 3))
        return place

    assert thread_pool.run([partial(task, place) for place in range(20)]) == list(range(20))
    assert thread_pool.run([]) == []


def test_one_task_stays_with_the_caller(two_threads):
    assert names_of_threads(1) == {threading.current_thread().name}


def test_a_call_inside_a_worker_stays_in_it(two_threads):
    def task():
        return {threading.current_thread().name} == names_of_threads(5) and thread_pool.count() == 1

    assert thread_pool.run([task] * 4) == [True] * 4


def test_threads_follow_set_num_threads(two_threads):
    for threads in (3, 2, 4):
        torch.set_num_threads(threads)
        assert thread_pool.count() == threads
        # All meet, so that there are enough of them; nobody else came.
        assert len(names_of_threads(threads, threading.Barrier(threads))) == threads
        assert len(names_of_threads(50)) <= threads
    torch.set_num_threads(1)
    assert names_of_threads(3) == {threading.current_thread().name}


def threads_of_torch_and_of_calls():
    return torch.get_num_threads(), thread_pool.count()


@pytest.mark.parametrize("ends", ["well", "with an error"])
def test_undisturbed_torch_uses_one_core_and_calls_all(two_threads, ends):
    with suppress(KeyError), thread_pool.undisturbed():
        assert threads_of_torch_and_of_calls() == (1, 2)
        with suppress(IndexError), thread_pool.undisturbed():
            assert threads_of_torch_and_of_calls() == (1, 2)
            if ends != "well":
                raise IndexError
        assert threads_of_torch_and_of_calls() == (1, 2)
        assert len(names_of_threads(2, threading.Barrier(2))) == 2
        if ends != "well":
            raise KeyError
    assert threads_of_torch_and_of_calls() == (2, 2)


@pytest.mark.parametrize("ends", ["well", "with an error"])
def test_disturbed_torch_has_its_cores_again_for_a_while(two_threads, ends):
    with thread_pool.disturbed():  # outside, too
        assert threads_of_torch_and_of_calls() == (2, 2)
    with thread_pool.undisturbed():
        with suppress(KeyError), thread_pool.disturbed():
            assert threads_of_torch_and_of_calls() == (2, 2)
            with thread_pool.undisturbed():
                assert threads_of_torch_and_of_calls() == (1, 2)
            assert threads_of_torch_and_of_calls() == (2, 2)
            if ends != "well":
                raise KeyError
        assert threads_of_torch_and_of_calls() == (1, 2)
    assert threads_of_torch_and_of_calls() == (2, 2)


def test_other_threads_are_not_undisturbed(two_threads):
    with ThreadPoolExecutor(1) as other, thread_pool.undisturbed():
        assert other.submit(threads_of_torch_and_of_calls).result() == (2, 2)
        assert other.submit(test_disturbed_torch_has_its_cores_again_for_a_while, None, "well").result() is None
        assert threads_of_torch_and_of_calls() == (1, 2)


def test_with_one_thread_nothing_is_changed(two_threads):
    torch.set_num_threads(1)
    with thread_pool.undisturbed(), thread_pool.disturbed():
        assert threads_of_torch_and_of_calls() == (1, 1)


@pytest.mark.parametrize("magnitude", [30.0, 3e4], ids=["known after a pass", "known before"])
def test_what_torch_does_for_a_reading_has_all_cores(two_threads, monkeypatch, magnitude):
    seen = set()

    def watched(function):
        def call(*arguments):
            seen.add(torch.get_num_threads())
            return function(*arguments)

        return call

    for name in ("strips_of", "pool_by_strips", "define_weights"):
        monkeypatch.setattr(passes, name, watched(getattr(passes, name)))
    x = torch.randn(300, 16) * magnitude
    view = weigh(x, x, x, engine=KERNELS)
    view.collect(top=3, entropy=True, output=True)
    assert view._passes.by_strips
    assert seen == {2}


def test_readings_without_kernels_prepare_none(two_threads, monkeypatch):
    few, many = torch.randn(9, 4), torch.randn(300, 16)
    view = weigh(few, few, few)
    view.collect(top=3, entropy=True)
    assert "_compiled" not in view._passes.__dict__
    view = weigh(many, many, many, engine=KERNELS)
    view.top(3)
    monkeypatch.setattr(thread_pool, "undisturbed", None)
    view.top(2)  # which is there


@pytest.mark.parametrize("libraries", ["show how to use one core", "do not"])
def test_torch_uses_as_many_threads_as_before(no_pools, monkeypatch, libraries):
    if libraries == "do not":
        monkeypatch.setattr(thread_pool, "use_one_core", lambda: not torch.get_num_threads())

    def in_a_new_thread():
        with ThreadPoolExecutor(1) as other:
            return other.submit(torch.get_num_threads).result()

    torch.set_num_threads(3)
    thread_pool.run([int] * 4)
    assert torch.get_num_threads() == in_a_new_thread() == 3

    # The first call may come from a thread that has another number: it changes neither its own nor that of others.
    def call_from_a_thread_of_two():
        torch.get_num_threads()
        torch.set_num_threads(2)
        changed.set()
        restored.wait(PATIENCE)
        thread_pool.run([int] * 4)
        return torch.get_num_threads()

    changed, restored = threading.Event(), threading.Event()
    with ThreadPoolExecutor(1) as other:
        mine = other.submit(call_from_a_thread_of_two)
        changed.wait(PATIENCE)
        torch.set_num_threads(4)
        restored.set()
        assert mine.result() == 2
    assert torch.get_num_threads() == in_a_new_thread() == 4
    assert thread_pool.run([torch.get_num_threads] * 4) == [1] * 4


def test_first_calls_at_the_same_time_share_one_pool(no_pools):
    together = threading.Barrier(8)

    def call():
        together.wait(PATIENCE)
        return names_of_threads(4)

    with ThreadPoolExecutor(8) as threads:
        seen = [future.result(PATIENCE) for future in [threads.submit(call) for _ in range(8)]]
    assert thread_pool._pool[0] == 2
    assert len(set().union(*seen)) <= 2


def test_a_call_goes_on_alone_where_no_thread_can_be_started(no_pools, monkeypatch):
    def refuse(self):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    assert names_of_threads(3) == {threading.current_thread().name}


def test_a_call_makes_do_with_the_threads_that_can_be_started(no_pools, monkeypatch):
    start, started = threading.Thread.start, []

    def refuse_the_third(self):
        started.append(self)
        if len(started) > 2:  # the first is the one that starts the others
            raise RuntimeError("can't start new thread")
        start(self)

    monkeypatch.setattr(threading.Thread, "start", refuse_the_third)
    assert len(names_of_threads(3)) == 1
    assert torch.get_num_threads() == 2


def test_an_error_comes_out_and_the_others_stop(two_threads):
    begun = []

    def fail():
        raise MemoryError("no more")

    def work():
        begun.append(1)
        for _ in range(1000):
            thread_pool.check_stopped()
            time.sleep(0.01)

    before = time.monotonic()
    with pytest.raises(MemoryError, match="no more"):
        thread_pool.run([fail, *[work] * 50])
    assert time.monotonic() - before < 5  # all of it would take 250 seconds
    assert len(begun) <= 2
    assert thread_pool.run([int] * 4) == [0] * 4


def test_a_failed_call_does_not_wait_for_a_thread_that_cannot_stop(two_threads, monkeypatch):
    """As one in a compiler, which takes seconds."""
    monkeypatch.setattr(thread_pool, "PATIENCE_SECONDS", 0.05)
    hold, ended, begun = threading.Event(), threading.Event(), threading.Event()

    def compile_for_long():
        begun.set()
        hold.wait(PATIENCE)
        ended.set()

    def fail():
        begun.wait(PATIENCE)
        raise ValueError("stop")

    with pytest.raises(ValueError, match="stop"):
        thread_pool.run([compile_for_long, fail])
    assert not ended.is_set()
    assert thread_pool.run([int] * 4) == [0] * 4  # the other thread is free
    hold.set()
    assert ended.wait(PATIENCE)


def test_an_error_leaves_no_cycle_that_holds_memory(two_threads):
    class Large:
        def __call__(self):
            raise ValueError("it failed")

    gc.collect()
    gc.disable()
    try:
        task = Large()
        alive = weakref.ref(task)
        with pytest.raises(ValueError, match="it failed") as caught:
            thread_pool.run([task, task])
        del task, caught
        for _ in range(100):  # the thread lets go of its task a moment after
            if alive() is None:
                break
            time.sleep(0.01)
        assert alive() is None
    finally:
        gc.enable()


def test_tasks_know_the_inference_mode_of_the_call(two_threads):
    with torch.inference_mode():
        assert thread_pool.run([torch.is_inference_mode_enabled] * 4) == [True] * 4
    assert thread_pool.run([torch.is_inference_mode_enabled] * 4) == [False] * 4
    assert thread_pool.run([torch.is_grad_enabled] * 4) == [False] * 4


def test_scratch_is_kept_aligned_and_not_shared_with_a_call_inside():
    def task():
        outer = thread_pool.scratch("test", 4, 4)
        assert outer.ctypes.data % 64 == 0
        assert thread_pool.scratch("test", 2, 2).ctypes.data == outer.ctypes.data
        return thread_pool.run([lambda: thread_pool.scratch("test", 4, 4).ctypes.data])[0] != outer.ctypes.data

    assert thread_pool.run([task]) == [True]


def test_large_scratch_is_not_kept(monkeypatch):
    monkeypatch.setattr(thread_pool, "KEPT_ELEMENTS", 100)
    assert thread_pool.scratch("large", 10, 10) is not None
    thread_pool.scratch("larger", 10, 11)
    kept = {name for name, _ in thread_pool._inside.scratch}
    assert "large" in kept
    assert "larger" not in kept


def test_short_work_stays_with_the_caller(monkeypatch, two_threads):
    monkeypatch.setattr(thread_pool, "LEAST_SECONDS", 1.0)
    monkeypatch.setattr(thread_pool, "LEAST_TASK_SECONDS", 0.1)

    def where():
        return threading.current_thread()

    here = threading.current_thread()
    assert thread_pool.run([where] * 4, seconds=0.9) == [here] * 4
    assert thread_pool.run([where] * 40, seconds=2.0) == [here] * 40
    assert here not in thread_pool.run([where] * 4, seconds=2.0)
    assert here not in thread_pool.run([where] * 4)


def test_the_caller_has_its_cores_back(two_threads):
    set_mkl = getattr(torch_internals._library(), "MKL_Set_Num_Threads_Local", None)
    if set_mkl is None:
        pytest.skip("another BLAS")

    def fail():
        raise KeyError("mine")

    def inside():
        before = set_mkl(1)
        assert before == 1  # as it is in a task
        thread_pool.run([list])
        assert set_mkl(1) == 1

    for own in (0, 2):  # 0: as many as all threads
        original = set_mkl(own)
        try:
            thread_pool.run([inside])
            assert set_mkl(own) == own
            with pytest.raises(KeyError, match="mine"):
                thread_pool.run([fail])
            assert set_mkl(own) == own
        finally:
            set_mkl(original)


def test_concurrent_calls_give_the_bits_of_serial_ones(two_threads):
    torch.manual_seed(0)
    kinds = [
        {},
        {"score": Gated(16, 16)},
        {"score": Additive(16, 16, 8)},
        {"weights": Entmax(1.5)},
        {"weights": TopK(5)},
    ]
    inputs = torch.randn(3, 3, 300, 16)

    def call(place):
        q, k, v = (each.clone().requires_grad_() for each in inputs + place % 4)
        output = attend(q, k, v, engine=KERNELS, **kinds[place % len(kinds)])
        return [output.detach(), *torch.autograd.grad(output.square().sum(), (q, k, v))]

    serial = [call(place) for place in range(20)]
    with ThreadPoolExecutor(8) as threads:
        futures = [threads.submit(call, place % 20) for place in range(100)]
        for place, future in enumerate(futures):
            for one, other in zip(future.result(PATIENCE), serial[place % 20], strict=True):
                assert torch.equal(one, other)


def test_threads_do_not_add_up_over_the_settings_of_torch(no_pools):
    known = set(threading.enumerate())
    for n in [*range(2, 10), *range(9, 1, -1)]:
        torch.set_num_threads(n)
        assert thread_pool.run([partial(int, each) for each in range(n)]) == list(range(n))
    deadline = time.monotonic() + PATIENCE
    while len(begun := set(threading.enumerate()) - known) > 9 and time.monotonic() < deadline:
        time.sleep(0.001)  # smaller pools end in their own time
    assert len(begun) <= 9


def test_callers_with_different_settings_at_the_same_time_get_what_is_theirs(no_pools):
    errors = []

    def call(n):
        torch.set_num_threads(n)
        for _ in range(20):
            if thread_pool.run([lambda each=each: (n, each) for each in range(2 * n)]) != [
                (n, each) for each in range(2 * n)
            ]:
                errors.append(n)

    callers = [threading.Thread(target=call, args=(n,)) for n in (2, 3, 5, 8, 4)]
    for each in callers:
        each.start()
    for each in callers:
        each.join()
    assert not errors
    assert thread_pool._pool[0] == 8
