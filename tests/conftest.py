"""How the tests are run on any machine: the longest files first, and C++ compiled once.

Files are handed to processes one by one (``--dist loadfile --no-loadscope-reorder``): one that
takes minutes and comes last would run alone.
"""

from __future__ import annotations

import os
import shutil
import tempfile
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
    "tests/truth",
    "tests/attribution/test_damaged_recordings.py",
    "tests/capture",
    "tests/gate/test_workflow.py",
)
"""Those that take longest, the longest first."""

settings.register_profile(
    "busy machine", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("busy machine")


def pytest_configure(config: pytest.Config) -> None:
    """Make the folder of compiled C++ that all processes of this run share."""
    if "TESTS_COMPILED_CPP" not in os.environ:
        os.environ["TESTS_COMPILED_CPP"] = tempfile.mkdtemp(prefix="compiled-cpp-")
        config.add_cleanup(_remove_compiled)
    # Else Inductor compiles a program for each kind of vector anew in each cache: 8 s.
    os.environ["TORCHINDUCTOR_VEC_ISA_OK"] = "1"


def _remove_compiled() -> None:
    shutil.rmtree(os.environ.pop("TESTS_COMPILED_CPP"), ignore_errors=True)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the longest first; within a file the order stays."""
    items.sort(key=_place)


def _place(item: pytest.Item) -> int:
    path = item.path.relative_to(ROOT)
    ahead = (at for at, of in enumerate(LONGEST) if path.is_relative_to(of))
    return next(ahead, len(LONGEST))
