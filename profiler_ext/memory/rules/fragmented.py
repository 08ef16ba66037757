"""The rule for memory that the allocator reserves in pieces, and cannot use."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable

from profiler_ext.findings.facts import CannotJudge, location_of
from profiler_ext.findings.finding import NOWHERE, Confidence, Figure, FigureUnit
from profiler_ext.memory.pricing import Allocation, MemoryFacts, largest
from profiler_ext.memory.recommendations import MIN_FRACTION, MemoryFinding, MemoryRule
from profiler_ext.records.memory import CPU

# Source: ``c10/cuda/CUDACachingAllocator.h``: ``kSmallSize``, ``kSmallBuffer``, ``kLargeBuffer``
_SMALL_BYTES = 1 << 20
_UNIT_BYTES = {True: 2 << 20, False: 20 << 20}  # what expandable segments map at a time
_ADDED, _REMOVED = "segment_alloc", "segment_free"


class _Space:
    """An address space that grows: the smallest free piece that fits is taken, as torch does."""

    def __init__(self) -> None:
        self.end = self.used_to = 0
        self._free: list[tuple[int, int]] = []  # size and address
        self._taken: dict[int, tuple[int, int]] = {}  # address and size of each block

    def take(self, key: int, size_bytes: int) -> None:
        """Allocate a block."""
        at = bisect_left(self._free, (size_bytes, -1))
        if at < len(self._free):
            size, address = self._free.pop(at)
            if size > size_bytes:
                insort(self._free, (size - size_bytes, address + size_bytes))
        else:
            address = self._extended(size_bytes)
        self._taken[key] = (address, size_bytes)
        self.used_to = max(self.used_to, address + size_bytes)

    def _extended(self, size_bytes: int) -> int:
        """Return the address of a block at the end, where a free piece there is a part of it."""
        last = next((each for each in self._free if sum(each) == self.end), None)
        address = self.end
        if last is not None:
            self._free.remove(last)
            address = last[1]
        self.end = address + size_bytes
        return address

    def give(self, key: int) -> None:
        """Free a block, and join it with what is free beside it."""
        address, size = self._taken.pop(key)
        for each in [one for one in self._free if one[1] + one[0] == address]:
            self._free.remove(each)
            address, size = each[1], size + each[0]
        for each in [one for one in self._free if one[1] == address + size]:
            self._free.remove(each)
            size += each[0]
        insort(self._free, (size, address))


def _judge(facts: MemoryFacts) -> Iterable[MemoryFinding] | CannotJudge:
    before = next((s for s in facts.record.before if s.device == facts.device), None)
    if facts.device == CPU or before is None:
        return CannotJudge("the allocator of this device reserves nothing")
    reserved = _most_reserved(facts, before.reserved_bytes)
    used = max(facts.peak_bytes, before.peak_allocated_bytes)
    if facts.uses_graph_pools:
        return CannotJudge("a CUDA graph's pool is reserved, and not counted as allocated")
    if reserved - used < MIN_FRACTION * reserved:
        return ()
    predicted = max(sum(_extent(facts, is_small) for is_small in (True, False)), used)
    if predicted >= reserved:
        return ()
    where = largest([each for each in facts.allocations if each.born])
    return (
        MemoryFinding(
            summary="the allocator has reserved memory in pieces that blocks do not fit",
            predicted_peak_bytes=predicted,
            peak_bytes=reserved,
            is_reserved=True,
            confidence=Confidence.ESTIMATED,
            remedy="PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
            location=location_of(where.block.place) if where is not None else NOWHERE,
            evidence=(
                Figure("reserved", reserved, FigureUnit.BYTES),
                Figure("most allocated at a time", used, FigureUnit.BYTES),
            ),
        ),
    )


def _most_reserved(facts: MemoryFacts, begin_bytes: int) -> int:
    history, reserved = facts.record.history, begin_bytes
    most = reserved
    rows = zip(history.device, history.action, history.requested_bytes, strict=True)
    for device, action, size_bytes in rows:
        if device == facts.device and action in (_ADDED, _REMOVED):
            reserved += size_bytes if action == _ADDED else -size_bytes
            most = max(most, reserved)
    return most


def _extent(facts: MemoryFacts, is_small: bool) -> int:
    """Return what expandable segments would map for the recorded blocks of a pool."""
    own = [each for each in facts.allocations if (each.size_bytes <= _SMALL_BYTES) is is_small]
    space = _Space()
    events = [(each.born, 1, number, each) for number, each in enumerate(own)]
    events += [(each.freed, 0, number, each) for number, each in enumerate(own)]
    for _, is_born, number, allocation in sorted(events, key=_moment):
        if is_born:
            space.take(number, _needed(allocation))
        elif allocation.freed < len(facts.live):
            space.give(number)
    unit = _UNIT_BYTES[is_small]
    return -(-space.used_to // unit) * unit


def _needed(allocation: Allocation) -> int:
    return (
        allocation.held_bytes
        if allocation.size_bytes - allocation.held_bytes < _SMALL_BYTES
        else allocation.size_bytes
    )


def _moment(event: tuple[int, int, int, Allocation]) -> tuple[int, int, int]:
    return event[:3]


RULE = MemoryRule(
    name="fragmented_memory",
    title="Memory reserved in pieces",
    means="The allocator has reserved more than was ever allocated at a time.",
    because="It reserves segments for the sizes that it is asked for. Where sizes differ from step "
    "to step, as of texts of different lengths, later blocks fit none of the free pieces.",
    remedy="`PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True`: one segment for each pool grows, "
    "and its free pieces join.",
    price="The recorded allocations and frees in one address space for small and one for large "
    "blocks, each at the smallest free piece that fits, rounded to what such a segment maps at a "
    "time (2 and 20 MB); no less than the most that was allocated before. The bytes are of "
    "reserved memory. What mapping memory costs a step is not known.",
    judge=_judge,
)
