"""Owns ``profiler-ext run``: an untouched script, its steps profiled, the files written.

The script runs as Python would run it, and its exit code is kept. The session is written as soon
as the asked steps are over; what was recorded is written too when an exception or a signal ends it.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from profiler_ext.errors import OutputError, OwnFaultError, ProfilerExtError, UsageError
from profiler_ext.isolation.failures import failure_detail
from profiler_ext.isolation.own_modules import own_modules
from profiler_ext.run import remarks
from profiler_ext.run.ending_signals import EndingSignals
from profiler_ext.run.program import INTERRUPTED, Ending, Program, prepared, run_program
from profiler_ext.run.progress import Progress
from profiler_ext.sessions.output import REMEDY, check_folder, save, write_rest
from profiler_ext.sessions.session import Session

if TYPE_CHECKING:
    from profiler_ext.run.recorder import Recorder

NEVER_STEPPED = 3
NOT_KEPT = 2


@dataclass(frozen=True, slots=True)
class Request:
    """What ``run`` was asked for.

    Attributes:
        program: what to run.
        folder: where the files go; ranks have folders of their own in it.
        skip: steps before the first recorded one.
        steps: steps to record.
        step_on: class name of the optimizer that ends a step.
        force: replace a session that is there.
        recompile: compile those graphs once more that a cache has without a record.
        lines: watch which lines run.
        shapes: record the shapes of eager ops' inputs.
        source: keep text of source in the session.
    """

    program: Program
    folder: Path
    skip: int
    steps: int
    step_on: str | None
    force: bool
    recompile: bool = False
    lines: bool = True
    shapes: bool = False
    source: bool = True


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run went.

    Attributes:
        ending: how the script ended, or how the run shall.
        session: what was recorded and written.
        folder: where.
        remarks: what to tell the user.
    """

    ending: Ending
    session: Session | None
    folder: Path
    remarks: tuple[str, ...]


def run(request: Request, tell: Callable[[Outcome], None]) -> Ending:
    """Run a script and profile its steps.

    Args:
        request: what to run, and what to record of it.
        tell: is told how it went, when the files are written. Where threads of the script go on
            after its main module is over, that is when Python ends.

    Returns:
        How the script ended, or how the run shall.

    Raises:
        UsageError: The script is not there, or a session is in the way.
        OutputError: The folder cannot be written.
        TorchCapabilityError: This torch does not fit capture.
    """
    _check(request)
    folder = output_folder(request)
    check_folder(_of_rank(request.folder), force=request.force)
    progress = Progress()
    progress.say("starting torch")
    from profiler_ext.profiling import switch

    switch.enable(recompile=request.recompile)
    return _Run(request, folder, progress, tell).profiled()


class _Run:
    """One run of a script."""

    def __init__(
        self, request: Request, folder: Path, progress: Progress, tell: Callable[[Outcome], None]
    ) -> None:
        self._request = request
        self._folder = folder
        self._progress = progress
        self._tell = tell
        self._is_saved = False
        self._signals = EndingSignals(self._ended_by)
        self._recorder = self._made()

    def _made(self) -> Recorder:
        from profiler_ext.profiling import switch
        from profiler_ext.run.recorder import Recorder, Window

        request, capture = self._request, switch.current()
        if capture is None:
            raise UsageError("capture was switched off while it was starting; run it again")
        return Recorder(
            capture,
            Window(request.skip, request.steps),
            self._write,
            self._step_ended,
            user_roots=_user_roots(request.program),
            step_on=request.step_on,
            lines=request.lines,
            shapes=request.shapes,
            source=request.source,
        )

    def profiled(self) -> Ending:
        """Run the script under the profiler."""
        os.register_at_fork(after_in_child=self._signals.leave)
        self._recorder.start()
        self._watch_signals()
        self._progress.say("compile and warm-up")
        try:
            start = prepared(self._request.program)
        except BaseException:
            self._signals.leave()
            self._recorder.ends.leave()
            raise
        atexit.register(self._finish, Ending(0))
        ending = run_program(start)
        try:
            return self._ended(ending)
        except Exception as error:
            said = remarks.own_fault(failure_detail(error))
            self._tell(Outcome(ending, None, self._folder, (said,)))
            return ending

    def _ended(self, ending: Ending) -> Ending:
        if self._recorder.is_in_child or _threads_go_on():
            return ending
        atexit.unregister(self._finish)
        return self._finish(ending)

    def _finish(self, ending: Ending) -> Ending:
        if self._recorder.is_in_child:
            return ending
        with own_modules():
            return self._told(ending)

    def _told(self, ending: Ending) -> Ending:
        try:
            self._recorder.stop()
        except KeyboardInterrupt:  # the script was over; only the writing may have ended by it
            if self._recorder.session is None:
                ending = Ending(INTERRUPTED, was_interrupted=True)
        finally:
            self._signals.leave()
            self._progress.done()
        outcome = self._outcome(ending)
        self._tell(outcome)
        return outcome.ending

    def _outcome(self, ending: Ending) -> Outcome:
        steps, session = self._recorder.ends.count, self._recorder.session
        folder = _of_rank(self._request.folder)
        if ending.code == 0 and (failed := self._failed()):
            code = 0 if self._is_own_fault() else NOT_KEPT
            return Outcome(Ending(code), None, folder, failed)
        if ending.code:
            said = (remarks.failed_script(ending.code, self._kept(), steps), *self._failed())
            return Outcome(ending, session, folder, said)
        is_whole = session is not None and not self._request.skip
        code = 0 if steps or is_whole else NEVER_STEPPED
        said = remarks.of_success(
            session,
            steps,
            skip=self._request.skip,
            asked=self._request.steps,
            was_moved=self._recorder.window.was_moved,
        )
        return Outcome(Ending(code), session, folder, said)

    def _kept(self) -> str:
        """Say what there is of an early end."""
        recorder = self._recorder
        if recorder.session is not None:
            return remarks.KEPT
        if not recorder.has_recorded:
            return remarks.NOTHING
        if self._failed():
            return remarks.FAILED
        saved = f"{remarks.ONLY_SAVED}: it is in {self._folder}; {REMEDY}"
        return saved if self._is_saved else remarks.CUT_SHORT

    def _is_own_fault(self) -> bool:
        error = self._recorder.failure
        return isinstance(error, OwnFaultError) or not isinstance(error, ProfilerExtError)

    def _failed(self) -> tuple[str, ...]:
        error, lost = self._recorder.failure, self._recorder.lost
        if error is None:
            return () if lost is None else (remarks.own_fault(lost),)
        is_told = isinstance(error, ProfilerExtError)
        return (str(error) if is_told else remarks.own_fault(failure_detail(error)),)

    def _step_ended(self) -> None:
        self._watch_signals()
        count, request = self._recorder.ends.count, self._request
        if count < (last := request.skip + request.steps):
            phase = " (warm-up)" if count < request.skip else ""
            self._progress.say(f"step {count + 1} of {last}{phase}")

    def _watch_signals(self) -> None:
        (self._signals.hear if self._recorder.has_something else self._signals.leave)()

    def _ended_by(self, signal: str) -> None:
        """Keep what was recorded, though the process is about to end."""
        with own_modules():
            self._recorder.stop()
            self._progress.done()
            remark = remarks.ended_by(signal, self._kept(), self._recorder.ends.count)
            self._tell(Outcome(Ending(0), None, self._folder, (remark, *self._failed())))

    def _write(self, session: Session) -> None:
        self._progress.say("joining launches with lines, writing files")
        save(session, self._folder)
        self._is_saved = True
        write_rest(session, self._folder)
        self._progress.done()


def output_folder(request: Request) -> Path:
    """Return the folder of this rank, from the root: the script may move elsewhere.

    Raises:
        OutputError: It is meant in a working folder that was removed.
    """
    try:
        folder = request.folder.absolute()
    except FileNotFoundError:
        raise OutputError(
            f"the working folder is gone, and {request.folder} is in it; give a whole path with -o"
        ) from None
    return _of_rank(folder)


def _of_rank(folder: Path) -> Path:
    ranked = os.environ.get("WORLD_SIZE", "1") not in ("", "0", "1")
    return folder / f"rank_{os.environ.get('RANK', '0')}" if ranked else folder


def _threads_go_on() -> bool:
    """Whether Python will wait for a thread of the script's before it ends."""
    others = (each for each in threading.enumerate() if each is not threading.main_thread())
    return any(not each.daemon for each in others)


def _check(request: Request) -> None:
    program = request.program
    if not (program.is_module or Path(program.target).is_file() or program.holds_main):
        raise UsageError(f"there is no script {program.target}; give a path to a Python file")
    if request.steps < 1 or request.skip < 0:
        raise UsageError("--steps takes 1 or more, --skip 0 or more")


def _user_roots(program: Program) -> tuple[str, ...]:
    """The script's folder and the working folder, unless that was removed."""
    folders = [] if program.is_module else [_folder_of(program)]
    with suppress(OSError):
        folders.append(str(Path.cwd()))
    return tuple(dict.fromkeys(folders))


def _folder_of(program: Program) -> str:
    place = Path(program.target).resolve()
    return str(place if program.holds_main else place.parent)
