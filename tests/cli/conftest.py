"""What tests of the command share."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module")
def measured_once() -> Iterator[None]:
    """Let every run of `regard tour` share one measurement of each stop: some take seconds."""
    from regard.cli.tour import stops

    with pytest.MonkeyPatch.context() as patch:
        shared = tuple(dataclasses.replace(stop, measure=functools.cache(stop.measure)) for stop in stops.STOPS)
        patch.setattr(stops, "STOPS", shared)
        yield
