"""The runs that share their beginning: one run branches where a failure is to be planted.

A run of the script without a failure (the trunk) stops at the head of each function that is to
fail, and is copied: the copy fails there, and goes on to its end, while the trunk waits. What the
copy writes is its own. Only the thread that calls is copied, so a trunk branches only where no
other is at work; the rest is left to runs of their own (``side_by_side``). So is a GPU, whose
driver no copy can use.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import platform
import shutil
import signal
import stat
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from verification.faults import runs
from verification.faults.handlers import are_distinguished
from verification.faults.planting import PLANTED
from verification.faults.runs import Fault

CLONE = {"x86_64": 56, "aarch64": 220}.get(platform.machine())
"""The system call: ``os.fork`` calls what was registered for forks, ours and torch's."""
_AUTOGRAD = "pt_autograd_"
"""How torch calls its threads that wait for a backward on a device."""
_WAITING = 2
"""This thread, and Kineto's, which waits for work."""


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
    record: int
    until: float
    _at: dict[tuple[str, int], list[int]] = field(default_factory=dict)

    def begin(self) -> None:
        """Have each function wait for its turn in this process."""
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
            errors = [self.faults[number].error for number in numbers]
            alike = _all_alike(numbers, errors, sys._getframe(2))
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
        signal.alarm(0)
        child = _copy_of_process()
        if child == 0:
            _be(process)
            PLANTED.wanted, PLANTED.fired = set(), True
            signal.alarm(runs.LIMIT_S)
            _own_files(self.folder)
            return True
        _, status = os.waitpid(child, 0)
        signal.alarm(runs.LIMIT_S)
        self.folder.rename(self.folder.with_name(f"branch-{number}"))
        kept.rename(self.folder)
        os.chdir(self.folder)  # that it was in is the branch's now
        self._say(number, number, status)
        return False

    def _say(self, number: int, same: int, status: int) -> None:
        os.write(self.record, f"{number} {same} {status}\n".encode())


@dataclass
class Twig:
    """A run without branches, for the first of the faults of one call.

    Attributes:
        faults: the first is planted.
        tell: the pipe on which each of the others is told that takes the same way.
    """

    faults: Sequence[Fault]
    record: int

    def begin(self) -> None:
        """Have the function wait for its turn in this process."""
        PLANTED.wanted = {self.faults[0].function}
        PLANTED.branch = self._fail

    def _fail(self, function: str, call: int) -> None:
        if call != self.faults[0].call:
            return
        PLANTED.wanted, PLANTED.fired = set(), True
        try:
            errors = [fault.error for fault in self.faults]
            alike = _all_alike(range(len(errors)), errors, sys._getframe(2))
            same = [number for number, first in alike.items() if number > first == 0]
            os.write(self.record, "".join(f"{number}\n" for number in same).encode())
        except BaseException:  # which the guard would catch
            traceback.print_exc()
            os._exit(1)
        raise self.faults[0].error("planted")


def _is_alone() -> bool:
    """Tell whether no other thread is at work, of Python's or of anyone's."""
    is_main = threading.current_thread() is threading.main_thread()
    if threading.active_count() > 1 or not is_main:
        return False
    names = [(task / "comm").read_text() for task in Path("/proc/self/task").iterdir()]
    return sum(not name.startswith(_AUTOGRAD) for name in names) <= _WAITING


def _copy_of_process() -> int:
    return int(ctypes.CDLL(None).syscall(CLONE, signal.SIGCHLD, 0, 0, 0, 0))


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


def _all_alike(
    numbers: Sequence[int], errors: Sequence[type[BaseException]], frame: FrameType
) -> dict[int, int]:
    """Return the number whose fault takes the same way, for each whose error nothing tells apart.

    Args:
        numbers: of the faults.
        errors: what they raise.
        frame: of the function that is to fail, at its head.
    """
    pairs = zip(numbers, errors, strict=True)
    kinds = {number: error for number, error in pairs if issubclass(error, Exception)}
    if len(kinds) < 2 or are_distinguished([*kinds.values()], frame):
        return {}
    return dict.fromkeys(kinds, next(iter(kinds)))
