"""The real encoder, loaded once."""

from __future__ import annotations

from pathlib import Path

import pytest

from regard.text import SentenceEncoder
from regard.text.sentence import installed_folder


@pytest.fixture(scope="session")
def folder() -> Path:
    """Where the encoder's files are."""
    return installed_folder()


@pytest.fixture(scope="session")
def encoder() -> SentenceEncoder:
    return SentenceEncoder.load()
