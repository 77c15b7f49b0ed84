"""What compiled kernels promise. No tracer sees their lines, so that every entry names its tests."""

from __future__ import annotations

from mutants.hunt import Mutant
from mutants.promises.tests import by_tiles

ROWS = "regard/engines/cpu/kernels/row_steps.py"
WORDS = "regard/engines/kernels/support.py"


def word(name: str) -> Mutant:
    """A step that kernels no longer know."""
    return Mutant(
        f"kernels know the step {name}",
        WORDS,
        f"    steps.{name},\n",
        "",
        ("tests/engines/cpu/test_support.py",),
    )


def rule(name: str, code: str) -> Mutant:
    """A rule that kernels no longer know."""
    return Mutant(
        f"kernels know the rule {name}",
        WORDS,
        f"    {name}: codes.{code},\n",
        "",
        ("tests/engines/cpu/test_support.py",),
    )


KERNELS = (
    word("Scale"),
    word("Gate"),
    word("Cap"),
    word("AddPairs"),
    word("AddDistance"),
    word("AddRelative"),
    word("Indicator"),
    word("Parabola"),
    word("Tent"),
    rule("Proportional", "PROPORTIONAL"),
    rule("Conic", "CONIC"),
    rule("Sigmoid", "SIGMOID"),
    rule("Uniform", "UNIFORM"),
    rule("Sparsemax", "ENTMAX"),
    Mutant(
        "torch has its cores back after a reading",
        "regard/engines/torch_internals.py",
        "        set_threads(before)",
        "        pass",
        ("tests/engines/cpu/test_thread_pool.py -k undisturbed",),
    ),
    Mutant(
        "calls have all cores while torch has one",
        "regard/engines/cpu/runtime/thread_pool.py",
        "    _inside.threads = count()",
        "    _inside.threads = 1",
        ("tests/engines/cpu/test_thread_pool.py -k undisturbed",),
    ),
    Mutant(
        "what torch does for a reading has all cores",
        "regard/view/passes.py",
        'compiled = self.__dict__.get("_compiled")',
        "compiled = None",
        ("tests/engines/cpu/test_thread_pool.py -k all_cores",),
    ),
    Mutant(
        "the step Cap of kernels",
        ROWS,
        "row[j] = number * tangent(row[j] * inverse)",
        "row[j] = tangent(row[j] * inverse)",
        (by_tiles("SoftCap", "Softmax"),),
    ),
    Mutant(
        "kernels exclude a pair of −inf again after later steps",
        "regard/engines/cpu/program.py",
        "return (*found, *again)",
        "return tuple(found)",
        ("tests/properties/test_not_allowed.py",),
    ),
    Mutant(
        "the step Gate of kernels, backward",
        ROWS,
        "(ONE + of_row * by_column[j])\n            change = _times(to_row[j], before[j]) * gate * (ONE - gate)",
        "(ONE + of_row * by_column[j])\n            change = _times(to_row[j], before[j]) * gate",
        (by_tiles("Gated", "Softmax"),),
    ),
    Mutant(
        "the step Tent of kernels, backward",
        ROWS,
        "to_row[j] = -inside * HALF / (distance * number) if distance > ZERO else ZERO",
        "to_row[j] = -inside / (distance * number) if distance > ZERO else ZERO",
        (by_tiles("Triangular", "Conic"),),
    ),
    Mutant(
        "the rule softmax of kernels moves with its peak",
        ROWS,
        "shrink = exponential(before - peak)",
        "shrink = ONE",
        (by_tiles("Dot", "Softmax"),),
    ),
    Mutant(
        "the rule softmax of kernels, backward",
        ROWS,
        "change[j] = row[j] * (change[j] - delta)",
        "change[j] = row[j] * change[j]",
        (by_tiles("Dot", "Softmax"),),
    ),
    Mutant(
        "the rule conic of kernels, backward",
        ROWS,
        "change[j] = change[j] if row[j] > ZERO else ZERO",
        "change[j] = change[j]",
        (by_tiles("Dot", "Conic"),),
    ),
    Mutant(
        "the rule sigmoid of kernels, backward",
        ROWS,
        "change[j] *= row[j] * (ONE - row[j])",
        "change[j] *= row[j]",
        (by_tiles("Dot", "Sigmoid"),),
    ),
    Mutant(
        "kernels block what a mask blocks",
        ROWS,
        "row[j] = row[j] if allowed[j] else NOTHING",
        "row[j] = row[j]",
        (by_tiles("Dot", "Softmax"),),
    ),
    Mutant(
        "dropout's hash in kernels is that of all engines",
        ROWS,
        "np.uint32(0x735A2D97)",
        "np.uint32(0x735A2D95)",
        ("tests/contract/test_engines.py -k kernels_match and unusual and dropout",),
    ),
    Mutant(
        "the form square of kernels, backward",
        "regard/engines/cpu/kernels/channel_loops.py",
        "return np.float32(2.0) * (left - right)",
        "return (left - right)",
        (by_tiles("Epanechnikov", "Conic"),),
    ),
    Mutant(
        "the form absolute of kernels, backward at 0",
        "regard/engines/cpu/kernels/channel_loops.py",
        "return np.float32(1.0) if left > right else (np.float32(-1.0) if left < right else np.float32(0.0))",
        "return np.float32(1.0) if left >= right else np.float32(-1.0)",
        (
            "tests/engines/cpu/test_channel.py -k absolute",
            "tests/contract/test_engines.py -k kernels and unusual and one tensor",
        ),
    ),
    Mutant(
        "entmax in kernels keeps its threshold in two parts",
        "regard/engines/cpu/kernels/entmax_thresholds.py",
        "return (score - high) - low",
        "return score - high",
        ("tests/engines/cpu/test_entmax_thresholds.py",),
    ),
    Mutant(
        "kernels for large gates",
        "regard/engines/cpu/program.py",
        "near = near or float(by_row.abs().amax()) < GATE_LIMIT > float(by_column.abs().amax())",
        "near = True",
        ("tests/scores -k gate", "tests/engines/cpu", "tests/properties/test_extremes.py"),
    ),
    Mutant(
        "a bias that is learned for each pair is left to plain torch",
        WORDS,
        "if step.bias.requires_grad:",
        "if False:",
        ("tests/engines/cpu/test_support.py -k with_a_reason",),
    ),
    Mutant(
        "kernels leave float64 to plain torch",
        "regard/engines/kernels/dispatch.py",
        "if problem.compute_dtype not in kernels.dtypes:",
        "if False:",
        ("tests/engines/cpu/test_support.py -k with_a_reason",),
    ),
    Mutant(
        "machine code on disk is named after all sources",
        "regard/engines/cpu/runtime/kernel_cache.py",
        'for path in [*sorted((engines / "cpu/kernels").glob("*.py")), *shared]:',
        "for path in shared:",
        ("tests/engines/cpu/test_faults.py -k another_source",),
    ),
    Mutant(
        "damaged machine code is not run",
        "regard/engines/cpu/runtime/kernel_cache.py",
        "if content and hashlib.sha256(content).digest() == digest:",
        "if content:",
        ("tests/engines/cpu/test_background_compilation.py",),
    ),
    Mutant(
        "kernels that are asked for refuse what they do not support",
        "regard/engines/tiled.py",
        "elif self.kernels is True and (reason := why_plain(problem, asked=True)) and not is_empty(problem):",
        "elif False and (reason := why_plain(problem, asked=True)) and not is_empty(problem):",
        ("tests/engines/cpu/test_background_compilation.py",),
    ),
    Mutant(
        "one process compiles at a time",
        "regard/engines/cpu/runtime/background_compilation.py",
        "if not _state.runs and _state.starts < MOST_STARTS and not _others_compile():",
        "if True:",
        ("tests/engines/cpu/test_background_compilation.py",),
    ),
    Mutant(
        "kernels that two processes compiled call their own functions",
        "regard/engines/cpu/runtime/jit.py",
        "    if function.__closure__:\n",
        "    if function.__closure__ and not function:\n",
        ("tests/engines/cpu/test_symbols.py -k no_two",),
    ),
)
