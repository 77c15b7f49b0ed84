"""Claims about `regard warm-up`."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

pytest.importorskip("numba")

from regard.cli import app
from regard.engines.cpu.runtime import background_compilation


@pytest.fixture
def two_missing(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Two kernels that are not compiled until someone compiles them; returns in how many processes that was."""
    missing, asked = ["tile_gradients.turn", "tile_loops.pool_span"], []

    def compile_all(processes: int) -> list[str]:
        asked.append(processes)
        done = list(missing)
        missing.clear()
        return done

    monkeypatch.setattr(background_compilation, "missing_kernels", lambda: list(missing))
    monkeypatch.setattr(background_compilation, "compile_all", compile_all)
    return asked


def test_warm_up_compiles_what_is_missing_and_says_where_it_is(two_missing: list[int]) -> None:
    first = CliRunner().invoke(app, ["warm-up", "--processes", "3"])
    assert first.exit_code == 0
    assert first.stdout.startswith(f"compiled 2 of {len(background_compilation.kernels())} kernels in ")
    assert "regard-" in first.stdout
    second = CliRunner().invoke(app, ["warm-up"])
    assert second.stdout.startswith(f"all {len(background_compilation.kernels())} kernels are compiled, in ")
    assert two_missing == [3]


def test_warm_up_without_kernels_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("regard.engines.cpu.unusable", lambda: "Numba is on holiday")
    result = CliRunner().invoke(app, ["warm-up"])
    assert result.exit_code == 1
    assert "There are no kernels to compile here: Numba is on holiday" in result.stderr


def test_doctor_says_how_many_kernels_are_compiled(two_missing: list[int]) -> None:
    n_kernels = len(background_compilation.kernels())
    code = json.loads(CliRunner().invoke(app, ["doctor", "--json"]).stdout)["machine code"]
    assert (code["compiled"], code["of"]) == (n_kernels - 2, n_kernels)
    text = " ".join(CliRunner().invoke(app, ["doctor"]).stdout.split())
    assert f"{n_kernels - 2} of {n_kernels} are compiled" in text
    assert "regard warm-up compiles the others" in text


def test_processes_compile_what_is_not_on_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        background_compilation, "missing_kernels", lambda: ["channel_loops.pack_queries", "tile_gradients.turn"]
    )
    assert sorted(background_compilation.compile_all(2)) == ["channel_loops.pack_queries", "tile_gradients.turn"]
    monkeypatch.setattr(background_compilation, "missing_kernels", list)
    assert not list(background_compilation.compile_all(2))
