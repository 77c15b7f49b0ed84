"""A trap for tensors that grow with n × m."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class TooLarge(AssertionError):
    """An operation allocated more than the trap lets pass."""


class AllocationTrap(TorchDispatchMode):
    """While it is on, an operation whose result has a storage of `limit` elements or more raises `TooLarge`.

    Views of tensors made before are not allocations: they share a storage that is known.

    Example:
        >>> import torch
        >>> from regard.testing import AllocationTrap
        >>> with AllocationTrap(limit=100):
        ...     _ = torch.zeros(9, 9)
        >>> with AllocationTrap(limit=100):
        ...     _ = torch.zeros(10, 10)
        Traceback (most recent call last):
        regard.testing.memory.TooLarge: aten.zeros.default made a tensor of (10, 10): 100 elements, 100 are too many
    """

    def __init__(self, limit: int, known: Iterable[Tensor] = ()) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.limit = limit
        self.known = {each.untyped_storage().data_ptr() for each in known}

    def __torch_dispatch__(
        self, function: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        result = function(*args, **(kwargs or {}))
        for tensor in (result,) if isinstance(result, Tensor) else tree_leaves(result):
            # A large storage first shows as a large tensor, so that most results need no further look.
            if isinstance(tensor, Tensor) and tensor.numel() >= self.limit:
                storage = tensor.untyped_storage()
                elements = storage.nbytes() // tensor.element_size()
                if elements >= self.limit and storage.data_ptr() not in self.known:
                    raise TooLarge(
                        f"{function} made a tensor of {tuple(tensor.shape)}: {elements} elements, "
                        f"{self.limit} are too many"
                    )
        return result
