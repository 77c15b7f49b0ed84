"""Multi-head attention: self-attentions in parallel, here with scopes of their own; then a feed-forward network."""

import torch

from regard import Allowed, Window, nn

n, d, heads = 12, 48, 3

torch.manual_seed(0)
X = torch.randn(n, d)

# One head sees the neighbouring words, one the sentence around, one the whole document.
everything = Allowed(torch.ones(1, 1, dtype=torch.bool))
scopes = [Window(before=1, after=1), Window(before=4, after=4), everything]
layer = nn.MultiHeadAttention(d, heads, mask=scopes)
print("W_Q⁽ⁱ⁾ of each head:", tuple(layer.W_Q.shape))

output, _ = layer(X, X, X, need_weights=False)  # the heads' S⁽ⁱ⁾ side by side, times W_O
network = nn.FeedForward(d, 4 * d)
print("output", tuple(network(output).shape))

view = layer.weigh(X, X, X)  # (1, heads, n, n)
for head, row in enumerate(view.dense()[0, :, 6], start=1):
    print(f"head {head}: token 6 attends to tokens", *row.nonzero().flatten().tolist())

# Each head is the self-attention of its own W_Q⁽ⁱ⁾, W_K⁽ⁱ⁾ and W_V⁽ⁱ⁾. The last one, which sees everything:
Q, K, V = X @ layer.W_Q[-1], X @ layer.W_K[-1], X @ layer.W_V[-1]
S = torch.softmax(Q @ K.T / layer.head_dim**0.5, dim=-1) @ V
assert torch.allclose(view.output[0, -1], S, atol=1e-6)
