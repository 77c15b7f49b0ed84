"""The common ways to calculate weights, on the same queries and keys."""

import torch

from regard import Additive, Dot, Gated, Multiplicative, ScaledDot, Selected, attend

torch.manual_seed(0)
d, n, m = 8, 4, 6
q, k, v = torch.randn(n, d), torch.randn(m, d), torch.randn(m, 3)

scores = {
    "dot              s = qᵀk": Dot(),
    "scaled dot       s = qᵀk / √d": ScaledDot(),
    "additive         s = vᵀ tanh(W₁q + W₂k + b)": Additive(d, d, hidden_dim=16),
    "multiplicative   s = qᵀWk": Multiplicative(d, d),
    "gating mechanism s = σ(W_g[q; k]) · qᵀk": Gated(d, d),
}
for name, score in scores.items():
    print(f"{name:46}", attend(q, k, v, score=score)[0].detach())

# Sparse attention: only the selected positions are scored.
selected = Selected(torch.tensor([[0, 2], [1, 3], [2, 4], [3, 5]]))
print(f"{'sparse           s = qᵀk_i for selected i':46}", attend(q, k, v, score=Dot(), mask=selected)[0])
print(selected.picture(n, m))
