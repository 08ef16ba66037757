"""Owns what is known of a subject besides its time: its roofline, code, findings, gaps, waits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from profiler_ext.exporters import tables
from profiler_ext.exporters.answers.explained import Generated, IdleRow, Roofline
from profiler_ext.exporters.answers.making import finding_entry
from profiler_ext.exporters.answers.parts import FindingEntry, GapRow
from profiler_ext.exporters.answers.whole import SessionLike, gap_row
from profiler_ext.exporters.explain import sums
from profiler_ext.exporters.explain.chosen import Chosen
from profiler_ext.exporters.explain.module_paths import is_below
from profiler_ext.exporters.explain.nodes import kernel_module, kernel_nodes
from profiler_ext.exporters.explain.subjects import Kind, Subject
from profiler_ext.exporters.generated_code import recorded_modules, kernel_sources
from profiler_ext.exporters.table_texts import records
from profiler_ext.records import GapReason
from profiler_ext.rooflines.peaks import PEAKS
from profiler_ext.rooflines.rooflines import rooflines

_MAX_KERNELS = 3
"""The generated code of so many kernels is told."""


@dataclass(frozen=True, slots=True)
class About:
    """What an explanation is made of.

    Attributes:
        asked: a session, or several ranks.
        subject: what is explained.
        ranks: what of each rank belongs to it.
    """

    asked: SessionLike
    subject: Subject
    ranks: list[Chosen]


def generated(about: About, kernels: Sequence[str]) -> list[Generated]:
    """Return the code of the kernels of most time, of those whose module the session keeps.

    Args:
        about: whose.
        kernels: its kernels, those of most time first.
    """
    named, collected = list(dict.fromkeys(kernels)), dict[str, Generated]()
    for each in about.ranks:
        missing = [kernel for kernel in named if kernel not in collected]
        collected |= {code.kernel: code for code in islice(_codes(each, missing), _MAX_KERNELS - len(collected))}
    return [collected[kernel] for kernel in named if kernel in collected]


def _codes(each: Chosen, kernels: Sequence[str]) -> Iterator[Generated]:
    """Yield the code of kernels, of those whose module is kept; a module is read when needed."""
    kept = recorded_modules(each.analysis.recording)
    read: dict[str, dict[str, str]] = {}
    for kernel in kernels:
        path = kernel_module(each, kernel)
        if path is None or path not in kept:
            continue
        if path not in read:
            read[path] = kernel_sources(kept[path])
        if kernel in read[path]:
            own, others = kernel_nodes(each, kernel)
            yield Generated(
                kernel=kernel,
                own_nodes=own,
                other_nodes=others,
                module=path,
                text=read[path][kernel],
            )


def gaps(about: About, duration_ns: int) -> list[GapRow]:
    """Return what of it was not led further, and why.

    Args:
        about: what is explained.
        duration_ns: its time.
    """
    reasons = sums.times_by_place(about.ranks, lambda place: place.gap)
    known = {gap: time for gap, time in reasons.items() if gap in tuple(GapReason)}
    return [gap_row(gap, time, duration_ns) for gap, time in known.items()]


def findings(about: About) -> list[FindingEntry]:
    """Return the findings that touch it."""
    return [finding_entry(f) for f in about.asked.found.found if _touches(f.where, about)]


def _touches(where: Any, about: About) -> bool:
    """Tell whether a finding is about it, about what is below it, or about its kernel."""
    subject = about.subject
    if subject.kind is Kind.LINE:
        return (where.file, where.line) == (subject.name, subject.line)
    if subject.kind is Kind.MODULE:
        return where.module is not None and is_below(where.module, subject.name)
    return bool(where.kernel == subject.name)


def idle(about: About) -> list[IdleRow]:
    """Return why devices waited while the CPU was at a line, longest first."""
    if about.subject.kind is not Kind.LINE:
        return []
    rows = [row for row in records(about.asked.table("idle_by_line")) if _is_there(row, about)]
    named = ("cause", "cpu_activity", "duration_ns")
    return [IdleRow(**{name: row[name] for name in named}) for row in rows]


def _is_there(row: dict[str, Any], about: About) -> bool:
    line = (about.subject.name, about.subject.line)
    return line in ((row["file"], row["line"]), (row["user_file"], row["user_line"]))


def roofline(ranks: Sequence[Chosen]) -> Roofline | None:
    """Return how near it is to its roofline; of several ranks the sums, without rates."""
    collected = [_achieved(each) for each in ranks if len(each.own)]
    if not collected:
        return None
    known_ns = sum(map(_known_ns, ranks))
    if len(collected) == 1:
        return Roofline(known_ns=known_ns, **collected[0])
    nothing = dict.fromkeys(collected[0])
    sums_of = {name: _sum([each[name] for each in collected]) for name in _ADDITIVE}
    return Roofline(known_ns=known_ns, **nothing | sums_of)


_ADDITIVE = ("est_bytes", "est_flops", "roofline_ns", "could_save_ns")


def _sum(values: Sequence[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _achieved(each: Chosen) -> dict[str, Any]:
    nothing = np.zeros(len(each.own), np.int64)
    columns = tables.roofline_columns_by_key(each.analysis, PEAKS, each.own, nothing, 1)
    (row,) = records(tables.DataFrame(columns))
    return row


def _known_ns(each: Chosen) -> int:
    found = rooflines(each.analysis, PEAKS)
    unknown = np.ma.getmaskarray(found.bytes) & np.ma.getmaskarray(found.flops)
    return int(each.durations(each.own[~unknown[each.launch_of(each.own)]]).sum())
