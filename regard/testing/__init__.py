"""The engine contract, shipped: every engine matches the definition or refuses with reasons."""

from regard.testing.cases import DTYPES, MASKS, RULES, SCORES, VARIANTS, Case, Sizes, every_case
from regard.testing.contract import Mismatch, Outcome, check
from regard.testing.memory import AllocationTrap, TooLarge
from regard.testing.support_table import support_tables

__all__ = [
    "DTYPES",
    "MASKS",
    "RULES",
    "SCORES",
    "VARIANTS",
    "AllocationTrap",
    "Case",
    "Mismatch",
    "Outcome",
    "Sizes",
    "TooLarge",
    "check",
    "every_case",
    "support_tables",
]
