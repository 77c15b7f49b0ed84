"""Self-attention: S = softmax(QKᵀ/√d_Q) V with Q = XW_Q, K = XW_K, V = XW_V."""

import torch

from regard import nn
from regard.plots import draw_ranked
from regard.text import WordVectors

sentence = "When he saw his owner, the dog was happy, so he wagged his tail"
words = sentence.lower().replace(",", "").split()
vectors = WordVectors.load()
X = vectors[words] - vectors.vectors.mean(dim=0)  # (n, d): GloVe's vectors, less the mean of all words
n, d = X.shape

torch.manual_seed(0)
layer = nn.SelfAttention(d, key_dim=16, value_dim=8)  # W_Q and W_K are d × 16, W_V is d × 8; untrained
S = layer(X)
print("X is", (n, d), "and S is", tuple(S.shape))

Q, K, V = X @ layer.W_Q, X @ layer.W_K, X @ layer.W_V
assert torch.allclose(S, torch.softmax(Q @ K.T / 16**0.5, dim=-1) @ V, atol=1e-6)

place = words.index("happy")
print("\nThe row of happy, with random W_Q and W_K:")
print(draw_ranked(layer.weigh(X).dense()[place].tolist(), words, width=40, most=4))

with torch.no_grad():  # with W_Q = W_K = I, similar is what has similar vectors
    layer = nn.SelfAttention(d)
    layer.W_Q.copy_(torch.eye(d))
    layer.W_K.copy_(torch.eye(d))
print("\nThe row of happy, by the words' vectors alone:")
print(draw_ranked(layer.weigh(X).dense()[place].tolist(), words, width=40, most=4))
