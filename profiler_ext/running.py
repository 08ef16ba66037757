"""Owns ``profiler-ext run``: an untouched script, its steps profiled, the files written.

The script sees its own ``sys.argv`` and ``__main__``, and its exit code is kept. The session
is written as soon as the asked steps are over; what was recorded is written too when the
script ends early, by an exception or Ctrl-C.
"""

from __future__ import annotations

import os
import runpy
import sys
import traceback
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from profiler_ext.errors import UsageError
from profiler_ext.output import check_folder, write_all
from profiler_ext.progress import Progress
from profiler_ext.session import Session

if TYPE_CHECKING:
    from profiler_ext.profiler import profile
    from profiler_ext.stepping import StepEnds

NEVER_STEPPED = 3
INTERRUPTED = 130


@dataclass(frozen=True, slots=True)
class Request:
    """What ``run`` was asked for.

    Attributes:
        target: script path, or module name.
        arguments: the script's own arguments.
        is_module: ``target`` is a module (``-m``).
        folder: where the files go; ranks have folders of their own in it.
        skip: steps before the first recorded one.
        steps: steps to record.
        step_on: class name of the optimizer that ends a step.
        force: replace a session that is there.
        recompile: compile those graphs once more that a cache has without a record.
    """

    target: str
    arguments: tuple[str, ...]
    is_module: bool
    folder: Path
    skip: int
    steps: int
    step_on: str | None
    force: bool
    recompile: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run went: the exit code, the session if there is one, what to tell the user."""

    exit_code: int
    session: Session | None
    remarks: tuple[str, ...]


def run(request: Request) -> Outcome:
    """Run a script and profile its steps.

    Args:
        request: what to run, and what to record of it.

    Returns:
        How it went; the files are written.

    Raises:
        UsageError: The script is not there, or a session is in the way.
        OutputError: The folder cannot be written.
        TorchCapabilityError: This torch does not fit capture.
    """
    _check_target(request)
    check_folder(output_folder(request), force=request.force)
    progress = Progress()
    progress.say("starting torch")
    from profiler_ext import switch

    switch.enable(recompile=request.recompile)
    return _profiled(request, progress)


def _profiled(request: Request, progress: Progress) -> Outcome:
    """Run the script under the profiler, step by step."""
    from profiler_ext import switch
    from profiler_ext.stepping import StepEnds

    capture = switch.current()
    if capture is None:
        raise UsageError("capture was switched off while it was starting; run it again")
    failures: list[Exception] = []
    profiler = _profiler(request, progress, failures)
    ends = StepEnds(
        capture, lambda: _next_step(profiler, ends, request, progress), profiler, request.step_on
    )
    profiler.start()
    ends.watch()
    progress.say("compile and warm-up")
    try:
        code = _execute(request)
    finally:
        ends.leave()
        profiler.stop()
        progress.done()
    if failures:
        raise failures[0]
    return _outcome(request, profiler, ends.count, code)


def _outcome(request: Request, profiler: profile, steps: int, code: int) -> Outcome:
    session = profiler.sessions[-1] if profiler.sessions else None
    remarks = (_failed(code, session, steps),) if code else _remarks(request, session, steps)
    return Outcome(code or (0 if steps else NEVER_STEPPED), session, remarks)


def _profiler(request: Request, progress: Progress, failures: list[Exception]) -> profile:
    import torch.profiler

    from profiler_ext.profiler import profile

    warmup = min(request.skip, 1)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*warmup.*")  # `--skip 0` asks for none
        schedule = torch.profiler.schedule(
            skip_first=request.skip - warmup, wait=0, warmup=warmup, active=request.steps, repeat=1
        )
    return profile(
        schedule=schedule,
        acc_events=True,
        user_roots=_user_roots(request),
        on_trace_ready=lambda profiler: _try_to_write(
            profiler.session, request, progress, failures
        ),
    )


def _next_step(profiler: profile, ends: StepEnds, request: Request, progress: Progress) -> None:
    count = ends.count
    profiler.step_source = ends.source
    profiler.step()
    last = request.skip + request.steps
    if count < last:
        progress.say(f"step {count + 1} of {last}" + (" (warm-up)" if count < request.skip else ""))


def _try_to_write(
    session: Session, request: Request, progress: Progress, failures: list[Exception]
) -> None:
    """Write amid the script, which must not feel a failure: it is told when the script is over."""
    try:
        _write(session, request, progress)
    except Exception as error:
        failures.append(error)


def _write(session: Session, request: Request, progress: Progress) -> None:
    progress.say("joining launches with lines")
    _ = session.analysis
    progress.say("writing files")
    write_all(session, output_folder(request))
    progress.done()


def output_folder(request: Request) -> Path:
    """Return the folder of this rank."""
    ranked = int(os.environ.get("WORLD_SIZE", "1")) > 1
    return request.folder / f"rank_{os.environ.get('RANK', '0')}" if ranked else request.folder


def _execute(request: Request) -> int:
    """Run the script as Python would; return its exit code."""
    arguments, path = sys.argv, list(sys.path)
    try:
        if request.is_module:
            sys.argv = [request.target, *request.arguments]
            sys.path.insert(0, str(Path.cwd()))
            runpy.run_module(request.target, run_name="__main__", alter_sys=True)
        else:
            sys.argv = [request.target, *request.arguments]
            sys.path.insert(0, str(Path(request.target).resolve().parent))
            runpy.run_path(request.target, run_name="__main__")
    except SystemExit as stop:
        return _exit_code(stop)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BaseException as error:
        _print_traceback(error)
        return 1
    finally:
        sys.argv, sys.path[:] = arguments, path
    return 0


def _exit_code(stop: SystemExit) -> int:
    if stop.code is None or isinstance(stop.code, int):
        return stop.code or 0
    print(stop.code, file=sys.stderr)
    return 1


def _print_traceback(error: BaseException) -> None:
    """Print the script's traceback as Python would, without this package's frames."""
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename in (__file__, _RUNPY):
        frames = frames.tb_next
    traceback.print_exception(error.with_traceback(frames))


_RUNPY = runpy.run_path.__code__.co_filename


def _check_target(request: Request) -> None:
    if not request.is_module and not Path(request.target).is_file():
        raise UsageError(f"there is no script {request.target}; give a path to a Python file")
    if request.steps < 1 or request.skip < 0:
        raise UsageError("--steps takes 1 or more, --skip 0 or more")


def _user_roots(request: Request) -> tuple[str, ...]:
    own = Path.cwd() if request.is_module else Path(request.target).resolve().parent
    return tuple(dict.fromkeys((str(own), str(Path.cwd()))))


def _failed(code: int, session: Session | None, steps: int) -> str:
    kept = "nothing was recorded" if session is None else "what was recorded until then is kept"
    return f"the script ended with exit code {code} after {steps} steps; {kept}"


def _remarks(request: Request, session: Session | None, steps: int) -> tuple[str, ...]:
    if steps == 0:
        return (
            "the script never stepped: no optimizer's step() and no prof.step() was seen; "
            "for a script that does not train, record it whole with --skip 0",
        )
    if session is None:
        return (
            f"the script ended after {steps} steps, before the {request.skip} skipped were over; "
            f"use --skip {max(steps - request.steps, 0)}",
        )
    if steps < request.skip + request.steps:
        return (
            f"the script ended after {steps} steps: {max(steps - request.skip, 0)} of the "
            f"{request.steps} asked were recorded whole; use a smaller --skip",
        )
    if not session.recording.graphs:
        return ("the script compiled nothing, so every launch is eager: use torch.compile",)
    return ()
