"""What scores promise."""

from __future__ import annotations

from mutants.hunt import Mutant

SCORES = (
    Mutant(
        "a pair that a bias excludes stays so through later steps",
        "regard/scores/form.py",
        "return scores if excluded is None else torch.where(excluded, -torch.inf, scores)",
        "return scores",
        ("tests/properties/test_not_allowed.py",),
    ),
    Mutant(
        "an excluded pair sends no NaN through later steps",
        "regard/scores/form.py",
        "scores = torch.where(excluded, 0, scores)",
        "pass",
        ("tests/properties/test_not_allowed.py",),
    ),
    Mutant(
        "a scaled dot is scaled by 1/√d",
        "regard/scores/dot.py",
        "1 / math.sqrt(max(queries.shape[-1], 1))",
        "1 / max(queries.shape[-1], 1)",
        ("tests/scores/test_dot.py",),
    ),
    Mutant(
        "an additive score has its bias",
        "regard/scores/additive.py",
        'project(keys, self.W2.mT, "Additive") + self.b.unsqueeze(-2)',
        'project(keys, self.W2.mT, "Additive") + 0 * self.b.unsqueeze(-2)',
        ("tests/scores/test_additive.py",),
    ),
    Mutant(
        "a gate is a sigmoid of both halves",
        "regard/scores/steps.py",
        "torch.sigmoid(self.query_term + self.key_term.mT) * scores",
        "torch.sigmoid(self.query_term - self.key_term.mT) * scores",
        ("tests/scores/test_gated.py",),
    ),
    Mutant(
        "distances are folded only where that cannot cancel",
        "regard/scores/distance.py",
        "return bool(largest <= FOLD_LIMIT)",
        "return True",
        ("tests/scores/test_gaussian.py",),
    ),
    Mutant(
        "the edge of a boxcar is inside, up to rounding",
        "regard/scores/steps.py",
        "rounding = 32 * torch.finfo(scores.dtype).eps",
        "rounding = -32 * torch.finfo(scores.dtype).eps",
        ("tests/scores/test_compact.py",),
    ),
    Mutant(
        "the gradient of a triangular kernel at q = k is 0",
        "regard/scores/steps.py",
        "distance = torch.where(apart, scores, 1).sqrt() * apart",
        "distance = scores.sqrt()",
        ("tests/scores/test_compact.py",),
    ),
    Mutant(
        "a zero vector has a cosine of 0",
        "regard/scores/cosine.py",
        "return torch.where(is_zero, 0, reduced / length)",
        "return torch.where(is_zero, 1, reduced / length)",
        ("tests/scores/test_cosine.py",),
    ),
    Mutant(
        "Alibi subtracts the distance",
        "regard/scores/steps.py",
        "return scores - self.slope * distance.to(scores.dtype)",
        "return scores + self.slope * distance.to(scores.dtype)",
        ("tests/scores/test_bias.py",),
    ),
    Mutant(
        "relative positions are clamped at both ends",
        "regard/scores/steps.py",
        "(self.key_positions.mT - self.query_positions).clamp(-reach, reach) + reach",
        "(self.query_positions - self.key_positions.mT).clamp(-reach, reach) + reach",
        ("tests/scores/test_bias.py",),
    ),
    Mutant(
        "a sum of log-kernels is one",
        "regard/scores/composed.py",
        "self.is_log_kernel = all(score.is_log_kernel for score in flat)",
        "self.is_log_kernel = any(score.is_log_kernel for score in flat)",
        ("tests/scores/test_composed.py",),
    ),
)
