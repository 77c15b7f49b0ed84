"""The mask that models of transformers hand from layer to layer: one of regard's, with the manners of a tensor."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

from regard.grid import Align, Grid
from regard.integrations.transformers.mask_functions import MaskFunction, MaskReader, Offset
from regard.integrations.transformers.refusals import refuse_unknown
from regard.masks import Mask, Window
from regard.masks.batch_axes import Axes
from regard.modes import is_tracing

# What transformers tells a mask function besides, for others: `local_size` is in the mask function itself.
_FOR_OTHERS = frozenset({"allow_torch_fix", "local_size"})

# Models whose layers lengthen their mask, which they know by its being a tensor of numbers; and whose attention adds it
# to scores, whatever is asked for.
_IN_NUMBERS = frozenset({"deepseek_v4", "git"})


def make_mask(
    batch_size: int,
    q_length: int | None = None,
    kv_length: int = 0,
    q_offset: Offset = 0,
    kv_offset: Offset = 0,
    mask_function: MaskFunction | None = None,
    attention_mask: Tensor | Mask | None = None,
    allow_is_causal_skip: bool = True,
    allow_is_bidirectional_skip: bool = False,
    use_vmap: bool = False,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
    config: Any = None,
    cache_position: Tensor | None = None,
    **others: Any,
) -> ModelMask | Tensor | None:
    """The mask of a model's call, as transformers asks for it: `AttentionMaskInterface.register("regard", make_mask)`.

    None where every pair is allowed and the model takes None for that. Arguments as for
    `transformers.masking_utils.sdpa_mask`.
    """
    from transformers.masking_utils import causal_mask_function, sdpa_mask

    refuse_unknown("a mask", {name: each for name, each in others.items() if name not in _FOR_OTHERS})
    if isinstance(attention_mask, ModelMask):
        return attention_mask  # it was made before, as `generate` does for caches of a fixed size
    if is_tracing() and not (mask_function in (None, causal_mask_function) and attention_mask is None):
        # What a function closes over cannot be read while torch traces it: the mask is the tensor that sdpa has.
        where = {"q_length": q_length, "q_offset": q_offset, "device": device}
        given: dict[str, Any] = {
            "batch_size": batch_size,
            "kv_length": kv_length,
            "kv_offset": kv_offset,
            "mask_function": mask_function or causal_mask_function,
            "attention_mask": attention_mask,
            "allow_is_causal_skip": False,
            "allow_is_bidirectional_skip": allow_is_bidirectional_skip,
            "use_vmap": use_vmap,
            **(where if cache_position is None else {"cache_position": cache_position}),
        }
        return sdpa_mask(**given)
    if cache_position is not None:  # as the first of transformers 5 say where queries stand
        q_length, q_offset, device = len(cache_position), cache_position[0], cache_position.device
    assert q_length is not None
    grid = Grid((batch_size,), q_length, kv_length, torch.device(device))
    reader = MaskReader(grid, _number(q_offset), _number(kv_offset), use_vmap)
    mask = reader.read(causal_mask_function if mask_function is None else mask_function)
    if isinstance(attention_mask, Tensor):
        padding = reader.padding(attention_mask)
        mask = padding if mask is None else mask if padding is None else mask & padding
    in_numbers = getattr(config, "model_type", None) in _IN_NUMBERS
    if mask is None and (allow_is_causal_skip or allow_is_bidirectional_skip) and not in_numbers:
        return None
    made = ModelMask(mask, grid, reader.align)
    if in_numbers:
        return torch.where(made.dense(), 0.0, torch.finfo(dtype).min).to(dtype)
    return made


def _number(start: Offset) -> Offset:
    """A position as a number: caches of a fixed size have it in a tensor, which is read unless torch traces."""
    return int(start) if isinstance(start, Tensor) and not is_tracing() else start


class ModelMask(Mask):
    """Which keys each query may attend to, in one call of a model.

    Most models hand their mask from layer to layer untouched, and it never becomes a tensor. For those that index it,
    or compute with it, it is `(batch, 1, n_queries, n_keys)` of bool, True where a query may attend, as for
    transformers' `sdpa`: what they make of it is an ordinary tensor, n × m.

    Args:
        mask: The mask; None for every pair.
        grid: The problem, with one batch axis.
        align: Where queries stand among keys: in a cache of a fixed size, not at its end.
    """

    def __init__(self, mask: Mask | None, grid: Grid, align: Align) -> None:
        self.mask, self.grid, self.align = mask, grid, align

    @property
    def shape(self) -> torch.Size:
        return torch.Size((*self.grid.batch_shape, 1, self.grid.n_queries, self.grid.n_keys))

    @property
    def ndim(self) -> int:
        return 4

    @property
    def dtype(self) -> torch.dtype:
        return torch.bool

    @property
    def device(self) -> torch.device:
        return self.grid.device

    def contiguous(self) -> ModelMask:
        return self

    def dense(self) -> Tensor:
        """The mask as a tensor, `(batch, 1, n_queries, n_keys)`."""
        grid = Grid((*self.grid.batch_shape, 1), self.grid.n_queries, self.grid.n_keys, self.grid.device)
        return self._whole.tile(grid.rows, grid.columns, grid).expand(self.shape)

    def allows(self, rows: Tensor, columns: Tensor, grid: Grid) -> Tensor:
        return self._whole.allows(rows, columns, grid)

    def tensors(self) -> tuple[Tensor, ...]:
        return self._whole.tensors()

    def batch_axes(self) -> Axes:
        return Axes(left=self.grid.batch_shape)

    @property
    def _whole(self) -> Mask:
        return Window(None, None, align="start") if self.mask is None else self.mask

    def __repr__(self) -> str:
        return f"ModelMask({self.mask!r}, {tuple(self.shape)})"

    # As a tensor --------------------------------------------------------------------------------------------------

    def to(self, *arguments: Any, **options: Any) -> Any:
        """Itself where it is already; a tensor of another dtype or on another device elsewhere."""
        dense = torch.empty((), dtype=self.dtype, device=self.device)
        wanted = dense.to(*arguments, **options)
        same = wanted.dtype == self.dtype and wanted.device == self.device
        return self if same else self.dense().to(*arguments, **options)

    def __getitem__(self, index: Any) -> Tensor:
        return self.dense()[index]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or not hasattr(Tensor, name):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self.dense(), name)

    def __and__(self, other: Any) -> Any:
        return self.dense() & other if isinstance(other, Tensor) else super().__and__(other)

    def __or__(self, other: Any) -> Any:
        return self.dense() | other if isinstance(other, Tensor) else super().__or__(other)

    def __invert__(self) -> Any:
        return ~self.dense()

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, arguments: Any = (), options: Any = None) -> Any:
        dense = tree_map_only(ModelMask, ModelMask.dense, (arguments, options or {}))
        return function(*dense[0], **dense[1])
