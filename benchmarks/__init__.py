"""regard beside its peers: `python -m benchmarks` measures, `python -m benchmarks --list` says what.

cases.py holds every row, contests.py who runs in it; measure.py times, memory.py weighs; growth.py and sweep.py look at
many sizes; report.py prints, and figures.py draws.
"""

import os

# Some virtual machines announce AMX but do not let a process use it. oneDNN reads this once, when torch is imported.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")
