"""Blocks fit into shared memory, and the compiler takes what the interpreter takes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from regard.engines.cuda.launch_settings import Settings, Shape, column_settings, forward_settings, row_settings

pytest.importorskip("triton")

HOPPER, ADA = 232_448, 101_376  # what a block may take on an H200, and on an RTX 4090


def test_settings_measured_on_an_h200_stay():
    narrow, wide = Shape(64, 64, 2, False), Shape(128, 128, 2, False)
    assert forward_settings(wide, 4096, HOPPER) == forward_settings(narrow, 4096, HOPPER) == Settings(64, 64, 4, 3)
    assert forward_settings(wide, 4, HOPPER) == Settings(16, 64, 4, 3)
    assert row_settings(wide, HOPPER) == Settings(128, 64, 8, 3)
    assert column_settings(wide, HOPPER) == Settings(32, 64, 4, 3)
    assert row_settings(narrow, HOPPER) == column_settings(narrow, HOPPER) == Settings(64, 64, 4, 3)


def test_blocks_shrink_where_memory_is_short():
    # What compilers reported: 262,144 bytes for blocks of 128 × 64, two stages.
    wide = forward_settings(Shape(256, 256, 2, True), 4096, HOPPER)
    assert wide.rows * wide.columns * wide.stages < 128 * 64 * 2
    for shape in (Shape(128, 128, 2, False), Shape(128, 128, 4, True), Shape(256, 256, 4, True)):
        for rows, columns, _, stages in (forward_settings(shape, 4096, ADA), row_settings(shape, ADA)):
            assert (rows + columns * 2 * stages) * max(shape.dim, shape.value_dim) * shape.itemsize <= ADA
            assert rows >= 16
            assert columns >= 16


@pytest.mark.parametrize(
    "case",
    [
        "Gaussian | Softmax | Allowed | bfloat16 | 64",  # a branch around a product, which Triton 3.9 cannot compile
        "SoftCap | Softmax, sink | Selected | float32 | 16",
    ],
)
def test_the_compiler_takes_what_the_interpreter_takes(case, tmp_path):
    script = Path(__file__).with_name("ahead_of_time.py")
    settings = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    settings |= {"TRITON_CACHE_DIR": str(tmp_path), "PYTHONWARNINGS": "ignore"}
    run = subprocess.run(
        [sys.executable, str(script), case, "--forward"], env=settings, capture_output=True, text=True, timeout=300
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert "0 failed" in run.stdout
