"""The passes over a problem's pairs: forward, backward, choices, readings of weights. Python that drives kernels."""
