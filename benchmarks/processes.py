"""What a whole process takes: processor time and memory, as the operating system counts them.

Other work on the machine changes processor time little, and wall time at will, so wall time is
not told. Figures to compare are taken in turn, so that a slow hour meets all of them.
"""

from __future__ import annotations

import os
import re
import resource
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

MIB = 1 << 20
_LOOK_S = 0.02
_TAIL = 2000
_PSS = re.compile(r"^Pss:\s+(\d+) kB", re.MULTILINE)
_PEAK = re.compile(r"^VmHWM:\s+(\d+) kB", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Spent:
    """What a process took, with its children.

    Attributes:
        cpu_s: user and system time.
        peak_bytes: the most memory that was resident. Of one process the system tells it; of
            several at a time it is the largest sum that was seen, with shared pages counted once.
        output: what was printed.
        system_s: the system time of it.
    """

    cpu_s: float
    peak_bytes: int
    output: str
    system_s: float

    @property
    def peak_mib(self) -> float:
        """The same in MiB."""
        return self.peak_bytes / MIB


def spent(
    command: Sequence[str | Path],
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> Spent:
    """Run a command to its end, and return what it took.

    Args:
        command: the program and its arguments.
        env: what its environment has besides ours.
        cwd: its working folder.

    Raises:
        SystemExit: It failed: says which, with the end of what it printed.
    """
    with tempfile.TemporaryFile("w+") as printed:
        process = subprocess.Popen(
            list(map(str, command)),
            env={**os.environ, **(env or {})},
            cwd=cwd,
            stdout=printed,
            stderr=subprocess.STDOUT,
        )
        peak, status, usage = _ended(process)
        printed.seek(0)
        output = printed.read()
    if status:
        words = " ".join(map(str, command))
        raise SystemExit(f"{words}: ended with {status}\n{output[-_TAIL:]}")
    return Spent(usage.ru_utime + usage.ru_stime, peak, output, usage.ru_stime)


def _ended(process: subprocess.Popen[bytes]) -> tuple[int, int, resource.struct_rusage]:
    """Wait for the end; return the peak of memory, the status, and the usage."""
    seen = 0
    while True:
        pid, status, usage = os.wait4(process.pid, os.WNOHANG)
        if pid:
            process.returncode = os.waitstatus_to_exitcode(status)
            return max(seen, _reported_bytes(usage)), process.returncode, usage
        seen = max(seen, _resident_bytes(process.pid))
        time.sleep(_LOOK_S)


def _reported_bytes(usage: resource.struct_rusage) -> int:
    """Return what the system tells of a process: until it began its program, it was as we are."""
    ours = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return usage.ru_maxrss << 10 if usage.ru_maxrss > ours else 0


def _resident_bytes(pid: int) -> int:
    """Return the peak until now of a process, or what it and its children have at the moment."""
    family = list(_family(pid))
    if len(family) == 1:
        return _read_bytes(pid, "status", _PEAK)
    return sum(_read_bytes(each, "smaps_rollup", _PSS) for each in family)


def _family(pid: int) -> Iterator[int]:
    """Yield a process and all its children, as far as they are still there."""
    yield pid
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children = task.read_text().split()
        except OSError:
            continue
        for child in children:
            yield from _family(int(child))


def _read_bytes(pid: int, file: str, what: re.Pattern[str]) -> int:
    try:
        found = what.search(Path(f"/proc/{pid}/{file}").read_text())
    except OSError:
        return 0
    return int(found[1]) << 10 if found else 0
