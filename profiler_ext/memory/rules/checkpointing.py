"""The rule for modules whose activations could be computed again in the backward."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from profiler_ext.findings.facts import CannotJudge, location_of
from profiler_ext.findings.finding import Confidence, Figure, FigureUnit, Location
from profiler_ext.memory.pricing import Allocation, MemoryFacts, Remedied, largest, prefixes
from profiler_ext.memory.recommendations import MIN_FRACTION, MemoryFinding, MemoryRule
from profiler_ext.records.events import Ints
from profiler_ext.records.memory import MemoryKind
from profiler_ext.records.vocabulary import Phase, Scope
from profiler_ext.torch_compat.points import MEMORY_BUDGET

_NUMBER = re.compile(r"\d+")
# A result is no smaller: statistics of a norm and states of generators are
_OF_LARGEST = 1 / 16
_MIN_INSTANCES = 2
_MIN_SAVED = 0.05  # of the peak; what is cheaper for each byte, and saves less, is not worth it


@dataclass(frozen=True, slots=True)
class _Call:
    """A call of a module in a step."""

    saved: tuple[Allocation, ...]  # what its backward needs, but for its result
    repeated: Ints  # launches that compute that again
    repeated_bytes: int  # most that its forward has allocated at a time
    end: int  # last event of its forward
    backward: int  # last event before its backward
    input: Allocation | None  # what it is called with, where that would not be kept otherwise


@dataclass(frozen=True, slots=True)
class _Region:
    """Modules that are checkpointed alike."""

    path: str  # ``blocks.*``
    calls: tuple[_Call, ...]
    count: int  # of modules

    def change(self, remedied: Remedied) -> None:
        """Take out what is saved from each forward to its backward, where it is back at once."""
        for call in self.calls:
            for allocation in call.saved:
                remedied.remove(
                    allocation, max(allocation.born, call.end), min(call.backward, allocation.freed)
                )
            if call.input is not None:
                remedied.add(call.input.size_bytes, call.input.freed, call.backward)
            remedied.add_moment(call.repeated_bytes, call.backward - 1)

    @property
    def repeated(self) -> Ints:
        """The launches of all calls."""
        return np.concatenate([each.repeated for each in self.calls])

    def calls_a_step(self, facts: MemoryFacts) -> float:
        """Return how many of its calls a step has."""
        return len(self.calls) / max(len(facts.analysis.steps), 1)


def _judge(facts: MemoryFacts) -> Iterable[MemoryFinding] | CannotJudge:
    if not facts.of_kind(MemoryKind.SAVED):
        return ()
    priced = []
    for region in _regions(facts):
        predicted = facts.peak_without(region.change)
        price_ns = facts.price_ns(region.repeated, checkpoints=region.calls_a_step(facts))
        saved_bytes = facts.peak_bytes - predicted
        if saved_bytes >= max(_MIN_SAVED, MIN_FRACTION) * facts.peak_bytes:
            priced.append((saved_bytes, price_ns, region))
    if not priced:
        return ()
    most = max(priced, key=lambda each: (each[0], -(each[1] or 0)))
    best = max(priced, key=lambda each: (each[0] / max(each[1] or 0, 1), each[0]))
    is_one = best[2] is most[2] or most[1] is None
    chosen = [most] if is_one else [most, best]
    return tuple(_finding(facts, *each) for each in chosen)


def _finding(
    facts: MemoryFacts, saved_bytes: int, price_ns: int | None, region: _Region
) -> MemoryFinding:
    saved = [allocation for call in region.calls for allocation in call.saved]
    where, steps = largest(saved), max(len(facts.analysis.steps), 1)
    is_compiled = facts.times.launches.scope.where(Scope.COMPILED)[region.repeated].any()
    how = "torch.utils.checkpoint.checkpoint(module, x, use_reentrant=False)"
    budget = f", or {MEMORY_BUDGET} below 1"
    location = location_of(where.block.place) if where is not None else Location()
    return MemoryFinding(
        summary=f"activations of {region.path} are kept from the forward to the backward",
        predicted_peak_bytes=facts.peak_bytes - saved_bytes,
        extra_ns=price_ns,
        confidence=Confidence.ESTIMATED,
        remedy=f"{how} for each of {region.path}{budget if is_compiled else ''}",
        location=Location(location.file, location.line, location.code, region.path),
        evidence=(
            Figure("modules", region.count),
            Figure("kept a step", sum(s.size_bytes for s in saved) // steps, FigureUnit.BYTES),
            Figure("of that at the peak", facts.at_peak(saved), FigureUnit.BYTES),
            Figure("launches that run again", facts.times.launches_per_step(region.repeated)),
            *facts.time_of(region.repeated, region.calls_a_step(facts)),
        ),
    )


def _regions(facts: MemoryFacts) -> Iterable[_Region]:
    """Yield the sets of modules of equal path but for numbers, and single modules."""
    paths: dict[str, set[str]] = defaultdict(set)
    for allocation in facts.of_kind(MemoryKind.SAVED):
        for path in prefixes(allocation.module):
            paths[_NUMBER.sub("*", path)].add(path)
    for pattern, own in paths.items():
        found = [call for path in sorted(own) for call in _calls(facts, path)]
        if len(own) >= _MIN_INSTANCES and found:
            yield _Region(pattern, tuple(found), len(own))


def _calls(facts: MemoryFacts, path: str) -> Iterable[_Call]:
    """Yield the calls of a module, one for each step that has its forward and backward."""
    forward = facts.launches_of(Phase.FORWARD, path)
    backward = facts.launches_of(Phase.BACKWARD, path)
    born = facts.allocated_in(path)
    step = facts.times.launches.step.filled(-1)
    for position, number in enumerate(each.number for each in facts.analysis.steps):
        own = [each for each in born if facts.step_of(each.born) == position]
        launches = (forward[step[forward] == number], backward[step[backward] == number])
        call = _call(facts, own, *launches)
        if call is not None:
            yield call


def _call(
    facts: MemoryFacts, born: Sequence[Allocation], forward: Ints, backward: Ints
) -> _Call | None:
    if not born or not len(forward) or not len(backward):
        return None
    large = _large(born)
    begin, end = min(each.born for each in large), max(each.born for each in large)
    before = facts.event_at(_begin_ns(facts, backward))
    result = _last(born, _left(facts, born, forward, end))
    saved = tuple(s for s in born if s.kind is MemoryKind.SAVED and s is not result)
    if not saved or before <= end:
        return None
    again = facts.launches_until_made(max(saved, key=lambda each: each.born), forward)
    repeated_bytes = _most_at_once(born)
    if result is not None and result.freed > before:
        repeated_bytes -= result.size_bytes  # the backward needs it, too: it is there already
    given = _last([each for each in facts.allocations if each.born < begin
                   and each.phase is Phase.FORWARD], begin - 1)  # fmt: skip
    if given is not None and (given.kind is MemoryKind.SAVED or given.freed > before):
        given = None
    return _Call(saved, again, repeated_bytes, end, before, given)


def _left(facts: MemoryFacts, born: Sequence[Allocation], forward: Ints, end: int) -> int:
    """Return the first allocation after a forward: what it held for itself is free then."""
    if all(each.block.place.graph is None for each in born):
        end = max(end, facts.event_at(int(facts.times.pace.enqueued_ns[forward[-1]])))
    return facts.next_birth(end)


def _begin_ns(facts: MemoryFacts, backward: Ints) -> int:
    """Return when the op of the first launch of a backward began."""
    launches, first = facts.times.launches, int(backward[0])
    op = launches.op_event[first]
    if op is np.ma.masked:
        return int(facts.times.pace.enqueued_ns[first])
    return int(facts.analysis.recording.trace.events.start_ns[int(op)])


def _large(allocations: Sequence[Allocation]) -> list[Allocation]:
    """Leave out small blocks: what compiled code casts ahead, or updates after all else."""
    most = max((each.size_bytes for each in allocations), default=0)
    return [each for each in allocations if each.size_bytes >= _OF_LARGEST * most]


def _last(allocations: Sequence[Allocation], at: int) -> Allocation | None:
    """Return the last block that is alive then, but for small ones beside it."""
    large = _large([each for each in allocations if each.freed > at])
    return max(large, key=lambda each: each.born, default=None)


def _most_at_once(allocations: Sequence[Allocation]) -> int:
    changes = [(each.born, each.size_bytes) for each in allocations]
    changes += [(each.freed, -each.size_bytes) for each in allocations]
    return max(int(np.cumsum([size for _, size in sorted(changes)]).max()), 0)


RULE = MemoryRule(
    name="kept_activations",
    title="Activations that could be computed again",
    means="Modules of equal structure keep what they compute in the forward until their backward, "
    "and the peak would be lower if they computed it again there.",
    because="Autograd saves what the backward of each op needs. All of it is alive when the "
    "backward begins.",
    remedy="`torch.utils.checkpoint.checkpoint(module, x, use_reentrant=False)` around each of "
    "them. It keeps the input and runs the forward again in the backward. In a compiled model "
    f"`{MEMORY_BUDGET}` (from 0 to 1) lets torch choose what is computed again.",
    price="The peak is that of the recorded timeline, where what the modules save is gone from the "
    "end of each forward to its backward, and what they are given is kept. In each backward all "
    "that their forward had allocated is there once more. Time is that of the launches of the "
    "forward up to the last value that is saved: after that `checkpoint` stops. No time is said "
    "where the CPU may set the pace then: `checkpoint` itself takes it up to 3 ms a call and 60 us "
    "a launch. Reported are the modules that lower the peak most, and those with most bytes for "
    "each microsecond.",
    judge=_judge,
)
