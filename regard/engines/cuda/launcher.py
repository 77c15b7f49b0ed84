"""Launches a kernel that was launched before without asking Triton which one it is: a tenth of the time."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor

from regard.engines.cuda.layout import Layout
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
    if known is None:
        with _notice.if_slow():
            compiled = kernel[(n_programs,)](*arguments, **constants, **options)
        if compiled is not None:  # as from Triton's interpreter
            names = kernel.arg_names[len(arguments) :]
            layout.compiled[key] = compiled, tuple(constants[name] for name in names)
        return
    compiled, values = known
    compiled[(n_programs, 1, 1)](*arguments, *values)
