"""That transformers is there, and new enough."""

from __future__ import annotations

import importlib.metadata
import re

from regard.errors import MissingDependency

OLDEST = (5, 0)  # where masks came to be made by a function that may return any object, for every model
TESTED = ("5.0", "5.10", "5.22", "5.23")


def check_transformers() -> None:
    """Raise unless a transformers is installed that calls attention and masks as this package takes them."""
    wanted = ".".join(map(str, OLDEST))
    try:
        version = importlib.metadata.version("transformers")
    except importlib.metadata.PackageNotFoundError:
        raise MissingDependency(
            f"regard.integrations.transformers must have transformers {wanted} or newer: there is none. "
            f'Install it with pip install "regard[transformers]".'
        ) from None
    if tuple(map(int, re.findall(r"\d+", version)[:2])) < OLDEST:
        raise MissingDependency(
            f"regard.integrations.transformers must have transformers {wanted} or newer: got {version}. "
            f"Install one with pip install --upgrade transformers; it is tested with {', '.join(TESTED)}."
        )
