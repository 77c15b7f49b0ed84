"""AttentionProblem: one call of attention, checked once. Engines trust it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from regard.errors import DeviceError, DtypeError, OptionError, ShapeError
from regard.masks import Cover, Mask
from regard.positions import Grid, broadcast_shapes
from regard.scores import Score
from regard.scores.base import scaled_by
from regard.scores.form import Form, Span
from regard.weights import Weights

DTYPES = frozenset({torch.float64, torch.float32, torch.float16, torch.bfloat16})


@dataclass(frozen=True)
class AttentionProblem:
    """Queries, keys and values with the score, mask and rule that pool them; made by `make_problem`."""

    queries: Tensor  # (..., n_queries, query_dim)
    keys: Tensor  # (..., n_keys, key_dim)
    values: Tensor  # (..., n_keys, value_dim)
    score: Score
    weights: Weights
    mask: Mask | None
    dropout: float
    seed: int  # what dropout depends on; 0 without dropout
    autocast_dtype: torch.dtype | None  # in which projections are done, where autocast was on

    @cached_property
    def form(self) -> Form:
        """The pairwise form of the scores, projections done, with the rule's temperature."""
        return self._project(self.queries, self.keys)

    @cached_property
    def grid(self) -> Grid:
        """The size of the problem: all batch axes broadcast."""
        form, heads = self.form, self.weights.batch_shape
        try:
            scores_shape = broadcast_shapes(form.batch_shape, heads)
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
        return Grid(tuple(batch_shape), self.queries.shape[-2], self.keys.shape[-2], self.queries.device)

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

    @cached_property
    def visibility(self) -> Cover:
        """Whether the mask lets every query see every key, none see any, or something in between."""
        if self.mask is None:
            return Cover.ALL
        return self.mask.cover(self.grid.rows, self.grid.columns, self.grid)

    @cached_property
    def may_leak(self) -> bool:
        """Whether some queries must not see NaN or infinity that others may see.

        That takes inputs that are not finite, and pairs without weight: a mask, or a rule that gives exact zeros.
        """
        if self.visibility is Cover.ALL and self.weights.reaches_all:
            return False
        return not is_finite(self.queries, self.keys, self.values)

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """Every tensor that the output depends on and that this problem knows of."""
        # Even a gradient of zero becomes NaN on its way through the projection of a NaN.
        form = self._sane[0] if self.may_leak else self.form
        return (*form.tensors(), self.values, *self.weights.learned())

    def settle(self) -> None:
        """Compute what is computed once, now: inside a checkpoint its history would be lost with the first pass."""
        if self.may_leak:
            self._sane  # noqa: B018

    def rebuilt(self, tensors: Sequence[Tensor]) -> AttentionProblem:
        """The same problem around other tensors for its form and, last, its values. They are taken to be finite."""
        n_form = len(self.form.tensors())
        rebuilt = replace(self, values=tensors[n_form])
        # Where cached_property keeps what it has computed: the form is not derived from queries and keys again.
        rebuilt.__dict__["form"] = self.form.rebuilt(iter(tensors[:n_form]))
        rebuilt.__dict__["may_leak"] = False
        return rebuilt

    def scores(self, rows: Span | None = None, columns: Span | None = None) -> Tensor:
        """The scores of a tile, `(..., rows, columns)`, −inf where the mask does not allow the pair."""
        rows = self.grid.rows if rows is None else rows
        columns = self.grid.columns if columns is None else columns
        scores = self._raw_scores(rows, columns)
        if self.mask is None:
            return scores
        return torch.where(allowed_tile(self.mask, rows, columns, self.grid), scores, -torch.inf)

    def _raw_scores(self, rows: Span, columns: Span) -> Tensor:
        if not self.may_leak:
            return self.form.narrow(rows, columns).to(self.compute_dtype).scores()
        sane, broken_queries, broken_keys = self._sane
        scores = sane.narrow(rows, columns).to(self.compute_dtype).scores()
        with torch.no_grad():
            true_scores = self.form.narrow(rows, columns).to(self.compute_dtype).scores()
        broken = _take_rows(broken_queries, rows) | _take_rows(broken_keys, columns).mT
        return _Substitute.apply(scores, true_scores, broken.expand(scores.shape))  # type: ignore[no-any-return, no-untyped-call]

    @cached_property
    def _sane(self) -> tuple[Form, Tensor, Tensor]:
        """The form with zeros for queries and keys that are not finite, and which those are."""
        broken_queries = ~self.queries.isfinite().all(-1, keepdim=True)
        broken_keys = ~self.keys.isfinite().all(-1, keepdim=True)
        queries = torch.where(broken_queries, 0, self.queries)
        keys = torch.where(broken_keys, 0, self.keys)
        return self._project(queries, keys), broken_queries, broken_keys

    def _project(self, queries: Tensor, keys: Tensor) -> Form:
        device = queries.device.type
        with torch.autocast(device, dtype=self.autocast_dtype, enabled=self.autocast_dtype is not None):
            return scaled_by(self.score.form(queries, keys), self.weights.factor)


def make_problem(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    *,
    score: Score,
    weights: Weights,
    mask: Mask | None = None,
    dropout: float = 0.0,
) -> AttentionProblem:
    """The problem, once everything that can be wrong with it has been checked."""
    _check_kinds(queries, keys, values, score, weights, mask)
    autocast_dtype = _autocast_dtype(queries, keys, values)
    if autocast_dtype is not None:
        # As PyTorch's own attention: it takes its inputs in autocast's dtype.
        queries, keys, values = queries.to(autocast_dtype), keys.to(autocast_dtype), values.to(autocast_dtype)
    _check_dtypes(queries, keys, values)
    _check_shapes(queries, keys, values)
    _check_devices(queries, keys, values)
    if not isinstance(dropout, int | float) or not 0 <= dropout < 1:
        raise OptionError(f"`dropout` must be in [0, 1): got {dropout!r}. It is the share of weights that are dropped.")
    weights.check_score(score)
    seed = int(torch.randint(2**62, (), dtype=torch.int64)) if dropout else 0
    problem = AttentionProblem(queries, keys, values, score, weights, mask, float(dropout), seed, autocast_dtype)
    if mask is not None:
        mask.check(problem.grid)
    else:
        problem.grid  # noqa: B018  (broadcasting is checked here, at the door)
    return problem


def is_finite(*tensors: Tensor) -> bool:
    """Whether every entry is finite. A sum is finite only if its terms are: one pass, no temporary."""
    with torch.no_grad():
        return all(bool(tensor.sum().isfinite()) or bool(tensor.isfinite().all()) for tensor in tensors)


def allowed_tile(mask: Mask, rows: Span, columns: Span, grid: Grid) -> Tensor:
    """Which pairs of a tile the mask allows: boolean, broadcast to `(*batch_shape, rows, columns)`."""
    if isinstance(rows, range) and isinstance(columns, range):
        return mask.tile(rows, columns, grid)
    return mask.allows(_as_positions(rows, grid).unsqueeze(-1), _as_positions(columns, grid).unsqueeze(0), grid)


def _check_kinds(queries: object, keys: object, values: object, score: object, weights: object, mask: object) -> None:
    for name, tensor in (("queries", queries), ("keys", keys), ("values", values)):
        if not isinstance(tensor, Tensor):
            raise DtypeError(
                f"`{name}` must be a torch.Tensor: got {type(tensor).__name__}. Convert it with torch.as_tensor."
            )
    for name, value, kind, example in (
        ("score", score, Score, "ScaledDot()"),
        ("weights", weights, Weights, "Softmax()"),
    ):
        if not isinstance(value, kind):
            hint = (
                f"Make an object of it: {value.__name__}()."
                if isinstance(value, type)
                else f"Pass one such as {example}."
            )
            got = (
                value.__name__
                if isinstance(value, type)
                else repr(value)
                if isinstance(value, str)
                else type(value).__name__
            )
            raise OptionError(f"`{name}` must be a regard {kind.__name__}: got {got}. {hint}")
    if mask is not None and not isinstance(mask, Mask):
        hint = "Wrap it: mask=Allowed(tensor)." if isinstance(mask, Tensor) else "Pass one such as Causal()."
        raise OptionError(f"`mask` must be a regard Mask: got {type(mask).__name__}. {hint}")


def _autocast_dtype(*tensors: Tensor) -> torch.dtype | None:
    """The dtype that autocast asks for; None where it is off, or does not apply to these tensors."""
    device = tensors[0].device.type
    if not torch.is_autocast_enabled(device):
        return None
    applies = all(each.is_floating_point() and each.dtype != torch.float64 for each in tensors)
    return torch.get_autocast_dtype(device) if applies else None


def _check_dtypes(queries: Tensor, keys: Tensor, values: Tensor) -> None:
    for name, tensor in (("queries", queries), ("keys", keys), ("values", values)):
        if tensor.dtype not in DTYPES:
            raise DtypeError(
                f"`{name}` must be float64, float32, float16 or bfloat16: got {_short(tensor.dtype)}. "
                f"Convert with {name}.float()."
            )
    if not queries.dtype == keys.dtype == values.dtype:
        raise DtypeError(
            f"`queries`, `keys` and `values` must have the same dtype: got {_short(queries.dtype)}, "
            f"{_short(keys.dtype)} and {_short(values.dtype)}. Convert them to one, or run under torch.autocast."
        )


def _check_shapes(queries: Tensor, keys: Tensor, values: Tensor) -> None:
    for name, tensor in (("queries", queries), ("keys", keys), ("values", values)):
        if tensor.ndim < 2:
            raise ShapeError(
                f"`{name}` must have at least two axes, (..., n, dim): got {tuple(tensor.shape)}. "
                f"Use {name}.unsqueeze(0) for one vector, .unsqueeze(-1) for numbers."
            )
    if keys.shape[-2] != values.shape[-2]:
        raise ShapeError(
            f"`keys` and `values` must have the same number of rows: got keys {tuple(keys.shape)} and values "
            f"{tuple(values.shape)}. Pass one value for each key."
        )
    try:
        broadcast_shapes(queries.shape[:-2], keys.shape[:-2], values.shape[:-2])
    except ValueError:
        raise ShapeError(
            f"The batch axes of `queries`, `keys` and `values` must broadcast: got queries {tuple(queries.shape)}, "
            f"keys {tuple(keys.shape)} and values {tuple(values.shape)}. "
            f"Insert axes of size 1, as in keys.unsqueeze(-3)."
        ) from None


def _check_devices(queries: Tensor, keys: Tensor, values: Tensor) -> None:
    if not queries.device == keys.device == values.device:
        raise DeviceError(
            f"`queries`, `keys` and `values` must be on one device: got {queries.device}, {keys.device} and "
            f"{values.device}. "
            f"Move them with .to({str(queries.device)!r})."
        )


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _as_positions(span: Span, grid: Grid) -> Tensor:
    return torch.arange(span.start, span.stop, device=grid.device) if isinstance(span, range) else span


def _take_rows(flags: Tensor, span: Span) -> Tensor:
    return flags[..., span.start : span.stop, :] if isinstance(span, range) else flags[..., span, :]


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
