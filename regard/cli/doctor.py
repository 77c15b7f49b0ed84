"""`regard doctor`: what matters in a bug report."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from typing import Annotated, Any

import typer

from regard.cli.console import HEADING, out, print_json
from regard.view.drawing import NOTICE_COLOUR

EXAMPLES = """\
[bold]Examples[/bold]
  regard doctor
  regard doctor --json > report.json
"""

# Optional package -> the extra that brings it; None where only a user's own code would ask for it.
OPTIONAL = {
    "numba": "fast",
    "numpy": "tables",
    "pyarrow": "tables",
    "matplotlib": "plots",
    "safetensors": "text",
    "tokenizers": "text",
    "transformers": "transformers",
    "peft": None,
    "pandas": None,
    "polars": None,
}


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Report what is installed, and which engines can run here."""
    report = examine()
    if as_json:
        print_json(report)
    else:
        _print_report(report)


def examine() -> dict[str, Any]:
    """Return versions, devices, optional packages, and each engine with the reason why it cannot run here (or None).

    Likewise for the compiled kernels, without which `tiled` runs in plain torch, and how many of them are compiled.
    """
    import torch

    import regard
    from regard.engines import ENGINES
    from regard.engines.cpu import unusable

    return {
        "versions": {
            "regard": regard.__version__,
            "python": platform.python_version(),
            "torch": torch.__version__,
        },
        "machine": {
            "system": platform.platform(),
            "processor": _processor(),
            "cores": os.cpu_count(),
            "threads": torch.get_num_threads(),
            "vector instructions": torch.backends.cpu.get_cpu_capability(),
        },
        "devices": _devices(),
        "optional": {package: _installed(package) for package in OPTIONAL},
        "engines": {name: engine.unavailable() for name, engine in ENGINES.items()},
        "kernels": unusable(),
        "machine code": _kernel_cache() if unusable() is None else None,
    }


def _kernel_cache() -> dict[str, Any]:
    """How many kernels are compiled for this processor, of how many, and where."""
    from regard.engines.cpu.runtime import background_compilation, kernel_cache

    kernels, missing = background_compilation.kernels(), background_compilation.missing_kernels()
    return {"compiled": len(kernels) - len(missing), "of": len(kernels), "folder": str(kernel_cache.folders()[-1])}


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            names = [line.partition(":")[2].strip() for line in file if line.startswith("model name")]
    except OSError:
        names = []
    return names[0] if names else platform.processor() or platform.machine()


def _devices() -> dict[str, str]:
    import torch

    devices = {"cpu": "yes"}
    if torch.cuda.is_available():
        for index in range(torch.cuda.device_count()):
            properties = torch.cuda.get_device_properties(index)
            devices[f"cuda:{index}"] = f"{properties.name}, {properties.total_memory / 2**30:.0f} GiB"
    else:
        devices["cuda"] = "no: " + (
            "no device found" if torch.version.cuda or torch.version.hip else "this torch is built without it"
        )
    if torch.backends.mps.is_available():
        devices["mps"] = "yes"
    else:
        devices["mps"] = "no: " + (
            "no device found" if torch.backends.mps.is_built() else "this torch is built without it"
        )
    return devices


def _installed(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _print_report(report: dict[str, Any]) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold")
    table.add_column(overflow="fold")

    def section(title: str, rows: dict[str, Text | str]) -> None:
        table.add_row(Text(title, style=HEADING), "")
        for name, value in rows.items():
            # Text, so that the brackets of "regard[tables]" are not read as markup.
            table.add_row(Text(f"  {name}"), value if isinstance(value, Text) else Text(value))

    section("versions", report["versions"])
    section("machine", {name: str(value) for name, value in report["machine"].items()})
    section("devices", report["devices"])
    section("optional packages", {name: version or _advice(name) for name, version in report["optional"].items()})
    section("engines", {name: _verdict(reason) for name, reason in report["engines"].items()})
    section("compiled kernels", {"cpu": _kernels(report["kernels"], report["machine code"])})
    out.print(table)


def _advice(package: str) -> str:
    extra = OPTIONAL[package]
    return f'not installed (pip install "regard[{extra}]")' if extra else f"not installed (pip install {package})"


def _kernels(unusable: str | None, code: dict[str, Any] | None) -> Any:
    from rich.text import Text

    if unusable is not None or code is None:
        return Text(f"none, plain torch instead: {unusable}", style=NOTICE_COLOUR)
    there = f"{code['compiled']} of {code['of']} are compiled, in {code['folder']}"
    if code["compiled"] < code["of"]:
        return Text(f"{there}; regard warm-up compiles the others", style=NOTICE_COLOUR)
    return f"runs here: {there}"


def _verdict(reason: str | None) -> Any:
    from rich.text import Text

    return "runs here" if reason is None else Text(f"cannot run here: {reason}", style=NOTICE_COLOUR)
