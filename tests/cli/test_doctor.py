"""Claims about `regard doctor`."""

from __future__ import annotations

import json

import pytest
import torch
from typer.testing import CliRunner

from regard.cli import app, doctor
from regard.engines import ENGINES


def test_json_names_every_engine_and_says_why_one_cannot_run() -> None:
    result = CliRunner().invoke(app, ["doctor", "--json"])
    report = json.loads(result.stdout)
    assert report["engines"] == {name: engine.unavailable() for name, engine in ENGINES.items()}
    assert report["engines"]["reference"] is None


def test_json_has_the_versions() -> None:
    report = json.loads(CliRunner().invoke(app, ["doctor", "--json"]).stdout)
    assert report["versions"]["torch"] == torch.__version__
    assert set(report["versions"]) == {"regard", "python", "torch"}
    assert report["machine"]["threads"] == torch.get_num_threads()


def test_the_report_reads_like_the_json() -> None:
    text = CliRunner().invoke(app, ["doctor"]).stdout
    for name in (*ENGINES, "versions", "machine", "devices", "optional packages", "engines", torch.__version__):
        assert name in text
    assert "runs here" in text


def test_a_missing_package_comes_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_installed", lambda package: None)
    text = CliRunner().invoke(app, ["doctor"]).stdout
    assert 'not installed (pip install "regard[tables]")' in text
    assert "not installed (pip install polars)" in text


def test_an_engine_that_cannot_run_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(ENGINES["reference"]), "unavailable", lambda self: "the moon is full")
    assert "cannot run here: the moon is full" in CliRunner().invoke(app, ["doctor"]).stdout


def test_missing_kernels_come_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("regard.engines.cpu.unusable", lambda: "Numba is on holiday: pip install regard[fast]")
    text = " ".join(CliRunner().invoke(app, ["doctor"]).stdout.split())
    assert "none, plain torch instead: Numba is on holiday: pip install regard[fast]" in text
    report = json.loads(CliRunner().invoke(app, ["doctor", "--json"]).stdout)
    assert report["kernels"] == "Numba is on holiday: pip install regard[fast]"


def test_packages_for_models_are_listed() -> None:
    optional = json.loads(CliRunner().invoke(app, ["doctor", "--json"]).stdout)["optional"]
    assert {"transformers", "peft"} <= optional.keys()
