"""Engines: how the sum is computed. README.md beside this says how to add one."""

from types import MappingProxyType

from regard.engines.engine import Engine
from regard.engines.reference import Reference
from regard.engines.sdpa.sdpa_engine import Sdpa
from regard.engines.tiled import Tiled

ENGINES = MappingProxyType({engine.name: engine for engine in (Sdpa(), Tiled(), Reference())})
"""The engines that the planner knows, by name."""

__all__ = ["ENGINES", "Engine", "Reference", "Sdpa", "Tiled"]
