"""Attention(q, D) = Σ α(q, kᵢ)·vᵢ, for every way to choose the weights, over every kind of database.

The names below are imported when they are first used, so that `regard --help` need not wait for torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from regard.attention import attend, partial, plan, weigh
    from regard.database import Answer, Database
    from regard.engines import ENGINES, Engine
    from regard.masks import (
        Allowed,
        BlockLayout,
        Causal,
        GlobalKeys,
        KeyMask,
        Mask,
        NotSelf,
        Padding,
        PerHead,
        RandomKeys,
        SameDocument,
        Selected,
        Strided,
        Where,
        Window,
    )
    from regard.partials import Partial
    from regard.planner import Plan
    from regard.scores import (
        Additive,
        Alibi,
        Bias,
        Boxcar,
        Cosine,
        Custom,
        Dot,
        Epanechnikov,
        Equal,
        Gated,
        Gaussian,
        Laplacian,
        Multiplicative,
        RelativeBias,
        ScaledDot,
        Score,
        SoftCap,
        Triangular,
    )
    from regard.view import WeightsView
    from regard.weights import (
        Conic,
        Entmax,
        OneHot,
        Proportional,
        Raw,
        Sigmoid,
        Softmax,
        Sparsemax,
        TopK,
        Uniform,
        Weights,
    )

_HOMES = {
    "attention": ("attend", "partial", "plan", "weigh"),
    "database": ("Answer", "Database"),
    "engines": ("ENGINES", "Engine"),
    "masks": (
        *("Allowed", "BlockLayout", "Causal", "GlobalKeys", "KeyMask", "Mask", "NotSelf", "Padding", "PerHead"),
        *("RandomKeys", "SameDocument", "Selected", "Strided", "Where", "Window"),
    ),
    "partials": ("Partial",),
    "planner": ("Plan",),
    "scores": (
        *("Additive", "Alibi", "Bias", "Boxcar", "Cosine", "Custom", "Dot", "Epanechnikov", "Equal", "Gated"),
        *("Gaussian", "Laplacian", "Multiplicative", "RelativeBias", "ScaledDot", "Score", "SoftCap", "Triangular"),
    ),
    "view": ("WeightsView",),
    "weights": (
        *("Conic", "Entmax", "OneHot", "Proportional", "Raw", "Sigmoid", "Softmax", "Sparsemax", "TopK"),
        *("Uniform", "Weights"),
    ),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = sorted(_HOME_OF)  # noqa: PLE0605


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'regard' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"regard.{_HOME_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
