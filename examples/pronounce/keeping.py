"""What a model says, how well, and the files that are kept of it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
from dictionary import Pronunciations
from safetensors.torch import save_file
from scoring import Errors, count_errors

from regard.nn import Seq2Seq, Seq2SeqTransformer, Writer, Written, generate
from regard.text.packing import pack, unpack
from regard.text.spelling import START, STOP, letter_tokens, padded, phoneme_names

LONGEST = 40  # phonemes that are written at most; the dictionary's longest word has 32


def say(
    model: Writer, words: Iterable[str], device: str, beams: int = 1, size: int = 512
) -> Iterator[tuple[str, Written]]:
    """What a model writes of each word, short words first: in batches of one length each or nearly."""
    ordered = sorted(words, key=len)
    for begin in range(0, len(ordered), size):
        some = ordered[begin : begin + size]
        letters, padding = padded([letter_tokens(word) for word in some])
        written = generate(
            model,
            letters.to(device),
            start=START,
            stop=STOP,
            max_length=LONGEST,
            method="beam" if beams > 1 else "greedy",
            beams=beams,
            source_padding=padding.to(device),
        )
        yield from zip(some, written, strict=True)


def judge(model: Seq2Seq | Seq2SeqTransformer, words: Pronunciations, device: str, beams: int = 1) -> Errors:
    """The error rates of what a model says."""
    said = list(say(model.eval(), words, device, beams))
    return count_errors([phoneme_names(each.tokens) for _, each in said], [words[word] for word, _ in said])


def rates(errors: Errors) -> dict[str, float]:
    """Error rates under the names that they have in records."""
    return {"word error": errors.words, "phoneme error": errors.phonemes}


def keep(
    model: Seq2Seq | Seq2SeqTransformer,
    kind: str,
    settings: dict[str, Any],
    record: dict[str, Any],
    *,
    out: Path,
    test: Pronunciations,
    device: str,
    beams: int,
) -> None:
    """Write `KIND.safetensors`, a byte a weight, and `KIND.json`: the record, and the error rates on the test."""
    packed = pack(model.state_dict())
    model.load_state_dict(unpack(packed))  # what is kept is judged, not what was trained
    greedy, beam = (judge(model, test, device, each) for each in (1, beams))
    out.mkdir(parents=True, exist_ok=True)
    described = {"model": kind, "settings": settings}
    metadata = {"format": "regard pronouncer", **{key: json.dumps(value) for key, value in described.items()}}
    save_file(packed, out / f"{kind}.safetensors", metadata)
    whole = {
        **described,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "torch": torch.__version__,
        "device": torch.cuda.get_device_name() if device.startswith("cuda") else "CPU",
        "test": {"greedy": rates(greedy), f"beam {beams}": rates(beam)},
        **record,
    }
    (out / f"{kind}.json").write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")
    print(f"{kind}: greedy {greedy}; beam {beam}", flush=True)
