"""What the allocator has reserved and no block in use has, at one moment."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from profiler_ext.memory.blocks import Peak
from profiler_ext.records.memory import (
    AllocatorHistory,
    Blocks,
    MemoryRecord,
    UnusedKind,
    UnusedRow,
)

_GROWS = ("segment_alloc", "segment_map")
_SHRINKS = ("segment_free", "segment_unmap")
Range = tuple[int, int]
"""Address and bytes."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A range of addresses that the allocator has reserved."""

    address: int
    size_bytes: int
    is_of_graphs: bool = False  # it is of the pool of CUDA graphs

    @property
    def end(self) -> int:
        """The address behind it."""
        return self.address + self.size_bytes

    def without(self, address: int, size_bytes: int) -> Iterator[Segment]:
        """Yield what is left where a range is returned."""
        before, behind = (self.address, min(self.end, address)), (address + size_bytes, self.end)
        for start, end in (before, (max(self.address, behind[0]), behind[1])):
            if start < end:
                yield Segment(start, end - start, self.is_of_graphs)


def graph_pool(record: MemoryRecord, pool: int) -> str:
    """Return what recorded the CUDA graphs of a pool; nothing of a pool of no graphs."""
    if pool in record.graph_pools:
        return "torch.compile's CUDA graphs"
    return "torch.cuda.graph" if pool > 0 else ""


def segments_of(record: MemoryRecord, device: int) -> list[Segment]:
    """Return the segments of a device when the recording began."""
    table = record.base_segments
    rows = zip(table.device, table.address, table.size_bytes, table.pool, strict=True)
    return [
        Segment(address, size_bytes, bool(graph_pool(record, pool)))
        for of, address, size_bytes, pool in rows
        if of == device
    ]


def ranges_of(table: Blocks, device: int) -> list[Range]:
    """Return the blocks of a device."""
    rows = zip(table.device, table.address, table.size_bytes, strict=True)
    return [(address, size) for of, address, size in rows if of == device]


def unused_rows(
    segments: Iterable[Segment], in_use: Iterable[Range], awaiting: Iterable[Range] = ()
) -> tuple[UnusedRow, ...]:
    """Return what segments have besides blocks in use, the most first.

    Args:
        segments: what is reserved.
        in_use: the allocated blocks.
        awaiting: those that are freed, and that a stream may still use.
    """
    ordered = sorted(segments, key=lambda each: each.address)
    starts = [each.address for each in ordered]
    used, waits = Counter[int](), 0
    for address, size_bytes in in_use:
        used[bisect_right(starts, address) - 1] += size_bytes
    for address, size_bytes in awaiting:
        used[bisect_right(starts, address) - 1] += size_bytes
        waits += size_bytes
    sums = Counter({UnusedKind.AWAITING: waits})
    for at, segment in enumerate(ordered):
        sums[_kind(segment, used[at])] += segment.size_bytes - used[at]
    return tuple(UnusedRow(kind, size) for kind, size in sums.most_common() if size)


def _kind(segment: Segment, used_bytes: int) -> UnusedKind:
    if segment.is_of_graphs:
        return UnusedKind.GRAPH_POOLS
    return UnusedKind.FRAGMENTS if used_bytes else UnusedKind.CACHED


def unused_at(record: MemoryRecord, peak: Peak) -> tuple[UnusedRow, ...] | None:
    """Return what a device has in use at a peak besides the allocator's blocks.

    That is what the allocator has reserved, and what is outside of it: by the driver's count when
    the recording began. ``None`` where the segments were not recorded, or the allocator's history
    does not lead from those of the begin to those of the end.
    """
    if not segments_of(record, peak.device) or not _is_whole(record, peak.device):
        return None
    states = (each for each in record.before if each.device == peak.device and each.device_bytes)
    outside = (each.device_used_bytes - each.reserved_bytes for each in states)
    rows = (UnusedRow(UnusedKind.OUTSIDE, size) for size in outside if size > 0)
    return (*_reserved_at(record, peak), *rows)


def _is_whole(record: MemoryRecord, device: int) -> bool:
    """Tell whether the history has every segment that was reserved or returned."""
    begin, end = (
        sum(size for of, size in zip(table.device, table.size_bytes, strict=True) if of == device)
        for table in (record.base_segments, record.end_segments)
    )
    for action, _, size_bytes, _ in _entries(record.history, device, len(record.history.device)):
        begin += (action in _GROWS) * size_bytes - (action in _SHRINKS) * size_bytes
    return begin == end


def _reserved_at(record: MemoryRecord, peak: Peak) -> tuple[UnusedRow, ...]:
    device = peak.device
    last = _entry(record, peak)
    segments = segments_of(record, device)
    awaiting, sizes = dict(ranges_of(record.awaiting, device)), _sizes(record, peak)
    for action, address, size_bytes, pool in _entries(record.history, device, last):
        if action in _GROWS:
            segments.append(Segment(address, size_bytes, bool(graph_pool(record, pool))))
        elif action in _SHRINKS:
            segments = [s for each in segments for s in each.without(address, size_bytes)]
        elif action == "free_requested":
            awaiting[address] = sizes.get(address, 0)
        elif action == "free_completed":
            awaiting.pop(address, None)
    in_use = {block.address: block.size_bytes for block in peak.blocks}
    waits = [each for each in awaiting.items() if each[0] not in in_use]
    return unused_rows(segments, in_use.items(), waits)


def rounding_at(record: MemoryRecord, peak: Peak) -> int | None:
    """Return by how much the blocks at a peak are larger than what was asked for.

    ``None`` where the allocator did not tell it.
    """
    base, asked = record.base, dict[int, int]()
    rows = zip(base.device, base.address, base.requested_bytes, strict=False)
    asked |= {address: size for device, address, size in rows if device == peak.device}
    for action, address, size_bytes, _ in _entries(
        record.history, peak.device, _entry(record, peak)
    ):
        if action == "alloc":
            asked[address] = size_bytes
    if any(each.address not in asked for each in peak.blocks):
        return None
    return sum(each.size_bytes - asked[each.address] for each in peak.blocks)


def _sizes(record: MemoryRecord, peak: Peak) -> dict[int, int]:
    """Return the bytes of the last block at each address until a peak."""
    events = record.events
    rows = zip(events.time_ns, events.device, events.address, events.size_bytes, strict=True)
    made = {
        address: size_bytes
        for time_ns, device, address, size_bytes in rows
        if device == peak.device and time_ns <= peak.time_ns and size_bytes > 0
    }
    return dict(ranges_of(record.base, peak.device)) | made


def _entries(
    history: AllocatorHistory, device: int, last: int
) -> Iterator[tuple[str, int, int, int]]:
    rows = zip(
        history.device,
        history.action,
        history.address,
        history.requested_bytes,
        history.pool,
        strict=True,
    )
    for at, (of, action, address, size_bytes, pool) in enumerate(rows):
        if of == device and at <= last:
            yield action, address, size_bytes, pool


def _entry(record: MemoryRecord, peak: Peak) -> int:
    """Return the row of the history that made a peak: the allocation nearest to its time."""
    history = record.history
    made = {each.address for each in peak.blocks if each.born_ns == peak.time_ns}
    wall_us = (record.trace_base_ns + peak.time_ns) // 1000
    rows = [at for at, device in enumerate(history.device) if device == peak.device]
    own = [at for at in rows if history.action[at] == "alloc" and history.address[at] in made]
    if own:
        return min(own, key=lambda at: abs(history.time_us[at] - wall_us))
    return max((at for at in rows if history.time_us[at] <= wall_us), default=-1)
