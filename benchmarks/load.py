"""How much of the cores others took while we measured: figures of a busy machine say little."""

from __future__ import annotations

import os
import resource
import time
from pathlib import Path


class Load:
    """Watches the cores from its making on; on Linux, else it knows nothing."""

    def __init__(self) -> None:
        self._start = _now()

    def taken_by_others(self) -> float | None:
        """The share of all cores, 0 to 1, that neither we nor our children used and that was not idle."""
        end = _now()
        if self._start is None or end is None:
            return None
        wall, busy, ours = (last - first for last, first in zip(end, self._start, strict=True))
        available = wall * (os.cpu_count() or 1)
        return max(0.0, (busy - ours) / available) if available > 0 else None


def _now() -> tuple[float, float, float] | None:
    """The wall clock, the seconds in which any core was busy, and those in which we were."""
    try:
        first = Path("/proc/stat").read_text(encoding="ascii").splitlines()[0]
    except OSError:
        return None
    user, nice, system, _idle, _waiting, *interrupts = map(int, first.split()[1:9])
    busy = (user + nice + system + sum(interrupts)) / os.sysconf("SC_CLK_TCK")
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return time.perf_counter(), busy, sum(usage.ru_utime + usage.ru_stime for usage in usages)
