"""An attention layer, as the slides define it: scores a_i, weights b = softmax(a), output o = Σ b_i v_i."""

import torch

from regard import ScaledDot, Softmax, attend

torch.manual_seed(0)
q = torch.randn(1, 8)  # one query, d_q = 8
k = torch.randn(6, 8)  # a memory of m = 6 pairs
v = torch.randn(6, 3)  # d_v = 3

a = ScaledDot()(q, k)  # the scores a_1 … a_6
b = Softmax()(a)  # the attention weights b_1 … b_6
o = attend(q, k, v)  # the output

print("a =", a)
print("b =", b, "which sums to", float(b.sum()))
print("o =", o)
assert torch.allclose(o, b @ v, atol=1e-6)
