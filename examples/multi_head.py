"""Multi-head attention: self-attentions in parallel, here with scopes of their own; then a feed-forward network."""

import torch
from torch import nn

from regard import Allowed, PerHead, Window, attend

n, d, heads, d_head = 12, 32, 3, 8

torch.manual_seed(0)
X = torch.randn(n, d)
W_Q, W_K, W_V = (torch.randn(heads, d, d_head) / d**0.5 for _ in range(3))  # W_Q⁽ⁱ⁾, W_K⁽ⁱ⁾, W_V⁽ⁱ⁾

# One head sees the neighbouring words, one the sentence around, one the whole document.
everything = Allowed(torch.ones(1, 1, dtype=torch.bool))
scopes = PerHead([Window(before=1, after=1), Window(before=4, after=4), everything])
print(scopes.picture(n))

S = attend(X @ W_Q, X @ W_K, X @ W_V, mask=scopes)  # (heads, n, d_head): heads are a batch axis
concatenated = S.transpose(0, 1).reshape(n, heads * d_head)
network = nn.Sequential(nn.Linear(heads * d_head, 4 * d), nn.ReLU(), nn.Linear(4 * d, d))
print("output", tuple(network(concatenated).shape))
