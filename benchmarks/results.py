"""Where figures are kept: `benchmarks/results/NAME.json`, with the machine that they were measured on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from regard.cli.doctor import examine

FOLDER = Path(__file__).parent / "results"


def write(name: str, figures: dict[str, Any]) -> None:
    """Keep figures under a name."""
    report = examine()
    machine = {part: report[part] for part in ("versions", "machine")}
    FOLDER.mkdir(exist_ok=True)
    path = FOLDER / f"{name}.json"
    path.write_text(json.dumps({"machine": machine, **figures}, indent=2) + "\n", encoding="utf-8")
