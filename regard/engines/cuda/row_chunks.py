"""A mask that is larger than there is room for: its problem a block of rows at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from regard.engines.cuda.cuda_problem import CudaProblem
from regard.engines.cuda.masks import longest_list
from regard.engines.cuda.program import translate
from regard.engines.cuda.readable_problem import readable_problem
from regard.engines.kernels.protocol import Compiled, Readable
from regard.engines.state import Pooled, Sums
from regard.grid import Grid
from regard.masks import Mask, SameDocument, Selected
from regard.masks.batch_axes import Axes
from regard.masks.boolean import And
from regard.problem import AttentionProblem
from regard.scores import steps
from regard.scores.form import Step
from regard.tensors import take
from regard.weights import Statistics


class ChunkedProblem(Compiled):
    """A problem in blocks of so many rows. Each block's mask is made when its turn comes, and again on the way back."""

    def __init__(self, problem: AttentionProblem, height: int) -> None:
        self._problem = problem
        self._height = height
        self._trains = problem.needs_gradient  # whoever pools may have turned gradients off by then

    def sums(self) -> Sums:
        whole = self._empty(1), self._empty(1), self._empty(self._problem.values.shape[-1])
        for rows in self._blocks():
            sums = self._compiled(rows).sums()
            _put(whole, rows, (sums.peak, sums.total, sums.pooled))
        return Sums(*whole)

    def pool(self) -> Pooled:
        problem = self._problem
        output = torch.empty(problem.output_shape, dtype=problem.dtype, device=problem.grid.device)
        statistics = tuple(self._empty(width, dtype) for width, dtype in problem.rule.layout())
        slope_mean = self._empty(output.shape[-1]) if problem.rule.centre == "slope" and self._trains else None
        for rows in self._blocks():
            pooled = self._compiled(rows, trains=self._trains).pool()
            _put((output, *statistics), rows, (pooled.output, *pooled.statistics))
            if slope_mean is not None and pooled.slope_mean is not None:
                _put((slope_mean,), rows, (pooled.slope_mean,))
        return Pooled(output, statistics, slope_mean)

    def _empty(self, width: int, dtype: torch.dtype | None = None) -> Tensor:
        """Room for numbers of every row."""
        grid = self._problem.grid
        shape = *grid.batch_shape, grid.n_queries, width
        return torch.empty(shape, dtype=dtype or self._problem.compute_dtype, device=grid.device)

    def _blocks(self) -> Iterator[range]:
        n_queries = self._problem.grid.n_queries
        for start in range(0, n_queries, self._height):
            yield range(start, min(start + self._height, n_queries))

    def _compiled(self, rows: range, *, may_leak: bool = False, trains: bool = False) -> CudaProblem:
        """A block of rows. Whoever asks forgets it before the next: there is room for the mask of one."""
        block = rows_of(self._problem, rows)
        block.__dict__["may_leak"] = may_leak  # only asked about on the way back
        return CudaProblem(translate(block), trains=trains)

    def gradients(
        self, needed: Sequence[bool], statistics: Statistics, centre: Tensor | None, gradient: Tensor
    ) -> list[Tensor | None]:
        problem = self._problem
        inputs = (*problem.tensors, *problem.rule.learned())
        places = self._places(inputs, range(self._height))
        wholes = [
            torch.zeros(each.shape, dtype=_dtype_of_sum(each, place), device=each.device) if need else None
            for each, place, need in zip(inputs, places, needed, strict=True)
        ]
        for rows in self._blocks():
            found = self._compiled(rows, may_leak=problem.may_leak).gradients(
                needed,
                tuple(take(each, -2, rows) for each in statistics),
                None if centre is None else take(centre, -2, rows),
                take(gradient, -2, rows),
            )
            # Where a tensor has rows these are theirs alone; every block adds to what all of them share.
            stand_ins = [each if whole is None else whole for each, whole in zip(inputs, wholes, strict=True)]
            for place, share in zip(self._places(stand_ins, rows), found, strict=True):
                if share is not None:
                    place += share
        return [None if whole is None else whole.to(each.dtype) for each, whole in zip(inputs, wholes, strict=True)]

    def _places(self, tensors: Sequence[Tensor], rows: range) -> tuple[Tensor, ...]:
        """What a block has of tensors that are, or stand for, the inputs of the problem: views."""
        form, columns = self._problem.form, self._problem.grid.columns
        n_form = len(form.tensors())
        narrowed = form.rebuilt(iter(tensors[:n_form])).narrow(rows, columns)
        return (*narrowed.tensors(), *tensors[n_form:])

    def readable(self, advance: Callable[[float], None]) -> Readable:
        return readable_problem(self, self._problem, advance)


def _put(wholes: Sequence[Tensor], rows: range, parts: Sequence[Tensor]) -> None:
    """Write what a block has found to its rows."""
    for whole, part in zip(wholes, parts, strict=True):
        whole[..., rows.start : rows.stop, :] = part


def _dtype_of_sum(tensor: Tensor, place: Tensor) -> torch.dtype:
    """In which shares of a gradient are gathered: its own where a block has a part for itself, else a wider one."""
    if place.shape != tensor.shape:
        return tensor.dtype
    few = tensor.ndim < 2 or tensor.shape[-2] == 1
    return torch.float64 if few else torch.promote_types(tensor.dtype, torch.float32)


def rows_of(problem: AttentionProblem, rows: range) -> AttentionProblem:
    """The problem of some of the queries, which knows of the others where that makes a difference."""
    grid, start = problem.grid, rows.start
    form = problem.form.narrow(rows, grid.columns)
    moved = (_moved(step, whole, start) for step, whole in zip(form.steps, problem.form.steps, strict=True))
    form = replace(form, steps=tuple(moved))
    mask = None if problem.mask is None else _seen_from(problem.mask, rows, grid)
    queries, seed = take(problem.queries, -2, rows), _seed_from(problem.seed, start)
    return replace(problem, queries=queries, mask=mask, seed=seed).around(form)


def _moved(step: Step, whole: Step, start: int) -> Step:
    """A step of some rows, told where they begin; `whole` is that of all."""
    if isinstance(step, steps.AddDistance) and isinstance(whole, steps.AddDistance) and whole.offset is not None:
        return replace(step, offset=whole.offset + start)
    return step


def _seed_from(seed: int | Tensor, start: int) -> int | Tensor:
    """The seed with which dropout does to row 0 what it does to row `start` with this one.

    Its hash takes the sum of a row and of the upper half of the seed, modulo 2³².
    """
    if isinstance(seed, Tensor):
        return seed + (start << 32)
    return (seed + (start << 32) + (1 << 63)) % (1 << 64) - (1 << 63)  # an int64, as the kernels take it


def _seen_from(mask: Mask, rows: range, grid: Grid) -> Mask:
    """The mask of a problem as a block of its rows has it, counted from the first of them."""
    # By type, not isinstance: a user's subclass may allow something else.
    if type(mask) is And:
        return And(*(_seen_from(each, rows, grid) for each in mask.masks))
    if type(mask) is SameDocument:
        of_rows, of_columns = mask.ids(grid)
        return SameDocument(of_rows[..., rows.start : rows.stop], of_columns)
    if longest_list(mask, grid) is not None:
        return Selected(mask.indices(rows, grid))
    return _RowsFrom(mask, rows.start, grid)


class _RowsFrom(Mask):
    """The rows of a mask from one on, with the problem that it was made for."""

    def __init__(self, mask: Mask, start: int, grid: Grid) -> None:
        self.mask, self.start, self.grid = mask, start, grid

    def allows(self, rows: Tensor, columns: Tensor, grid: Grid) -> Tensor:
        return self.mask.allows(rows + self.start, columns, self.grid)

    def tile(self, rows: range, columns: range, grid: Grid) -> Tensor:
        return self.mask.tile(self._moved_rows(rows), columns, self.grid)

    def bounds(self, rows: range, grid: Grid) -> tuple[Tensor, Tensor] | None:
        return self.mask.bounds(self._moved_rows(rows), self.grid)

    def tensors(self) -> tuple[Tensor, ...]:
        return self.mask.tensors()

    def batch_axes(self) -> Axes:
        return self.mask.batch_axes()

    def _moved_rows(self, rows: range) -> range:
        return range(rows.start + self.start, rows.stop + self.start, rows.step)
