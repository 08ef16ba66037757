"""The trunks that run side by side, and the runs of what no trunk can branch for."""

from __future__ import annotations

import dataclasses
import itertools
import math
import os
import selectors
import shutil
import signal
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from verification.faults import branching, runs
from verification.faults.branching import Trunk, Twig
from verification.faults.runs import Fault, Result

_BATCH = 100
_TRUNK_S = 45
"""A trunk that begins later would be cut off before it gets to what runs last."""
_Tried = Iterator[tuple[Fault, Result]]


def run_each(
    script: str, faults: Iterable[Fault], compiled: Path, jobs: int, until: float = math.inf
) -> _Tried:
    """Run a script once with each fault; see :func:`verification.faults.runs.run_each`.

    Args:
        script: its name in ``scripts``.
        faults: what is wrong, in turn.
        compiled: the folder of the compiled C++; the runs are made beside it.
        jobs: so many at a time.
        until: none begins after this time of the monotonic clock.
    """
    yield from _Trunks(script, compiled, until).run(_by_function(faults), jobs)


def _by_function(faults: Iterable[Fault]) -> list[Fault]:
    """Put the faults of a call together, so that one trunk may find its errors alike."""
    of_call: dict[tuple[str, int], list[Fault]] = {}
    for fault in faults:
        of_call.setdefault((fault.function, fault.call), []).append(fault)
    return [fault for each in of_call.values() for fault in each]


def _of_calls(faults: Sequence[Fault]) -> Iterator[list[Fault]]:
    """Yield the faults of each call, which stand together."""
    for _, found in itertools.groupby(faults, lambda fault: (fault.function, fault.call)):
        yield list(found)


class _Trunks:
    """Runs trunks side by side, and what a trunk could not branch for as soon as it has ended.

    So what the time allows for is a sample of all: no trunk begins that would be cut off before it
    gets to what runs last, and no fault waits because it needs a run of its own.
    """

    def __init__(self, script: str, compiled: Path, until: float) -> None:
        self._script = script
        self._compiled = compiled
        self._until = until
        self._left: deque[list[Fault]] = deque()  # those of a call together
        self._running = selectors.DefaultSelector()

    def run(self, faults: Sequence[Fault], jobs: int) -> _Tried:
        if branching.CLONE is None or os.environ["FAULTS_DEVICE"] != "cpu":
            self._left, faults = deque(_of_calls(faults)), []
        size = max(1, min(_BATCH, math.ceil(len(faults) / jobs)))
        waiting = (faults[at : at + size] for at in range(0, len(faults), size))
        while True:
            while len(self._running.get_map()) < jobs and self._begin(waiting):
                pass
            if not self._running.get_map():
                return
            for key, _ in self._running.select():
                yield from self._observed(key.fd, key.data)

    def _begin(self, waiting: Iterator[Sequence[Fault]]) -> bool:
        """Begin what is next, if the time is left for anything."""
        left_s = self._until - time.monotonic()
        if self._left and left_s > 0:
            self._begin_twig(self._left.popleft())
        elif left_s > _TRUNK_S and (batch := next(waiting, None)):
            self._begin_trunk(batch)
        else:
            return False
        return True

    def _begin_trunk(self, faults: Sequence[Fault]) -> None:
        reader, record = os.pipe()
        trunk = Trunk(faults, self._folder(), record, self._until)
        self._listen(reader, record, _Grown(trunk, self._child(trunk, trunk.folder)))

    def _begin_twig(self, faults: Sequence[Fault]) -> None:
        reader, record = os.pipe()
        folder = self._folder()
        self._listen(
            reader, record, _Alone(faults, self._child(Twig(faults, record), folder), folder)
        )

    def _folder(self) -> Path:
        return Path(tempfile.mkdtemp(dir=self._compiled.parent)) / "run"

    def _child(self, fault: runs.Begins, folder: Path) -> int:
        return runs.begin(self._script, fault, folder, self._compiled)

    def _listen(self, reader: int, record: int, run: _Grown | _Alone) -> None:
        os.close(record)
        self._running.register(reader, selectors.EVENT_READ, run)

    def _observed(self, pipe: int, run: _Grown | _Alone) -> _Tried:
        text = os.read(pipe, 65536).decode()  # whole lines, as each is written at once
        for line in text.splitlines():
            yield from run.hear(*map(int, line.split()))
        if not text:
            self._running.unregister(pipe)
            os.close(pipe)
            yield from run.end()
            self._left += _of_calls(run.left())


@dataclass
class _Grown:
    """A trunk that runs, and the results of its branches so far."""

    trunk: Trunk
    child: int
    results: dict[int, Result] = field(default_factory=dict)

    def hear(self, number: int, same: int, status: int) -> _Tried:
        """Yield what came of a fault: of its own branch, or of one that is the same.

        A branch that hangs may lack a thread, and tells nothing: its fault is left.
        """
        folder = self.trunk.folder.with_name(f"branch-{number}")
        if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGALRM:
            shutil.rmtree(folder)
            return
        if same == number:
            self.results[number] = runs.result(os.waitstatus_to_exitcode(status), folder)
            shutil.rmtree(folder)
        elif same in self.results:
            self.results[number] = dataclasses.replace(self.results[same], is_of_another=True)
        if number in self.results:
            yield self.trunk.faults[number], self.results[number]

    def end(self) -> _Tried:
        """Wait for its end; all that came of it has been told."""
        _, status = os.waitpid(self.child, 0)
        if status:
            printed = (self.trunk.folder / "stderr").read_text(errors="replace")
            print(f"a trunk ended with {status}: {printed[-2000:]}", file=sys.stderr, flush=True)
        shutil.rmtree(self.trunk.folder.parent)
        yield from ()

    def left(self) -> list[Fault]:
        """Return the faults that were not tried; of a trunk that broke off, too."""
        faults = enumerate(self.trunk.faults)
        return [fault for number, fault in faults if number not in self.results]


@dataclass
class _Alone:
    """A run of its own for the first fault of a call, and what takes the same way."""

    faults: Sequence[Fault]
    child: int
    folder: Path
    same: list[Fault] = field(default_factory=list)

    def hear(self, number: int) -> _Tried:
        """Note a fault that is the same; what comes of it is known in the end."""
        self.same.append(self.faults[number])
        yield from ()

    def end(self) -> _Tried:
        """Yield what came of it."""
        _, status = os.waitpid(self.child, 0)
        found = runs.result(os.waitstatus_to_exitcode(status), self.folder)
        shutil.rmtree(self.folder.parent)
        yield self.faults[0], found
        for fault in self.same:
            yield fault, dataclasses.replace(found, is_of_another=True)

    def left(self) -> list[Fault]:
        """Return the faults that take another way, or may."""
        return [fault for fault in self.faults[1:] if fault not in self.same]
