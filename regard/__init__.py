"""Attention(q, D) = Σ α(q, kᵢ)·vᵢ, for any score, weights rule and mask, over tensors, tables and texts."""

import importlib
from typing import Any

__version__ = "0.1.0"

# Each public name and the module it lives in. It is imported when it is first used, so that `regard --help` does not
# wait for torch. `__init__.pyi` says the same to type checkers.
_HOMES = {
    "Additive": "scores",
    "Alibi": "scores",
    "Allowed": "masks",
    "Answer": "database",
    "Bias": "scores",
    "BlockLayout": "masks",
    "Boxcar": "scores",
    "Causal": "masks",
    "Conic": "weights",
    "Cosine": "scores",
    "Custom": "scores",
    "Database": "database",
    "Dot": "scores",
    "ENGINES": "engines",
    "Engine": "engines",
    "Entmax": "weights",
    "Epanechnikov": "scores",
    "Equal": "scores",
    "Gated": "scores",
    "Gaussian": "scores",
    "GlobalKeys": "masks",
    "KeyMask": "masks",
    "Laplacian": "scores",
    "Mask": "masks",
    "Multiplicative": "scores",
    "NotSelf": "masks",
    "OneHot": "weights",
    "OnePass": "weights",
    "Padding": "masks",
    "Partial": "partials",
    "PerHead": "masks",
    "Plan": "planner",
    "Proportional": "weights",
    "RandomKeys": "masks",
    "Raw": "weights",
    "RelativeBias": "scores",
    "SameDocument": "masks",
    "ScaledDot": "scores",
    "Score": "scores",
    "Selected": "masks",
    "Sigmoid": "weights",
    "SoftCap": "scores",
    "Softmax": "weights",
    "Sparsemax": "weights",
    "Strided": "masks",
    "TopK": "weights",
    "Triangular": "scores",
    "Uniform": "weights",
    "Weights": "weights",
    "WeightsView": "view.weights_view",
    "Where": "masks",
    "Window": "masks",
    "attend": "attention",
    "partial": "attention",
    "plan": "attention",
    "weigh": "attention",
}

_SUBMODULES = frozenset(
    {"analysis", "database", "engines", "errors", "masks", "nn", "plots", "scores", "testing", "text", "weights"}
)

__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    if name in _SUBMODULES:
        return importlib.import_module(f"regard.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'regard' has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(f"regard.{_HOMES[name]}"), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
