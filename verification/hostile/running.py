"""How a case is run: in a process of its own, limited in time, and judged from outside."""

from __future__ import annotations

import json
import os
import resource
import select
import shutil
import signal
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from profiler_ext.errors import ProfilerExtError
from tests.patience import patience_s
from verification.hostile.reference import reference_s, times_allowed, used_s

_HANGS = 2
"""After so many ways that hang the others are not gone."""
_MB = 1 << 20
_MOST_BYTES = 7 << 30
_TIMES = 4
_GOOD_MB_A_MB = 5.0
_GOOD_MB = 40.0
"""What memory a good file takes: measured on one of 60,000 events, by the way that takes most."""
_PACKED = 10
"""A good file in gzip holds ten times its size."""
_LONGEST_MESSAGE = 1_000
OUTCOMES = ("read", "refused", "traceback", "wrong", "hang", "memory")


@dataclass(frozen=True)
class Run:
    """One way that was gone with one case.

    Attributes:
        case: the case.
        way: the way; ``read`` where it went no further.
        outcome: one of ``OUTCOMES``.
        seconds: the time of the processor, reading included.
        memory_mb: the most memory till its end.
        detail: the message of what was raised.
    """

    case: str
    way: str
    outcome: str
    seconds: float
    memory_mb: float
    detail: str = ""

    @property
    def is_good(self) -> bool:
        """Whether the file was read, or refused in a sentence."""
        return self.outcome in ("read", "refused")


def size_mb(path: Path) -> float:
    """Return how large a good file of this size is, unpacked."""
    try:
        is_file = path.is_file()
        size = path.stat().st_size if is_file else 0
        with path.open("rb") if is_file else open(os.devnull, "rb") as file:  # noqa: PTH123
            packed = file.read(2) == b"\x1f\x8b"
    except (OSError, ValueError):
        return 0
    return size * (_PACKED if packed else 1) / _MB


def run_case(
    name: str, make: Any, ways: tuple[str, ...], known_s: float | None = None
) -> list[Run]:
    """Run a case every way; a way that was killed is gone on from with the next.

    Args:
        name: the case.
        make: makes its file.
        ways: what is done with it.
        known_s: what the good file takes this process, where it was measured.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = make(Path(folder))
        good_s = reference_s() if known_s is None else known_s
        killed_s = 1 + patience_s(good_s * times_allowed(size_mb(path)))
        found, left = list[Run](), ways
        while left:
            some = _in_child(name, path, left, good_s, killed_s)
            found += some
            last = some[-1]
            hangs = sum(run.outcome == "hang" for run in found)
            if last.outcome != "hang" or last.way == "read" or hangs >= _HANGS:
                break
            left = left[left.index(last.way) + 1 :]
        return found


def _in_child(
    name: str, path: Path, ways: tuple[str, ...], good_s: float, killed_s: float
) -> list[Run]:
    receiving, sending = os.pipe()
    out = tempfile.mkdtemp()
    pid = os.fork()
    if not pid:
        os.close(receiving)
        _child(path, Path(out), ways, good_s, killed_s, sending)
    os.close(sending)
    reported = _received(receiving, pid, wall_s=8 * killed_s)
    _, status, used = os.wait4(pid, 0)
    shutil.rmtree(out, ignore_errors=True)
    return _judged(name, path, reported, status, used.ru_utime + used.ru_stime)


def _received(receiving: int, pid: int, wall_s: float) -> list[dict[str, Any]]:
    deadline, text = time.monotonic() + wall_s, b""
    while True:
        ready, _, _ = select.select([receiving], [], [], max(0, deadline - time.monotonic()))
        part = os.read(receiving, 1 << 16) if ready else b""
        text += part
        if not ready:
            os.kill(pid, signal.SIGKILL)
        if not part:
            break
    os.close(receiving)
    return [json.loads(line) for line in text.splitlines()]


def _child(
    path: Path, out: Path, ways: tuple[str, ...], good_s: float, killed_s: float, sending: int
) -> None:
    """Go every way and tell of each; ends the process."""
    from verification.hostile.ways import walk

    devnull = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(devnull, stream)
    base_kb = _resident_kb()
    resource.setrlimit(resource.RLIMIT_AS, (_MOST_BYTES, resource.RLIM_INFINITY))
    read_s, allowed = 0.0, times_allowed(size_mb(path))
    for way, go in walk(path, out, ways):
        before = used_s()
        _limit(before + killed_s - read_s)
        _tell(sending, {"way": way, "begun": True})
        reported = _attempt(go)
        seconds = used_s() - before
        peak_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - base_kb
        reported |= {"way": way, "seconds": seconds + read_s, "memory_mb": peak_kb / 1024}
        if seconds + read_s > good_s * allowed:  # the machine may be busier than it was
            good_s = max(good_s, reference_s())
        reported["times_allowed"] = (seconds + read_s) / (good_s * allowed)
        _tell(sending, reported)
        if way == "read":
            read_s = seconds
            if reported["outcome"] != "read":
                break
    os._exit(0)


def _attempt(go: Any) -> dict[str, Any]:
    try:
        go()
    except ProfilerExtError as error:
        message = str(error)
        is_clear = message.isprintable() and len(message) <= _LONGEST_MESSAGE
        return {"outcome": "refused" if is_clear else "traceback", "detail": message[:2000]}
    except AssertionError as error:
        return {"outcome": "wrong", "detail": _place(error)}
    except MemoryError as error:
        return {"outcome": "memory", "detail": _place(error)}
    except BaseException as error:
        return {"outcome": "traceback", "detail": _place(error)}
    return {"outcome": "read"}


def _place(error: BaseException) -> str:
    """Return what was raised and the innermost place of ours."""
    place, at = "", error.__traceback__
    while at is not None:
        file = at.tb_frame.f_code.co_filename
        if "profiler_ext" in file or "exporters" in file:
            place = f"{Path(file).name}:{at.tb_lineno}"
        at = at.tb_next
    return f"{type(error).__name__} at {place}: {str(error)[:200]}"


def _judged(
    name: str, path: Path, reported: list[dict[str, Any]], status: int, used_s: float
) -> list[Run]:
    large_mb = size_mb(path)
    found = [
        Run(
            name,
            one["way"],
            _outcome(one, large_mb),
            one["seconds"],
            one["memory_mb"],
            one.get("detail", ""),
        )
        for one in reported
        if "begun" not in one
    ]
    if reported and "begun" in reported[-1]:
        is_time = os.WIFSIGNALED(status) and os.WTERMSIG(status) in (signal.SIGXCPU, signal.SIGKILL)
        outcome = "hang" if is_time else "traceback"
        found.append(
            Run(name, reported[-1]["way"], outcome, used_s, 0, f"ended with status {status}")
        )
    if len(found) > 1 and found[0].outcome == "read":
        found = found[1:]
    return found


def _outcome(one: dict[str, Any], large_mb: float) -> str:
    if one["outcome"] in ("read", "refused"):
        if one["memory_mb"] > _TIMES * (_GOOD_MB + _GOOD_MB_A_MB * large_mb):
            return "memory"
        if one["times_allowed"] > 1:
            return "hang"
    return str(one["outcome"])


def _tell(sending: int, what: dict[str, Any]) -> None:
    os.write(sending, json.dumps(what).encode() + b"\n")


def _resident_kb() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:  # noqa: PTH123
        return int(file.read().split()[1]) * resource.getpagesize() // 1024


def _limit(until_s: float) -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (int(until_s) + 1, resource.RLIM_INFINITY))
