"""Launches of the kernels for any rule and mask: over what others have flagged, or over all of a small problem.

Nothing is `fresh` for them: since their strides are coded, Triton knows of no multiple of 16, and takes numbers one by
one wherever tensors begin.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from regard.engines.cuda.kernels.general import differentiate_any_columns, differentiate_any_rows, pool_any_rows
from regard.engines.cuda.kernels.tables import differentiate_table
from regard.engines.cuda.launch import Facts, Launch, Strided
from regard.engines.cuda.launch_settings import CHUNK, Settings, block_of, blocks_of, general_settings
from regard.engines.cuda.program import coded
from regard.engines.cuda.small_calls import LAUNCHED, Launched
from regard.engines.cuda.stand_ins import Stand, stand_ins
from regard.engines.cuda.threshold_pass import Slopes
from regard.engines.kernels import codes

NOTHING_DROPPED = coded(0), coded(0), 1.0
MOST_COPIED = 1 << 24  # numbers in all copies of tables
UNFLAGGED = -1  # in place of how many rows or columns share a flag: all are computed


def pool_any(
    launch: Launch,
    outputs: tuple[Tensor, tuple[int, ...], Tensor, Tensor],
    *,
    flags: tuple[Tensor, Settings | int] | None = None,
    n_splits: int = 1,
    split: bool = False,
    slopes: Slopes | None = None,
    scores: Tensor | None = None,
) -> None:
    """Write the output and the statistics of rows, or their sums.

    Args:
        launch: The problem.
        outputs: As `pool_rows` takes them, but for flags.
        flags: On the device, with the settings of the pass that left them, or how many rows share one, 0 where all do.
        n_splits: Shares of the keys.
        split: Whether sums of shares are written.
        slopes: Where values averaged by slope are written, if they are wanted.
        scores: Where scores are written by what is no rule, `codes.SCORES`.
    """
    output, strides, peaks, totals = outputs
    beside = stand_ins(launch.device)
    behind = flags[1] if flags is not None else UNFLAGGED
    flag_rows = behind.rows if isinstance(behind, Settings) else behind
    settings = general_settings(launch.shape, launch.n_queries, behind if isinstance(behind, Settings) else None)
    n_programs = launch.n_entries * blocks_of(launch.n_queries, settings.rows) * n_splits
    rule_codes = (
        launch.program.rule,
        int(bool(launch.sink)),
        int(split),
        launch.dim,
        launch.value_dim,
        n_splits,
        n_programs,
        flag_rows,
        behind.columns if isinstance(behind, Settings) else settings.columns,
        int(slopes is not None),
        *_kinds(launch),
    )
    arguments = (
        _inputs(launch),
        (
            output,
            _coded(strides if split else (*strides, 0)),
            peaks,
            totals,
            beside.flags if flags is None else flags[0],
            launch.errors,
            launch.units,
            *(slopes or (beside.number, beside.number)),
            beside.number if scores is None else scores,
        ),
        _terms(launch),
        _mask(launch),
        _coded_pairs(launch.sink or (beside.number, (0, 0, 0))),
        _dropout(launch),
        _sizes(launch),
        launch.program.scale,
        _coded(rule_codes),
    )
    constants, variant = _constants(launch, settings), (output.dtype, settings)
    n_launched = n_programs if flags is None else blocks_of(n_programs, CHUNK)
    launch.run(pool_any_rows, n_launched, arguments, constants, settings.options, variant=variant)
    program = launch.program
    if LAUNCHED in program.problem.notes and flags is None and not split and scores is None:
        made = Launched(pool_any_rows, n_launched, arguments, constants, settings.options, program.layout, variant)
        program.problem.notes[LAUNCHED] = made


def scores_of(launch: Launch) -> Tensor:
    """The scores of a small problem, (entries, n_queries, n_keys); −∞ for pairs that are not allowed."""
    problem = launch.program.problem
    scores = launch.empty(launch.n_entries, launch.n_queries, launch.n_keys).fill_(-torch.inf)
    nobody_reads = torch.empty(problem.output_shape, dtype=problem.dtype, device=launch.device)
    peaks, totals = launch.empty(2, launch.n_entries, launch.n_queries)
    pool_any(launch, (nobody_reads, launch.strides_of(nobody_reads), peaks, totals), scores=scores)
    return scores


def differentiate_any(
    launch: Launch,
    gradient: Strided,
    facts: Facts,
    outputs: tuple[Any, ...],
    *,
    by_rows: bool,
    n_learned: int,
    weighed: bool = False,
    flags: tuple[Tensor, Settings | int] | None = None,
) -> None:
    """Write the gradients of queries, or of keys and values, and what steps learn of rows, or of columns.

    Args:
        launch: The problem.
        gradient: dO.
        facts: Of the rows.
        outputs: As the kernels take them, None for what is not wanted; but for flags.
        by_rows: Whether those of queries.
        n_learned: How many steps' sums are written: those of all, or 0.
        weighed: Whether what weights of channels get is written.
        flags: On the device, with the settings of the pass that left them, or how many lines share one.
    """
    program, beside = launch.program, stand_ins(launch.device)
    behind = flags[1] if flags is not None else UNFLAGGED
    length = launch.n_queries if by_rows else launch.n_keys
    before = behind if isinstance(behind, Settings) else None
    settings = general_settings(launch.shape, length, before, by_rows=by_rows)
    flagged = behind if not isinstance(behind, Settings) else behind.rows if by_rows else behind.columns
    n_programs = launch.n_entries * blocks_of(length, settings.rows if by_rows else settings.columns)
    rule_codes = (
        program.rule,
        int(launch.backward_codes["CENTRED"]),
        int(launch.backward_codes["PROJECTED"]),
        launch.dim,
        launch.value_dim,
        n_learned,
        int(weighed),
        n_programs,
        flagged,
        *_kinds(launch),
    )
    steps = steps_of(launch)
    launch.run(
        differentiate_any_rows if by_rows else differentiate_any_columns,
        n_programs if flags is None else blocks_of(n_programs, CHUNK),
        (
            _inputs(launch),
            _coded_pairs(gradient),
            tuple(facts),
            (
                *[_coded_output(each, beside) for each in outputs],
                beside.flags if flags is None else flags[0],
            ),
            _terms(launch),
            _mask(launch),
            _dropout(launch),
            _sizes(launch),
            program.scale,
            _coded(rule_codes),
        ),
        # Two more by rows: for alpha.
        {"LEARNS": (True,) * (len(steps) + 2 * by_rows), **_constants(launch, settings)},
        settings.options,
        variant=(by_rows, settings, gradient[0].dtype, *[e.dtype for e in outputs if isinstance(e, Tensor)]),
    )


def differentiate_relative(launch: Launch, gradient: Strided, facts: Facts, step: int) -> Tensor:
    """What the table of relative positions of a step gets of every batch entry, (entries, 1, distances)."""
    program, steps = launch.program, steps_of(launch)
    size = general_settings(launch.shape, launch.n_queries).columns
    distances = -2 * program.terms[step][6] + 1
    most = max(MOST_COPIED // (launch.n_entries * distances), 1)
    n_groups = min(blocks_of(launch.n_queries, size), most)
    copies = launch.empty(launch.n_entries, n_groups, distances).zero_()
    launch.run(
        differentiate_table,
        launch.n_entries * n_groups,
        (
            _inputs(launch),
            _coded_pairs(gradient),
            tuple(facts),
            (copies,),
            _terms(launch),
            _mask(launch),
            _dropout(launch),
            _sizes(launch),
            program.scale,
            _coded(
                (
                    program.rule,
                    int(launch.backward_codes["CENTRED"]),
                    launch.dim,
                    launch.value_dim,
                    n_groups,
                    *_kinds(launch),
                )
            ),
        ),
        {
            "FORM": _form(launch),
            "STEPS": steps,
            "LEARNS": tuple([codes.BY_PAIR if place == step else 0 for place in range(len(steps))]),
            "TABLE": step,
            "ROUGH": launch.is_rough,
            "PRECISION": launch.general_precision,
            "BLOCK_DIM": block_of(launch.dim),
            "BLOCK_VALUE_DIM": block_of(launch.value_dim),
            "SIZE": size,
        },
        {"num_warps": 4, "num_stages": 1},
        variant=(step, gradient[0].dtype),
    )
    return copies.double().sum(1, keepdim=True)


def steps_of(launch: Launch) -> tuple[int, ...]:
    """The steps, with a temperature at the end: most have none, but may."""
    steps = launch.program.steps
    return steps if steps and steps[-1] == codes.SCALE else (*steps, codes.SCALE)


@lru_cache(maxsize=4096)
def _coded(numbers: tuple[int, ...]) -> tuple[int, ...]:
    return tuple([coded(each) for each in numbers])


def _coded_pairs(parts: tuple[Any, ...]) -> tuple[Any, ...]:
    """Tensors, each with its strides."""
    return tuple([_coded(each) if isinstance(each, tuple) else each for each in parts])


def _coded_output(output: Tensor | tuple[int, ...] | None, beside: Stand) -> Any:
    """What a kernel writes to: a tensor, its strides, or nothing."""
    return beside.number if output is None else _coded(output) if isinstance(output, tuple) else output


def _form(launch: Launch) -> int:
    """Products or sums over channels."""
    return codes.DOT if launch.program.form == codes.DOT else codes.CHANNELS


def _inputs(launch: Launch) -> tuple[Any, ...]:
    """Queries, keys, values and what channels have."""
    inputs, form = _coded_pairs(launch.inputs), launch.program.form
    return inputs if form == codes.DOT else (*inputs, coded(form))


def _kinds(launch: Launch) -> tuple[int, ...]:
    """Of what the mask is made. A line is always there, see `_sizes`."""
    return 1, *launch.program.mask.kinds[1:]


def _terms(launch: Launch) -> tuple[tuple[Any, ...], ...]:
    """What each step has. Of a gate, nobody needs the factors."""
    program = launch.program
    terms = [
        tuple([_coded(e) if isinstance(e, tuple) else coded(e) if isinstance(e, int) else e for e in term])
        for term in [t[:4] if code == codes.GATE else t for code, t in zip(program.steps, program.terms, strict=True)]
    ]
    if len(steps_of(launch)) > len(terms):
        terms.append((stand_ins(launch.device).ones[program.left.dtype], _coded((0, 0, 0))))
    return tuple(terms)


def _mask(launch: Launch) -> tuple[Any, ...]:
    """Bounds, pairs and documents."""
    beside, line, pair = stand_ins(launch.device), (0,) * 4, (0,) * 5
    bounds, pairs, documents = launch.mask
    nothing = beside.wholes, line, beside.wholes, line
    return tuple(map(_coded_pairs, (bounds or nothing, pairs or (beside.bytes, pair), documents or nothing)))


def _dropout(launch: Launch) -> tuple[Any, ...]:
    return launch.dropout or (stand_ins(launch.device).wholes, *NOTHING_DROPPED)


def _sizes(launch: Launch) -> tuple[int, ...]:
    far = launch.n_queries + launch.n_keys
    line = launch.program.mask.line or (-far, far)
    return _coded((launch.n_queries, launch.n_keys, *line, *launch.batch_sizes))


def _constants(launch: Launch, settings: Settings) -> dict[str, Any]:
    return {
        "FORM": _form(launch),
        "STEPS": steps_of(launch),
        "ROUGH": launch.is_rough,
        "PRECISION": launch.general_precision,
        "BLOCK_DIM": block_of(launch.dim),
        "BLOCK_VALUE_DIM": block_of(launch.value_dim),
        "ROWS": settings.rows,
        "COLUMNS": settings.columns,
    }
