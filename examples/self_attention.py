"""Self-attention: S = softmax(QKᵀ/√d_Q) V with Q = XW_Q, K = XW_K, V = XW_V."""

import torch

from regard import attend, weigh

sentence = "When he saw his owner , the dog was happy , so he wagged his tail"
words = sentence.split()
n, d, d_q, d_v = len(words), 32, 16, 8

torch.manual_seed(0)
vectors = {word: torch.randn(d) for word in sorted(set(words))}  # untrained: one random vector for each word
X = torch.stack([vectors[word] for word in words])  # (n, d)
W_Q, W_K, W_V = torch.randn(d, d_q) / d**0.5, torch.randn(d, d_q) / d**0.5, torch.randn(d, d_v) / d**0.5

Q, K, V = X @ W_Q, X @ W_K, X @ W_V  # (n, d_Q), (n, d_Q), (n, d_V)
S = attend(Q, K, V)  # (n, d_V)
assert torch.allclose(S, torch.softmax(Q @ K.T / d_q**0.5, dim=-1) @ V, atol=1e-6)
print("S is", tuple(S.shape))

view = weigh(Q, K, V)
print(view)
row, keys = view.top(3)
place = words.index("happy")
print(
    "happy looks at", {words[key]: round(float(weight), 3) for weight, key in zip(row[place], keys[place], strict=True)}
)
