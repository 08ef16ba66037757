"""The table of device memory: what is alive at the peak of each step, and what it allocates."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from profiler_ext.exporters.tables.schema import COLUMNS, frame
from profiler_ext.exporters.tables.selection import Selection
from profiler_ext.exporters.tables.table import Table, gather
from profiler_ext.memory.lives import Life
from profiler_ext.memory.over_time import StepMemory, memory_of_steps
from profiler_ext.memory.peak import AliveBlock, StepPeak
from profiler_ext.records.analysis import Analysis
from profiler_ext.records.memory import CPU, UnusedKind

_OF_PLACE = (
    *("file", "line", "function", "code", "module", "module_class", "phase", "aten_op", "gap"),
)
_KEYS = ("kind", "phase", "file", "line", "module", "aten_op", "kernel", "owner", "gap")
_OF_UNUSED = {
    "at_fragments_bytes": UnusedKind.FRAGMENTS,
    "at_cached_bytes": UnusedKind.CACHED,
    "at_pools_bytes": UnusedKind.GRAPH_POOLS,
    "at_awaiting_bytes": UnusedKind.AWAITING,
    "at_outside_bytes": UnusedKind.OUTSIDE,
}
_OF_LIFE = ("life_reason", "needed_by", "needed_file", "needed_line", "held_by", "life_evidence")
_NAMED = 3  # nodes of ``needed_by`` that are named
_SUMS = ("blocks", "peak_bytes", "allocations", "allocated_bytes")
_NAMES = (
    *("rank", "step", "device", "kind", "owner", "phase", "file", "line", "function", "code"),
    *("module", "module_class", "aten_op", "kernel", "evidence", "gap", *_OF_LIFE),
    *("blocks", "peak_bytes", "allocated_bytes", "allocations", "lifetime_ns"),
    *("at_phase", "at_file", "at_line", "at_rounding_bytes", "at_reserved_bytes"),
    *_OF_UNUSED,
)


def by_memory(
    analysis: Analysis,
    *,
    step: int | None = None,
    rank: int | None = None,
    phase: str | None = None,
) -> Table:
    """Return what is alive at the peak of each step and device, and what the step allocates.

    ``peak_bytes`` of a step and device add up to the allocator's peak, ``max_memory_allocated`` of
    the step; on the CPU to that of what Python held at the begin, and what the profiler saw since.
    A row is of one line, module, op and owner, and of one reason why it lives, the largest first;
    of one that is freed before the peak, or allocated after it, ``peak_bytes`` is 0. The phase is
    that of the allocation. Empty where no memory was recorded.
    """
    selection = Selection(step, rank, phase)
    selection.require_step(analysis)
    is_chosen = selection.has_rank_of(analysis)
    steps = [
        each for each in memory_of_steps(analysis) if is_chosen and step in (None, each.peak.step)
    ]
    own = analysis.recording.settings.rank
    rows = [row for each in steps for row in _rows(own, each) if phase in (None, row["phase"])]
    every = np.arange(len(rows))
    return frame(
        {name: gather([row[name] for row in rows], every, COLUMNS[name].dtype) for name in _NAMES}
    )


def _rows(rank: int, memory: StepMemory) -> list[dict[str, Any]]:
    peak, unused = memory.peak, _unused(memory.peak)
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = defaultdict(list)
    for values in _values(memory):
        groups[tuple(values[name] for name in (*_KEYS, *_OF_LIFE))].append(values)
    sums = [
        {
            **values[0],
            "rank": rank,
            "step": peak.step,
            "device": None if peak.device == CPU else peak.device,
            **{name: sum(each[name] for each in values) for name in _SUMS},
            "lifetime_ns": max(_known(values), default=None),
            "at_phase": peak.place.phase,
            "at_file": peak.place.file,
            "at_line": peak.place.line,
            "at_rounding_bytes": peak.rounding_bytes,
            **unused,
        }
        for values in groups.values()
    ]
    return sorted(sums, key=lambda row: (-row["peak_bytes"], -row["allocated_bytes"]))


def _unused(peak: StepPeak) -> dict[str, int | None]:
    """Return what is reserved at a peak, and what of it no block has, if that was recorded."""
    if peak.unused is None:
        return dict.fromkeys(("at_reserved_bytes", *_OF_UNUSED))
    sizes = {each.kind: each.size_bytes for each in peak.unused}
    parts = {name: sizes.get(kind, 0) for name, kind in _OF_UNUSED.items()}
    reserved = peak.peak_bytes + sum(parts.values()) - parts["at_outside_bytes"]
    return {"at_reserved_bytes": reserved, **parts}


def _values(memory: StepMemory) -> Iterator[dict[str, Any]]:
    """Yield a row for each block that is alive at the peak, or that the step allocates."""
    alive, allocated = _by_id(memory.peak.blocks), _by_id(memory.allocated)
    for key, block in (alive | allocated).items():
        yield {
            **{name: getattr(block.place, name) for name in _OF_PLACE},
            "kind": block.kind,
            "owner": block.name or None,
            "kernel": block.kernel or None,
            "evidence": block.evidence,
            **_of_life(block.life),
            "blocks": int(key in alive),
            "peak_bytes": block.size_bytes if key in alive else 0,
            "allocations": int(key in allocated),
            "allocated_bytes": block.size_bytes if key in allocated else 0,
            "lifetime_ns": block.lifetime_ns,
        }


def _by_id(blocks: Iterable[AliveBlock]) -> dict[int, AliveBlock]:
    return {id(each): each for each in blocks}


def _of_life(life: Life) -> dict[str, Any]:
    names = list(dict.fromkeys(each.text for each in life.needed_by))
    more = [f"{len(names) - _NAMED} more"] if len(names) > _NAMED else []
    place = life.needed_by[0].place if life.needed_by else None
    return {
        "life_reason": life.reason,
        "needed_by": ", ".join((*names[:_NAMED], *more)) or None,
        "needed_file": place and place.file,
        "needed_line": place and place.line,
        "held_by": life.held_by or None,
        "life_evidence": life.evidence,
    }


def _known(values: list[dict[str, Any]]) -> Iterator[int]:
    return (each["lifetime_ns"] for each in values if each["lifetime_ns"] is not None)
