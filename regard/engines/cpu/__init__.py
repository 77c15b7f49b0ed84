"""Compiled kernels for CPUs: the same attention as `engines/tiled.py`, faster. Numba is imported on first use."""

from __future__ import annotations

import warnings
from functools import cache
from importlib.util import find_spec

from regard.engines.torch_internals import sgemm_address


@cache
def missing() -> str | None:
    """Why there cannot be compiled kernels here, by a check that imports nothing; None if there may be."""
    if find_spec("numba") is None:
        return "Numba is not installed: pip install regard[fast]"
    if sgemm_address() is None:
        return "torch's library does not show its matrix product (sgemm)"
    return None


@cache
def unusable() -> str | None:
    """Why compiled kernels cannot be used here, having tried to load them; None if they can."""
    reason = missing()
    if reason is None:
        try:
            import regard.engines.cpu.runtime.background_compilation  # noqa: F401
        except ImportError as error:  # such as a Numba that is older than NumPy
            reason = f"Numba is installed but cannot be imported: {error}"
            warnings.warn(f"regard runs in plain torch, which is slower. {reason}", RuntimeWarning, stacklevel=2)
    return reason
