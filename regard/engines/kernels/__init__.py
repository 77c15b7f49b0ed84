"""What compiled kernels are asked for, on any device, and what they support. Imports no compiler."""
