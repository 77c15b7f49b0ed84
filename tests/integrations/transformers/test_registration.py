"""What importing the integration does, and what it says where it cannot."""

import importlib.metadata

import pytest
import transformers

import regard.integrations.transformers  # noqa: F401
from regard.errors import MissingDependency
from regard.integrations.transformers.attention import attention_forward
from regard.integrations.transformers.hosted_layers import HOST
from regard.integrations.transformers.model_mask import make_mask
from regard.integrations.transformers.registration import register
from regard.integrations.transformers.requirement import TESTED, check_transformers
from regard.nn.hosts import HOSTS


def test_the_name_is_known_to_transformers_and_the_layers_to_regard():
    for _ in range(2):  # a second time changes nothing
        assert transformers.AttentionInterface()["regard"] is attention_forward
        assert transformers.AttentionMaskInterface()["regard"] is make_mask
        assert HOSTS.count(HOST) == 1
        register()


def test_this_version_is_among_those_that_were_tested():
    assert transformers.__version__.rpartition(".")[0] in TESTED


@pytest.mark.parametrize("version", ["4.57.1", "4.48.0"])
def test_a_version_that_is_too_old(version, monkeypatch):
    monkeypatch.setattr(importlib.metadata, "version", lambda name: version)
    with pytest.raises(MissingDependency, match=rf"must have transformers 5.0 or newer: got {version}. Install one"):
        check_transformers()


def test_none_at_all(monkeypatch):
    def absent(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", absent)
    with pytest.raises(MissingDependency, match=r'there is none. Install it with pip install "regard\[transformers\]"'):
        check_transformers()


def test_paged_attention_is_not_offered():
    assert "paged|regard" not in transformers.AttentionInterface()
