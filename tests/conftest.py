"""What every test run needs before torch is imported."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

# Some virtual machines announce AMX but do not let a process use it, and oneDNN's bfloat16 products die there.
# oneDNN reads this once, when torch is imported. The Makefile sets the same for everything that it runs.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")

# Threads that sleep where they wait for each other, instead of spinning: tests share the cores.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

# Kernels for GPUs are run by Triton's interpreter where there is none. Triton reads this when it is imported.
if not Path("/dev/nvidiactl").exists():
    os.environ.setdefault("TRITON_INTERPRET", "1")

import hypothesis
import pytest
import torch

# The same examples in every run, so that a red run means a change. `pytest --hypothesis-profile=explore` finds more.
hypothesis.settings.register_profile("repeatable", deadline=None, print_blob=True, derandomize=True)
hypothesis.settings.register_profile("explore", deadline=None, print_blob=True)
hypothesis.settings.load_profile("repeatable")

if "PYTEST_XDIST_WORKER" in os.environ:
    # Workers share the cores already: threads within each would only queue for them.
    torch.set_num_threads(1)


@pytest.fixture(autouse=True, scope="session")
def absent_devices_are_not_seeded() -> Iterator[None]:
    """`torch.manual_seed` keeps a call and its traceback for every device that may come yet: a millisecond, each time.

    None will come here: a device that is absent when the tests start stays absent.
    """
    with pytest.MonkeyPatch.context() as patch:
        for devices in (torch.cuda, torch.mtia, torch.xpu):
            if hasattr(devices, "manual_seed_all") and not devices.is_available():  # an older torch has fewer
                patch.setattr(devices, "manual_seed_all", lambda seed: None)
        yield


@pytest.fixture(autouse=True, scope="session")
def kernels_are_waited_for() -> Iterator[None]:
    """Kernels that are not compiled are compiled at once, so that the same call runs the same way in every run."""
    from regard.engines.cpu import unusable

    if unusable() is not None:
        yield
        return
    from regard.engines.cpu.runtime import background_compilation

    def compile_now(names: Collection[str]) -> bool:
        for name in names:
            background_compilation.kernels()[name].prepare()
        return True

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(background_compilation, "request", compile_now)
        yield


@pytest.fixture(autouse=True)
def plans_are_made_anew() -> None:
    """What a test changes of engines and their costs is what its calls are planned by."""
    from regard import planner

    planner._CHOSEN.clear()
    planner._CHOSEN_BY_MASK.clear()


@pytest.fixture(params=["kept", "computed again"])
def few_weights(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Few weights are kept by a view, as they are; or computed again, in several tiles and strips, as many are."""
    if request.param == "computed again":
        from regard.engines import ENGINES, block_sizes
        from regard.view import few_weights

        monkeypatch.setattr(few_weights, "FEW_WEIGHTS", -1)
        monkeypatch.setattr(block_sizes, "CPU", replace(block_sizes.CPU, strip=100))
        for engine in ENGINES.values():
            monkeypatch.setattr(engine, "tile_elements", 100)
    return str(request.param)


CHROMIUM = Path("/usr/bin/chromium")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A real browser, for pages."""
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if not CHROMIUM.exists():
        # Continuous integration must not skip what it is there for.
        give_up = pytest.fail if os.environ.get("REGARD_BROWSER") == "required" else pytest.skip
        give_up(f"there is no {CHROMIUM} (Debian's package chromium)")
    with api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=str(CHROMIUM), args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture(scope="session")
def barriers() -> Callable[[Any], list[str]]:
    """What axe-core finds on a page that keeps a reader from it, seriously or altogether; a line for each place."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe-playwright-python is not installed")

    def found(tab: Any) -> list[str]:
        response = axe.Axe().run(tab).response
        assert response["passes"] or response["violations"], "axe-core looked at nothing"
        return [
            f"{each['id']} ({each['impact']}): {node['html'][:160]}"
            for each in response["violations"]
            if each["impact"] in ("serious", "critical")
            for node in each["nodes"]
        ]

    return found
