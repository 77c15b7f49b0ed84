"""Launches a kernel that was launched before without asking Triton which one it is: a tenth of the time."""

from __future__ import annotations

import os
import threading
from collections.abc import Hashable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard.engines.cuda.layout import Layout, keep
from regard.engines.kernels.terminal import Notice

# To load a kernel that Triton has compiled before takes some milliseconds, to compile one some seconds.
_notice = Notice(
    "regard compiles kernels for this GPU, some seconds for each new kind of call, once: Triton keeps them on disk.",
    after=0.5,
)


def on_device(device: torch.device) -> AbstractContextManager[object]:
    """Triton launches on the current device, whatever its pointers are of: make it this one."""
    if device.type != "cuda" or torch.cuda.current_device() == device.index:
        return nullcontext()
    return torch.cuda.device(device)


class _Launch(NamedTuple):
    """One that waits."""

    key: Hashable
    kernel: Any
    n_programs: int
    arguments: Sequence[Any]
    constants: Mapping[str, Any]
    options: Mapping[str, int]
    layout: Layout


class _Waiting(threading.local):
    """What this thread has not launched yet; None where nobody said that it may wait."""

    launches: list[_Launch] | None = None


_waiting = _Waiting()


@contextmanager
def compiled_together() -> Iterator[None]:
    """Kernels of the body that are not compiled yet are compiled at the same time, at its end, and launched then.

    Until then nothing is launched: the body must not use results of its own launches in torch operations.
    """
    if _waiting.launches is not None:
        yield
        return
    _waiting.launches = []
    try:
        yield
        launches = _waiting.launches
    finally:
        _waiting.launches = None
    if launches:
        _compile([each for each in launches if each.key not in each.layout.compiled])
        for each in launches:
            _run(each)


def _compile(launches: Sequence[_Launch]) -> None:
    """Compile several at the same time: hardly anything of it is Python. What fails is left to who launches it."""
    from triton import AsyncCompileMode, JITFunction

    launches = [each for each in launches if isinstance(each.kernel, JITFunction)]  # not one that is interpreted
    if len(launches) < 2:
        return
    device = torch.cuda.current_device()

    def load(compiled: Any) -> None:
        """Have what launches a kernel compiled, too, and the kernel on the device."""
        with torch.cuda.device(device), suppress(Exception):
            _ = compiled.result().run

    with _notice.if_slow(), ThreadPoolExecutor(min(len(launches), os.cpu_count() or 1)) as executor:
        # Errors are ignored: Triton 3.6 would stay in this mode after one.
        with AsyncCompileMode(executor, ignore_errors=True):
            made = [
                each.kernel.warmup(*each.arguments, grid=(each.n_programs,), **each.constants, **each.options)
                for each in launches
            ]
        list(executor.map(load, [each for each in made if hasattr(each, "result")]))


def launch(
    kernel: Any,
    n_programs: int,
    arguments: Sequence[Any],
    constants: Mapping[str, Any],
    options: Mapping[str, int],
    *,
    layout: Layout,
    variant: Hashable,
    fresh: Sequence[Tensor] = (),
) -> None:
    """Launch a kernel over so many programs.

    Args:
        kernel: What Triton has made of a function.
        n_programs: As many.
        arguments: Of the function, before its constants.
        constants: What it is compiled for.
        options: Warps and stages.
        layout: Of the program.
        variant: What the constants depend on beside the layout.
        fresh: Tensors among the arguments that are not the layout's nor made for this launch: they may begin anywhere.
    """
    key = kernel, variant, *[each.data_ptr() % 16 for each in fresh]
    known = layout.compiled.get(key)
    if known is not None and not _waiting.launches:
        compiled, values = known
        compiled[(n_programs, 1, 1)](*arguments, *values)
        return
    made = _Launch(key, kernel, n_programs, arguments, constants, options, layout)
    if _waiting.launches is None:
        _run(made)
    else:
        _waiting.launches.append(made)


def _run(made: _Launch) -> None:
    """Launch a kernel, compiled now if it is not."""
    known = made.layout.compiled.get(made.key)
    if known is not None:
        compiled, values = known
        compiled[(made.n_programs, 1, 1)](*made.arguments, *values)
        return
    with _notice.if_slow():
        compiled = made.kernel[(made.n_programs,)](*made.arguments, **made.constants, **made.options)
    if compiled is not None:  # as from Triton's interpreter
        names = made.kernel.arg_names[len(made.arguments) :]
        keep(made.layout.compiled, made.key, (compiled, tuple(made.constants[name] for name in names)))
