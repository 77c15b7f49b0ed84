"""The gradient of tiled attention: one formula for every rule, over tiles that are computed again.

    dP = keep · dO vᵀ        dS = slope · (dP − dO·u)        dV = (keep · α)ᵀ dO

where u is 0, the output, or the values averaged by slope, as the rule says; dS then goes through the score's own
derivative.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from regard.engines.second_derivatives import gradients_over_strips
from regard.engines.tile_stream import Stream, Tile
from regard.errors import EngineRefusal
from regard.scores.closures import substituting
from regard.scores.form import Form
from regard.tensors import product
from regard.weights import Statistics, Weights

if TYPE_CHECKING:
    from regard.engines.state import Pooled


def attach(stream: Stream, pooled: Pooled, captured: tuple[Tensor, ...], *, whole: bool = True) -> Tensor:
    """The output, as a differentiable function of everything that it was computed from.

    Args:
        stream: The tiles.
        pooled: What a pass over them gave, computed without gradients.
        captured: The tensors that a user's function closes over.
        whole: Whether the stream holds every key that was pooled; without it there is no second derivative.
    """
    inputs = [tensor for part in stream.parts for tensor in part.inputs] + list(captured)
    if not torch.is_grad_enabled() or not any(each.requires_grad for each in inputs):
        return pooled.output
    run = Run(stream, pooled.statistics, pooled.slope_mean, captured, whole)
    return _Attach.apply(run, pooled.output, *inputs)  # type: ignore[no-any-return, no-untyped-call]


@dataclass(frozen=True)
class Run:
    """What a backward pass needs to know beside tensors."""

    stream: Stream
    statistics: Statistics
    slope_mean: Tensor | None
    captured: tuple[Tensor, ...]
    whole: bool


class _Attach(torch.autograd.Function):
    """An output computed elsewhere, with the gradient that it should have."""

    @staticmethod
    def forward(ctx: Any, run: Run, output: Tensor, *inputs: Tensor) -> Tensor:
        ctx.run = run
        result = output.detach()
        ctx.save_for_backward(result, *inputs)
        return result

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        output, *inputs = ctx.saved_tensors
        arguments = (ctx.run, ctx.needs_input_grad[2:], output.detach(), gradients[0])
        # Where nobody will differentiate them again, the gradients need no node of their own.
        if torch.is_grad_enabled():
            return None, None, *_Gradients.apply(*arguments, *inputs)  # type: ignore[no-untyped-call]
        return None, None, *gradients_over_tiles(*arguments, inputs)


class _Gradients(torch.autograd.Function):
    """The first derivative over tiles; its own derivative, over strips of the definition."""

    @staticmethod
    def forward(
        ctx: Any, run: Run, needed: Sequence[bool], output: Tensor, gradient: Tensor, *inputs: Tensor
    ) -> tuple[Tensor | None, ...]:
        ctx.run, ctx.needed = run, needed
        ctx.save_for_backward(gradient, *inputs)
        ctx.set_materialize_grads(False)
        return tuple(gradients_over_tiles(run, needed, output, gradient, inputs))

    @staticmethod
    def backward(ctx: Any, *second: Tensor | None) -> tuple[Tensor | None, ...]:
        gradient, *inputs = ctx.saved_tensors
        run = ctx.run
        if not run.whole or len(run.stream.parts) > 1:
            raise EngineRefusal(
                "A second derivative must be taken of one problem: got merged parts. "
                "Attend over the concatenated keys and values instead."
            )
        results = gradients_over_strips(run.stream.parts[0], ctx.needed, gradient, inputs, second, run.captured)
        return None, None, None, *results


def gradients_over_tiles(
    run: Run, needed: Sequence[bool], output: Tensor, gradient: Tensor, inputs: Sequence[Tensor]
) -> list[Tensor | None]:
    """The derivative with respect to each input that needs one; None for the others."""
    stream, rule = run.stream, run.stream.rule
    gradient = gradient.to(output.dtype)
    centre = {"none": None, "output": output, "slope": run.slope_mean}[rule.centre]
    if stream.compiled is not None and run.whole:
        return stream.compiled.gradients(needed, run.statistics, centre, gradient)
    buffers = _Buffers(run, needed, inputs)
    with torch.autocast(stream.grid.device.type, enabled=False):
        for rows in stream.row_blocks():
            block = slice(rows.start, rows.stop)
            gradient_rows = gradient[..., block, :]
            statistics = tuple(each[..., block, :] for each in run.statistics)
            delta = None if centre is None else (gradient_rows * centre[..., block, :]).sum(-1, keepdim=True)
            for tile in stream.tiles(rows):
                _add_tile(tile, rule, statistics, gradient_rows, delta, buffers)
    return buffers.results()


def _add_tile(
    tile: Tile, rule: Weights, statistics: Statistics, gradient: Tensor, delta: Tensor | None, buffers: _Buffers
) -> None:
    """Add what one tile gives to the gradients of its inputs."""
    leaves, form = buffers.leaves(tile)
    with torch.enable_grad(), substituting(buffers.swapped):
        tracked = tile.scores(form)
    scores, positions, keep = tracked.detach(), tile.positions, tile.keep()
    weights = rule.weights(scores, statistics, positions)
    buffers.add_values(tile, weights if keep is None else weights * keep, gradient)
    slope = rule.slope(scores, weights, statistics, positions)
    if slope is None and not buffers.has_learned:
        return
    to_weights = product(gradient, tile.values.mT)  # dP
    if keep is not None:
        to_weights = to_weights * keep
    if buffers.has_learned:
        centre = torch.zeros_like(to_weights[..., :1]) if delta is None else delta
        buffers.add_learned(rule.learned_gradients(scores, weights, statistics, positions, to_weights, centre))
    if slope is not None and leaves and tracked.requires_grad:
        to_scores = slope * (to_weights if delta is None else to_weights - delta)  # dS
        buffers.add_leaves(tile, leaves, torch.autograd.grad(tracked, leaves, to_scores, allow_unused=True))


class _Buffers:
    """The gradients so far, each in the shape of its input."""

    def __init__(self, run: Run, needed: Sequence[bool], inputs: Sequence[Tensor]) -> None:
        self.run, self.needed, self.inputs = run, needed, inputs
        # Sums over many tiles: half precision is gathered in float32, and what every tile adds to in float64.
        self.gradients = [
            torch.zeros(each.shape, dtype=_wider(each), device=each.device) if need else None
            for each, need in zip(inputs, needed, strict=True)
        ]
        self._starts: dict[int, int] = {}
        start = 0
        for part in run.stream.parts:
            self._starts[id(part)] = start
            start += len(part.inputs)
        self._captured = range(start, len(inputs))
        # What a user's function closes over, as leaves.
        self.swapped = {
            id(each): each.detach().requires_grad_()
            for each, place in zip(run.captured, self._captured, strict=True)
            if needed[place]
        }
        first = run.stream.parts[0]
        n_form = len(first.form.tensors())
        self._learned = range(n_form + 1, len(first.inputs))
        self.has_learned = any(needed[place] for place in self._learned)

    def leaves(self, tile: Tile) -> tuple[list[Tensor], Form]:
        """The tensors of a tile that need gradients, as leaves, and the tile's form around them."""
        start = self._starts[id(tile.problem)]
        # In the dtype of computation, so that what each tile adds is not rounded to half precision.
        form = tile.form.to(tile.problem.compute_dtype)
        parts = [part.detach() for part in form.tensors()]
        leaves = []
        for place, part in enumerate(parts):
            if self.needed[start + place]:
                leaves.append(part.requires_grad_())
        captured = [self.swapped[id(each)] for each in self.run.captured if id(each) in self.swapped]
        return leaves + captured, form.rebuilt(iter(parts))

    def add_leaves(self, tile: Tile, leaves: list[Tensor], gradients: tuple[Tensor | None, ...]) -> None:
        """Add the gradients of `leaves(tile)`."""
        for target, gradient in zip(self._targets(tile), gradients, strict=True):
            if gradient is not None:
                target += gradient

    def _targets(self, tile: Tile) -> Iterator[Tensor]:
        """Views of the buffers, one for each of `leaves(tile)`."""
        start = self._starts[id(tile.problem)]
        form = tile.problem.form
        n_form = len(form.tensors())
        # The form around the buffers, narrowed like the form itself, gives the place of each part. Places without a
        # buffer keep the input, to keep the order.
        stand_ins = [
            buffer if buffer is not None else original
            for buffer, original in zip(self.gradients[start : start + n_form], form.tensors(), strict=True)
        ]
        views = form.rebuilt(iter(stand_ins)).narrow(tile.rows, tile.columns).tensors()
        for place, view in enumerate(views):
            if self.needed[start + place]:
                yield view
        for place in self._captured:
            buffer = self.gradients[place]
            if buffer is not None:
                yield buffer

    def add_values(self, tile: Tile, weights: Tensor, gradient: Tensor) -> None:
        """Add the gradient of a tile's values, αᵀ dO: `(*batch_shape, rows, columns)` and `(..., rows, value_dim)`."""
        buffer = self.gradients[self._starts[id(tile.problem)] + len(tile.problem.form.tensors())]
        if buffer is None:
            return
        target = buffer[..., tile.columns.start : tile.columns.stop, :]
        # Batch entries that share their values are more rows of one product, not products to be summed.
        while weights.ndim > 2 and (target.ndim < 3 or target.shape[-3] == 1):
            weights, gradient = weights.flatten(-3, -2), gradient.flatten(-3, -2)
            target = target.squeeze(-3) if target.ndim > 2 else target
        target += (weights.mT @ gradient).sum_to_size(target.shape)

    def add_learned(self, gradients: tuple[Tensor, ...]) -> None:
        """Add the gradients of what the rule learned."""
        for place, gradient in zip(self._learned, gradients, strict=True):
            buffer = self.gradients[place]
            if buffer is not None:
                buffer += gradient

    def results(self) -> list[Tensor | None]:
        """The gradients in the dtypes of their inputs."""
        return [
            None if gradient is None else gradient.to(each.dtype)
            for gradient, each in zip(self.gradients, self.inputs, strict=True)
        ]


def _wider(tensor: Tensor) -> torch.dtype:
    """The dtype in which gradients of a tensor are summed."""
    return torch.float64 if tensor.dtype == torch.float64 or tensor.ndim < 2 or tensor.shape[-2] == 1 else torch.float32
