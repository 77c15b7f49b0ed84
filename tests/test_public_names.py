"""The public names: sorted, complete, importable, and the same for type checkers."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import types
from pathlib import Path

import pytest

import regard

ROOT = Path(regard.__file__).parent
PACKAGES = sorted(
    name
    for _, name, is_package in pkgutil.walk_packages(regard.__path__, "regard.")
    if is_package and hasattr(importlib.import_module(name), "__all__")
)


def test_the_packages_with_public_names_are_found():
    assert {"regard.database", "regard.engines", "regard.masks", "regard.scores", "regard.weights"} <= set(PACKAGES)


def constants_first(name: str) -> tuple[int, str]:
    """CONSTANTS, then Classes, then functions: the order that linters sort __all__ by."""
    return (0 if name.isupper() else 1 if name[:1].isupper() else 2), name


@pytest.mark.parametrize("package", ["regard", "regard.analysis", *PACKAGES])
def test_all_is_sorted_and_names_nothing_twice(package):
    names = list(importlib.import_module(package).__all__)
    assert names in (sorted(names), sorted(names, key=constants_first))
    assert len(names) == len(set(names))


@pytest.mark.parametrize("package", ["regard", "regard.analysis", *PACKAGES])
def test_every_name_in_all_is_there(package):
    module = importlib.import_module(package)
    for name in module.__all__:
        assert getattr(module, name) is not None


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_thing_that_a_package_imports_is_in_all(package):
    module = importlib.import_module(package)
    public = {
        name
        for name, value in vars(module).items()
        if not name.startswith("_")
        and not isinstance(value, types.ModuleType)
        and getattr(value, "__module__", package).startswith("regard")
    }
    assert public <= set(module.__all__)


@pytest.mark.parametrize("package", PACKAGES)
def test_all_names_only_what_the_package_itself_holds(package):
    """A name that is re-exported comes from inside the package, so that each thing has one home."""
    module = importlib.import_module(package)
    for name in module.__all__:
        value = getattr(module, name)
        if inspect.isclass(value) or inspect.isfunction(value):
            assert value.__module__ == package or value.__module__.startswith(f"{package}.")


def test_type_checkers_are_told_the_same_names_from_the_same_homes():
    stub = ast.parse((ROOT / "__init__.pyi").read_text())
    told = {
        alias.asname or alias.name: node.module
        for node in stub.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert sorted(told) == sorted(regard.__all__)
    for name, home in told.items():
        assert getattr(importlib.import_module(home), name) is getattr(regard, name)


def test_every_mask_and_rule_and_engine_name_is_public():
    combined = {"And", "Cover", "Not", "Or"}
    assert set(regard.masks.__all__) - combined <= set(regard.__all__)
    rules = {
        name
        for name in regard.weights.__all__
        if inspect.isclass(each := getattr(regard.weights, name)) and issubclass(each, regard.Weights)
    }
    assert rules <= set(regard.__all__)


def test_every_score_that_is_made_by_name_is_public():
    # The others are made by operators: score + score, 2 * score, score + bias, score.on(columns).
    by_operator = {"OnColumns", "Scaled", "Sum", "WithBias"}
    scores = {
        name
        for name in regard.scores.__all__
        if inspect.isclass(each := getattr(regard.scores, name)) and issubclass(each, regard.Score)
    }
    assert scores - by_operator <= set(regard.__all__)


def test_dir_lists_every_public_name():
    assert set(regard.__all__) <= set(dir(regard))
    assert "__version__" in dir(regard)
    assert dir(regard) == sorted(set(dir(regard)))


def test_a_name_that_is_not_there_is_an_attribute_error():
    with pytest.raises(AttributeError, match=r"module 'regard' has no attribute 'flash_attention'"):
        getattr(regard, "flash_attention")  # noqa: B009


def test_every_public_class_and_function_has_a_docstring():
    for name in regard.__all__:
        value = getattr(regard, name)
        if inspect.isclass(value) or inspect.isfunction(value):
            assert inspect.getdoc(value), name
