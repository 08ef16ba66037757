"""How the tests run on any machine: the longest files first, C++ compiled once, slow ones sampled.

Files are handed to processes one by one (``--dist loadfile --no-loadscope-reorder``): one that
takes minutes and comes last would run alone.
"""

from __future__ import annotations

import importlib
import os
import shutil
import sys
import tempfile
import zlib
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
SAMPLE_OF = 16
"""One of so many tests of a harness or a sweep is in the sample, and one of each at least."""
SAMPLE_OF_SLOW = 3
SLOW = (
    "tests/capture",
    "tests/cases",
    "tests/cluster",
    "tests/comparison",
    "tests/end_to_end",
    "tests/exporters",
    "tests/inside",
    "tests/integrations",
    "tests/memory",
    "tests/serving",
    "tests/tensorboard",
    "tests/test_behaviour.py",
    "tests/test_cli.py",
    "tests/test_joint_table.py",
    "tests/test_one_step.py",
    "tests/test_printing.py",
    "tests/trials",
)
"""Tests that compile, start processes or read whole recordings: one of three is in the sample.

With all of them CI took 25 minutes on two slow cores; it may take 15.
"""

settings.register_profile(
    "busy machine", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("busy machine")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that runs all tests."""
    parser.addoption(
        "--whole", action="store_true", help="all tests, not a sample of the slow ones"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Make the folder of compiled C++ that all processes of this run share."""
    if "TESTS_COMPILED_CPP" not in os.environ:
        os.environ["TESTS_COMPILED_CPP"] = tempfile.mkdtemp(prefix="compiled-cpp-")
        config.add_cleanup(_remove_compiled)
    # Else Inductor compiles a program for each kind of vector anew in each cache: 8 s.
    os.environ["TORCHINDUCTOR_VEC_ISA_OK"] = "1"


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Forget what a file has compiled: which file comes next depends on the machine."""
    is_last = nextitem is None or nextitem.path != item.path
    if is_last and "torch._inductor.compile_fx" in sys.modules:
        importlib.import_module("tests.compiling").forget_compiled()


def _remove_compiled() -> None:
    shutil.rmtree(os.environ.pop("TESTS_COMPILED_CPP"), ignore_errors=True)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave a sample of what takes long, and put the longest first; in a file the order stays."""
    if not config.getoption("whole") and not _is_named(config):
        left_out = _left_out(items)
        config.hook.pytest_deselected(items=[item for item in items if item in left_out])
        items[:] = [item for item in items if item not in left_out]
    items.sort(key=_place)


def _is_named(config: pytest.Config) -> bool:
    """Tell whether a file or a test was asked for by its name: it runs, sample or not."""
    return any(".py" in each for each in config.args)


def _left_out(items: list[pytest.Item]) -> set[pytest.Item]:
    """Return what only ``--whole`` runs: most of what is slow or a sweep, and what is marked so."""
    sampled: dict[Path, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if _sample_of(item) > 1:
            sampled[item.path].append(item)
    left_out = {item for item in items if item.get_closest_marker("whole")}
    for own in sampled.values():
        drawn = [item for item in own if _draw(item) % _sample_of(item) == 0]
        drawn = drawn or [min(own, key=_draw)]
        left_out |= set(own) - set(drawn)
    return left_out


def _sample_of(item: pytest.Item) -> int:
    """Return of how many tests one is in the sample."""
    if item.path.is_relative_to(VERIFICATION) or item.get_closest_marker("sweep"):
        return SAMPLE_OF
    path = item.path.relative_to(ROOT)
    return SAMPLE_OF_SLOW if any(path.is_relative_to(each) for each in SLOW) else 1


def _draw(item: pytest.Item) -> int:
    """Return a number that is always the same for a test; tests of one parameter have the same."""
    callspec = getattr(item, "callspec", None)
    return zlib.crc32((callspec.id if callspec else item.nodeid).encode())


def _place(item: pytest.Item) -> int:
    path = item.path.relative_to(ROOT)
    ahead = (at for at, of in enumerate(LONGEST) if path.is_relative_to(of))
    return next(ahead, len(LONGEST))
