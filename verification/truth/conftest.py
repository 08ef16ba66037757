"""Nothing: tests that compile begin afresh."""

from tests.compiling import fresh_torch

__all__ = ["fresh_torch"]
