"""What rules promise."""

from __future__ import annotations

from mutants.hunt import Mutant
from mutants.promises.tests import contract

RULES = (
    Mutant(
        "softmax takes −inf for not allowed",
        "regard/weights/onepass.py",
        "peak = torch.where(peak == -torch.inf, 0, peak)\n    return torch.where(blocked, 0, (",
        "return torch.where(blocked, 0 * peak, (",
        ("tests/weights/test_rules.py tests/weights/test_details.py tests/weights/test_learned.py",),
    ),
    Mutant(
        "a fully masked row of softmax is zeros",
        "regard/weights/softmax.py",
        "return numerators / torch.where((total == 0) | total.isnan(), 1, total)",
        "return numerators / torch.where(total.isnan(), 1, total)",
        ("tests/weights/test_rules.py tests/weights/test_details.py tests/weights/test_learned.py",),
    ),
    Mutant(
        "a sink takes its share",
        "regard/weights/softmax.py",
        "total = total + shift(sink, peak)",
        "total = total + 0 * shift(sink, peak)",
        ("tests/weights/test_rules.py tests/weights/test_details.py tests/weights/test_learned.py",),
    ),
    Mutant(
        "a sink joins tiles at the end",
        "regard/weights/softmax.py",
        "total * shift(peak, new_peak) + shift(sink, new_peak))",
        "total * shift(peak, new_peak))",
        (contract("ScaledDot", "sink"),),
    ),
    Mutant(
        "a sink learns",
        "regard/weights/softmax.py",
        "return (-weights * self.sink_weight(statistics),)",
        "return (weights * self.sink_weight(statistics),)",
        (contract("ScaledDot", "sink"),),
    ),
    Mutant(
        "temperature divides",
        "regard/weights/softmax.py",
        "return 1 / self.temperature",
        "return self.temperature",
        ("tests/weights/test_rules.py tests/weights/test_details.py tests/weights/test_learned.py",),
    ),
    Mutant(
        "conic weights are not negative",
        "regard/weights/elementwise.py",
        "return torch.relu(scores)  # whose",
        "return scores.abs()  # whose",
        ("tests/weights/test_rules.py tests/weights/test_details.py tests/weights/test_learned.py",),
    ),
    Mutant(
        "the backward of conic",
        "regard/weights/elementwise.py",
        "return (scores > 0).to(scores.dtype)",
        "return torch.ones_like(scores)",
        (contract("ScaledDot", "Conic"),),
    ),
    Mutant(
        "the backward of sigmoid",
        "regard/weights/elementwise.py",
        "return gate * (1 - gate)",
        "return gate",
        (contract("ScaledDot", "Sigmoid"),),
    ),
    Mutant(
        "the backward of rules that divide by a sum",
        "regard/weights/onepass.py",
        "return slope / statistics[1] if self.normalized else slope",
        "return slope",
        (contract("Boxcar", "Proportional"), contract("Epanechnikov", "Proportional")),
    ),
    Mutant(
        "what rules subtract in their backward",
        "regard/weights/onepass.py",
        'return "output" if self.normalized else "none"',
        'return "none"',
        (contract("ScaledDot", "Softmax"),),
    ),
    Mutant(
        "the backward of entmax",
        "regard/weights/entmax.py",
        "torch.where(inside, weights, 1).pow(2 - order)",
        "torch.where(inside, weights, 1).pow(1 - order)",
        (contract("ScaledDot", "Entmax"),),
    ),
    Mutant(
        "a learned alpha has its gradient",
        "regard/weights/entmax.py",
        "(surprise - share * entropy) / (order - 1)",
        "(surprise + share * entropy) / (order - 1)",
        (contract("ScaledDot", "learned"),),
    ),
    Mutant(
        "entmax's threshold is solved to the end",
        "regard/weights/entmax.py",
        "MAX_PASSES = 128",
        "MAX_PASSES = 3",
        ("tests/weights/test_rules.py tests/weights/test_details.py tests/weights/test_learned.py",),
    ),
    Mutant(
        "the second derivative of entmax",
        "regard/weights/entmax.py",
        "(start + 4 * middle + end) / 6",
        "start",
        (
            "tests/weights/test_entmax_derivatives.py",
            "tests/engines/test_gradcheck.py -k second",
        ),
    ),
    Mutant(
        "one-hot takes the lowest index among equals",
        "regard/weights/onehot.py",
        "best, place = scores.max(-1, keepdim=True)  # the first of equals",
        "best, place = scores.max(-1, keepdim=True).values, scores.shape[-1] - 1 - scores.flip(-1).argmax(-1, True)",
        (
            "tests/weights/test_rules.py tests/weights/test_details.py tests/weights/test_learned.py",
            "tests/test_partials.py -k ties",
        ),
    ),
    Mutant(
        "top-k takes the lowest index among equals",
        "regard/weights/topk.py",
        "places = ranked.sort(dim=-1, descending=True, stable=True).indices[..., :k]",
        "places = ranked.shape[-1] - 1 - ranked.flip(-1).sort(dim=-1, descending=True, stable=True).indices[..., :k]",
        ("tests/weights/test_rules.py tests/weights/test_details.py tests/weights/test_learned.py",),
    ),
    Mutant(
        "a choice sends no gradient to scores",
        "regard/weights/topk.py",
        "scores = masked(scores.detach(), allowed)",
        "scores = masked(scores.detach(), None)",
        ("tests/weights/test_rules.py tests/weights/test_details.py tests/weights/test_learned.py",),
    ),
    Mutant(
        "no rule gives a weight to what is not allowed",
        "regard/weights/onepass.py",
        "return torch.where(blocked, 0, self.numerators(torch.where(blocked, 0, scores), None))",
        "return self.numerators(torch.where(blocked, 0, scores), None)",
        ("tests/weights/test_rules.py tests/weights/test_details.py tests/weights/test_learned.py",),
    ),
    Mutant(
        "proportional weights refuse negative scores",
        "regard/weights/proportional.py",
        "if not is_tracing() and bool((numerators < 0).any()):",
        "if False:",
        ("tests/weights/test_rules.py tests/weights/test_details.py tests/weights/test_learned.py",),
    ),
    Mutant(
        "proportional weights of a log-kernel are refused at the door",
        "regard/weights/proportional.py",
        "if score.is_log_kernel:",
        "if False:",
        (contract("Gaussian", "Proportional"),),
    ),
)
