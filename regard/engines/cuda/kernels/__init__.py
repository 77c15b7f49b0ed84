"""Code that Triton compiles, and nothing else."""
