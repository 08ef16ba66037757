"""Which tests run which function: each test file is asked in a process of its own, many at once.

mutmut asks all files in one process and stops at the first test that fails. Here a test that fails
without a mutant is left out and named: it would kill every mutant that it runs.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pytest
from mutmut.configuration import config
from mutmut.mutation.trampoline import set_mutant_under_test
from mutmut.state import state
from mutmut.utils.file_utils import change_cwd, setup_source_paths

MUTATED = Path("mutants")
RECORDS = MUTATED / "covering"


@dataclass
class Covering:
    """The tests that run each function, how long each takes, and what fails without a mutant."""

    tests: dict[str, list[str]] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)

    def of(self, function: str) -> list[str]:
        """Return the tests that run a function and pass without a mutant, the fastest first."""
        passing = set(self.tests.get(function, ())) - set(self.failed)
        return sorted(passing, key=lambda test: (self.seconds.get(test, 0), test))

    def add(self, other: Covering) -> None:
        """Add what another test file said."""
        for function, tests in other.tests.items():
            self.tests.setdefault(function, []).extend(tests)
        self.seconds |= other.seconds
        self.failed += other.failed


def covering(jobs: int, deadline: float) -> Covering:
    """Ask every selected test file that is newer than its last answer.

    A file that has not answered at the deadline, by the monotonic clock, counts as failed.
    """
    RECORDS.mkdir(exist_ok=True)
    every = Covering()
    files = sorted(_selected(config().pytest_add_cli_args_test_selection))
    with ThreadPoolExecutor(jobs) as pool:
        for answer in pool.map(lambda file: _answered(file, deadline), files):
            every.add(answer)
    return every


def _selected(arguments: Iterable[str]) -> Iterator[Path]:
    """Yield the test files, from the root, that these arguments of pytest select."""
    given = list(arguments)
    ignored = {Path(each.partition("=")[2]) for each in given if each.startswith("--ignore=")}
    for each in given:
        if not each.startswith("-"):
            path = Path(each)
            files = path.rglob("test_*.py") if path.is_dir() else [path]
            yield from (file for file in files if file not in ignored)


def _answered(file: Path, deadline: float) -> Covering:
    target = RECORDS / f"{'.'.join(file.with_suffix('').parts)}.json"
    if not target.exists() or target.stat().st_mtime < file.stat().st_mtime:
        target.unlink(missing_ok=True)
        command = [sys.executable, "-m", "verification.mutants.covering", str(file), str(target)]
        left = max(1, deadline - time.monotonic())
        quiet = subprocess.DEVNULL
        try:
            subprocess.run(command, timeout=left, check=False, stdout=quiet, stderr=quiet)
        except subprocess.TimeoutExpired:
            return Covering(failed=[f"{file} ran out of time"])
        if not target.exists():
            return Covering(failed=[f"{file} broke its process"])
    return Covering(**json.loads(target.read_text()))


class _Recorder:
    """The pytest plugin that notes after each test which functions it ran."""

    def __init__(self) -> None:
        self.covering = Covering()

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.covering.failed.append(report.nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.covering.failed.append(report.nodeid)
        taken = self.covering.seconds.get(report.nodeid, 0)
        self.covering.seconds[report.nodeid] = taken + report.duration

    def pytest_runtest_teardown(self, item: pytest.Item, nextitem: Any) -> None:
        for function in state()._stats:
            self.covering.tests.setdefault(function, []).append(item.nodeid)
        state()._stats.clear()


def main() -> None:
    """Run one test file of the mutated copy, every mutant off, and write what it ran."""
    file, target = sys.argv[1], Path(sys.argv[2]).resolve()
    config()  # is read where pyproject.toml is, not in the copy
    setup_source_paths()
    os.environ["PY_IGNORE_IMPORTMISMATCH"] = "1"
    set_mutant_under_test("stats")
    recorder = _Recorder()
    with change_cwd(MUTATED):
        pytest.main(["--rootdir=.", "-q", "-p", "no:cacheprovider", file], plugins=[recorder])
    partial = target.with_suffix(".partial")
    partial.write_text(json.dumps(asdict(recorder.covering)))
    partial.replace(target)


if __name__ == "__main__":
    main()
