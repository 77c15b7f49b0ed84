"""The order of the contract, in which what is compared with the same definition runs together; and how much of it runs.

`make test` takes two masks for each score and rule, so that every pair of score, rule, mask, dtype and engine appears;
`make contract` takes all of them.
"""

import os
from pathlib import Path

import pytest

from regard.testing import MASKS, RULES, SCORES


def pytest_collection_modifyitems(items):
    """Bring the tests of one score and rule, or of one variant and mask, together: their definitions are computed once.

    Of the definitions, the last few thousand are remembered, in each process for itself. Engine by engine, every one
    would be forgotten before the next engine asks for it.
    """
    folder = Path(__file__).parent
    places = [place for place, item in enumerate(items) if item.path.parent == folder]
    ordered = sorted((items[place] for place in places), key=_definitions)  # a stable sort: else as written
    for place, item in zip(places, ordered, strict=True):
        items[place] = item


def _definitions(item):
    names = item.callspec.params if hasattr(item, "callspec") else {}
    return item.path.name, *(names.get(name, "") for name in ("variant", "mask", "score", "rule"))


EVERY = 1 if os.environ.get("REGARD_CONTRACT") == "full" else 9


@pytest.fixture
def masks_for():
    """Every ninth mask, from another one on for each score and rule: every score and every rule meets every mask."""

    def choose(score, rule, every=9):
        assert every <= min(len(SCORES), len(RULES))
        return list(MASKS)[(list(SCORES).index(score) + list(RULES).index(rule)) % every :: every]

    return choose


@pytest.fixture
def masks(score, rule, masks_for):
    """The masks that a score and a rule are tested with."""
    return masks_for(score, rule, EVERY)
