"""The table of mutants is whole: each text is found once, each replacement is another, each named test is there."""

import ast
from collections import Counter
from pathlib import Path

import pytest

from mutants.coverage_map import ROOT, Map
from mutants.promises import PROMISES


def test_there_are_enough_mutants_and_no_two_of_a_name():
    counts = Counter(mutant.promise for mutant in PROMISES)
    assert len(counts) >= 60
    assert counts.most_common(1)[0][1] == 1


@pytest.mark.parametrize("mutant", PROMISES, ids=lambda mutant: mutant.promise)
def test_every_text_is_found_once_and_its_replacement_is_python(mutant):
    assert mutant.count() == 1, f"{mutant.find!r} is in {mutant.file} {mutant.count()} times, not once"
    text = (ROOT / mutant.file).read_text(encoding="utf-8")
    changed = text.replace(mutant.find, mutant.replace)
    assert changed != text
    if mutant.file.endswith(".py"):  # the page has modules in JavaScript
        ast.parse(changed)


def test_every_named_test_is_a_file_or_folder():
    paths = {path for mutant in PROMISES for each in mutant.tests for path in each.split(" -k ")[0].split()}
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_tests_with_a_name_like_the_file_come_first_and_then_the_quickest():
    reached = Map(
        {"regard/partials.py": {3: ["tests/b.py::slow", "tests/a.py::quick"], 4: ["tests/test_partials.py::own"]}}
    )
    reached.seconds.update({"tests/b.py::slow": 9.0, "tests/a.py::quick": 0.1, "tests/test_partials.py::own": 5.0})
    order = reached.reaching("regard/partials.py", range(3, 5))
    assert order == ["tests/test_partials.py::own", "tests/a.py::quick", "tests/b.py::slow"]
    assert reached.reaching(Path("regard/other.py").as_posix(), range(3, 5)) == []
