"""Machine code that different processes compiled meets in one: what each calls must be its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import defaultdict

import pytest

pytest.importorskip("numba")

from numba.core.dispatcher import Dispatcher

from regard.engines.cpu.runtime import background_compilation

KERNELS = ("channel.absolute_scores", "channel.square_scores")

COMPILE = """\
import sys
from regard.engines.cpu.runtime.background_compilation import kernels
kernels()[sys.argv[1]].prepare()
"""

# Σ |q − k| = 4 · 2 = 8 and Σ (q − k)² = 4 · 4 = 16, in whichever order they come.
CALL = """\
import sys
import numpy as np
from regard.engines.cpu.runtime.background_compilation import kernels
queries, keys = np.full((1, 1, 4), 3, np.float32), np.ones((1, 1, 4, 16), np.float32)
for name in sys.argv[1:]:
    scores = np.empty((1, 16), np.float32)
    assert kernels()[name].fetch()
    kernels()[name](queries, keys, np.ones(4, np.float32), 1.0, scores)
    print(name, *sorted(set(scores.ravel().tolist())))
"""


def functions_of(kernel):
    """Every function that a kernel compiles: its own, and those that it names."""
    waiting, found, seen = [kernel.dispatcher], [], []
    while waiting:
        dispatcher = waiting.pop()
        function = dispatcher.py_func
        if function in seen:
            continue
        seen.append(function)
        if dispatcher.targetoptions.get("inline") != "always":  # which has no symbol
            found.append(function)
        cells = [cell.cell_contents for cell in function.__closure__ or ()]
        named = [function.__globals__.get(name) for name in function.__code__.co_names]
        waiting += [each for each in (*cells, *named) if isinstance(each, Dispatcher)]
    return found


def test_no_two_compiled_functions_have_the_same_name():
    """Symbols are called after functions: of two with the same name, one would serve the kernels of both."""
    found = defaultdict(set)
    for kernel in background_compilation.kernels().values():
        for function in functions_of(kernel):
            found[function.__module__, function.__qualname__].add(function)
    assert len(found) > 80
    assert not [name for name, functions in found.items() if len(functions) > 1]


def test_kernels_of_two_processes_do_not_call_each_others_functions(tmp_path):
    """Processes that count and hash alike give functions the same numbers, so that names alone tell them apart."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path), "PYTHONHASHSEED": "0"}
    compiling = [subprocess.Popen([sys.executable, "-c", COMPILE, name], env=environment) for name in KERNELS]
    assert [process.wait() for process in compiling] == [0, 0]
    for names in (KERNELS, KERNELS[::-1]):
        called = [sys.executable, "-c", CALL, *names]
        said = subprocess.run(called, env=environment, capture_output=True, text=True, check=True).stdout
        assert sorted(said.split("\n")[:2]) == ["channel.absolute_scores 8.0", "channel.square_scores 16.0"]
