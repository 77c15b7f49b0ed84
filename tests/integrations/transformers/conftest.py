"""Models of transformers, small and quiet."""

import pytest

transformers = pytest.importorskip("transformers")


@pytest.fixture(autouse=True)
def quiet():
    """transformers says much by its logger that is no concern here."""
    before = transformers.logging.get_verbosity()
    transformers.logging.set_verbosity_error()
    yield
    transformers.logging.set_verbosity(before)
