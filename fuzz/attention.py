"""One case of attention, held to what it promises."""

from __future__ import annotations

import random
import warnings

from fuzz.cases import make_case
from fuzz.checks import PROMISES
from fuzz.runner import Outcome, outcome_of
from regard.errors import EngineRefusal

MORE = 2  # promises beside the first that a case is held to, so that cases are many


def judge_attention(seed: int, every: bool = False) -> list[Outcome]:
    """Output and gradients against the definition, and some of the other promises; all of them, if asked."""
    case = make_case(seed)
    first, *others = PROMISES
    chosen = others if every else random.Random(seed).sample(others, MORE)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [outcome_of(each.__name__, each, case, EngineRefusal) for each in (first, *chosen)]
