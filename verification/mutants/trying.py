"""Mutants run at once in processes that mutmut's server forks, until the time is up."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from math import ceil
from queue import Empty

from mutmut.configuration import config
from mutmut.mutation.data import SourceFileMutationData
from mutmut.utils.file_utils import setup_source_paths, walk_mutatable_files
from mutmut.utils.format_utils import mangled_name_from_mutant_name
from mutmut.workers.isolation import MutantResult, MutantRunner, get_mutant_runner

from verification.mutants.covering import Covering

NO_TESTS = 33
"""The exit code by which mutmut means that no test runs the function."""


def try_mutants(names: Sequence[str], known: Covering, jobs: int, deadline: float) -> None:
    """Run the tests of each mutant, and store in mutmut's files what became of it.

    At the deadline, by the monotonic clock, what still runs is stopped and stays `not checked`.
    """
    tests = {name: known.of(mangled_name_from_mutant_name(name)) for name in names}
    seconds = {name: sum(map(known.seconds.__getitem__, tests[name])) for name in names}
    stored = dict(_stored_by_mutant())
    for name in names:
        _store(stored[name], name, None if tests[name] else NO_TESTS)
    setup_source_paths()
    runner = get_mutant_runner(jobs)
    runner.startup()
    try:
        for name in sorted((name for name in names if tests[name]), key=seconds.__getitem__):
            for result in _results(runner, deadline, until=jobs - 1):
                _store(stored[result.mutant_name], result.mutant_name, result.exit_code)
            if time.monotonic() > deadline:
                break
            allowed = (seconds[name] + config().timeout_constant) * config().timeout_multiplier
            # mutmut's server allows half of this as time, and this as the time of a CPU.
            runner.submit(name, tests[name], ceil(allowed * 2), seconds[name])
        runner.signal_work_complete()
        for result in _results(runner, deadline, until=0):
            _store(stored[result.mutant_name], result.mutant_name, result.exit_code)
    finally:
        runner.stop_all_workers()
        runner.shutdown()


def _results(runner: MutantRunner, deadline: float, until: int) -> Iterator[MutantResult]:
    """Yield results until so few run, or the time is up."""
    while runner.pending_count() > until and time.monotonic() < deadline:
        try:
            yield runner.wait_for_result(timeout=1.0)
        except Empty:
            continue


def _stored_by_mutant() -> Iterator[tuple[str, SourceFileMutationData]]:
    for path in walk_mutatable_files():
        data = SourceFileMutationData(path=path)
        data.load()
        yield from ((name, data) for name in data.exit_code_by_key)


def _store(data: SourceFileMutationData, name: str, exit_code: int | None) -> None:
    data.exit_code_by_key[name] = exit_code
    data.save()
