"""What the tests of compiled kernels share."""

import os
import subprocess
import sys
import textwrap

import pytest
import torch


@pytest.fixture(autouse=True)
def shared_work(monkeypatch):
    """Work is shared out over threads, however short it is: that is what these tests are about."""
    pytest.importorskip("numba")
    from regard.engines.cpu.runtime import thread_pool

    monkeypatch.setattr(thread_pool, "LEAST_SECONDS", 0.0)
    monkeypatch.setattr(thread_pool, "LEAST_TASK_SECONDS", 0.0)


@pytest.fixture
def child(tmp_path):
    """Runs Python code in a process of its own, which must end well and in silence; returns what it printed."""

    def run(code, seconds=100, **environment):
        script = tmp_path / "child.py"
        script.write_text(textwrap.dedent(code), encoding="utf-8")
        done = subprocess.run(
            [sys.executable, str(script)],
            capture_output=True,
            text=True,
            timeout=seconds,
            env={**os.environ, **environment},
        )
        assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
        return done.stdout

    return run


@pytest.fixture
def two_threads():
    """Two threads a call, also where tests run side by side."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)
