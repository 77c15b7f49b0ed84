"""The bytes that a plan names are those that a call takes."""

import json
import sys

import pytest

CODE = """
import json, torch
import regard
from regard import attend, plan
from regard.engines import Tiled

torch.set_num_threads(1)

def peak():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM"))

CASES = {
    "half precision": ((8, 64, 64), (8, 8192, 64), torch.bfloat16, {}),
    "many rows": ((64, 8192, 16), (64, 128, 16), torch.float32, {}),
    "additive": ((256, 128, 64), (256, 256, 64), torch.float32, {"score": regard.Additive(64, 64, 64)}),
}
found = {}
with torch.no_grad():
    for name, (queries, keys, dtype, options) in CASES.items():
        options["weights"] = regard.Sigmoid()
        for kernels in (True, False):
            engine = Tiled(kernels=kernels)
            small = [torch.randn(*shape[:-2], 64, shape[-1]).to(dtype) for shape in (queries, keys, keys)]
            attend(*small, engine=engine, **options)
            q, k, v = (torch.randn(*shape).to(dtype) for shape in (queries, keys, keys))
            with open("/proc/self/clear_refs", "w") as marks:
                marks.write("5")
            before = peak()
            output = attend(q, k, v, engine=engine, **options)
            taken = peak() - before - output.nbytes
            said = plan(q, k, v, engine=engine, **options).bytes
            found[f"{name}, {'kernels' if kernels else 'plain'}"] = said / taken
            del output, q, k, v
print(json.dumps(found))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads and resets marks in /proc")
def test_the_bytes_of_a_plan_are_within_a_quarter_of_what_is_measured(child):
    pytest.importorskip("numba")
    # What is freed goes back to the system at once: then the high-water mark is what was held.
    exact = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536", "OMP_WAIT_POLICY": "PASSIVE"}
    ratios = json.loads(child(CODE, seconds=600, **exact))
    assert len(ratios) == 6
    assert not {name: ratio for name, ratio in ratios.items() if not 0.75 < ratio < 1.25}
