"""What every test run needs before torch is imported."""

from __future__ import annotations

import os

# Some virtual machines announce AMX but do not let a process use it, and oneDNN's bfloat16 products die there.
# oneDNN reads this once, when torch is imported. The Makefile sets the same for everything that it runs.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")

# Threads that sleep where they wait for each other, instead of spinning: tests share the cores.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import hypothesis
import torch

# The same examples in every run, so that a red run means a change. `pytest --hypothesis-profile=explore` finds more.
hypothesis.settings.register_profile("repeatable", deadline=None, print_blob=True, derandomize=True)
hypothesis.settings.register_profile("explore", deadline=None, print_blob=True)
hypothesis.settings.load_profile("repeatable")

if "PYTEST_XDIST_WORKER" in os.environ:
    # Workers share the cores already: threads within each would only queue for them.
    torch.set_num_threads(1)
