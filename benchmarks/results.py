"""Where figures are kept: `benchmarks/results/NAME.json`, with the machine that they were measured on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from regard.cli.doctor import examine

FOLDER = Path(__file__).parent / "results"


def machine() -> dict[str, Any]:
    """The machine and the versions that figures belong to."""
    report = examine()
    return {part: report[part] for part in ("versions", "machine")}


def write(name: str, figures: dict[str, Any]) -> None:
    """Keep figures under a name."""
    FOLDER.mkdir(exist_ok=True)
    text = json.dumps({"machine": machine(), **figures}, indent=2, ensure_ascii=False)
    (FOLDER / f"{name}.json").write_text(text + "\n", encoding="utf-8")


def read(name: str) -> dict[str, Any]:
    """The figures that were kept under a name; none if there are none."""
    path = FOLDER / f"{name}.json"
    if not path.exists():
        return {}
    figures: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return figures
