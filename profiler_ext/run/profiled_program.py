"""``profiler-ext run``: an unmodified script, its steps profiled and the files written."""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from profiler_ext import autostart
from profiler_ext.errors import OutputError, UsageError
from profiler_ext.isolation.failures import failure_detail, is_raised_by_program
from profiler_ext.isolation.guard import Guard
from profiler_ext.isolation.user_state import isolated, own_modules
from profiler_ext.python_lines.monitoring import python_without_monitoring
from profiler_ext.run import remarks
from profiler_ext.run.outcome import (
    Outcome,
    SavedSessions,
    Series,
    error_lines,
    failure_lines,
    outcome_of,
)
from profiler_ext.run.program import INTERRUPTED, ExitStatus, Program, prepare_program, run_program
from profiler_ext.run.request import Request
from profiler_ext.sessions.folder import check_folder, rank_folder
from profiler_ext.signals import TerminationSignals
from profiler_ext.source_paths import folder_of

if TYPE_CHECKING:
    from profiler_ext.run.recorder import Recorder
    from profiler_ext.sessions.session import Session


_INTERVAL_S = 30.0
_LOOK_S = 1.0  # how often a thread looks whether the stage is over


class Progress:
    """Says on standard error how far a run is.

    It writes whole lines: one that is rewritten in place would take the script's own with it. On a
    terminal each stage is a line; without one, and within a stage, there is one each half minute.
    Of several ranks the first speaks.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._stream = sys.stderr  # the script may put another in its place
        self._is_terminal = False
        with suppress(ValueError, AttributeError):  # it is closed, or there is none
            self._is_terminal = self._stream.isatty()
        self._is_silent = os.environ.get("RANK", "0") not in ("", "0")
        self._processed: list[str] = []  # the stage, until it is over
        self._now = now
        self._began_s = self._last_s = now()

    def begin(self, stage: str) -> None:
        """Say that a stage begins."""
        if self._is_terminal:
            self._write(stage)
        else:
            self.go_on(stage)

    def go_on(self, stage: str) -> None:
        """Say where the run is, if nothing was said for half a minute."""
        now = self._now()
        if now - self._last_s >= _INTERVAL_S:
            self._write(f"{stage} ({now - self._began_s:.0f} s so far)")

    def processing(self, begins: bool) -> None:
        """Say that a recording is processed, until that ends."""
        self._processed.clear()  # ends the thread of one before
        if begins:
            stage = "processing the recording"
            self.begin(stage)
            self._processed = [stage]
            speak = Guard().callback("progress", self._speak)  # no traceback of ours in a thread
            threading.Thread(target=speak, args=(self._processed,), daemon=True).start()

    def _speak(self, stages: list[str]) -> None:
        # No event: a fork could leave its lock held.
        while True:
            time.sleep(_LOOK_S)
            if not stages:
                return
            self.go_on(stages[0])

    def _write(self, text: str) -> None:
        self._last_s = self._now()
        if not self._is_silent:
            with suppress(OSError, ValueError, AttributeError):
                self._stream.write(f"profiler-ext: {text}\n")
                self._stream.flush()


def run(
    request: Request, tell: Callable[[Outcome], None], announce: Callable[[str], None]
) -> ExitStatus:
    """Run a script and profile its steps, and report the outcome when the files are written.

    What this Python cannot attribute is announced before the script begins.

    The script runs as with Python, and its exit code is kept. Nothing is prepared before it imports
    torch. The session is written when the steps are over, or when the script ends early, by an
    exception, Ctrl-C, or a signal. If threads outlive its main module, the outcome is reported when
    Python ends.
    """
    request.check()
    folder, rank = output_folder(request), rank_folder()
    check_folder(request.folder / rank, force=request.force)
    series = None
    if request.repeats is not None:
        series = Series(folder, rank, request.repeats.keep)
        series.begin(force=request.force)
    version = python_without_monitoring()
    if version is not None and request.lines and os.environ.get("RANK", "0") == "0":
        announce(remarks.lines_unavailable(version))
    return _Run(request, SavedSessions(folder / rank, series), tell).profiled()


class _Run:
    """One run of a script."""

    def __init__(
        self, request: Request, kept: SavedSessions, tell: Callable[[Outcome], None]
    ) -> None:
        self._request = request
        self._kept = kept
        self._report_outcome = tell
        self._progress = Progress()
        self._process = os.getpid()
        self._threads_before = frozenset(threading.enumerate())
        self._is_over = False
        self._start_error: Exception | None = None
        self._signals = TerminationSignals(self._ended_by)
        self._recorder: Recorder | None = None

    @property
    def _is_in_child(self) -> bool:
        return os.getpid() != self._process

    def profiled(self) -> ExitStatus:
        """Run the script; it is recorded once it has imported torch."""
        os.register_at_fork(after_in_child=self._signals.leave)
        if "torch" in sys.modules:
            self._start()
        else:
            autostart.on_torch_import(self._torch_imported)
        try:
            start = prepare_program(self._request.program)
        except BaseException:
            self._signals.leave()
            if self._recorder is not None:
                self._recorder.ends.leave()
            raise
        atexit.register(self._finish, ExitStatus(0))
        ending = run_program(start)
        try:
            return self._program_ended(ending)
        except Exception as error:
            message = remarks.internal_error(failure_detail(error))
            self._report_outcome(Outcome(ending, None, self._kept, (message,)))
            return ending

    def _torch_imported(self) -> None:
        """Start, inside the import of torch; if that fails, the script goes on unrecorded."""
        if self._is_in_child or self._is_over:
            return
        try:
            with isolated(), _program_folder_last(self._request.program):
                self._start()
        except Exception as error:
            self._start_error = error
            self._report_outcome(Outcome(ExitStatus(0), None, self._kept, error_lines(error)))

    def _start(self) -> None:
        from profiler_ext.profiling import switch
        from profiler_ext.profiling.out_of_memory import REPORTS
        from profiler_ext.run.recorder import Recorder

        REPORTS.folder, REPORTS.roots = self._kept.folder, _user_roots(self._request.program)
        switch.enable(recompile=self._request.recompile)
        if (capture := switch.current()) is None:
            raise UsageError("capture was switched off while it was starting; run it again")
        roots = _user_roots(self._request.program)
        recorder = Recorder(
            capture, self._request, self._write, self._step_ended, roots, self._kept.folder
        )
        recorder.on_processing = self._progress.processing
        recorder.start()
        self._recorder = recorder
        self._watch_signals()
        self._progress.begin("compilation and warm-up")

    def _program_ended(self, ending: ExitStatus) -> ExitStatus:
        threads = set(threading.enumerate()) - self._threads_before
        if self._is_in_child or not all(each.daemon for each in threads):
            return ending
        atexit.unregister(self._finish)
        return self._finish(ending)

    def _finish(self, ending: ExitStatus) -> ExitStatus:
        """End the recording and report the outcome."""
        if self._is_in_child:
            return ending
        self._is_over = True
        with own_modules():
            return self._finish_and_report(ending)

    def _finish_and_report(self, ending: ExitStatus) -> ExitStatus:
        recorder = self._recorder
        try:
            if recorder is not None:
                with _ShieldedFromSignals():
                    recorder.stop()
                    self._keep_trace(recorder)
        except KeyboardInterrupt:  # only the writing may be interrupted: the script is over
            if recorder is not None and recorder.session is None:
                ending = ExitStatus(INTERRUPTED, was_interrupted=True)
        finally:
            self._signals.leave()
        outcome = outcome_of(ending, self._request, recorder, self._kept, self._start_error)
        with _ShieldedFromSignals():
            self._report_outcome(outcome)
        if recorder is not None:
            recorder.release_cupti()
        return outcome.ending

    def _keep_trace(self, recorder: Recorder) -> None:
        if not self._kept.is_saved:
            recorder.keep_trace()

    def _step_ended(self) -> None:
        self._watch_signals()
        recorder, request = self._recorder, self._request
        if recorder is not None and request.repeats is None:
            count = recorder.ends.count
            if recorder.window.is_over(count):
                return
            if not recorder.window.has_begun(count):
                self._progress.go_on(f"step {count:,} of the warm-up")
            elif count == recorder.window.first:
                self._progress.begin(f"recording starts at step {count:,}")
            else:
                self._progress.go_on(f"recording step {count:,}")

    def _watch_signals(self) -> None:
        has_unsaved = self._recorder is not None and self._recorder.has_unsaved
        (self._signals.install if has_unsaved else self._signals.leave)()

    def _ended_by(self, signal: str) -> None:
        recorder = self._recorder
        if recorder is None:
            return
        with own_modules():
            recorder.stop()
            self._keep_trace(recorder)
            kept = self._kept.kept_text(recorder)
            remark = remarks.ended_by_signal(signal, kept, recorder.ends.count)
            failed = failure_lines(recorder)
            self._report_outcome(Outcome(ExitStatus(0), None, self._kept, (remark, *failed)))

    def _write(self, session: Session, step: int) -> None:
        from profiler_ext.sessions.output import save, write_exports

        folder = self._kept.folder_of_step(step)
        save(session, folder)
        self._kept.is_saved = True
        if self._kept.series is None:
            write_exports(session, folder)
        else:
            self._kept.series.keep(step)


class _ShieldedFromSignals:
    """Keeps exceptions of the script's signal handlers from ending work after the script."""

    def __init__(self) -> None:
        self._isolation = isolated()  # which says why this is no generator

    def __enter__(self) -> None:
        self._isolation.__enter__()

    def __exit__(self, *raised: Any) -> bool:
        try:
            return bool(self._isolation.__exit__(*raised)) or _is_answer(raised[1])
        except Exception as answered:
            if not is_raised_by_program(answered):
                raise
            return _is_answer(raised[1])


def _is_answer(error: BaseException | None) -> bool:
    return isinstance(error, Exception) and is_raised_by_program(error)


def output_folder(request: Request) -> Path:
    """Return the absolute folder of all ranks: the script may change directory."""
    try:
        return request.folder.absolute()
    except OSError:
        raise OutputError(
            f"the working folder is gone, and {request.folder} is in it; give a whole path with -o"
        ) from None


@contextmanager
def _program_folder_last(program: Program) -> Iterator[None]:
    """Import our modules from elsewhere than the program's folder."""
    kept, own = list(sys.path), program.folder
    if own in kept:
        sys.path[:] = [*(each for each in kept if each != own), own]
    try:
        yield
    finally:
        sys.path[:] = kept


def _user_roots(program: Program) -> tuple[str, ...]:
    """The script's folder and the working folder, unless that was removed."""
    folders: list[str] = []
    if not program.is_module:
        place = program.target
        folders.append(os.path.realpath(place) if program.holds_main else folder_of(place))
    with suppress(OSError):
        folders.append(str(Path.cwd()))
    return tuple(dict.fromkeys(folders))
