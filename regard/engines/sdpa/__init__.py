"""PyTorch's own kernels, for softmax(scale · QKᵀ)V: the engine, one fused call with gradients, the shortcut to it."""
