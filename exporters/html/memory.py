"""Device memory on the page: each step over time by kind, and what is alive at its peak.

A page has the steps of its timelines. Of moments that are close together the highest is drawn, so
the peak is always among them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from profiler_ext.exporters import tables
from profiler_ext.exporters.html.elements import tag, text
from profiler_ext.exporters.html.sites import ABSENT, Pool
from profiler_ext.exporters.html.slices import rank_number, selectable_ranks
from profiler_ext.exporters.html.timeline import steps_shown
from profiler_ext.exporters.views.formatting import memory_gap_text, memory_label, reserved_text
from profiler_ext.exporters.views.summary import peak_texts, records
from profiler_ext.memory.over_time import StepMemory, highest, memory_of_steps
from profiler_ext.printable import printable
from profiler_ext.records.analysis import Analysis, Place
from profiler_ext.records.events import Ints
from profiler_ext.records.memory import CPU, BirthEvidence, LifeReason, MemoryGap, MemoryKind
from profiler_ext.records.vocabulary import Phase

MAX_MOMENTS = 500  # of a step
MAX_ROWS = 8_000  # on a page
MAX_ROWS_OF_STEP, _MIN_ROWS_OF_STEP = 2_000, 200
_PIXELS = 400  # phases that are shorter than this part of the step are left out
LineNumber = Callable[[Place], int]
_KINDS, _PHASES = tuple(MemoryKind), tuple(Phase)
_BEFORE = (MemoryGap.HELD_BY_NAME, MemoryGap.BEFORE_RECORDING)


def memory_data(analyses: Sequence[Analysis], line_number: LineNumber) -> dict[str, Any]:
    """Return the memory of the steps on a page for JSON; no steps where none was recorded.

    ``times`` and ``bytes``, of each kind, follow the last. ``rows`` are those of ``by_memory`` as
    numbers of ``texts``, and of lines.
    """
    texts, shown = Pool(), selectable_ranks(analyses)
    pairs = [
        (analysis, each)
        for analysis in analyses
        if rank_number(analysis) in shown
        for each in _of_page(analysis)
    ]
    most = max(MAX_ROWS // max(len(pairs), 1), _MIN_ROWS_OF_STEP)
    most = min(most, MAX_ROWS_OF_STEP)
    steps = [_step(*pair, texts, line_number, most) for pair in pairs]
    kinds = [(kind.value, kind.label, kind.meaning) for kind in MemoryKind]
    return {"kinds": kinds, "steps": steps, "texts": [printable(each) for each in texts.values()]}


def peaks(analyses: Sequence[Analysis]) -> str:
    """Return a sentence on the highest peak of each GPU."""
    return "".join(tag("p", text(line)) for line in peak_texts(analyses))


def _of_page(analysis: Analysis) -> list[StepMemory]:
    """Return the steps to show, GPUs first, and of a device that with the highest peak first."""
    numbers = {step.number for step in steps_shown(analysis)}
    every = memory_of_steps(analysis)
    first = {id(peak) for peak in highest(analysis)}
    shown = (each for each in every if each.peak.step in numbers or id(each.peak) in first)
    devices = list(dict.fromkeys(each.peak.device for each in every))
    return sorted(shown, key=lambda e: (devices.index(e.peak.device), id(e.peak) not in first))


def _step(
    analysis: Analysis, memory: StepMemory, texts: Pool, line_number: LineNumber, most: int
) -> dict[str, Any]:
    peak, kept = memory.peak, _highest_moments(memory)
    times = memory.time_ns[kept] - memory.begin_ns
    sums = np.diff(memory.kind_bytes[kept], axis=0, prepend=0)
    device = None if peak.device == CPU else peak.device
    every = records(tables.by_memory(analysis, step=peak.step))
    rows = [row for row in every if row["device"] == device]
    return {
        "rank": rank_number(analysis),
        "step": peak.step,
        "device": "CPU" if device is None else f"device {device}",
        "wall": memory.end_ns - memory.begin_ns,
        "peak": peak.peak_bytes,
        "at": memory.peak_ns - memory.begin_ns,
        "moments": len(memory.time_ns),
        "kinds": [_KINDS.index(kind) for kind in memory.kinds],
        "times": np.diff(times, prepend=0).tolist(),
        "bytes": sums.T.tolist(),
        "phases": _phases(memory),
        "rows": [_row(row, analysis, texts, line_number) for row in rows[:most]],
        "reserved": printable(reserved_text(rows[0])) if rows else "",
        "rest": _rest(rows[most:]),
    }


def _highest_moments(memory: StepMemory) -> Ints:
    """Return the first moment, and the highest of those that are close together."""
    total = memory.kind_bytes.sum(axis=1)
    wide = max(memory.end_ns - memory.begin_ns, 1)
    near = (memory.time_ns - memory.begin_ns) * (MAX_MOMENTS - 2) // wide
    order = np.lexsort((-total, near))
    firsts = np.unique(near[order], return_index=True)[1]
    kept: Ints = np.unique(np.append(order[firsts], 0))
    return kept


def _phases(memory: StepMemory) -> list[tuple[int, int]]:
    """Return when each phase begins, without those that are too short to be seen."""
    begins = [begin for begin, _ in memory.phases]
    least = (memory.end_ns - memory.begin_ns) // _PIXELS
    spans: list[tuple[int, int]] = []
    ends = [*begins[1:], memory.end_ns]
    for (begin, phase), end in zip(memory.phases, ends, strict=False):
        number = _PHASES.index(phase)
        if end - begin >= least and (not spans or spans[-1][1] != number):
            spans.append((begin - memory.begin_ns, number))
    return spans


def _row(
    row: Mapping[str, Any], analysis: Analysis, texts: Pool, line_number: LineNumber
) -> tuple[int | None, ...]:
    label = memory_label(row, analysis.recording.settings)
    gap = None if row["gap"] is None else memory_gap_text(row["gap"])
    evidence = None if row["evidence"] is None else BirthEvidence(row["evidence"]).meaning
    names = (label, row["code"], row["owner"], row["module"], row["aten_op"], row["kernel"])
    return (
        _KINDS.index(MemoryKind(row["kind"])),
        ABSENT if row["gap"] in _BEFORE else _PHASES.index(Phase(row["phase"])),
        line_number(Place(file=row["file"], line=row["line"])),
        *(texts.code(name) for name in (*names, gap, evidence)),
        *(texts.code(name) for name in (*_reason(row), row["needed_by"], row["held_by"])),
        line_number(Place(file=row["needed_file"], line=row["needed_line"])),
        *(row[name] for name in ("blocks", "peak_bytes", "allocations", "allocated_bytes")),
        row["lifetime_ns"],
    )


def _reason(row: Mapping[str, Any]) -> tuple[str | None, str | None]:
    """Return why it is alive at the peak: in a few words, and in a sentence."""
    if row["life_reason"] is None:
        return None, None
    reason = LifeReason(row["life_reason"])
    return reason.label, reason.meaning.replace("`", "")


def _rest(rows: Iterable[Mapping[str, Any]]) -> list[int]:
    """Return what the page leaves out: rows, and their bytes at the peak."""
    left = list(rows)
    return [len(left), sum(row["peak_bytes"] for row in left)]
