"""Small files of every kind that regard reads, whole."""

from __future__ import annotations

import csv
import gzip
import io
import json
import random
import struct
from functools import cache
from pathlib import Path
from typing import Any

TABLES = ("csv", "tsv", "csv.gz", "parquet", "feather", "arrow")


def rows_of(chooser: random.Random, n_rows: int) -> list[dict[str, Any]]:
    """A table: numbers, words, dates and a name for each row; some cells are missing."""
    rows = []
    for place in range(n_rows):
        rows.append(
            {
                "name": f"row{place}",
                "size": None if chooser.random() < 0.1 else round(chooser.gauss(3, 1), 3),
                "kind": chooser.choice(["red", "green", "blue, light", 'say "no"', "é"]),
                "day": f"2024-0{chooser.randint(1, 9)}-1{chooser.randint(0, 9)}",
                "price": None if chooser.random() < 0.1 else chooser.randint(1, 500),
            }
        )
    return rows


def table_bytes(kind: str, rows: list[dict[str, Any]]) -> bytes:
    """A table as a file of that kind."""
    if kind in ("csv", "tsv", "csv.gz"):
        text = io.StringIO()
        writer = csv.DictWriter(text, rows[0], delimiter="\t" if kind == "tsv" else ",", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        content = text.getvalue().encode()
        return gzip.compress(content) if kind == "csv.gz" else content
    import pyarrow
    import pyarrow.feather
    import pyarrow.parquet

    table, file = pyarrow.Table.from_pylist(rows), pyarrow.BufferOutputStream()
    if kind == "parquet":
        pyarrow.parquet.write_table(table, file)
    elif kind == "feather":
        pyarrow.feather.write_feather(table, file)
    else:
        with pyarrow.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table)
    return bytes(file.getvalue())


def repeated(kind: str, chooser: random.Random) -> bytes:
    """A small file with columns a and b that repeat one null, number, text or list, up to billions of times."""
    import pyarrow
    import pyarrow.parquet

    n_rows = chooser.choice((3, 1000, 20_000, 1_000_000) if kind == "parquet" else (3, 1000, 100_000, 2_000_000_000))
    one = pyarrow.array(
        [
            chooser.choice(
                (None, 1.5, "x" * chooser.choice((1, 1000, 100_000)), [1.0] * chooser.choice((2, 1000)), ["y"])
            )
        ]
    )
    if kind == "parquet" and n_rows > 1000 and one.nbytes > 100:
        n_rows = 1000
    places = pyarrow.array([0] * min(n_rows, 100_000), pyarrow.int32())
    ends = pyarrow.array([n_rows], pyarrow.int32())
    column = chooser.choice(
        [
            lambda: pyarrow.nulls(n_rows),
            lambda: pyarrow.RunEndEncodedArray.from_arrays(ends, one),
            lambda: pyarrow.DictionaryArray.from_arrays(places, one),
            lambda: pyarrow.ListViewArray.from_arrays(places, pyarrow.array([1] * len(places), pyarrow.int32()), one),
        ]
        if kind == "arrow"
        else [lambda: pyarrow.nulls(n_rows), lambda: one.take(places)]
    )()
    for _ in range(chooser.choice((0, 0, 1, 2))):
        if chooser.random() < 0.5:
            column = pyarrow.StructArray.from_arrays([column], ["x"])
        else:
            column = pyarrow.ListArray.from_arrays(pyarrow.array([0, len(column)], pyarrow.int32()), column)
    table = pyarrow.table(dict.fromkeys(chooser.choice((("a", "b"), ("b", "a"))), column))
    file = pyarrow.BufferOutputStream()
    if kind == "parquet":
        pyarrow.parquet.write_table(table, file, compression="zstd", dictionary_pagesize_limit=1 << 26)
    else:
        packed = pyarrow.ipc.IpcWriteOptions(compression=chooser.choice((None, "zstd", "lz4")))
        with pyarrow.ipc.new_file(file, table.schema, options=packed) as writer:
            writer.write_table(table)
    return bytes(file.getvalue())


def vector_bytes(kind: str, chooser: random.Random) -> bytes:
    """Word vectors as a file of that kind: glove, word2vec, binary; glove.gz."""
    n_words, dim = chooser.randint(1, 20), chooser.randint(1, 9)
    words = [f"w{place}" for place in range(n_words)]
    vectors = [[round(chooser.gauss(0, 1), 4) for _ in range(dim)] for _ in words]
    if kind == "binary":
        body = b"".join(
            word.encode() + b" " + struct.pack(f"<{dim}f", *vector) + b"\n"
            for word, vector in zip(words, vectors, strict=True)
        )
        return f"{n_words} {dim}\n".encode() + body
    lines = [f"{word} {' '.join(map(str, vector))}\n" for word, vector in zip(words, vectors, strict=True)]
    head = f"{n_words} {dim}\n" if kind == "word2vec" else ""
    content = (head + "".join(lines)).encode()
    return gzip.compress(content) if kind == "glove.gz" else content


@cache
def encoder_files() -> dict[str, bytes]:
    """A sentence encoder of one small layer: config.json, tokenizer.json, model.safetensors."""
    import torch
    from safetensors.torch import save
    from tokenizers import Tokenizer, models, pre_tokenizers

    config = {
        "hidden_size": 8,
        "layer_norm_eps": 1e-12,
        "max_position_embeddings": 16,
        "vocab_size": 12,
        "type_vocab_size": 2,
        "num_attention_heads": 2,
        "intermediate_size": 16,
        "num_hidden_layers": 1,
        "model_type": "bert",
        "hidden_act": "gelu",
        "position_embedding_type": "absolute",
    }
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "the", "dog", "was", "happy", "a", "b", "c", "d"]
    tokenizer = Tokenizer(models.WordPiece({word: place for place, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    shapes = {
        "embeddings.word_embeddings.weight": (12, 8),
        "embeddings.position_embeddings.weight": (16, 8),
        "embeddings.token_type_embeddings.weight": (2, 8),
        "embeddings.LayerNorm.weight": (8,),
        "embeddings.LayerNorm.bias": (8,),
        "encoder.layer.0.attention.self.query.weight": (8, 8),
        "encoder.layer.0.attention.self.query.bias": (8,),
        "encoder.layer.0.attention.self.key.weight": (8, 8),
        "encoder.layer.0.attention.self.key.bias": (8,),
        "encoder.layer.0.attention.self.value.weight": (8, 8),
        "encoder.layer.0.attention.self.value.bias": (8,),
        "encoder.layer.0.attention.output.dense.weight": (8, 8),
        "encoder.layer.0.attention.output.dense.bias": (8,),
        "encoder.layer.0.attention.output.LayerNorm.weight": (8,),
        "encoder.layer.0.attention.output.LayerNorm.bias": (8,),
        "encoder.layer.0.intermediate.dense.weight": (16, 8),
        "encoder.layer.0.intermediate.dense.bias": (16,),
        "encoder.layer.0.output.dense.weight": (8, 16),
        "encoder.layer.0.output.dense.bias": (8,),
        "encoder.layer.0.output.LayerNorm.weight": (8,),
        "encoder.layer.0.output.LayerNorm.bias": (8,),
    }
    weights = {name: torch.zeros(shape) for name, shape in shapes.items()}
    return {
        "config.json": json.dumps(config).encode(),
        "tokenizer.json": tokenizer.to_str().encode(),
        "model.safetensors": save(weights),
    }


def write(folder: Path, name: str, content: bytes) -> Path:
    """The file, written."""
    path = folder / name
    path.write_bytes(content)
    return path
