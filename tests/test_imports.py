"""Imports point one way, and importing regard is cheap."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import regard

ROOT = Path(regard.__file__).parent

# From the bottom up. A module imports from its own unit and from layers below it.
LAYERS = [
    ["errors", "modes", "printable", "wording"],
    ["learned", "tensors"],
    ["grid"],
    ["masks", "scores", "weights"],
    ["validation"],
    ["problem"],
    ["engines"],
    ["planner"],
    ["traced"],
    ["partials", "progress", "view"],
    ["attention"],
    ["database", "distributed", "nn"],
    ["__init__"],  # the public names, imported on use
    ["analysis", "estimators", "plots", "testing", "text"],
    ["integrations"],  # models with tokenizers, whose texts are seen as those of regard.text
    ["web"],
    ["cli"],
    ["__main__"],
]
LAYER_OF = {unit: height for height, units in enumerate(LAYERS) for unit in units}

# Parts of one thing, split over files.
TOGETHER = [{"progress", "view"}]

MODULES = sorted(ROOT.rglob("*.py"))


def unit_of(path: Path) -> str:
    """The folder or file below regard/ that a module belongs to."""
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)


def imports_in(node: ast.AST) -> Iterator[ast.Import | ast.ImportFrom]:
    """Every import that runs, wherever it stands; not those for type checkers alone."""
    for child in ast.iter_child_nodes(node):
        if is_type_checking(child):
            continue
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield child
        yield from imports_in(child)


def targets(statement: ast.Import | ast.ImportFrom) -> Iterator[str]:
    """The units of regard that a statement imports from."""
    if isinstance(statement, ast.Import):
        modules = [alias.name for alias in statement.names]
    else:
        assert statement.level == 0, "relative import"
        modules = [statement.module or ""]
        if statement.module == "regard":
            # from regard import name: the module of that name, or the home of the name.
            modules = [
                f"regard.{regard._HOMES.get(alias.name, alias.name)}"
                for alias in statement.names
                if alias.name != "__version__"
            ]
    for module in modules:
        if module.split(".")[0] == "regard":
            yield [*module.split("."), "__init__"][1]


def test_the_walk_sees_imports_inside_functions_and_skips_those_for_type_checkers():
    source = """
import regard.view.weights_view
if TYPE_CHECKING:
    from regard.cli import main
def function():
    from regard import attend, errors
    import torch
"""
    found = [unit for statement in imports_in(ast.parse(source)) for unit in targets(statement)]
    assert found == ["view", "attention", "errors"]


def test_every_module_has_a_place_in_the_layers():
    assert {unit_of(path) for path in MODULES} <= set(LAYER_OF)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_down(path):
    unit = unit_of(path)
    for statement in imports_in(ast.parse(path.read_text())):
        for target in targets(statement):
            together = any({unit, target} <= group for group in TOGETHER)
            assert target == unit or together or LAYER_OF[target] < LAYER_OF[unit], (
                f"regard/{path.relative_to(ROOT)}:{statement.lineno} imports regard.{target}, which is not below {unit}"
            )


def run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


OPTIONAL = {
    "accelerate",
    "anywidget",
    "hypothesis",
    "matplotlib",
    "numba",
    "pandas",
    "peft",
    "polars",
    "pyarrow",
    "pytest",
    "rich",
    "safetensors",
    "tokenizers",
    "transformers",
    "sklearn",
    "starlette",
    "triton",
    "typer",
    "uvicorn",
}


def test_importing_regard_and_using_every_name_imports_no_optional_dependency():
    code = f"""
import sys, regard
for name in regard.__all__:
    getattr(regard, name)
print(sorted(set(sys.modules) & {OPTIONAL}))
"""
    assert run(code) == "[]"


def test_attending_imports_no_optional_dependency():
    code = f"""
import sys, torch, regard
x = torch.rand(4, 3)
for engine in (None, *regard.ENGINES):
    regard.attend(x, x, x, engine=engine)
view = regard.weigh(x, x, x)
repr(view), view._repr_html_(), view._repr_mimebundle_(), str(regard.plan(x, x, x))
print(sorted(set(sys.modules) & {OPTIONAL}))
"""
    assert run(code) == "[]"


def test_importing_regard_alone_does_not_import_torch():
    assert run("import sys, regard; print('torch' in sys.modules, regard.__version__)") == f"False {regard.__version__}"
