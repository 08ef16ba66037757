"""How the tests run on any machine: the longest files first, C++ compiled once, harnesses sampled.

Files are handed to processes one by one (``--dist loadfile --no-loadscope-reorder``): one that
takes minutes and comes last would run alone.
"""

from __future__ import annotations

import os
import random
import shutil
import tempfile
from collections import defaultdict
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).parent
VERIFICATION = ROOT / "verification"
LONGEST = (
    "verification/faults",
    "verification/programs",
    "verification/hostile",
    "tests/end_to_end",
    "verification",
    "tests/attribution/test_damaged_recordings.py",
    "tests/capture",
    "tests/gate/test_workflow.py",
)
"""Those that take longest, the longest first."""
SAMPLE_SEED = 0
SAMPLE_OF = 8
"""One of so many tests of a harness is in the sample, and two of each at least."""

settings.register_profile(
    "busy machine", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("busy machine")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that runs the harnesses whole."""
    parser.addoption("--whole", action="store_true", help="all of verification/, not a sample")


def pytest_configure(config: pytest.Config) -> None:
    """Make the folder of compiled C++ that all processes of this run share."""
    if "TESTS_COMPILED_CPP" not in os.environ:
        os.environ["TESTS_COMPILED_CPP"] = tempfile.mkdtemp(prefix="compiled-cpp-")
        config.add_cleanup(_remove_compiled)
    # Else Inductor compiles a program for each kind of vector anew in each cache: 8 s.
    os.environ["TORCHINDUCTOR_VEC_ISA_OK"] = "1"


def _remove_compiled() -> None:
    shutil.rmtree(os.environ.pop("TESTS_COMPILED_CPP"), ignore_errors=True)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave a sample of the harnesses, and put the longest first; within a file the order stays."""
    if not config.getoption("whole") and not _is_named(config):
        left_out = set(items) - _sample(items)
        config.hook.pytest_deselected(items=[item for item in items if item in left_out])
        items[:] = [item for item in items if item not in left_out]
    items.sort(key=_place)


def _is_named(config: pytest.Config) -> bool:
    """Tell whether a file or a test was asked for by its name: it runs, sample or not."""
    return any(".py" in each for each in config.args)


def _sample(items: list[pytest.Item]) -> set[pytest.Item]:
    """Return all tests but those of a harness, of which the same few are drawn each time."""
    harnesses: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if item.path.is_relative_to(VERIFICATION):
            harnesses[item.path.relative_to(VERIFICATION).parts[0]].append(item)
    left = set(items) - {item for own in harnesses.values() for item in own}
    for name, own in harnesses.items():
        draw = random.Random(f"{name} {SAMPLE_SEED}")
        left |= set(draw.sample(own, min(len(own), max(2, len(own) // SAMPLE_OF))))
    return left


def _place(item: pytest.Item) -> int:
    path = item.path.relative_to(ROOT)
    ahead = (at for at, of in enumerate(LONGEST) if path.is_relative_to(of))
    return next(ahead, len(LONGEST))
