"""What regard raises.

    RegardError
    ├── ShapeError          (ValueError)    sizes that do not fit together
    │   ├── LayerInputError (AssertionError) inputs that a layer cannot take, where PyTorch's raises an AssertionError
    │   └── LayerRuntimeError (RuntimeError) the same, where PyTorch's raises a RuntimeError
    ├── DtypeError          (TypeError)     dtypes that are wrong or differ
    ├── DeviceError         (ValueError)    tensors on different devices
    ├── OptionError         (ValueError)    an argument outside its range
    ├── ScoreError          (ValueError)    a score that its rule or engine cannot take
    ├── EngineRefusal       (RuntimeError)  the engine asked for cannot compute this problem
    ├── PromiseBroken       (RuntimeError)  weights that are not what their rule promises
    ├── ViewExpired         (RuntimeError)  a view whose inputs were changed in place
    ├── BudgetExceeded      (MemoryError)   more to be kept than was allowed
    ├── MissingKey          (KeyError)      a lookup that found nothing
    ├── TableError          (ValueError)    a table that cannot be read as keys and values
    ├── CheckpointError     (ValueError)    weights that do not fit their model
    └── MissingDependency   (ImportError)   an optional package that is not installed

Every message says what must hold, what was got, and what to do.
"""

from __future__ import annotations


class RegardError(Exception):
    """The base of every exception that regard raises on purpose."""


class ShapeError(RegardError, ValueError):
    """Sizes that do not fit together."""


class LayerInputError(ShapeError, AssertionError):
    """Inputs that a layer cannot take: an AssertionError too, as PyTorch's layers raise."""


class LayerRuntimeError(ShapeError, RuntimeError):
    """Inputs or masks that a layer cannot take: a RuntimeError too, as PyTorch's layers raise."""


class DtypeError(RegardError, TypeError):
    """Dtypes that are wrong or differ."""


class DeviceError(RegardError, ValueError):
    """Tensors on different devices."""


class OptionError(RegardError, ValueError):
    """An argument outside its range."""


class ScoreError(RegardError, ValueError):
    """A score that its rule or engine cannot take."""


class EngineRefusal(RegardError, RuntimeError):
    """The engine that was asked for cannot compute this problem."""


class PromiseBroken(RegardError, RuntimeError):
    """Weights that are not what their rule promises."""


class ViewExpired(RegardError, RuntimeError):
    """A view whose inputs were changed in place after it was made."""


class MissingKey(RegardError, KeyError):
    """A lookup that found nothing."""

    def __str__(self) -> str:
        # KeyError shows the repr of its argument, which would put a sentence in quotes.
        return str(self.args[0]) if self.args else ""


class TableError(RegardError, ValueError):
    """A table that cannot be read as keys and values."""


class MissingDependency(RegardError, ImportError):
    """An optional package that is not installed."""


class BudgetExceeded(RegardError, MemoryError):
    """More to be kept than was allowed."""


class CheckpointError(RegardError, ValueError):
    """Weights that do not fit their model."""
