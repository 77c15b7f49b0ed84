"""Forms for rules that weigh every allowed pair alike: which pairs are allowed, without the scores."""

from __future__ import annotations

from torch import Tensor

from regard.scores.form import CustomForm, DotForm, Form, Step, SumForm
from regard.scores.steps import Scale


def without_scores(form: Form) -> Form:
    """A form that scores 0 every pair that `form` does not exclude; to its tensors it sends a gradient of zero.

    No product is computed, which may overflow to −inf, and so look as if the pair were not allowed. A user's function
    is still called: it alone knows what it excludes.
    """
    tensors = form.tensors()
    left, right, functions, steps = _parts(form)
    n_queries, n_keys = left.shape[-2], right.shape[-2]
    # Sums of nothing, which have a gradient.
    nothing = [each[..., :0].sum().to(left.dtype) for each in tensors if each.requires_grad]
    zeros = left.new_zeros(*form.batch_shape, n_queries, 1)
    # What does not exclude counts for nothing: several large biases would add up to −inf.
    forget = Scale(left.new_zeros(1, 1))
    between = [each for step in steps for each in (step, forget)][: None if functions else -1]
    plain = DotForm(sum(nothing, start=zeros), right.new_zeros(n_keys, 1), steps=tuple(between))
    return SumForm(terms=(plain, *(each.then(forget) for each in functions))) if functions else plain


def _parts(form: Form) -> tuple[Tensor, Tensor, list[CustomForm], list[Step]]:
    """A form's queries and keys, the functions in it, and the steps that may exclude a pair."""
    steps = [step for step in form.steps if getattr(step, "excludes", False)]
    if isinstance(form, SumForm):
        found = [_parts(term) for term in form.terms]
        functions = [each for part in found for each in part[2]]
        return found[0][0], found[0][1], functions, [*(each for part in found for each in part[3]), *steps]
    left, right = form.tensors()[:2]
    return left, right, [form] if isinstance(form, CustomForm) else [], steps
