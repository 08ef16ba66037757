"""How the tests run on any machine: the longest files first, C++ compiled once, harnesses sampled.

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

settings.register_profile(
    "busy machine", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("busy machine")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that runs the harnesses whole."""
    parser.addoption("--whole", action="store_true", help="all tests, and not a sample of some")


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
    """Return what only ``--whole`` runs: most of each harness and sweep, and what is marked so."""
    sampled: dict[Path, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if item.path.is_relative_to(VERIFICATION) or item.get_closest_marker("sweep"):
            sampled[item.path].append(item)
    left_out = {item for item in items if item.get_closest_marker("whole")}
    for own in sampled.values():
        drawn = [item for item in own if _draw(item) % _sample_of(item) == 0]
        drawn = drawn or [min(own, key=_draw)]
        left_out |= set(own) - set(drawn)
    return left_out


def _sample_of(item: pytest.Item) -> int:
    """Return of how many tests one is in the sample."""
    mark = item.get_closest_marker("sweep")
    of: int = SAMPLE_OF if mark is None else mark.kwargs.get("of", SAMPLE_OF)
    return of


def _draw(item: pytest.Item) -> int:
    """Return a number that is always the same for a test; tests of one parameter have the same."""
    callspec = getattr(item, "callspec", None)
    return zlib.crc32((callspec.id if callspec else item.nodeid).encode())


def _place(item: pytest.Item) -> int:
    path = item.path.relative_to(ROOT)
    ahead = (at for at, of in enumerate(LONGEST) if path.is_relative_to(of))
    return next(ahead, len(LONGEST))
