"""AttentionProblem: one call of attention, checked once. Engines trust it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from regard import modes
from regard.errors import ScoreError, ShapeError
from regard.grid import Grid, check_offset
from regard.masks import Cover, Mask
from regard.modes import is_tracing, kept
from regard.scores import Score
from regard.scores.bias import POSITIONAL
from regard.scores.form import Form
from regard.scores.score import scaled_by
from regard.scores.unscored import without_scores
from regard.tensors import Span, are_finite, broadcast_shapes, broken_vectors, positions_of, take, without_autocast
from regard.validation import (
    autocast_dtype_of,
    check_devices,
    check_dropout,
    check_dtypes,
    check_kinds,
    check_parts,
    check_shapes,
)
from regard.weights import Weights


@dataclass(frozen=True)
class AttentionProblem:
    """Queries, keys and values with the score, mask and rule that pool them; made by `make_problem`."""

    queries: Tensor  # (..., n_queries, query_dim)
    keys: Tensor  # (..., n_keys, key_dim)
    values: Tensor  # (..., n_keys, value_dim)
    score: Score
    rule: Weights
    mask: Mask | None
    dropout: float
    seed: int | Tensor  # what dropout depends on, a tensor on a GPU and while tracing; 0 without dropout
    autocast_dtype: torch.dtype | None  # in which projections are done, where autocast was on

    @kept
    def form(self) -> Form:
        """The pairwise form of the scores, projections done, with the rule's temperature."""
        return self._project(self.queries, self.keys)

    @kept
    def tensors(self) -> tuple[Tensor, ...]:
        """Those of the form and, last, the values."""
        return (*self.form.tensors(), self.values)

    @kept
    def settled_form(self) -> Form:
        """The form for tiles in plain torch: its biases have been searched for −inf, once for all of them."""
        return self.form.settled(self.compute_dtype)

    @kept
    def grid(self) -> Grid:
        """The size of the problem: all batch axes broadcast."""
        form, heads = self.form, self.rule.batch_shape
        try:
            form_shape = form.batch_shape
            scores_shape = broadcast_shapes(form_shape, heads) if heads else form_shape
        except ValueError as error:
            raise ShapeError(
                f"What a score or rule has for each head must broadcast with the last batch axis: {error}. "
                f"Put heads on the axis before n: (..., heads, n, dim)."
            ) from None
        try:
            batch_shape = broadcast_shapes(scores_shape, self.values.shape[:-2])
        except ValueError:
            raise ShapeError(
                f"The batch axes of scores and `values` must broadcast: got scores {scores_shape} and "
                f"values {tuple(self.values.shape)}. Line the batch axes up, or insert axes of size 1."
            ) from None
        if batch_shape != form_shape and form.has_offsets:
            raise ShapeError(
                f"Offsets that differ by batch row must have queries or keys with every batch axis: got scores "
                f"{form_shape} of {batch_shape}. Expand queries to (..., n_queries, query_dim) with those axes."
            )
        return Grid(batch_shape, self.queries.shape[-2], self.keys.shape[-2], self.queries.device)

    @property
    def output_shape(self) -> tuple[int, ...]:
        """The shape of the pooled output."""
        return (*self.grid.batch_shape, self.grid.n_queries, self.values.shape[-1])

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the output."""
        return self.values.dtype

    @property
    def compute_dtype(self) -> torch.dtype:
        """The dtype in which scores, weights and sums are computed: half precision is accumulated in float32."""
        return torch.float64 if self.values.dtype == torch.float64 else torch.float32

    @kept
    def visibility(self) -> Cover:
        """Whether the mask lets every query see every key, none see any, or something in between."""
        if self.mask is None:
            return Cover.ALL
        if self.mask_waits:
            return Cover.SOME
        return self.mask.cover(self.grid.rows, self.grid.columns, self.grid)

    @kept
    def mask_waits(self) -> bool:
        """Whether to ask the mask about its tensors would wait for a device."""
        return self.mask is not None and any(map(modes.waits, self.mask.tensors()))

    @kept
    def may_leak(self) -> bool:
        """Whether NaN or infinity is among the inputs, which must reach those alone who give it weight.

        While tracing nobody can know, and it is taken that there is none.
        """
        return not is_tracing() and not are_finite(self.queries, self.keys, self.values)

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """Every tensor that the output depends on and that this problem knows of."""
        # Even a gradient of zero becomes NaN on its way through the projection of a NaN.
        tensors = (*self.sane[0].tensors(), self.values) if self.may_leak else self.tensors
        return (*tensors, *self.rule.learned())

    @property
    def needs_gradient(self) -> bool:
        """Whether a gradient may be asked for: of an input, or of what a user's function closes over."""
        if not torch.is_grad_enabled():
            return False
        if self.form.captures:
            return True
        # Not any(...): torch.compile does not trace a generator here.
        for each in (*self.tensors, *self.rule.learned()):  # noqa: SIM110
            if each.requires_grad:
                return True
        return False

    def settle(self) -> None:
        """Compute what is computed once, now: inside a checkpoint its history would be lost with the first pass."""
        if self.may_leak:
            self.sane  # noqa: B018

    def rebuilt(self, tensors: Sequence[Tensor]) -> AttentionProblem:
        """The same problem around other tensors for its form and, last, its values. They are taken to be finite."""
        n_form = len(self.tensors) - 1
        return replace(self, values=tensors[n_form]).around(self.form.rebuilt(iter(tensors[:n_form])))

    def around(self, form: Form) -> AttentionProblem:
        """This problem, made a moment ago, told its form, and that all its tensors are finite."""
        # Where `kept` keeps what it has computed: the form is not derived from queries and keys.
        self.__dict__["form"] = form
        self.__dict__["may_leak"] = False
        return self

    def without_a_look(self) -> AttentionProblem:
        """This problem for kernels that hold NaN and infinity back themselves: nobody looks whether all is finite.

        What a score learns could still get NaN from a vector that a mask hides, times a gradient of 0: so gradients of
        learned scores go around vectors that are not finite.
        """
        learns = self.mask is not None and torch.is_grad_enabled()
        self.__dict__["may_leak"] = learns and any(each.requires_grad for each in self.score.parameters())
        self.__dict__["was_looked_at"] = False
        return self

    @kept
    def was_looked_at(self) -> bool:
        """Whether somebody looks for NaN and infinity, or knows that there is none."""
        return True

    def around_broken(self, sane: Form, broken_queries: Tensor, broken_keys: Tensor) -> AttentionProblem:
        """This problem, made a moment ago, told which of its queries and keys are not finite, and its form without."""
        self.__dict__["may_leak"] = True
        self.__dict__["sane"] = sane, broken_queries, broken_keys
        return self

    @kept
    def notes(self) -> dict[str, Any]:
        """What an engine worked out when it was asked whether it can, and needs again when it runs."""
        return {}

    def scores(self, rows: Span | None = None, columns: Span | None = None) -> Tensor:
        """The scores of a tile, `(..., rows, columns)`, −inf where mask, bias or function do not allow the pair."""
        grid = self.grid
        if rows is None and columns is None and is_tracing():
            # Ranges would fix sizes that may be symbols.
            rows, columns = (
                torch.arange(grid.n_queries, device=grid.device),
                torch.arange(grid.n_keys, device=grid.device),
            )
            return self.form.to(self.compute_dtype).scores(self._allowed(rows, columns))
        return self._tile_scores(grid.rows if rows is None else rows, grid.columns if columns is None else columns)

    def _allowed(self, rows: Span, columns: Span) -> Tensor | None:
        return None if self.mask is None else allowed_tile(self.mask, rows, columns, self.grid)

    def _tile_scores(self, rows: Span, columns: Span) -> Tensor:
        allowed = self._allowed(rows, columns)
        if not self.may_leak:
            return self.settled_form.narrow(rows, columns).to(self.compute_dtype).scores(allowed)
        sane, broken_queries, broken_keys = self.sane
        scores = sane.narrow(rows, columns).to(self.compute_dtype).scores(allowed)
        with torch.no_grad():
            true_scores = self.settled_form.narrow(rows, columns).to(self.compute_dtype).scores(allowed)
        broken = take(broken_queries, -2, rows) | take(broken_keys, -2, columns).mT
        return _Substitute.apply(scores, true_scores, broken.expand(scores.shape))  # type: ignore[no-any-return, no-untyped-call]

    @kept
    def sane(self) -> tuple[Form, Tensor, Tensor]:
        """The form with zeros for queries and keys that are not finite, and which those are."""
        broken_queries = broken_vectors(self.queries.detach())
        broken_keys = broken_vectors(self.keys.detach())
        queries = torch.where(broken_queries, 0, self.queries)
        keys = torch.where(broken_keys, 0, self.keys)
        return self._project(queries, keys).settled(self.compute_dtype), broken_queries, broken_keys

    def _project(self, queries: Tensor, keys: Tensor) -> Form:
        device = queries.device.type
        if self.autocast_dtype is None:
            context = without_autocast(device)
        else:
            context = torch.autocast(device, dtype=self.autocast_dtype)
        with context:
            form = self.score.form(queries, keys)
            if not isinstance(form, Form):
                raise ScoreError(
                    f"`form` of {type(self.score).__name__} must return a Form: got {type(form).__name__}. "
                    f"Return DotForm(left, right) or another of regard.scores.form, or wrap a function in Custom."
                )
            if not self.rule.scored:
                return without_scores(form)
            return scaled_by(form, self.rule.factor)


def make_problem(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    *,
    score: Score,
    weights: Weights,
    mask: Mask | None = None,
    dropout: float = 0.0,
    seed: int | Tensor | None = 0,
    all_keys: bool = True,
) -> AttentionProblem:
    """The problem, once everything that can be wrong with it has been checked; `all_keys` unless more keys follow.

    What dropout depends on is drawn if `seed` is None.
    """
    check_kinds(queries, keys, values, score, weights, mask)
    for term in () if all_keys else score.modules():
        if isinstance(term, POSITIONAL):
            check_offset(term.align, type(term).__name__)
    autocast_dtype = autocast_dtype_of(queries, keys, values)
    if autocast_dtype is not None:
        # As PyTorch's own attention: it takes its inputs in autocast's dtype.
        queries, keys, values = queries.to(autocast_dtype), keys.to(autocast_dtype), values.to(autocast_dtype)
    # Kernels read memory as it lies: an imaginary part of a conjugate lies there with its sign turned.
    queries, keys, values = queries.resolve_neg(), keys.resolve_neg(), values.resolve_neg()
    check_dtypes(queries, keys, values)
    check_shapes(queries, keys, values)
    check_devices(queries, keys, values)
    check_dropout(dropout)
    if seed is None:
        seed = draw_seed(queries.device) if dropout else 0
    weights.check_score(score)
    if all_keys and not is_tracing():
        weights = weights.within(keys.shape[-2])
    problem = AttentionProblem(queries, keys, values, score, weights, mask, float(dropout), seed, autocast_dtype)
    grid = problem.grid  # raises where batch axes do not broadcast
    check_parts(problem.form.tensors(), grid.device, score)
    if mask is not None:
        mask.check(grid if all_keys else replace(grid, whole=False))
    return problem


def draw_seed(device: torch.device) -> int | Tensor:
    """What a call's dropout depends on, from torch's generator of the device.

    On a GPU it stays there: nobody waits for it, and each replay of a captured graph draws it anew. While tracing it is
    a tensor as well.
    """
    seed = torch.randint(2**62, (), dtype=torch.int64, device=device)
    return int(seed) if device.type == "cpu" and not is_tracing() else seed


def allowed_tile(mask: Mask, rows: Span, columns: Span, grid: Grid) -> Tensor:
    """Which pairs of a tile the mask allows: boolean, broadcast to `(*batch_shape, rows, columns)`."""
    if isinstance(rows, range) and isinstance(columns, range):
        return mask.tile(rows, columns, grid)
    return mask.allows(positions_of(rows, grid.device)[:, None], positions_of(columns, grid.device)[None, :], grid)


class _Substitute(torch.autograd.Function):
    """The true score where a query or key is not finite, the sane one elsewhere.

    A visible broken pair sends NaN to its query and key, as it would have; one whose gradient is 0, because it is
    masked or has no weight, sends nothing.
    """

    @staticmethod
    def forward(ctx: Any, scores: Tensor, true_scores: Tensor, broken: Tensor) -> Tensor:
        ctx.save_for_backward(broken)
        return torch.where(broken, true_scores, scores)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        (broken,) = ctx.saved_tensors
        (gradient,) = gradients
        return torch.where(broken & (gradient != 0), torch.nan, gradient), None, None
