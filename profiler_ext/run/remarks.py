"""Owns what ``profiler-ext run`` says of a run beside its report: what is missing, what helps."""

from __future__ import annotations

from profiler_ext.sessions.session import Session

KEPT = "what was recorded until then is kept"
NOTHING = "nothing was recorded"
FAILED = "what was recorded is not kept as asked"
CUT_SHORT = "a second Ctrl-C ended the work on what was recorded, and none of it is kept"
ONLY_SAVED = "a second Ctrl-C ended the writing, and only the session itself is kept"


def failed_script(code: int, kept: str, steps: int) -> str:
    """Say how a script failed, and what is kept.

    Args:
        code: the script's exit code.
        kept: what became of what was recorded: ``KEPT`` and the others.
        steps: how many steps were recorded.
    """
    return f"the script ended with exit code {code} after {steps} steps; {kept}"


def ended_by(signal: str, kept: str, steps: int) -> str:
    """Say which signal ended a script, and what is kept.

    Args:
        signal: the signal's name.
        kept: what became of what was recorded: ``KEPT`` and the others.
        steps: how many steps were recorded.
    """
    return f"the script was ended by {signal} after {steps} steps; {kept}"


def own_fault(detail: str) -> str:
    """Say that something of ours failed."""
    return (
        f"the session could not be made ({detail}); the script was not affected; please report it"
    )


def of_success(
    session: Session | None, steps: int, *, skip: int, asked: int, was_moved: bool
) -> tuple[str, ...]:
    """Say what a run that went well did not record.

    Args:
        session: what was recorded.
        steps: how many steps the script made.
        skip: how many were to be skipped.
        asked: how many were to be recorded.
        was_moved: later ones than those were.
    """
    if steps == 0 and session is not None and skip == 0:
        return ()
    if steps == 0:
        return (
            "the script never stepped: no optimizer's step() and no prof.step() was seen; "
            "for a script that does not train, record it whole with --skip 0",
        )
    if was_moved:
        return (_moved(session),)
    if session is None:
        return (
            f"the script ended after {steps} steps, before the {skip} skipped were over; "
            f"use --skip {max(steps - asked, 0)}",
        )
    if steps < skip + asked:
        return (
            f"the script ended after {steps} steps: {max(steps - skip, 0)} of the "
            f"{asked} asked were recorded whole; use a smaller --skip",
        )
    return ()


def _moved(session: Session | None) -> str:
    numbers = [step.number for step in session.analysis.steps] if session is not None else []
    recorded = ", ".join(map(str, numbers)) or "none"
    return (
        "the script has a profiler of its own on in the asked steps, and torch's serves one at a "
        f"time; the steps recorded are {recorded}: choose others with --skip and --steps"
    )
