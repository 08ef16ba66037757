"""Tests of the lines and instructions of generated kernels."""
