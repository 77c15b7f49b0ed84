"""Launches that read weights: every reading of some rows in one, and the weights of a tile."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard.engines.cuda.backward_pass import facts_of
from regard.engines.cuda.kernels.flags import find_longest
from regard.engines.cuda.kernels.heaviest import settle_heaviest
from regard.engines.cuda.kernels.readings import read_rows, weigh_rows
from regard.engines.cuda.launch import ADDING, Facts, Launch
from regard.engines.cuda.launch_settings import (
    READING_REGISTERS,
    Settings,
    block_of,
    blocks_of,
    reading_settings,
    shared_memory,
)
from regard.engines.cuda.stand_ins import stand_ins
from regard.weights import Statistics

PROGRAMS = 8  # for each multiprocessor: shares of rows that end sooner leave room for others
MOST_BYTES = 1 << 25  # of the sums over each share that keys receive, and of those of pictures
MOST_KEPT = 128  # of the heaviest of a row, which stay in registers
MOST_MADE = 64  # tensors of lines and columns of pictures, and of shares, which are kept
MOST_COMPARED = 4096  # numbers of a tile at once, as columns of a picture

MEASURED_ROWS, MEASURED_BLOCKS, MEASURING_WARPS = 64, 4, 8  # of vectors whose lengths a program looks at
SETTLED = 128  # of the best of rows that a program settles

_TOTALS = ("least", "total", "most", "count")


def fits(targets: Mapping[str, Tensor]) -> bool:
    """Whether kernels write these targets of a reading."""
    return "top_index" not in targets or targets["top_index"].shape[-1] <= MOST_KEPT


class Place(NamedTuple):
    """Which rows a launch reads, of how many that there are."""

    first_row: int
    all_rows: int


class _Shares(NamedTuple):
    """How the rows of each batch entry are shared among programs: by lines of a picture, or of what has none."""

    number: int
    parts: int  # pictures of each entry; the shares of a line have turns
    edges: Tensor  # the first row of each line, and the one after the last, int32
    lines: int  # how many there are
    each: int  # of a share


class Sums:
    """What keys receive and pictures, added up over every launch of a reading; written when all is read.

    Args:
        targets: Where readings are written.
        n_entries: How many batch entries there are.
    """

    def __init__(self, targets: Mapping[str, Tensor], n_entries: int) -> None:
        self._targets, self._n_entries = targets, n_entries
        self._sums: dict[str, Tensor] = {}

    def add(self, name: str, shares: Tensor) -> None:
        """Add a reading by shares, `(entries, shares, …)`, in their order."""
        one = shares.shape[1] == 1
        total = shares.squeeze(1).double() if one else shares.sum(1, dtype=torch.float64)
        self._sums[name] = total if name not in self._sums else self._sums[name] + total

    def write(self) -> None:
        for name, total in self._sums.items():
            self._targets[name].copy_(total.view(self._targets[name].shape))


def longest(launch: Launch) -> tuple[float, ...]:
    """The length of the longest of queries, keys and values; inf or NaN where a number or its square is not finite."""
    found = launch.empty(3).zero_()
    bits = found.view(torch.int32)
    lengths = launch.n_queries, launch.n_keys, launch.n_keys
    for place, length in enumerate(lengths):
        vectors, strides = launch.inputs[2 * place : 2 * place + 2]
        width = vectors.shape[-1]
        launch.run(
            find_longest,
            launch.n_entries * blocks_of(length, MEASURED_ROWS * MEASURED_BLOCKS),
            (vectors, strides, bits[place:], length, *launch.batch_sizes),
            {"WIDTH": width, "BLOCK_WIDTH": block_of(width), "ROWS": MEASURED_ROWS, "BLOCKS": MEASURED_BLOCKS},
            {"num_warps": MEASURING_WARPS},
            variant=(place, width),
            fresh=(bits[place:],),
        )
    return tuple([math.sqrt(each) for each in found.tolist()])


def facts_to_read(launch: Launch, statistics: Statistics) -> Facts:
    """What makes scores of these rows weights."""
    grid = launch.program.problem.grid
    shape, rows = (*grid.batch_shape, launch.n_queries, 1), (launch.n_entries, launch.n_queries)
    given = [each.expand(shape).reshape(rows).float().contiguous() for each in statistics[:2]]
    nobody = launch.inputs[0], launch.inputs[1]  # is differentiated
    return facts_of(launch, given, nobody, None)


def settle(
    launch: Launch, statistics: Statistics, best: tuple[Tensor, Tensor], targets: Mapping[str, Tensor]
) -> Tensor:
    """Write the heaviest of each row; a number on the device, 1 where what was written may be wrong.

    Args:
        launch: The problem.
        statistics: Of the rows.
        best: Their best scores and columns, `(*batch_shape, n_queries, n)`, more than are wanted.
        targets: As `Readable.read` has them.
    """
    n_best, k, n_rows = best[0].shape[-1], targets["top_index"].shape[-1], launch.n_entries * launch.n_queries
    doubtful = launch.empty(1, dtype=torch.int32).zero_()
    shape = *launch.program.problem.grid.batch_shape, launch.n_queries, 1
    given = tuple([each.expand(shape).float().contiguous() for each in statistics[:2]])
    places = block_of(n_best)
    rows = max(SETTLED // places, 1)
    launch.run(
        settle_heaviest,
        blocks_of(n_rows, rows),
        (best, given, (targets["top_weights"], targets["top_index"]), doubtful, n_rows, n_best, k),
        {"RULE": launch.program.rule, "PLACES": places, "ROWS": rows},
        {"num_warps": 1},
        variant=places,
        fresh=(*given, targets["top_weights"], targets["top_index"]),
    )
    return doubtful


def read(
    launch: Launch,
    facts: Facts,
    targets: Mapping[str, Tensor],
    sums: Sums,
    place: Place,
    flags: tuple[Tensor, ...] = (),
) -> None:
    """Write what targets ask for of every row, and add what they ask for of others to sums.

    Args:
        launch: The problem, without lists of keys.
        facts: Of the rows.
        targets: As `Readable.read` has them.
        sums: Of keys and pictures.
        place: Of the rows among those of the targets.
        flags: A number on the device, if nothing is to be written where it is 0.
    """
    beside, n_entries = stand_ins(launch.device), launch.n_entries
    k = targets["top_index"].shape[-1] if "top_index" in targets else 0
    kept = max(1 << (k - 1).bit_length(), 2) if k else 0
    height, width = targets["picture"].shape[-2:] if "picture" in targets else (0, 0)
    received, drawn = "received" in targets, "picture" in targets
    settings = reading_settings(launch.shape, launch.n_queries, kept, shared_memory(launch.device))
    shares = _shares(launch, settings, place, height, width, received=received)
    sums_of = launch.empty(n_entries, shares.number, launch.n_keys).zero_() if received else beside.number
    pictures, bins, lines, room = beside.number, beside.flags, 1, 0
    if drawn:
        pictures = launch.empty(n_entries, shares.parts, height, width, dtype=_picture_dtype(n_entries, height, width))
        pictures.zero_()
        bins = _bins(launch.n_keys, width, launch.device)
        lines = _lines_of_block(settings.rows, shares.each, blocks_of(place.all_rows, height))
        room = _bins_of_tile(settings.columns, lines, width, launch.n_keys)
    top = (targets["top_weights"], targets["top_index"]) if k else (beside.number, beside.wholes)
    launch.run(
        read_rows,
        n_entries * shares.number,
        (
            launch.inputs,
            tuple(facts),
            (
                targets.get("entropy", beside.number),
                *[targets.get(name, beside.number) for name in _TOTALS],
                *top,
                sums_of,
                pictures,
            ),
            flags,
            shares.edges,
            bins,
            launch.program.terms,
            launch.mask,
            launch.n_queries,
            launch.n_keys,
            *launch.line,
            *launch.batch_sizes,
            launch.program.scale,
            shares.number,
            shares.lines,
            shares.each,
            shares.parts,
            place.all_rows,
            place.first_row,
            height,
            width,
            k,
        ),
        {
            "ENTROPY": "entropy" in targets,
            "TOTALS": "total" in targets,
            "KEPT": kept,
            "RECEIVED": received,
            "DRAWN": drawn,
            "LINES": lines,
            "BINS": room,
            **_codes(launch, settings),
        },
        _options(launch, settings),
        variant=("read", settings, tuple(sorted(targets)), kept, lines, room, pictures.dtype, len(flags)),
        fresh=(*facts[:2], *targets.values(), sums_of, pictures),
    )
    if received:
        sums.add("received", sums_of)
    if drawn:
        sums.add("picture", pictures)


def weigh(launch: Launch, facts: Facts, found: Tensor, rows: range, columns: range, place: Place) -> None:
    """Write α of some rows and columns to what is found, `(entries, rows, columns)`; `place`: of the rows there."""
    settings = reading_settings(launch.shape, launch.n_queries, 0, shared_memory(launch.device))
    blocks = blocks_of(len(rows), settings.rows) * blocks_of(len(columns), settings.columns)
    launch.run(
        weigh_rows,
        launch.n_entries * blocks,
        (
            launch.inputs,
            tuple(facts),
            found,
            launch.program.terms,
            launch.mask,
            launch.n_queries,
            launch.n_keys,
            *launch.line,
            *launch.batch_sizes,
            launch.program.scale,
            rows.start,
            len(rows),
            columns.start,
            len(columns),
            place.all_rows,
            place.first_row,
        ),
        _codes(launch, settings),
        settings.options,
        variant=("weigh", settings),
        fresh=(*facts[:2], found),
    )


def _codes(launch: Launch, settings: Settings) -> dict[str, Any]:
    """What kernels that read are specialised by."""
    program, codes = launch.program, launch.codes
    small = program.is_small  # whose statistics are from kernels for any rule
    return {
        **{name: codes[name] for name in ("FORM", "STEPS", "RULE", "MASK", "ROUGH", "DIM", "BLOCK_DIM")},
        "EXCLUDES": not ADDING.isdisjoint(program.steps),
        "FOLDS": codes["FOLDS"] and not program.steps and not small,
        "SAFE": small,
        "EXACT": codes["EXACT"] or small,
        "PRECISION": launch.general_precision if small else codes["PRECISION"],
        "ROWS": settings.rows,
        "COLUMNS": settings.columns,
    }


def _options(launch: Launch, settings: Settings) -> dict[str, int]:
    """Warps, stages and, where it makes room for more blocks, how many registers a thread has."""
    options, shape = settings.options, launch.shape
    if launch.device.type != "cuda" or shape.itemsize != 2 or shape.dim > 128:
        return options
    return {**options, "maxnreg": READING_REGISTERS}


def _shares(launch: Launch, settings: Settings, place: Place, height: int, width: int, *, received: bool) -> _Shares:
    """Shares of rows, as many as keep the GPU at work. Where there is a picture, each line of it is one program's."""
    n_rows, n_entries = launch.n_queries, launch.n_entries
    blocks = blocks_of(n_rows, settings.rows)
    most = min(_n_programs(launch.device) // n_entries, blocks)
    if received:
        most = min(most, MOST_BYTES // (4 * n_entries * launch.n_keys))
    most = max(most, 1)
    if not height:
        each = blocks_of(blocks, most) * settings.rows
        count = blocks_of(n_rows, each)
        return _Shares(count, 1, _edges_of_shares(count, each, n_rows, launch.device), count, 1)
    # Of all rows, of which some may be here: several lines for each program, or several programs for each line.
    each, parts = blocks_of(height, most), 1
    if most > height:
        itemsize = _picture_dtype(n_entries, height, width).itemsize
        parts = max(min(most // height, MOST_BYTES // (itemsize * n_entries * height * width)), 1)
    lines, edges = height * parts, _edges_of_lines(height, parts, n_rows, place, launch.device)
    return _Shares(blocks_of(lines, each), parts, edges, lines, each)


def _n_programs(device: torch.device) -> int:
    """How many programs keep a device at work."""
    if device.type != "cuda":
        return 1
    return PROGRAMS * int(torch.cuda.get_device_properties(device).multi_processor_count)


@lru_cache(MOST_MADE)
def _edges_of_shares(count: int, each: int, n_rows: int, device: torch.device) -> Tensor:
    """Where shares of so many rows begin, and the last ends."""
    return _for_any_stream((torch.arange(count + 1, device=device) * each).clamp(max=n_rows).int())


@lru_cache(MOST_MADE)
def _edges_of_lines(height: int, parts: int, n_rows: int, place: Place, device: torch.device) -> Tensor:
    """Where the parts of each line of a picture begin, among rows that are there, and the last ends."""
    places = torch.arange(height * parts + 1, device=device)
    line, part = places // parts, places % parts
    first, stop = (_first_row((line + more).clamp(max=height), height, place.all_rows) for more in (0, 1))
    edges = first + (stop - first) * part // parts - place.first_row
    return _for_any_stream(edges.clamp(0, n_rows).int())


def _first_row(line: Tensor, height: int, n_rows: int) -> Tensor:
    """The first row i with ⌊i · height / n_rows⌋ = line."""
    return -(-line * n_rows // height)


@lru_cache(MOST_MADE)
def _bins(length: int, size: int, device: torch.device) -> Tensor:
    """The place of each row or column in a picture, as `view/readings.py` has it."""
    return _for_any_stream((torch.arange(length, device=device) * size // length).int())


def _for_any_stream(made: Tensor) -> Tensor:
    """What is kept: it is waited for, once."""
    if made.is_cuda:
        torch.cuda.current_stream(made.device).synchronize()
    return made


def _lines_of_block(rows: int, most: int, length: int) -> int:
    """How many lines share a block: powers of two, as long as each has its longest in it, and a program has so many."""
    lines = 1
    while 2 * lines <= most and rows // (2 * lines) >= length:
        lines *= 2
    return lines


def _bins_of_tile(columns: int, lines: int, width: int, n_keys: int) -> int:
    """Room for the columns of a picture that a tile belongs to; 0 where they are so many that each is taken alone."""
    spanned = min(columns, width, (columns - 1) * width // n_keys + 2)
    room = 1 << (spanned - 1).bit_length()
    return room if room * lines * columns <= MOST_COMPARED else 0


def _picture_dtype(n_entries: int, height: int, width: int) -> torch.dtype:
    """Each place of a small picture has many sums added to it."""
    return torch.float64 if n_entries * height * width * 8 <= MOST_BYTES else torch.float32
