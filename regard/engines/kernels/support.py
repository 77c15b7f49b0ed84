"""What compiled kernels support, on every device that has them, known without importing them."""

from __future__ import annotations

from regard.engines.kernels import codes
from regard.problem import AttentionProblem
from regard.scores import steps
from regard.scores.form import ChannelForm, DotForm
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

RULES: dict[type[Weights], int] = {
    Softmax: codes.SOFTMAX,
    Proportional: codes.PROPORTIONAL,
    Conic: codes.CONIC,
    Raw: codes.RAW,
    Sigmoid: codes.SIGMOID,
    Uniform: codes.UNIFORM,
    Entmax: codes.ENTMAX,
    Sparsemax: codes.ENTMAX,
}

STEPS = (
    steps.Scale,
    steps.Gate,
    steps.Cap,
    steps.AddPairs,
    steps.AddDistance,
    steps.AddRelative,
    steps.Indicator,
    steps.Parabola,
    steps.Tent,
)


def unsupported(problem: AttentionProblem) -> str | None:
    """Why kernels cannot compute a problem, whatever its device and dtype; None if they can."""
    form, (rule, _) = problem.form, inner_rule(problem.rule)
    if rule is None:
        return f"the kernels do not have {type(problem.rule).__name__}"
    if type(form) not in (DotForm, ChannelForm):
        return f"the kernels do not have {type(problem.score).__name__}"
    if is_empty(problem):
        return "it is empty"
    tables = pairs = 0
    for step in form.steps:
        if type(step) not in STEPS:
            return f"the kernels do not have {type(step).__name__}"
        tables += isinstance(step, steps.AddRelative)
        if isinstance(step, steps.AddPairs) and 1 not in step.bias.shape[-2:]:
            pairs += 1
            if step.bias.requires_grad:
                return "a bias that is learned for each pair has a gradient as large as n × m"
    return (
        "the kernels take one table of relative positions and one bias for each pair"
        if max(tables, pairs) > 1
        else None
    )


def inner_rule(rule: Weights) -> tuple[Weights | None, int]:
    """(the rule, how many keys are chosen for it first); no rule where the kernels do not have it."""
    if type(rule) is OneHot:
        return Uniform(), 1
    inner, choose = (rule.then, rule.k) if isinstance(rule, TopK) and type(rule) is TopK else (rule, 0)
    if type(inner) not in RULES or (choose and isinstance(inner, Entmax) and inner.learned()):
        return None, 0
    return inner, choose


def is_empty(problem: AttentionProblem) -> bool:
    """Whether there is nothing to compute: no query, key, number of a key or number of a value."""
    return 0 in (*problem.output_shape, problem.grid.n_keys, problem.form.tensors()[0].shape[-1])
