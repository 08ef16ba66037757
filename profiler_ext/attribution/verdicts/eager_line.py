"""Owns the line of an eager launch as a record, and why a recording has no lines at all."""

from __future__ import annotations

from dataclasses import dataclass

from profiler_ext.records import (
    EagerEvidence,
    ForwardEvidence,
    Frame,
    Gap,
    GapReason,
    ModuleFrame,
    Phase,
)

NO_LINES_REASONS = frozenset(
    {
        GapReason.LINES_OFF,
        GapReason.LINES_NEED_COLUMNS,
        GapReason.LINES_NEED_PYTHON_312,
        GapReason.LINES_TAKEN,
        GapReason.LINES_FAILED,
    }
)
"""Why a recording has no lines at all."""


@dataclass(frozen=True, slots=True)
class EagerLine:
    """The line that launched something.

    Attributes:
        stack: the frames of the program, outermost first; empty where there is a gap.
        module: the module that it is of.
        evidence: the rule that told the line.
        gap: why there is none.
        phase: the phase, where it is another than the trace alone tells.
        linked_by: the same of what ties it to a forward op.
        in_module: it was launched while a module was called, as the watched lines say.
        caller: the frame of the forward call whose backward the program wrote itself.
    """

    stack: tuple[Frame, ...] = ()
    module: ModuleFrame | None = None
    evidence: EagerEvidence | None = None
    gap: GapReason | None = None
    phase: Phase | None = None
    linked_by: ForwardEvidence | None = None
    caller: Frame | None = None
    in_module: bool = False


def missing_lines_reason(gaps: tuple[Gap, ...]) -> GapReason | None:
    """Return why a recording has no lines at all, where one of its gaps says so.

    Args:
        gaps: the gaps of the recording.
    """
    return next((GapReason(gap.reason) for gap in gaps if gap.reason in NO_LINES_REASONS), None)
