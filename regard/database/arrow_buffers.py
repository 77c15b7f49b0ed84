"""How large the buffers of an Arrow file are once they are decompressed, read without decompressing them.

The file says so itself: each record batch lists its buffers, and a compressed buffer begins with its length. The list
is in the batch's metadata, a table of Google's FlatBuffers laid out as Arrow's Message.fbs says.
"""

from __future__ import annotations

import importlib
import struct
from pathlib import Path
from typing import Any

from regard.errors import TableError

MAGIC = b"ARROW1"
HEADER_TYPE, HEADER = 1, 2  # the fields of Message that matter here
DICTIONARY_BATCH, RECORD_BATCH = 2, 3  # the types of a header
DATA = 1  # of DictionaryBatch: the record batch in it
BUFFERS, COMPRESSION = 2, 3  # of RecordBatch


def expanded_size(path: Path) -> int:
    """How many bytes the compressed buffers of an Arrow file take in memory; 0 if there are none."""
    arrow, ipc = importlib.import_module("pyarrow"), importlib.import_module("pyarrow.ipc")
    with path.open("rb") as file:
        if file.read(len(MAGIC)) != MAGIC:
            return 0  # an older kind of file, which has no compression
    total, n_batches = 0, 0
    with arrow.memory_map(str(path)) as file, ipc.open_file(file) as whole:
        file.seek(8)
        for message in ipc.MessageReader.open_stream(file):
            if message.type in ("record batch", "dictionary"):
                n_batches += message.type == "record batch"
                try:
                    total += _expanded(message.metadata.to_pybytes(), message.body)
                except (struct.error, IndexError, TypeError) as error:
                    raise TableError(f"{path.name} must be an Arrow file: its metadata is damaged.") from error
        if whole.num_record_batches > n_batches:
            raise TableError(f"{path.name} must be an Arrow file: it lists more record batches than it has.")
    return total


def _expanded(metadata: bytes, body: Any) -> int:
    """The size of the buffers of one batch, those that are compressed."""
    message = _indirect(metadata, 0)
    kind, header = _field(metadata, message, HEADER_TYPE), _field(metadata, message, HEADER)
    if kind is None or header is None:
        return 0
    batch = _indirect(metadata, header)
    if metadata[kind] == DICTIONARY_BATCH:
        data = _field(metadata, batch, DATA)
        batch = batch if data is None else _indirect(metadata, data)
    buffers = _field(metadata, batch, BUFFERS)
    if buffers is None or _field(metadata, batch, COMPRESSION) is None:
        return 0
    start = _indirect(metadata, buffers)
    (count,) = struct.unpack_from("<I", metadata, start)
    total = 0
    for place in range(count):
        offset, length = struct.unpack_from("<qq", metadata, start + 4 + 16 * place)
        if length >= 8:
            (size,) = struct.unpack("<q", body.slice(offset, 8).to_pybytes())
            total += max(size, 0)  # −1: this one is as it is
    return total


def _indirect(data: bytes, place: int) -> int:
    """Where an offset leads that is counted from its own place."""
    return place + int(struct.unpack_from("<I", data, place)[0])


def _field(data: bytes, table: int, number: int) -> int | None:
    """Where a field of a table is; None if it has none."""
    entries = table - int(struct.unpack_from("<i", data, table)[0])
    (size,) = struct.unpack_from("<H", data, entries)
    if 4 + 2 * number >= size:
        return None
    (offset,) = struct.unpack_from("<H", data, entries + 4 + 2 * number)
    return table + int(offset) if offset else None
