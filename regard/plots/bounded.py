"""Weights of any kind as a picture of a bounded size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from regard.errors import OptionError, ShapeError

if TYPE_CHECKING:
    from torch import Tensor

AXES = "rows are queries, columns are keys"


@dataclass(frozen=True)
class Reading:
    """Weights as they are drawn: `(height, width)`, with the names of rows and columns and what was done to them."""

    picture: Tensor
    rows: list[str] | None
    columns: list[str] | None
    notes: tuple[str, ...]  # what a reader has to know: averaged, pooled
    size: tuple[int, int]  # of the weights themselves

    @property
    def is_whole(self) -> bool:
        """Whether each cell is one weight."""
        return tuple(self.picture.shape) == self.size

    @property
    def caption(self) -> str:
        return "; ".join((AXES, *self.notes))


def read(
    weights: Any,
    rows: Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
    *,
    most: tuple[int, int] = (256, 256),
    entry: tuple[int, ...] | None = None,
) -> Reading:
    """Weights as a picture of at most `most` rows and columns.

    Where there are more, a cell is the largest of the weights that it stands for. Of a `WeightsView` that takes
    memory for the picture alone.

    Args:
        weights: A `WeightsView`, a tensor, an array or nested lists: `(..., n_queries, n_keys)`.
        rows: A name for each query.
        columns: A name for each key.
        most: The height and width of the largest picture.
        entry: Which entry of the leading axes (batch, heads); their average if left out.

    Example:
        >>> import torch
        >>> read(torch.eye(1000), most=(2, 2)).picture
        tensor([[1., 0.],
                [0., 1.]])
    """
    pictures, shape = every_picture(weights, *most)
    *batch, n_queries, n_keys = shape
    notes = []
    if entry is not None:
        if len(entry) != len(batch) or not all(-size <= place < size for place, size in zip(entry, batch, strict=True)):
            raise OptionError(f"`entry` must be a place in the leading axes {tuple(batch)}: got {entry}.")
        picture = pictures[entry]
    else:
        picture = pictures.flatten(0, -3).mean(0) if batch else pictures
        if any(size > 1 for size in batch):
            notes.append(f"averaged over {' × '.join(map(str, batch))}")
    notes += pooling_notes((n_queries, n_keys), tuple(picture.shape))
    return Reading(
        picture,
        names_of(rows, n_queries, picture.shape[0], "rows"),
        names_of(columns, n_keys, picture.shape[1], "columns"),
        tuple(notes),
        (n_queries, n_keys),
    )


def every_picture(weights: Any, height: int, width: int) -> tuple[Tensor, tuple[int, ...]]:
    """A picture of at most that size for each entry of the leading axes, `(..., height, width)`; the weights' shape."""
    import torch

    from regard.view.weights_view import WeightsView

    if isinstance(weights, WeightsView):
        _check_size(weights.shape)
        with torch.no_grad():
            picture = weights.map(height, width, pool="max")
        shape = tuple(weights.shape)
    else:
        tensor = as_tensor(weights)
        shape = tuple(tensor.shape)
        _check_size(shape)
        picture = pooled(tensor, height, width)
    return picture.detach().float().cpu(), shape


def pooling_notes(size: tuple[int, int], drawn: tuple[int, ...]) -> list[str]:
    """What has to be said of a picture that has fewer cells than there are weights."""
    if size == drawn:
        return []
    from regard.view.drawing import ratio

    (n_queries, n_keys), (height, width) = size, drawn
    return [
        f"each cell is the largest of about {ratio(n_queries, height)} × {ratio(n_keys, width)} weights, of "
        f"{n_queries:,} × {n_keys:,}"
    ]


def unless_finite(picture: Tensor, what: str) -> str:
    """What a caption goes on to say of cells that are NaN or infinite, drawn as `what`; nothing where there are none.

    Example:
        >>> import torch
        >>> unless_finite(torch.tensor([[0.5, torch.nan]]), "?"), unless_finite(torch.ones(1, 1), "?")
        ('; ? is no finite number', '')
    """
    return "" if bool(picture.isfinite().all()) else f"; {what} is no finite number"


def as_tensor(weights: Any) -> Tensor:
    """Weights as a tensor without a gradient."""
    import torch

    try:
        tensor = torch.as_tensor(weights).detach()
    except (TypeError, ValueError, RuntimeError) as error:
        raise ShapeError(
            f"Weights must be a table of numbers: got {type(weights).__name__} ({error}).{_advice(weights)}"
        ) from None
    return tensor if tensor.is_floating_point() else tensor.float()


def _advice(weights: Any) -> str:
    from regard.nn.recording import Recording

    if isinstance(weights, Recording):
        return " Pass one layer of it, recording[name]; plots.heads(recording) draws every layer."
    return " Pass a tensor, or what `weigh` gives."


def pooled(matrix: Tensor, height: int, width: int) -> Tensor:
    """The largest weight in each cell of pictures of at most that size, as `WeightsView.map` gathers them."""
    import torch

    for axis, most in ((-2, height), (-1, width)):
        size = matrix.shape[axis]
        if size > most:
            first = first_of_each(size, most)
            cells = [matrix.narrow(axis, start, stop - start) for start, stop in pairwise([*first, size])]
            matrix = torch.stack([cell.amax(axis) for cell in cells], axis)
    return matrix


def first_of_each(count: int, cells: int) -> list[int]:
    """The first place that each cell stands for: place i belongs to cell ⌊i · cells / count⌋."""
    return [-(-cell * count // cells) for cell in range(cells)]


def _check_size(shape: tuple[int, ...]) -> None:
    if len(shape) < 2 or 0 in shape:
        raise ShapeError(
            f"Weights must have a row for each query and a column for each key: got shape {shape}. "
            f"Pass (n_queries, n_keys), neither of them 0."
        )


def names_of(names: Sequence[str] | None, count: int, drawn: int, axis: str) -> list[str] | None:
    """The names of an axis: where a picture has fewer places, of the first that each stands for."""
    if names is None:
        return None
    if len(names) != count:
        raise ShapeError(f"`{axis}` must have a name for each: got {len(names)} for {count}.")
    if drawn == count:
        return [str(name) for name in names]
    return [f"{names[place]} …" for place in first_of_each(count, drawn)]
