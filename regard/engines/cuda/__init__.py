"""Compiled kernels for CUDA devices, in Triton; imported when they are first used."""
