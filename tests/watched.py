"""Owns the mark of tests that watch which lines run."""

import sys

import pytest

needs_lines = pytest.mark.skipif(
    sys.version_info < (3, 12), reason="sys.monitoring tells lines from Python 3.12 on"
)
