"""The memory of two sides: what is alive at the highest peak of each, line by line.

A side's peak is the highest of all its runs, ranks, GPUs and steps: it decides whether a program
fits. The rows add up to it; what has no line is one row of its kind.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from profiler_ext.comparison.matched import Matched, line_at
from profiler_ext.comparison.records import Subject
from profiler_ext.comparison.sides import Side, file_names_of
from profiler_ext.memory.peak import AliveBlock, StepPeak, peaks_of
from profiler_ext.records.analysis import Analysis
from profiler_ext.records.memory import CPU

_Key = tuple[Hashable, ...]


@dataclass(frozen=True, slots=True)
class MemoryRow:
    """A line's bytes at the peak of each side, or those of a kind that have no line."""

    base: Subject | None  # ``None`` where the base has none there
    head: Subject | None
    base_bytes: int
    head_bytes: int

    @property
    def subject(self) -> Subject:
        """The head's subject, else the base's."""
        known = self.head or self.base
        assert known is not None
        return known

    @property
    def delta_bytes(self) -> int:
        """Head less base."""
        return self.head_bytes - self.base_bytes


@dataclass(frozen=True, slots=True)
class ComparedMemory:
    """The highest peak of each side, and its rows, the largest difference first."""

    base: tuple[Analysis, StepPeak]
    head: tuple[Analysis, StepPeak]
    rows: tuple[MemoryRow, ...]

    @property
    def base_bytes(self) -> int:
        """The base's peak."""
        return self.base[1].peak_bytes

    @property
    def head_bytes(self) -> int:
        """The head's peak."""
        return self.head[1].peak_bytes

    @property
    def delta_bytes(self) -> int:
        """Head less base."""
        return self.head_bytes - self.base_bytes


def compare_memory(matched: Matched) -> ComparedMemory | None:
    """Compare the peaks of two sides; ``None`` where a side recorded no memory of such a device."""
    for is_cpu in (False, True):
        found = [_highest(side, is_cpu) for side in matched.sides]
        if found[0] is not None and found[1] is not None:
            base, head = found[0], found[1]
            return ComparedMemory(base, head, tuple(_rows(matched, base, head)))
    return None


def _highest(side: Side, is_cpu: bool) -> tuple[Analysis, StepPeak] | None:
    every = (
        (analysis, peak)
        for analysis in side.analyses
        for peak in peaks_of(analysis)
        if (peak.device == CPU) == is_cpu
    )
    return max(every, key=lambda each: each[1].peak_bytes, default=None)


def _rows(
    matched: Matched, base: tuple[Analysis, StepPeak], head: tuple[Analysis, StepPeak]
) -> list[MemoryRow]:
    old, new = _sums(matched.base, *base), _sums(matched.head, *head)
    to_head = {_head_key(matched, key): key for key in old}
    keys = dict.fromkeys((*new, *to_head))
    rows = []
    for key in keys:
        before, now = old.get(to_head.get(key, ())), new.get(key)
        rows.append(
            MemoryRow(
                None if before is None else before[0],
                None if now is None else now[0],
                0 if before is None else before[1],
                0 if now is None else now[1],
            )
        )
    return sorted(rows, key=lambda row: (-abs(row.delta_bytes), -row.head_bytes, str(row.subject)))


def _sums(side: Side, analysis: Analysis, peak: StepPeak) -> dict[_Key, tuple[Subject, int]]:
    """Return the bytes of each line, or of each kind without one."""
    names, sums = file_names_of(analysis), dict[_Key, tuple[Subject, int]]()
    for block in peak.blocks:
        subject = _subject(block, names)
        key = _key(side, subject)
        known, size = sums.get(key, (subject, 0))
        sums[key] = known, size + block.size_bytes
    return sums


def _key(side: Side, subject: Subject) -> _Key:
    line = line_at(subject)
    if line is None:
        return (subject.kind,)
    return line if line in side.lines else (*line, subject.code)


def _subject(block: AliveBlock, names: dict[str, str]) -> Subject:
    place = block.place
    if place.file is None or place.line is None:
        return Subject(kind=block.kind.value)
    name = names.get(place.file, place.file)
    return Subject(file=name, line=place.line, function=place.function, code=place.code)


def _head_key(matched: Matched, key: _Key) -> _Key:
    """Return the head's key of a base's; a line that no launch has keeps its own, with its text."""
    if len(key) != 2:
        return key
    line = (str(key[0]), int(str(key[1])))
    return matched.lines.head_of.get(line) or ("gone", *line, None)
