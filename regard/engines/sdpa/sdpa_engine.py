"""PyTorch's fused kernels, wherever score, rule and mask reduce exactly to softmax(scale · QKᵀ)V."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import chain

from torch import Tensor
from torch.nn.attention import SDPBackend

from regard import modes
from regard.engines.costs import fused_seconds
from regard.engines.engine import Engine
from regard.engines.kernels.dispatch import kernels_for, why_plain
from regard.engines.kernels.protocol import Guard
from regard.engines.nonfinite.pooling import pool_nonfinite
from regard.engines.sdpa.fused_call import Call, Frame, fold, pool_fused
from regard.engines.strips import pool_by_strips
from regard.engines.work import Work
from regard.grid import Grid, resolve_offset
from regard.masks import Allowed, Causal, Cover, GlobalKeys, KeyMask, Mask, Padding
from regard.modes import is_capturing
from regard.problem import AttentionProblem
from regard.scores import DotForm
from regard.tensors import is_finite, without_autocast
from regard.weights import Softmax

# Masks that are a tensor already, or a row of it: what the kernels take without building n × m.
TENSOR_MASKS = (Allowed, GlobalKeys, KeyMask, Padding)


class Sdpa(Engine):
    """`scaled_dot_product_attention`, never its math backend, which would build n × m."""

    name = "sdpa"
    letter = "S"
    summary = "it calls PyTorch's fused kernels, for scores that are a dot product under softmax"

    def refusals(self, problem: AttentionProblem) -> list[str]:
        return super().refusals(problem) + list(_beyond(problem)) or list(_unfit(problem))

    def accepts(self, problem: AttentionProblem) -> bool:
        return not super().refusals(problem) and next(chain(_beyond(problem), _unfit(problem)), None) is None

    def bytes(self, problem: AttentionProblem) -> int:
        key_dim, value_dim = problem.form.tensors()[0].shape[-1], problem.values.shape[-1]
        grid = problem.grid
        # Padded copies where key_dim ≠ value_dim, and a log-normaliser for each row.
        padded = 0 if key_dim == value_dim else (grid.n_queries + 2 * grid.n_keys) * max(key_dim, value_dim)
        # The kernels turn a mask of true and false into numbers.
        mask = sum(each.numel() for each in problem.mask.tensors()) if problem.mask is not None else 0
        return (math.prod(grid.batch_shape) * (padded + grid.n_queries) + mask) * problem.compute_dtype.itemsize

    def seconds(self, work: Work) -> float:
        return fused_seconds(work)

    def run(self, problem: AttentionProblem) -> Tensor:
        form, grid, values = problem.form, problem.grid, problem.values
        assert isinstance(form, DotForm)
        on_cpu = grid.device.type == "cpu"
        if on_cpu and problem.may_leak:
            return pool_nonfinite(problem, self.run, chooses=False)
        call = problem.notes.pop(self.name, None) or _prepare(problem)
        assert call is not None
        guard = None if problem.visibility is Cover.ALL else _guard_of(problem)
        frame = Frame(grid, form.scale, problem.score, problem.rule, problem.mask, guard)
        with without_autocast(grid.device.type):
            output = pool_fused(frame, call, form.left, form.right, values)
        # Where every query sees every key, NaN and infinity are where they should be.
        if problem.visibility is Cover.ALL or guard is not None:
            return output
        # The kernels add −inf to what a masked score became that overflowed. A GPU is waited for once: what it was
        # given is looked at here too.
        given = () if on_cpu else (problem.queries, problem.keys, values)
        if is_finite(*given, output):
            return output
        return pool_nonfinite(problem, self.run, chooses=False) if problem.may_leak else pool_by_strips(problem)


def _guard_of(problem: AttentionProblem) -> Guard | None:
    """Kernels that compute a problem again where NaN or infinity came through its mask; None where somebody looks."""
    kernels = kernels_for(problem.grid.device)
    if kernels is None or not kernels.looks_for_itself or why_plain(problem) is not None:
        return None
    problem.without_a_look()
    # What a score has learned would get NaN from a vector that a mask hides, times a gradient of 0.
    if problem.may_leak:
        del problem.__dict__["may_leak"], problem.__dict__["was_looked_at"]
        return None
    return kernels.guard(problem)


def _beyond(problem: AttentionProblem) -> Iterator[str]:
    """Why a problem is not softmax(scale · QKᵀ)V with a mask that the kernels take."""
    form, rule = problem.form, problem.rule
    if type(form) is not DotForm:
        yield f"{_named(problem.score)} is not a dot product of projected queries and keys"
    elif form.steps:
        steps = ", ".join(type(step).__name__ for step in form.steps)
        yield f"{_named(problem.score)} changes each score after the dot product ({steps})"
    if type(rule) is not Softmax:
        yield f"weights are {_named(rule)}, not Softmax"
    elif rule.sink is not None:
        yield "Softmax has a sink"
    if problem.dropout:
        yield "dropout: the kernels draw another pattern"
    if problem.visibility is not Cover.ALL and not _takes_mask(problem.mask, problem.grid):
        yield f"mask {problem.mask!r} would have to be built as n × m"


def _unfit(problem: AttentionProblem) -> Iterator[str]:
    """Why the kernels do not take a problem that is softmax(scale · QKᵀ)V: the first reason alone."""
    form, grid, values = problem.form, problem.grid, problem.values
    assert isinstance(form, DotForm)
    if 0 in (*grid.batch_shape, grid.n_queries, grid.n_keys, form.left.shape[-1], values.shape[-1]):
        yield "an empty problem"
    elif form.left.dtype != values.dtype:
        yield f"scores are computed in {form.left.dtype} and values are {values.dtype}"
    elif (call := _prepare(problem)) is None:
        yield "batch axes broadcast in a way that the kernels would copy"
    elif call.is_causal and not call.scale > 0:
        yield f"PyTorch's causal kernels need a positive scale, not {call.scale:g}: they hide keys before they scale"
    elif call.backend() == SDPBackend.MATH:
        yield f"PyTorch has no fused kernel for this on {grid.device.type} and would build n × m"
    else:
        problem.notes[Sdpa.name] = call


def _prepare(problem: AttentionProblem) -> Call | None:
    """The call that computes a problem; None if its batch axes would have to be copied."""
    form = problem.form
    assert isinstance(form, DotForm)
    folded = fold(problem.grid, form.left, form.right, problem.values)
    if folded is None:
        return None
    return Call(*folded, *_as_kernel_mask(problem), form.scale, problem.values.shape[-1])


def _takes_mask(mask: Mask | None, grid: Grid) -> bool:
    # By type, not isinstance: a user's subclass may allow something else.
    if type(mask) is Causal:
        offset = resolve_offset(mask.align, grid, "Causal")
        return isinstance(offset, int) and offset == 0
    return type(mask) in TENSOR_MASKS and len(grid.batch_shape) <= 2


def _as_kernel_mask(problem: AttentionProblem) -> tuple[Tensor | None, Tensor | None, bool]:
    """(mask tensor, fully masked rows, is_causal) for the kernels."""
    grid, mask = problem.grid, problem.mask
    if mask is None or problem.visibility is Cover.ALL:
        return None, None, False
    if isinstance(mask, Causal):
        return None, None, True
    allowed = _in_4d(mask.tile(grid.rows, grid.columns, grid), grid)
    empty = ~allowed.any(-1, keepdim=True)
    if not modes.waits(allowed) and not is_capturing(grid.device) and not bool(empty.any()):
        return allowed, None, False
    # Let such rows attend to every key and throw their output away: a row without keys has no defined gradient in the
    # kernels.
    return allowed | empty, empty, False


def _in_4d(mask: Tensor, grid: Grid) -> Tensor:
    """The mask with four axes. Axes of size 1 stay so: expanded, torch would turn them into n × m numbers."""
    return mask.reshape(*(1,) * (4 - mask.ndim), *mask.shape)


def _named(thing: object) -> str:
    return type(thing).__name__
