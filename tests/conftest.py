"""Owns how the tests are run on any machine: the longest files first, and no limits of time.

Files are handed to processes one by one (``--dist loadfile --no-loadscope-reorder``): one that
takes minutes and comes last would run alone.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).parents[1]
LONGEST = (
    "tests/faults",
    "tests/programs",
    "tests/hostile",
    "tests/end_to_end",
    "tests/oracle",
    "tests/eager_oracle",
    "tests/attribution/test_damaged_recordings.py",
    "tests/capture",
)
"""Those that take longest, the longest first."""

settings.register_profile(
    "busy machine", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("busy machine")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the longest first; within a file the order stays."""
    items.sort(key=_place)


def _place(item: pytest.Item) -> int:
    path = item.path.relative_to(ROOT)
    ahead = (at for at, of in enumerate(LONGEST) if path.is_relative_to(of))
    return next(ahead, len(LONGEST))
