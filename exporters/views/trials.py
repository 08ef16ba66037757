"""What ``profiler-ext try`` measured, as text, and read where it lies beside a session."""

from __future__ import annotations

from pathlib import Path

import msgspec

from profiler_ext.errors import TraceError
from profiler_ext.exporters.formats import FILE_NAME as SESSION_NAME
from profiler_ext.exporters.json_output.documents import (
    BreakdownChange,
    Measurements,
    TrialRow,
    TryAnswer,
)
from profiler_ext.file_io import read_regular
from profiler_ext.records.stored import known

FILE_NAME = "try.json"
"""The file of an answer, in the folder of the session."""
_MAX_BYTES = 16 * 1024 * 1024


def trial_of(session: Path) -> TryAnswer | None:
    """Return what was tried after a session was recorded, if it lies in the session's folder.

    Raises:
        TraceError: It is no answer of ``profiler-ext try``.
    """
    folder = session if session.is_dir() else session.parent
    path = folder / FILE_NAME
    recorded = [*folder.glob(SESSION_NAME), *folder.glob(f"rank_*/{SESSION_NAME}")]
    if not path.is_file() or not recorded:
        return None
    if path.stat().st_mtime_ns < max(each.stat().st_mtime_ns for each in recorded):
        return None
    try:
        return msgspec.json.decode(read_regular(path, _MAX_BYTES), type=known(TryAnswer))
    except (OSError, msgspec.MsgspecError) as error:
        raise TraceError(f"{path} is no answer of profiler-ext try: {error}; remove it") from error


def measurements(answer: TryAnswer | None) -> Measurements | None:
    """Return what stands in an answer about the session."""
    if answer is None:
        return None
    return Measurements(
        command=answer.command,
        rows=answer.rows,
        best=answer.best,
        total=answer.total,
        stopped_by=answer.stopped_by,
    )


def row_text(row: TrialRow) -> str:
    """Return what was measured of a remedy, and the recommendations that propose it."""
    of = f" (for {', '.join(row.rules)})" if row.rules else ""
    on_top = f" on top of {'+'.join(row.on_top_of)}" if row.on_top_of else ""
    name = f"{'+'.join(row.remedies)}{on_top}{of}"
    if row.gain is None:
        return f"{name}: {row.verdict}" + (f": {row.reason}" if row.reason else "")
    times = f"{ms_text(row.base_step_ns)} to {ms_text(row.step_ns)} a step"
    return f"{name}: {times}, {_saved_text(row)}: {row.verdict}"


def _saved_text(row: TrialRow) -> str:
    """Return a gain with its interval, which is that of what is saved."""
    gain = row.gain or 0.0
    change = "less" if gain >= 0 else "more"
    return f"{part_text(abs(gain))} {change} (saves {interval_text(row)})"


def trial_text(answer: TryAnswer) -> str:
    """Return what remedies win together, in one sentence."""
    took = f"{answer.runs} runs in {answer.duration_ns / 1e9:.0f} s"
    if not answer.rows:
        return f"nothing was tried ({took})"
    if not answer.best:
        undecided = ", ".join(row.remedies[0] for row in answer.rows if row.verdict == "undecided")
        if undecided:
            return f"nothing won so far; undecided: {undecided} ({took})"
        return f"nothing won: leave the script as it is ({took})"
    names = ", ".join(answer.best)
    total = answer.total
    if total is None and len(answer.best) == 1:
        total = next(r for r in answer.rows if r.remedies == answer.best and not r.on_top_of)
    if total is None:
        return f"best set: {names}, each on top of those before; not measured together ({took})"
    if total.gain is None:
        return f"each of {names} wins, but together: {total.verdict}: {total.reason} ({took})"
    times = f"{ms_text(total.base_step_ns)} to {ms_text(total.step_ns)} a step"
    return (
        f"best set: {names}: {times}, {_saved_text(total)}, "
        f"losses {losses_text(total)}: {total.verdict} ({took})"
    )


def losses_text(row: TrialRow) -> str:
    """Return what a trial says of the losses, and how much they differ."""
    if row.loss_difference is None or row.losses == "identical":
        return row.losses
    return f"{row.losses} ({row.loss_difference:.0e})"


def ms_text(time_ns: int | None) -> str:
    """Return a step time; those of a trial are all in milliseconds, to be compared."""
    return "" if time_ns is None else f"{time_ns / 1e6:.2f} ms"


def interval_text(row: TrialRow) -> str:
    """Return the interval of a gain, if there is one."""
    if row.gain_low is None:
        return "of one run"
    return f"{part_text(row.gain_low)} to {part_text(row.gain_high)}"


def change_text(change: BreakdownChange) -> str:
    """Return what a part of the step time breakdown takes without and with a remedy."""
    return f"{change.name} {ms_text(round(change.base_ns))} to {ms_text(round(change.head_ns))}"


def part_text(part: float | None) -> str:
    """Return a gain as a percentage."""
    return "" if part is None else f"{100 * part:.1f}%"
