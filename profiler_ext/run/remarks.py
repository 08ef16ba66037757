"""The remarks of ``profiler-ext run`` next to its report: what is missing, what helps."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from profiler_ext.run.request import EndedBy, Request, StepOn

if TYPE_CHECKING:
    from profiler_ext.run.recorder import Recorder
    from profiler_ext.run.window import MissedSteps
    from profiler_ext.sessions.session import Session

KEPT = "what was recorded until then is kept"
NOTHING = "nothing was recorded"
FAILED = "what was recorded is not kept as asked"
_ENDED = "a second Ctrl-C or an exception of the script's own ended"
CUT_SHORT = f"{_ENDED} the work on what was recorded, and none of it is kept"
ONLY_SAVED = f"{_ENDED} the writing, and only the session itself is kept"
REMEDY = "`profiler-ext export` writes the rest from it"
NO_TORCH = "the script never imported torch, so there was nothing to record"
IGNORED_STOP = "the script caught the exit of --stop and went on; it is asked to end only once"

_MAX_SEEN_SHOWN = 6


def lines_unavailable(version: str) -> str:
    """Say, before the run, what this Python cannot attribute."""
    return (
        f"eager line attribution needs Python 3.12 or newer, and this is {version}: eager work is "
        "attributed to its ops"
    )


def failed_script(code: int, kept: str, steps: int) -> str:
    """Say how a script failed, and what is kept."""
    return f"the script ended with exit code {code} after {_steps(steps)}; {kept}"


def ended_by_signal(signal: str, kept: str, steps: int) -> str:
    """Say which signal ended a script, and what is kept."""
    return f"the script was ended by {signal} after {_steps(steps)}; {kept}"


def only_saved(folder: Path) -> str:
    """Say where the session is that has no exports."""
    return f"{ONLY_SAVED}: it is in {folder}; {REMEDY}"


def not_slow(discarded: int) -> str:
    """Say that nothing was slow enough to be kept."""
    return f"{discarded} recordings had no step slow enough, and are not kept"


def missed_slow_steps(missed: MissedSteps) -> tuple[str, ...]:
    """Say which slow steps are in no recording, and why."""
    if not missed.count:
        return ()
    listed = "1 slow step is" if missed.count == 1 else f"{missed.count:,} slow steps are"
    why = (
        "a region of the script's that began in a recording was open, and torch's profiler cannot "
        "begin again within it: have record_function, or what opens it, enclose fewer steps"
        if missed.had_open_region
        else "it fell between two: a larger --steps, or a smaller --every, leaves fewer between"
    )
    return (f"{listed} in no recording, last step {missed.last}: {why}",)


def internal_error(detail: str, trace: Path | None = None) -> str:
    """Say that this package failed."""
    kept = "" if trace is None else f"; torch's own trace of what was recorded is {trace}"
    return (
        f"the session could not be made ({detail}){kept}; the script was not affected; please "
        "report it"
    )


def success_remarks(request: Request, recorder: Recorder) -> tuple[str, ...]:
    """Say what a successful run did not record."""
    return (*_unrecorded(request, recorder), *missed_slow_steps(recorder.missed))


def _unrecorded(request: Request, recorder: Recorder) -> tuple[str, ...]:
    session, steps, window = recorder.session, recorder.ends.count, recorder.window
    if steps == 0:
        is_whole = session is not None and request.skip.is_nothing and request.step_on == StepOn()
        return () if is_whole else (never_stepped(request, recorder.ends.seen),)
    if window.was_postponed:
        return (_moved(session),)
    if recorder.ignored_stop:
        return (IGNORED_STOP,)
    if session is None:
        return (_no_session(request, recorder),)
    if session is not None and not recorder.ends.of and session.recording.settings.step_call:
        return (_before_training(request, steps, session),)
    if session is not None and recorder.recorded_early:
        return (_early(request, recorder, session),)
    if window.expected is not None:
        return (_expected(request, window.expected, session),)
    if request.repeats is None and not window.is_over(steps):
        return (_cut_off(request, steps, max(steps - (window.first or 0), 0)),)
    return ()


def _before_training(request: Request, steps: int, session: Session) -> str:
    """Say that the training steps were too few, and that calls before them were recorded."""
    return (
        f"the script ended after {_steps(steps)} of training, too few to skip {request.skip} and "
        f"record {request.steps}: calls of {session.recording.settings.step_call} before them were "
        "recorded; use a smaller --skip"
    )


def _early(request: Request, recorder: Recorder, session: Session) -> str:
    """Say that the script ended before the steps to record, and how many were recorded instead."""
    of, count = recorder.ends.of, len(session.analysis.steps)
    which = "an early one was" if count == 1 else f"{count} early ones were"
    return (
        f"the script ended after {recorder.ends.seen[f'calls of {of}']} calls of {of}, too few to "
        f"skip {request.skip} and record {request.steps} of them: {which} recorded{_WARM_UP}"
    )


_WARM_UP = "; their time includes warm-up"


def _expected(request: Request, expected: int, session: Session) -> str:
    """Say that the program's loops have too few steps, and which of them were recorded."""
    recorded = ", ".join(str(step.number) for step in session.analysis.steps)
    return (
        f"the loop has {_steps(expected)}, too few to skip {request.skip}: recorded "
        f"{recorded or 'none'}{_WARM_UP}"
    )


def _cut_off(request: Request, steps: int, recorded: int) -> str:
    """Say that the script ended during the steps to record."""
    ended = f"the script ended after {_steps(steps)}"
    if request.steps.steps is None:
        return (
            f"{ended}, before the {request.steps} asked were over: {recorded} were recorded whole"
        )
    smaller = "" if request.skip.is_nothing else "; use a smaller --skip"
    return f"{ended}: {recorded} of the {request.steps} asked were recorded whole{smaller}"


def never_stepped(request: Request, seen: Counter[str]) -> str:
    """Say that no step ended, and what could have ended one."""
    if request.step_on.by is not EndedBy.FIRST:
        return f"No step boundary found: {_not_seen_text(request.step_on)}{_seen_text(seen)}"
    if request.skip.is_nothing:
        return "No step boundary found, and nothing was recorded"
    return (
        "No step boundary found: no optimizer stepped, prof.step() was not called, and no call of "
        f"a model or compiled function was repeated{_seen_text(seen)}. Name a function with "
        "--step-on, or record the whole script with --skip 0"
    )


def _not_seen_text(step_on: StepOn) -> str:
    if step_on.by is EndedBy.FUNCTION:
        return f"{step_on} was not called, or never returned"
    if step_on.by is EndedBy.FORWARD:
        called = "no model" if step_on.name is None else f"no module of class {step_on.name}"
        return f"{called} was called"
    return f"no optimizer of class {step_on.name} stepped"


def _seen_text(seen: Counter[str]) -> str:
    listed = [
        f"{what} ({'once' if count == 1 else f'{count:,} times'})"
        for what, count in seen.most_common(_MAX_SEEN_SHOWN)
    ]
    return f"; seen were {', '.join(listed)}" if listed else "; no other was seen either"


def _no_session(request: Request, recorder: Recorder) -> str:
    steps, requested = recorder.ends.count, request.steps.steps
    if recorder.discarded:
        return not_slow(recorder.discarded)
    if request.skip.steps is None or requested is None:
        return f"the script ended after {_steps(steps)}, before {request.skip} were over"
    return (
        f"the script ended after {_steps(steps)}, before the {request.skip} skipped were over; "
        f"use --skip {max(steps - requested, 0)}"
    )


def _steps(count: int) -> str:
    return f"{count} step{'' if count == 1 else 's'}"


def _moved(session: Session | None) -> str:
    numbers = [step.number for step in session.analysis.steps] if session is not None else []
    recorded = ", ".join(map(str, numbers)) or "none"
    return (
        "the script has a profiler of its own on in the asked steps, and torch's serves one at a "
        f"time; the steps recorded are {recorded}: choose others with --skip and --steps"
    )
