"""The special cases of attention weights: conic, convex, one-hot, uniform; and how scores are normalised."""

import torch

from regard import Conic, OneHot, Proportional, Softmax, Triangular, Uniform, weigh

gpa = torch.tensor([[3.0], [3.2], [3.4], [3.5], [3.6], [3.8], [4.0]])
salary = torch.tensor([[59.0], [63.5], [67.0], [70.5], [71.0], [77.0], [84.0]])
query = torch.tensor([[3.5]])

for rule in (Conic(), Proportional(), Softmax(), OneHot(), Uniform()):
    view = weigh(query, gpa, salary, score=Triangular(radius=0.4), weights=rule)
    view.verify()  # raises if the weights are not of their kind
    weights = "  ".join(f"{each:.3f}" for each in view.dense()[0])
    print(f"{type(rule).__name__:13} {view.kind:8} {weights}   output {float(view.output):7.2f}")

# Proportional: α = a / Σ a. Softmax: α = exp(a) / Σ exp(a), which takes any score, of any sign.
