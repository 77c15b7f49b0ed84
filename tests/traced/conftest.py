"""What the tests of traced calls share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(autouse=True)
def fresh_compiler() -> Iterator[None]:
    """The same numbers are drawn in each test, and nothing that another compiled is remembered."""
    torch.manual_seed(0)
    yield
    torch._dynamo.reset()
