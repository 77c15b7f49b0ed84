"""The dictionary and the scores of `examples/pronounce`, on files and words small enough to check by hand."""

from __future__ import annotations

import importlib.util
import random
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent.parent.parent / "examples" / "pronounce"


def example(name):
    spec = importlib.util.spec_from_file_location(f"pronounce_{name}", FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, spec.name, module)  # dataclasses look their module up
        spec.loader.exec_module(module)
    return module


def test_lines_are_read_without_stress_comments_variants_twice_and_what_is_no_word(tmp_path):
    lines = [
        ";;; a comment",
        "# another",
        "",
        "to T UW1 # as it stands",
        "to(2) T AH0",
        "to(3) T UW0",
        "'em AH0 M",
        "a.m. EY2 EH1 M",
        "3d TH R IY1 D IY0",
        "' AH0",
        "silent",
    ]
    path = tmp_path / "small.dict"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    found = example("dictionary").read_dictionary(path)
    assert found == {"to": [("T", "UW"), ("T", "AH")], "'em": [("AH", "M")]}


def test_the_edit_distance_is_that_of_its_definition():
    distance = example("scoring").edit_distance

    def defined(left, right):
        if not left or not right:
            return len(left) + len(right)
        last = defined(left[:-1], right[:-1]) + (left[-1] != right[-1])
        return min(last, defined(left[:-1], right) + 1, defined(left, right[:-1]) + 1)

    draw = random.Random(0)
    for _ in range(60):
        left, right = (draw.choices("abc", k=draw.randrange(6)) for _ in range(2))
        assert distance(left, right) == defined(left, right)


def test_a_word_is_scored_against_the_pronunciation_that_it_is_nearest_to():
    count = example("scoring").count_errors
    ways = [[("T", "UW"), ("T", "AH", "M")]]
    assert count([["T", "AH"]], ways).phonemes == 1 / 3  # both are one edit away: the longer counts
    assert count([["T"]], ways).phonemes == 1 / 2
    assert count([], []).words == 0
