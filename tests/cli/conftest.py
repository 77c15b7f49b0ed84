"""What tests of the command share."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

TABLE = """\
name,gpa,major,salary,joined
John Doe,3.5,psychology,70000,2020-01-01
Jane Roe,3.4,physics,69000,2020-02-01
Ann Poe,3.6,physics,72500,2021-02-01
Bob Loe,3.0,law,61000,2021-06-01
Cy Coe,4.0,law,80000,2021-07-01
Di Moe,,law,80000,2021-06-01
Ed Noe,3.2,law,66000,
"""


@pytest.fixture
def grades(tmp_path: Path) -> str:
    path = tmp_path / "grades.csv"
    path.write_text(TABLE)
    return str(path)


@pytest.fixture(scope="module")
def measured_once() -> Iterator[None]:
    """Let every run of `regard tour` share one measurement of each stop and chapter: some take seconds."""
    from regard.cli.tour import stops
    from regard.cli.tour.page import assembly

    def once(part: Any) -> Any:
        return dataclasses.replace(part, measure=functools.cache(part.measure))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stops, "STOPS", tuple(once(stop) for stop in stops.STOPS))
        patch.setattr(assembly, "CHAPTERS", tuple(once(chapter) for chapter in assembly.CHAPTERS))
        yield
