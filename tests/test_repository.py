"""Claims about the repository itself: what it pins, and what it does not leak."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def normalized(name: str) -> str:
    """A package's name as the index spells it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def name_of(requirement: str) -> str:
    return normalized(re.split(r"[\[<>=!~; ]", requirement, maxsplit=1)[0])


def constraints() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pairs = (line.split("==") for line in lines if line and not line.startswith("#"))
    return {normalized(name): version for name, version in pairs}


def tracked_files() -> list[Path]:
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listing.returncode:
        pytest.skip("not a git checkout")
    return [path for name in listing.stdout.split("\0") if name and (path := ROOT / name).is_file()]


def test_constraints_pin_every_package_that_pyproject_names() -> None:
    groups = [
        PROJECT["build-system"]["requires"],
        PROJECT["project"]["dependencies"],
        *PROJECT["project"]["optional-dependencies"].values(),
    ]
    named = {name_of(requirement) for group in groups for requirement in group} - {"regard"}
    assert named - constraints().keys() == set()


def test_constraints_name_no_local_version_and_no_place() -> None:
    for version in constraints().values():
        assert re.fullmatch(r"[0-9][0-9a-z.]*", version), version


def test_what_is_installed_is_what_the_constraints_pin() -> None:
    import sysconfig
    from importlib.metadata import distributions

    # In the environment itself: setuptools, once imported, puts copies of its own on the path.
    here = distributions(path=[sysconfig.get_path("purelib")])
    installed = {normalized(each.metadata["Name"]): each.version.partition("+")[0] for each in here}
    # pip comes with the virtual environment. A torch for accelerators brings their libraries, at versions that it pins.
    ours = {name for name in installed if not re.match(r"(pip|regard)$|(nvidia|cuda|triton|pytorch-triton)\b", name)}
    assert {name: installed[name] for name in ours} == {name: constraints().get(name) for name in ours}


def test_the_source_distribution_holds_what_is_tracked() -> None:
    included = PROJECT["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]
    assert included == sorted({f"/{path.relative_to(ROOT).parts[0]}" for path in tracked_files()})


def test_tests_run_on_as_many_cores_as_there_are() -> None:
    makefile = (ROOT / "Makefile").read_text()
    assert "WORKERS ?= auto\n" in makefile
    assert makefile.count("pytest -n $(WORKERS)\n") == 2


def test_pre_commit_runs_the_installed_tools_so_that_versions_are_the_constraints() -> None:
    repos = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    hooks = [hook for repo in repos for hook in repo["hooks"]]
    assert {repo["repo"] for repo in repos} == {"local"}
    assert {hook["language"] for hook in hooks} == {"system"}
    tools = {shlex.split(hook["entry"])[0] for hook in hooks}
    assert tools == {".venv/bin/ruff", ".venv/bin/mypy"}
    assert {Path(tool).name for tool in tools} <= constraints().keys()


def test_continuous_integration_finds_a_browser_and_runs_make_test() -> None:
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    commands = [line for line in script.read_text().splitlines() if line and not line.startswith("#")]
    assert commands[0] == "set -euo pipefail"
    assert commands[-1] == "make test"
    assert [line for line in commands if line.startswith("export")] == ["export REGARD_BROWSER=required"]


def test_no_tracked_file_names_a_path_of_a_machine() -> None:
    # Written in two parts, so that this file does not name one either.
    places = "|".join(("wo" + "rk", "ro" + "ot", "op" + "t", "home", "Users"))
    pattern = re.compile(rf"(?<![.\w$}}\"'(\])-])/(?:{places})/\w")
    found = []
    for path in tracked_files():
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        found += [f"{path.relative_to(ROOT)}: {line}" for line in text.splitlines() if pattern.search(line)]
    assert found == []


def test_no_tracked_file_names_a_package_index() -> None:
    pattern = re.compile("(extra-)?index" + r"-url|find" + r"-links|--trusted" + "-host", re.IGNORECASE)
    texts = {path: path.read_text(encoding="utf-8", errors="replace") for path in tracked_files()}
    assert [path.name for path, text in texts.items() if pattern.search(text) and path != Path(__file__)] == []


def test_files_that_prose_names_are_there() -> None:
    tracked = tracked_files()
    names = {path.name for path in tracked}
    for path in tracked:
        if path.suffix not in (".py", ".md") or "tests" in path.parts:
            continue
        for mention in re.findall(r"`(?:[\w./-]*/)?([\w-]+\.py)`", path.read_text()):
            assert mention in names, f"{path.relative_to(ROOT)} names {mention}"


def test_functions_that_prose_points_at_are_there() -> None:
    modules = {
        path.stem: path.read_text() for path in tracked_files() if path.suffix == ".py" and "tests" not in path.parts
    }
    for name, text in modules.items():
        for module, function in re.findall(r"see `([a-z_]+)\.(?!py`)(\w+)`", text):
            assert re.search(rf"^(?:def|class) {function}\b|^{function} = ", modules.get(module, ""), re.M), (
                f"{name} points at {module}.{function}"
            )
