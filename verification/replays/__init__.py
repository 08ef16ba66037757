"""Kernels that a program's own CUDA graphs replay, against the same work without a graph."""
