"""What kernels run on: compilation, machine code on disk, signatures, threads."""
