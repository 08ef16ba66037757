"""The fixtures of the tests of capture."""

from tests.compiling import fresh_torch

__all__ = ["fresh_torch"]
