"""A job's tables as people read them: headings and cells."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from profiler_ext.cluster.job import Job
from profiler_ext.cluster.records import FileGap
from profiler_ext.cluster.stragglers import StragglerKind
from profiler_ext.exporters.views.formatting import (
    cause_text,
    gap_text,
    short_path,
    signed_time_text,
    time_text,
)
from profiler_ext.records.recording import Settings
from profiler_ext.records.vocabulary import IdleCause

Row = Mapping[str, Any]
Cell = Callable[[Row, Settings], str]


@dataclass(frozen=True, slots=True)
class Heading:
    """A column."""

    name: str
    cell: Cell  # its text in a row
    # columns of the lowest order come first in little room; ``None`` for a name
    order: int | None = None


@dataclass(frozen=True, slots=True)
class View:
    """A table for people."""

    by: str  # its name on the command line
    table: str  # its name as a table
    title: str
    columns: Sequence[Heading]  # one or two names come first
    empty: str  # shown where it has no row


def _time(column: str) -> Cell:
    return lambda row, _: "" if row[column] is None else signed_time_text(row[column])


def _step_waiting(row: Row, _: Settings) -> str:
    if row["min_step_waiting_ns"] is None:
        return ""
    least = "" if row["step_waiting_ns"] is not None else _AT["min"]
    return f"{least}{time_text(row['min_step_waiting_ns'])}"


def _times(row: Row, _: Settings) -> str:
    return "" if row["slowdown"] is None else f"{row['slowdown']:.2f}x"


def _text(column: str) -> Cell:
    return lambda row, _: "" if row[column] is None else str(row[column])


def _integer(column: str) -> Cell:
    return lambda row, _: "" if row[column] is None else f"{row[column]:,}"


def _where(row: Row, settings: Settings) -> str:
    if row["file"] is None:
        return f"({gap_text(row['gap']) if row['gap'] else 'no source line'})"
    return f"{short_path(row['file'], settings)}:{row['line']}"


def _rank_of(word: str) -> Cell:
    return lambda row, _: _rank(row[f"{word}_rank"], row[f"{word}_host"])


def _rank(rank: int | None, host: str | None) -> str:
    if rank is None:
        return ""
    return f"{rank} on {host}" if host else str(rank)


def _who(row: Row, _: Settings) -> str:
    if row["rank"] is None:
        return f"{row['host']} ({row['ranks']} ranks)"
    return f"rank {_rank(row['rank'], row['host'])}"


def _what(row: Row, settings: Settings) -> str:
    kind = StragglerKind(row["straggler"])
    if kind is StragglerKind.SLOWER_LINE:
        return f"slower at {_where(row, settings)}  {row['code'] or ''}".strip()
    if kind is StragglerKind.SLOWER_DEVICE:
        return "its device is slower at everything"
    at = f" at {_where(row, settings)}" if row["file"] is not None else ""
    return f"comes late{': ' if row['cause'] else ''}{_cause(row['cause'])}{at}"


def _cause(cause: str | None) -> str:
    if cause is None:
        return ""
    return cause_text(cause) if cause in tuple(IdleCause) else cause


def _last(row: Row, _: Settings) -> str:
    if row["last_rank"] is None:
        return ""
    times = f"{row['last_count']} of {row['collectives']}"
    return f"{_rank(row['last_rank'], row['last_host'])}, {times}"


def _group(row: Row, _: Settings) -> str:
    return f"{row['collective'] or 'unknown'} in group {row['process_group'] or 'unknown'}"


def _gap_rank(row: Row, _: Settings) -> str:
    if FileGap(row["reason"]) in (FileGap.INCOMPLETE_GROUP, FileGap.NOT_MATCHED):
        return "collectives"
    known = row["rank"] is not None
    return f"rank {_rank(row['rank'], row['host'])}" if known else "rank not known"


def _gap_detail(row: Row, _: Settings) -> str:
    place = f" ({row['recording']})" if row["recording"] else ""
    return f"{FileGap(row['reason']).label}: {row['detail']}{place}"


_ON = "slowest rank"
_AT = {"min": "≥ ", "max": "≤ "}
VIEWS = (
    View(
        "straggler",
        "stragglers",
        "Who is behind, by what it takes more of a step",
        (
            Heading("who", _who),
            Heading("in what", _what),
            Heading("time/step", _time("excess_ns"), 0),
            Heading("times", _times, 0),
        ),
        "No rank and no host stands out.",
    ),
    View(
        "line",
        "lines",
        "Lines, on the median, the slowest and the fastest rank, a step",
        (
            Heading("line", _where),
            Heading("code", _text("code")),
            Heading("median", _time("median_ns"), 0),
            Heading("slowest", _time("slowest_ns"), 0),
            Heading("times", _times, 1),
            Heading(_ON, _rank_of("slowest"), 1),
            Heading("fastest", _time("fastest_ns"), 4),
            Heading("fastest rank", _rank_of("fastest"), 5),
            Heading("median rank", _rank_of("median"), 6),
        ),
        "No rank has work on a device in its steps.",
    ),
    View(
        "group",
        "groups",
        "Communication, the mean of a step on one rank",
        (
            Heading("collective", _group),
            Heading("time/step", lambda row, _: time_text(row["per_step_ns"]), 0),
            Heading("waiting", lambda row, _: _bounded(row, "min", "waiting"), 0),
            Heading("transfer", lambda row, _: _bounded(row, "max", "transfer"), 0),
            Heading("exposed", lambda row, _: _share_per_step(row, "exposed_ns"), 2),
            Heading("last most often", _last, 1),
        ),
        "No rank has collectives in its steps.",
    ),
    View(
        "host",
        "hosts",
        "Hosts, the median of their ranks, a step",
        (
            Heading("host", lambda row, _: row["host"] or "(unknown)"),
            Heading("ranks", _integer("ranks"), 0),
            Heading("behind", _time("delay_ns"), 0),
            Heading("step", _time("step_ns"), 1),
            Heading("work", _time("work_ns"), 1),
            Heading("times", _times, 1),
        ),
        "There is no host.",
    ),
    View(
        "rank",
        "ranks",
        "Ranks, a step",
        (
            Heading("rank", lambda row, _: _rank(row["rank"], row["host"])),
            Heading("behind", _time("delay_ns"), 0),
            Heading("step", _time("step_ns"), 0),
            Heading("waiting", _step_waiting, 1),
            Heading("work", _time("work_ns"), 1),
            Heading("times", _times, 1),
            Heading("clock", _time("shift_ns"), 3),
        ),
        "There is no rank.",
    ),
    View(
        "clock",
        "clocks",
        "Clocks, by the ends of shared collectives",
        (
            Heading("rank", lambda row, _: _rank(row["rank"], row["host"])),
            Heading("moved by", _time("shift_ns"), 0),
            Heading("collectives", _integer("collectives"), 0),
            Heading("ends differ by", _time("residual_ns"), 0),
        ),
        "There is no rank.",
    ),
    View(
        "gap",
        "gaps",
        "What is missing",
        (Heading("rank", _gap_rank), Heading("found", _gap_detail)),
        "Nothing is missing.",
    ),
)
AT_A_GLANCE = ("straggler", "line", "group", "host")


def view_by(by: str) -> View:
    """Return the view of a name on the command line."""
    return next(view for view in VIEWS if view.by == by)


def _share_per_step(row: Row, column: str) -> str:
    """Return a part of a step's time; nothing where unknown."""
    total_ns, value = row["duration_ns"], row[column]
    return "" if value is None or not total_ns else time_text(row["per_step_ns"] * value / total_ns)


def _bounded(row: Row, at: str, what: str) -> str:
    """Return a part of a step's time; for an incomplete group, its bound."""
    if not row["incomplete"]:
        return _share_per_step(row, f"{what}_ns")
    return f"{_AT[at]}{_share_per_step(row, f'{at}_{what}_ns')}"


def heading(job: Job) -> str:
    """Return a job in one line."""
    hosts = {each.host for each in job.ranks}
    steps = {len(each.steps) for each in job.ranks}
    parts = (
        f"{len(job.ranks):,} ranks",
        f"{len(hosts):,} hosts" if hosts != {""} else "hosts unknown",
        f"torch {job.ranks[0].torch_version or 'unknown'}",
        job.ranks[0].device or "device unknown",
        f"{'-'.join(map(str, sorted({min(steps), max(steps)})))} step{'s' * (max(steps) != 1)}",
    )
    return " · ".join(parts)


def sentences(job: Job) -> list[str]:
    """Return a job's notes."""
    result = []
    unset = [each for each in job.clocks[1:] if not each.collectives]
    moved = [each.shift_ns for each in job.clocks if each.collectives]
    if moved:
        result.append(
            f"the clocks of {len(moved):,} ranks were moved by {signed_time_text(min(moved))} to "
            f"{signed_time_text(max(moved))}, so that their collectives end at one moment"
        )
    if unset:
        listed_ranks = ", ".join(str(each.rank) for each in unset[:8])
        more = f" and {len(unset) - 8} more" if unset[8:] else ""
        result.append(
            f"the wall clocks of ranks {listed_ranks}{more} stand: they share no known collective"
        )
    if any(gap.reason is FileGap.INCOMPLETE_GROUP for gap in job.gaps):
        result.append(
            "≥ is at least, ≤ at most: a rank that is missing may have come last; who came last is "
            "told of collectives of which all ranks are there, who is behind by the ranks there are"
        )
    if not job.rank_stats.is_judged:
        result.append("of fewer than 4 ranks nobody can say which is behind the others")
    return result


def settings_of(job: Job) -> Settings:
    """Return the settings that shorten paths."""
    return Settings(user_roots=job.ranks[0].roots)
