"""Which modules of a model are attention layers of transformers, and whether they run on regard."""

from __future__ import annotations

import inspect
from weakref import WeakKeyDictionary

from torch import nn

from regard.nn.hosts import Host

IMPLEMENTATION = "regard"  # as in attn_implementation="regard"
_MODELS = "transformers.modeling_utils"
_INTERFACE = "ALL_ATTENTION_FUNCTIONS"  # the table that layers of transformers look their attention up in


_known: WeakKeyDictionary[type, bool] = WeakKeyDictionary()  # what was found out about classes


def _calls_interface(kind: type) -> bool:
    """Whether a method of a class looks attention up in transformers' table: its code names it."""
    # Not in what all models inherit: those manage the table, and are no layers.
    bases = (base for base in kind.__mro__ if base.__module__ not in ("torch.nn.modules.module", _MODELS))
    methods = (inspect.unwrap(each) for base in bases for each in vars(base).values())
    return any(_INTERFACE in getattr(getattr(method, "__code__", None), "co_names", ()) for method in methods)


def is_attention(module: nn.Module) -> bool:
    """Whether a module is an attention layer that follows transformers' AttentionInterface."""
    kind = type(module)
    if kind not in _known:
        _known[kind] = _calls_interface(kind)
    return _known[kind]


def implementation_of(module: nn.Module) -> str | None:
    """What computes a layer's attention: "regard", "sdpa", "eager" …; None where it does not say."""
    return getattr(getattr(module, "config", None), "_attn_implementation", None)


def _refusal(module: nn.Module) -> str | None:
    got = implementation_of(module)
    if got in (IMPLEMENTATION, None):
        return None
    return (
        f'a layer of transformers must run with attn_implementation="{IMPLEMENTATION}": got "{got}". '
        f'Call model.set_attn_implementation("{IMPLEMENTATION}") first.'
    )


HOST = Host(is_attention, _refusal)
