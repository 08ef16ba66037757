"""One run of a script with a planted failure, in a process forked from one that has torch.

Importing torch takes longer than the run, so a process imports it once, with nothing compiled and
no thread started, and each run is a fork of it. Compiled C++ is shared between the runs of a
script; what torch's caches and ours keep is not, so that each run compiles as if it were the first.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import runpy
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from tests.compiled_cpp import share
from tests.patience import patience_s
from verification.faults.monitored import left_behind
from verification.faults.planting import PLANTED

OF_THE_API = frozenset({"api"})
"""Scripts that profile themselves, and are not run by ``profiler-ext run``."""
SCRIPTS = Path(__file__).parent / "scripts"
LIMIT_S = patience_s(400)
INTERRUPTED = 130
ATTRIBUTED = ("node", "place", "module", "forward_node")
"""What a row of a launch says; empty where it says nothing."""


@dataclass(frozen=True)
class Fault:
    """A failure to be planted: ``function`` raises ``error`` at one of its calls."""

    function: str = ""
    error: type[BaseException] = RuntimeError
    call: int = 1

    def begin(self) -> None:
        """Have it wait in this process for its function."""
        PLANTED.function, PLANTED.error, PLANTED.call = self.function, self.error, self.call


class Begins(Protocol):
    """What is wrong in a run."""

    def begin(self) -> None:
        """Make it so in this process."""


_F = TypeVar("_F", bound=Begins)


@dataclass(frozen=True)
class Result:
    """How a run went.

    Attributes:
        code: the exit status of ``profiler-ext run``; negative where a signal ended it.
        has_begun: the script was started.
        digest: of losses and gradients; ``None`` where training did not come to its end.
        fired: the failure was raised.
        calls: how often each function was called.
        entered: what others than the package called of it.
        files: the names of the files that were written.
        launches: name, rows and gap of each launch; ``None`` without a session.
        notes: what the session says is missing.
        stderr: what was written there.
        left_behind: what of ours ``sys.monitoring`` still has at the end of the program.
        is_of_another: this is the run of another error, which nothing tells from this one.
    """

    code: int
    has_begun: bool
    digest: str | None
    fired: bool
    calls: dict[str, int]
    entered: list[str]
    launches: list[Any] | None
    files: list[str]
    notes: list[str]
    stderr: str
    left_behind: list[str]
    is_of_another: bool = False


def run(script: str, fault: Begins, folder: Path, compiled: Path | None = None) -> Result:
    """Run a script to its end; see :func:`begin`."""
    return result(_wait(begin(script, fault, folder, compiled)), folder)


def run_each(
    script: str, faults: Iterable[_F], compiled: Path, jobs: int, until: float = math.inf
) -> Iterator[tuple[_F, Result]]:
    """Run a script once with each fault, several side by side.

    Args:
        script: its name in ``scripts``.
        faults: what is wrong, in turn.
        compiled: the folder of the compiled C++; the runs are made beside it.
        jobs: so many at a time.
        until: none begins after this time of the monotonic clock.
    """
    running: dict[int, tuple[_F, Path]] = {}
    waiting = iter(faults)
    while True:
        for fault in itertools.islice(waiting, jobs - len(running)):
            if time.monotonic() < until:
                own = Path(tempfile.mkdtemp(dir=compiled.parent)) / "run"
                running[begin(script, fault, own, compiled)] = fault, own
        if not running:
            return
        child, status = os.wait()
        fault, own = running.pop(child)
        yield fault, result(os.waitstatus_to_exitcode(status), own)
        shutil.rmtree(own.parent)


def begin(script: str, fault: Begins, folder: Path, compiled: Path | None = None) -> int:
    """Begin to run a script with a failure planted, under ``profiler-ext run`` or by itself.

    Only the main thread may: torch's own thread-local state goes with it into the child.

    Args:
        script: its name in ``scripts``.
        fault: what is wrong; a failure of an empty function is nothing.
        folder: an empty folder for what it writes.
        compiled: the compiled C++ of earlier runs.

    Returns:
        The process.
    """
    folder.mkdir(parents=True)
    if compiled is not None:
        share(compiled, folder / "cache")
    child = os.fork()
    if child == 0:
        _in_child(script, fault, folder)
    return child


def run_first(script: str, fault: Begins, folder: Path, compiled: Path) -> Result:
    """Run a script to its end, and keep the C++ that it compiled for those that follow."""
    found = run(script, fault, folder, compiled)
    share(folder / "cache", compiled)
    return found


def _wait(child: int) -> int:
    try:
        _, status = os.waitpid(child, 0)
    except KeyboardInterrupt:
        os.kill(child, signal.SIGKILL)
        raise
    return os.waitstatus_to_exitcode(status)


def result(code: int, folder: Path) -> Result:
    """Return how a run went that ended with a status."""
    reported = folder / "result.json"
    seen = json.loads(reported.read_text()) if reported.exists() else {}
    digest = folder / "digest"
    return Result(
        code=seen.get("code", code),
        has_begun=(folder / "begun").exists(),
        digest=digest.read_text() if digest.exists() else None,
        fired=seen.get("fired", True),
        calls=seen.get("calls", {}),
        entered=seen.get("entered", []),
        launches=seen.get("launches"),
        files=sorted(path.name for path in (folder / "out").glob("*")),
        notes=seen.get("notes", []),
        stderr=(folder / "stderr").read_text(errors="replace"),
        left_behind=seen.get("left_behind", []),
    )


def _in_child(script: str, fault: Begins, folder: Path) -> None:
    signal.alarm(LIMIT_S)
    _redirect(folder)
    os.chdir(folder)
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(folder / "cache")
    os.environ["FAULTS_DIGEST"] = str(folder / "digest")
    os.environ["FAULTS_OUT"] = str(folder / "out")
    code: Any = 1
    try:
        fault.begin()
        code = _train(script, folder)
    except KeyboardInterrupt:
        code = INTERRUPTED
    except BaseException:
        traceback.print_exc()
    monitored = {"left_behind": left_behind()}  # before anything that reads what was written
    fields = {"code": code, "fired": PLANTED.fired, **_called(), **monitored, **_session(folder)}
    (folder / "result.json").write_text(json.dumps(fields))
    sys.stderr.flush()
    os._exit(0)


def _called() -> dict[str, Any]:
    return {"calls": PLANTED.calls, "entered": sorted(PLANTED.entered)}


def _redirect(folder: Path) -> None:
    for number, name in ((1, "stdout"), (2, "stderr")):
        os.dup2(os.open(folder / name, os.O_WRONLY | os.O_CREAT, 0o600), number)


def _train(script: str, folder: Path) -> int:
    from profiler_ext import cli

    if script in OF_THE_API:
        return run_program(SCRIPTS / f"{script}.py")
    words = ["run", "--skip", "1", "--steps", "2", "-o", str(folder / "out")]
    PLANTED.is_armed = True
    try:
        return cli.main([*words, str(SCRIPTS / f"{script}.py")])
    finally:
        PLANTED.is_armed = False


def run_program(script: Path) -> int:
    """Run a script that profiles itself, as Python does; its frames are told by this name."""
    sys.path.insert(0, str(script.parent))
    PLANTED.is_armed = True
    try:
        runpy.run_path(str(script), run_name="__main__")
    finally:
        PLANTED.is_armed = False
    return 0


def _session(folder: Path) -> dict[str, Any]:
    """Load what was written, as a user would, and return what it says of each launch."""
    from profiler_ext import load
    from profiler_ext.errors import ProfilerExtError

    try:
        session = load(folder / "out")
    except ProfilerExtError as error:
        return {"launches": None, "notes": [str(error)]}
    return {"launches": list(_launches(session)), "notes": list(session.analysis.notes)}


def _launches(session: Any) -> Iterator[Any]:
    launches, rows = session.launches(), session.attribution()
    place = rows["file"] + ":" + rows["line"].astype("string")
    reported = rows.assign(place=place)[list(ATTRIBUTED)].astype("string").fillna("")
    of_launch: dict[int, list[Any]] = {}
    for launch, row in zip(
        rows["launch"], reported.itertuples(index=False, name=None), strict=True
    ):
        of_launch.setdefault(int(launch), []).append(list(row))
    gaps = launches["gap"].astype("string").fillna("")
    in_graph = launches["kind"].isin(["cpp", "extern", "triton"])
    for key, name, gap, inside in zip(
        launches["launch"], launches["name"], gaps, in_graph, strict=True
    ):
        yield [str(name), sorted(of_launch.get(int(key), [])), str(gap), bool(inside)]
