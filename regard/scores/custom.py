"""Custom: any function of queries and keys."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from regard.errors import OptionError
from regard.scores.form import CustomForm, Form
from regard.scores.score import Score
from regard.tensors import is_autocast_on


class Custom(Score):
    """a(q, k) = whatever `function` returns for a tile of queries and a tile of keys.

    The function is called with `(..., rows, query_dim)` and `(..., columns, key_dim)` for tiles of changing sizes, and
    returns `(..., rows, columns)`. A pair's score must depend on that pair alone, and come out the same when it is
    computed again: nothing random. Tensors that it closes over get gradients. A pair for which it returns −inf is not
    allowed, whatever is done to the score afterwards.

    Outside torch.compile it runs tile by tile, and a backward pass calls it again. Under torch.compile it is part of
    the graph, called once for all pairs.

    Args:
        function: A function, a lambda or an `nn.Module` (whose parameters are then this score's too).

    Example:
        >>> import torch
        >>> from regard import Custom, attend
        >>> sharpness = torch.tensor(2.0, requires_grad=True)
        >>> chebyshev = Custom(lambda q, k: -sharpness * (q.unsqueeze(-2) - k.unsqueeze(-3)).abs().amax(-1))
        >>> attend(torch.rand(3, 2), torch.rand(4, 2), torch.rand(4, 1), score=chebyshev).sum().backward()
        >>> sharpness.grad is not None
        True
    """

    def __init__(self, function: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        if not callable(function):
            raise OptionError(
                f"Custom must be given a function of (queries, keys): got {type(function).__name__}. "
                f"Return one score for each pair, (..., n_queries, n_keys)."
            )
        if isinstance(function, torch.jit.ScriptModule | torch.jit.ScriptFunction):
            raise OptionError(
                "Custom must be given a function that runs in Python: got a scripted one, which hides its tensors. "
                "Pass the module before torch.jit.script."
            )
        self.function = function

    def form(self, queries: Tensor, keys: Tensor) -> Form:
        function = self.function
        device = queries.device.type
        if is_autocast_on(device):
            # Engines turn autocast off around tiles; the user's own function keeps what was in force at the call.
            function = _under_autocast(function, device, torch.get_autocast_dtype(device))
        return CustomForm(queries, keys, function=function)

    def extra_repr(self) -> str:
        return getattr(self.function, "__name__", "")


def _under_autocast(
    function: Callable[[Tensor, Tensor], Tensor], device: str, dtype: torch.dtype
) -> Callable[[Tensor, Tensor], Tensor]:
    def autocast_function(queries: Tensor, keys: Tensor) -> Tensor:
        with torch.autocast(device, dtype=dtype):
            return function(queries, keys)

    return autocast_function
