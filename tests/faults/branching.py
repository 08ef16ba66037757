"""Owns the runs that share their beginning: one run branches where a failure is to be planted.

A run of the script without a failure (the trunk) stops at the head of each function that is to
fail, and is copied: the copy fails there, and goes on to its end, while the trunk waits. What the
copy writes is its own. Only the thread that calls is copied, so a trunk branches only where no
other is at work; the rest is left to runs of their own (``runs.run_each``). So is a GPU, whose
driver no copy can use.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import fcntl
import itertools
import math
import os
import platform
import selectors
import shutil
import signal
import stat
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.faults import runs
from tests.faults.handlers import are_told_apart
from tests.faults.planting import PLANTED
from tests.faults.runs import Fault, Result

_CLONE = {"x86_64": 56, "aarch64": 220}.get(platform.machine())
"""The system call: ``os.fork`` calls what was registered for forks, ours and torch's."""
_WAITING = 3
"""This thread, and those of torch that wait for work (autograd's, Kineto's)."""
_BATCH = 200


@dataclass
class Trunk:
    """A run that is to branch.

    Attributes:
        faults: each is tried in a branch.
        folder: where the run writes; a branch finds it as the run has left it.
        tell: the pipe on which each branch is told, when it has ended.
        until: none branches after this time of the monotonic clock.
    """

    faults: Sequence[Fault]
    folder: Path
    tell: int
    until: float
    _at: dict[tuple[str, int], list[int]] = field(default_factory=dict)

    def begin(self) -> None:
        """Have each function wait for its turn in this process."""
        signal.alarm(0)
        for number, fault in enumerate(self.faults):
            self._at.setdefault((fault.function, fault.call), []).append(number)
        (self.folder / "temporary").mkdir()
        tempfile.tempdir = os.environ["TMPDIR"] = str(self.folder / "temporary")
        PLANTED.wanted = {name for name, _ in self._at}
        PLANTED.branch = self._branch

    def _branch(self, function: str, call: int) -> None:
        """Branch for each fault of a call; in the branch, its error is raised."""
        if not (numbers := self._at.get((function, call), [])) or not _is_alone():
            return
        try:
            alike = _all_alike(numbers, [self.faults[number].error for number in numbers])
            chosen = next((n for n in numbers if self._is_tried_in_branch(n, alike)), None)
        except BaseException:  # which the guard would catch
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(1)
        if chosen is not None:
            raise self.faults[chosen].error("planted")

    def _is_tried_in_branch(self, number: int, alike: Mapping[int, int]) -> bool:
        """Try a fault in a branch; tell whether this is the branch."""
        if time.monotonic() > self.until:
            return False
        if (same := alike.get(number, number)) != number:
            self._say(number, same, 0)
            return False
        return self._is_branch(number)

    def _is_branch(self, number: int) -> bool:
        kept = self.folder.with_name("kept")
        shutil.copytree(self.folder, kept, copy_function=os.link, symlinks=True)
        process = os.getpid()
        child = _copy_of_process()
        if child == 0:
            _be(process)
            PLANTED.wanted, PLANTED.fired = set(), True
            signal.alarm(runs.LIMIT_S)
            _own_files(self.folder)
            return True
        _, status = os.waitpid(child, 0)
        self.folder.rename(self.folder.with_name(f"branch-{number}"))
        kept.rename(self.folder)
        os.chdir(self.folder)  # that it was in is the branch's now
        self._say(number, number, status)
        return False

    def _say(self, number: int, same: int, status: int) -> None:
        os.write(self.tell, f"{number} {same} {status}\n".encode())


def run_each(
    script: str, faults: Iterable[Fault], compiled: Path, jobs: int, until: float = math.inf
) -> Iterator[tuple[Fault, Result]]:
    """Run a script once with each fault; see :func:`tests.faults.runs.run_each`.

    Args:
        script: its name in ``scripts``.
        faults: what is wrong, in turn.
        compiled: the folder of the compiled C++; the runs are made beside it.
        jobs: so many at a time.
        until: none begins after this time of the monotonic clock.
    """
    left = _by_function(faults)
    if _CLONE is not None and os.environ["FAULTS_DEVICE"] == "cpu":
        trunks = _Trunks(script, compiled, until)
        yield from trunks.run(left, jobs)
        left = trunks.left
    yield from runs.run_each(script, left, compiled, jobs, until)


def _by_function(faults: Iterable[Fault]) -> list[Fault]:
    """Put the faults of a call together, so that one trunk may find its errors alike."""
    of_call: dict[tuple[str, int], list[Fault]] = {}
    for fault in faults:
        of_call.setdefault((fault.function, fault.call), []).append(fault)
    return [fault for each in of_call.values() for fault in each]


class _Trunks:
    """Runs trunks side by side, and reads what they tell."""

    def __init__(self, script: str, compiled: Path, until: float) -> None:
        self.left: list[Fault] = []
        self._script = script
        self._compiled = compiled
        self._until = until
        self._running = selectors.DefaultSelector()

    def run(self, faults: Sequence[Fault], jobs: int) -> Iterator[tuple[Fault, Result]]:
        size = max(1, min(_BATCH, math.ceil(len(faults) / jobs)))
        waiting = (faults[at : at + size] for at in range(0, len(faults), size))
        while True:
            for batch in itertools.islice(waiting, jobs - len(self._running.get_map())):
                self._begin(batch)
            if not self._running.get_map():
                return
            for key, _ in self._running.select():
                yield from self._heard(key.fd, key.data)

    def _begin(self, batch: Sequence[Fault]) -> None:
        if time.monotonic() > self._until:
            return
        heard, tell = os.pipe()
        folder = Path(tempfile.mkdtemp(dir=self._compiled.parent)) / "run"
        trunk = Trunk(batch, folder, tell, self._until)
        child = runs.begin(self._script, trunk, folder, self._compiled)
        os.close(tell)
        self._running.register(heard, selectors.EVENT_READ, _Grown(trunk, child))

    def _heard(self, pipe: int, grown: _Grown) -> Iterator[tuple[Fault, Result]]:
        told = os.read(pipe, 65536).decode()  # whole lines, as each is written at once
        if not told:
            self._running.unregister(pipe)
            os.close(pipe)
            self.left += grown.end()
        for line in told.splitlines():
            yield grown.branch(*map(int, line.split()))


@dataclass
class _Grown:
    """A trunk that runs, and the results of its branches so far."""

    trunk: Trunk
    child: int
    results: dict[int, Result] = field(default_factory=dict)

    def branch(self, number: int, same: int, status: int) -> tuple[Fault, Result]:
        """Return what came of a fault: of its own branch, or of one that is the same."""
        folder = self.trunk.folder.with_name(f"branch-{number}")
        if same == number:
            self.results[number] = runs.result(os.waitstatus_to_exitcode(status), folder)
            shutil.rmtree(folder)
        else:
            self.results[number] = dataclasses.replace(self.results[same], is_of_another=True)
        return self.trunk.faults[number], self.results[number]

    def end(self) -> list[Fault]:
        """Return the faults that were not tried."""
        _, status = os.waitpid(self.child, 0)
        if status:
            raise RuntimeError((self.trunk.folder / "stderr").read_text())
        shutil.rmtree(self.trunk.folder.parent)
        faults = enumerate(self.trunk.faults)
        return [fault for number, fault in faults if number not in self.results]


def _is_alone() -> bool:
    """Tell whether no other thread is at work, of Python's or of anyone's."""
    is_main = threading.current_thread() is threading.main_thread()
    if threading.active_count() > 1 or not is_main:
        return False
    return len(list(Path("/proc/self/task").iterdir())) <= _WAITING


def _copy_of_process() -> int:
    return int(ctypes.CDLL(None).syscall(_CLONE, signal.SIGCHLD, 0, 0, 0, 0))


def _be(process: int) -> None:
    """Answer to the number of the process that this is a copy of: a child of it is not ours."""
    real, kill = os.getpid(), os.kill
    vars(os)["getpid"] = lambda: process
    vars(os)["kill"] = lambda number, what: kill(real if number == process else number, what)


def _own_files(folder: Path) -> None:
    """Let nothing that this process writes, or reads on in, be what the trunk has open."""
    places = {path.stat().st_ino: path for path in folder.rglob("*") if path.is_file()}
    opened = {number: places[inode] for number, inode in _open_files() if inode in places}
    for path in set(opened.values()):
        own = shutil.copy2(path, path.with_name(f"{path.name}.own"))
        own.rename(path)
    for number, path in opened.items():
        _open_again(number, path)


def _open_files() -> Iterator[tuple[int, int]]:
    for number in [int(each.name) for each in Path("/proc/self/fd").iterdir()]:
        with contextlib.suppress(OSError):  # that of the listing itself
            found = os.fstat(number)
            if stat.S_ISREG(found.st_mode):
                yield number, found.st_ino


def _open_again(number: int, path: Path) -> None:
    flags = fcntl.fcntl(number, fcntl.F_GETFL) & ~(os.O_CREAT | os.O_EXCL | os.O_TRUNC)
    at = os.lseek(number, 0, os.SEEK_CUR)
    own = os.open(path, flags)
    os.lseek(own, at, os.SEEK_SET)
    os.dup2(own, number, inheritable=os.get_inheritable(number))
    os.close(own)


def _all_alike(numbers: Sequence[int], errors: Sequence[type[BaseException]]) -> dict[int, int]:
    """Return the number whose fault takes the same way, for each whose error nothing tells apart.

    Called at the head of a function that is to fail, by what stands there.
    """
    pairs = zip(numbers, errors, strict=True)
    kinds = {number: error for number, error in pairs if issubclass(error, Exception)}
    if len(kinds) < 2 or are_told_apart([*kinds.values()], sys._getframe(3)):
        return {}
    return dict.fromkeys(kinds, next(iter(kinds)))
