"""What is refused at the door."""

from __future__ import annotations

from mutants.hunt import Mutant
from mutants.promises.tests import contract

DOOR = (
    Mutant(
        "dtypes that differ are refused",
        "regard/validation.py",
        "if not queries.dtype == keys.dtype == values.dtype:",
        "if False:",
        ("tests/test_problem.py -k wrong",),
    ),
    Mutant(
        "every key must have its value",
        "regard/validation.py",
        "if keys.shape[-2] != values.shape[-2]:",
        "if False:",
        ("tests/test_problem.py -k wrong or door",),
    ),
    Mutant(
        "dropout outside its range is refused",
        "regard/validation.py",
        "not isinstance(dropout, int | float) or not 0 <= dropout < 1",
        "not isinstance(dropout, int | float) or not 0 <= dropout <= 1",
        ("tests/engines/test_dropout.py -k outside",),
    ),
    Mutant(
        "a rule sees its score at the door",
        "regard/problem.py",
        "    weights.check_score(score)\n",
        "",
        (contract("Gaussian", "Proportional"),),
    ),
    Mutant(
        "a mask is checked at the door",
        "regard/problem.py",
        "        mask.check(grid if all_keys else replace(grid, whole=False))\n",
        "        pass\n",
        ("tests/test_problem.py", "tests/masks/test_padding.py"),
    ),
    Mutant(
        "half precision is accumulated in float32",
        "regard/problem.py",
        "return torch.float64 if self.values.dtype == torch.float64 else torch.float32",
        "return self.values.dtype",
        ("tests/test_problem.py -k half",),
    ),
)
