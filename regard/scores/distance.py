"""Distances that do not cancel: what Gaussian and Laplacian share."""

from __future__ import annotations

import dataclasses
import math

import torch
from torch import Tensor, nn

from regard.errors import ShapeError
from regard.learned import as_text, keep_positive
from regard.modes import is_capturing, is_hidden
from regard.scores.form import ChannelForm, ChannelFunction, DotForm, Form, SumForm
from regard.scores.score import Score, same_dim
from regard.tensors import stretches

# Bandwidths from 2⁻⁸ to 2⁸ are ordinary in float32, a sixteenth of its exponents: a slope is up to the square of one,
# and is multiplied by values before it is by differences.
ORDINARY = 16

# ‖q‖² + ‖k‖², in squared bandwidths, up to which the folded form's rounding (eps times that) does no harm.
FOLD_LIMIT = 64.0


class DistanceScore(Score):
    """The logarithm of a kernel of q − k, with one bandwidth, or one for each dimension."""

    is_log_kernel = True
    bandwidth: float | Tensor

    def __init__(self, bandwidth: float | Tensor | nn.Parameter) -> None:
        super().__init__()
        keep_positive(self, "bandwidth", bandwidth)

    def check(self, queries: Tensor, keys: Tensor) -> None:
        """Raise unless queries, keys and the bandwidth have one dim."""
        name, dim = type(self).__name__, queries.shape[-1]
        same_dim(queries, keys, name)
        shape = self.bandwidth.shape if isinstance(self.bandwidth, Tensor) else ()
        if len(shape) > 1 or not all(stretches(size, dim) for size in shape):
            raise ShapeError(
                f"`bandwidth` of {name} must be one number, or one for each of {dim} dimensions: "
                f"got {tuple(shape)}. Pass a tensor ({dim},)."
            )

    def extra_repr(self) -> str:
        return f"bandwidth={as_text(self.bandwidth)}"


def rescaled(queries: Tensor, keys: Tensor, width: float | Tensor) -> tuple[Tensor, Tensor, float | Tensor]:
    """Queries, keys and a bandwidth, times one power of two where the bandwidth is so large or small that it matters.

    A distance of some bandwidths is an ordinary number then, and its square neither overflows nor vanishes. Powers of
    two change no digit, so that differences stay exact: divided by the bandwidth itself, points far from the origin
    would lose some.

    Args:
        queries: `(..., n_queries, dim)`.
        keys: `(..., n_keys, dim)`.
        width: One number, or a tensor that broadcasts with them.
    """
    # Half precision is computed in float32, and what is made of a bandwidth too: its square would overflow float16.
    half = queries.itemsize < 4
    if half and isinstance(width, Tensor):
        width = width.float()
    most = math.frexp(torch.finfo(torch.float32 if half else queries.dtype).max)[1]
    if not isinstance(width, Tensor):
        exponent = math.frexp(width)[1]
        if abs(exponent) <= most // ORDINARY:
            return queries, keys, width
        factor = math.ldexp(1.0, min(-exponent, most - 2))
        queries, keys = (each.float() if half else each for each in (queries, keys))
        # A bandwidth below all floats is one that no two of them are as close as: 2⁻⁶⁰ of what was scaled up so far.
        return queries * factor, keys * factor, max(width * factor, 2.0**-60)
    known = not is_hidden(width) and not width.is_cuda  # a GPU would have to be waited for
    mantissa, exponents = torch.frexp(width.detach())
    if known and bool((exponents.abs() <= most // ORDINARY).all()):
        return queries, keys, width
    queries, keys = (each.float() if half else each for each in (queries, keys))
    scale = (mantissa / width.detach()).clamp(max=math.ldexp(1.0, most - 2)).to(queries.dtype)
    return queries * scale, keys * scale, width * scale


def folded(queries: Tensor, keys: Tensor) -> Form | None:
    """−‖q − k‖² / 2 as a dot form; None where that would cancel.

    −‖q − k‖² / 2 = q·k − ‖q‖²/2 − ‖k‖²/2, which is the dot product of [q, −‖q‖²/2, 1] and [k, 1, −‖k‖²/2]. It loses
    eps · (‖q‖² + ‖k‖²): harmless while that is small, wrong by whole units when points far from the origin lie close
    together.
    """
    if not fold_is_safe(queries, keys):
        return None
    return DotForm(_with_norms(queries, norm_first=True), _with_norms(keys, norm_first=False))


def summed(
    queries: Tensor, keys: Tensor, function: ChannelFunction, factor: float | Tensor, scale: float = -1.0
) -> Form:
    """scale · Σ_c factor_c · φ(q_c − k_c): differences first, so that what the points share costs no digits.

    Args:
        queries: `(..., n_queries, dim)`.
        keys: `(..., n_keys, dim)`.
        function: "square" or "absolute".
        factor: One number, or a tensor with one for each coordinate.
        scale: A number for all.
    """
    if not isinstance(factor, Tensor):
        return ChannelForm(queries, keys, function, scale=scale * factor)
    return ChannelForm(queries, keys, function, factor.expand(1, queries.shape[-1]), scale=scale)


def folded_where_safe(form: Form) -> Form:
    """The form with sums of squares as dot forms, where that is safe: what tracing had to leave undecided."""
    if isinstance(form, SumForm):
        return dataclasses.replace(form, terms=tuple(map(folded_where_safe, form.terms)))
    if not isinstance(form, ChannelForm) or form.function != "square" or form.scale >= 0:
        return form
    if form.weight is not None and not bool((form.weight > 0).all()):
        return form
    # scale · Σ w (l − r)² = −‖l′ − r′‖² / 2, with each coordinate times √(−2 · scale · w).
    spread: float | Tensor = (-2 * form.scale) ** 0.5
    if form.weight is not None:
        spread = spread * form.weight.sqrt()
    found = folded(form.left * spread, form.right * spread)
    return form if found is None else dataclasses.replace(found, steps=form.steps)


def fold_is_safe(queries: Tensor, keys: Tensor) -> bool:
    """Whether the dot form of the squared distance keeps its digits for these points, where one can look."""
    if is_hidden(queries) or queries.dtype not in (torch.float32, torch.float64):
        return False
    if queries.is_cuda and (queries.dtype == torch.float32 or is_capturing(queries.device)):
        return False  # kernels decide for each tile, and nobody waits for the device
    if queries.numel() == 0 or keys.numel() == 0:
        return False
    with torch.no_grad():
        largest = queries.square().sum(-1).amax() + keys.square().sum(-1).amax()
    return bool(largest <= FOLD_LIMIT)


def _with_norms(points: Tensor, *, norm_first: bool) -> Tensor:
    norm = points.square().sum(-1, keepdim=True) * -0.5
    one = torch.ones_like(norm)
    return torch.cat([points, norm, one] if norm_first else [points, one, norm], dim=-1)
