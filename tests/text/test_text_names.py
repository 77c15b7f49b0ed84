"""The package of texts: its names, what importing it costs, its data in a wheel, and the script that made its words."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import regard.text
from regard.plots.page import TEMPLATE
from regard.text import WordVectors
from regard.text.pronouncer import MODEL
from regard.text.vectors import SHIPPED

ROOT = Path(__file__).parent.parent.parent
SCRIPT = ROOT / "examples" / "words" / "make_subset.py"


def test_public_names_are_sorted_and_there():
    assert regard.text.__all__ == sorted(regard.text.__all__)
    assert all(hasattr(regard.text, name) for name in regard.text.__all__)


def test_importing_it_imports_no_optional_dependency():
    optional = {"matplotlib", "numba", "safetensors", "tokenizers", "transformers"}
    code = f"import sys, regard.text; print(sorted(set(sys.modules) & {optional}))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_the_wheel_takes_the_data_the_page_and_the_model():
    # The build takes all of the folder but what .gitignore names, tracked or not.
    built = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]
    assert built["targets"]["wheel"] == {"packages": ["regard"]}
    assert built.keys() == {"targets"}
    needed = [SHIPPED, *SHIPPED.parent.glob("LICENSE.*"), TEMPLATE]
    assert len(needed) == 4
    assert all(path.is_file() and path.is_relative_to(ROOT / "regard") for path in needed)
    own = ["-c", "core.excludesFile="]  # not what a user ignores everywhere
    ignored = ["git", *own, "check-ignore", "--no-index", *map(str, [*needed, MODEL])]
    found = subprocess.run(ignored, cwd=ROOT, capture_output=True, text=True, check=False)
    if found.returncode == 128:
        pytest.skip("not a git checkout")
    assert (found.stdout, found.returncode) == ("", 1)


@pytest.fixture
def script():
    spec = importlib.util.spec_from_file_location("make_subset", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_script_chooses_frequent_words_in_letters_and_those_of_the_examples(script):
    chosen = script.chosen_words(
        ["the", ",", "u.s.", *(f"x{'abc'[place % 3] * place}" for place in range(5000)), "wagged"]
    )
    assert len(chosen) == 4001
    assert chosen[0] == "the"
    assert chosen[-1] == "wagged"


def test_what_is_shipped_is_what_the_script_would_choose(script):
    words = WordVectors.load().words
    assert script.chosen_words(words) == words
    assert set(re.findall("[a-z]{2,}", script.SENTENCES.lower())) <= set(words)


def test_the_script_refuses_another_file(script, tmp_path, monkeypatch, capsys):
    (tmp_path / "other.json").write_text("{}")
    monkeypatch.setattr(sys, "argv", ["make_subset.py", str(tmp_path / "other.json")])
    with pytest.raises(SystemExit):
        script.main()
    assert "other.json is not the file of version 1.1.0" in capsys.readouterr().err
