"""What Inductor's scheduler passes from op to op through buffers, and why it did not fuse two.

Source: ``torch/_inductor/scheduler.py``: ``SchedulerBuffer.users``, and ``WhyNoFuse``, which is
called with each reason.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from profiler_ext.torch_compat.names import artifact_names, kernel_names
from profiler_ext.torch_compat.traffic import Access, Traffic, dep_name, traffic

# The name of a fused node joins those of its ops, ``op3_op5``; a nested graph's have a prefix.
_OPERATION = re.compile(r"(?<![A-Za-z0-9])op\d+")

# A template is asked for as the first and as the second of two nodes; this answer says only that it
# was the wrong way round.
_WRONG_WAY = "node1 must go before node2"


def operations_of(name: str) -> tuple[str, ...]:
    """Return the ops of a scheduler node, from its name."""
    return tuple(_OPERATION.findall(name))


@dataclass(slots=True)
class Refusals:
    """Why the scheduler did not fuse two nodes, the last reason of each pair."""

    _last: dict[tuple[str, str], tuple[str, tuple[Any, ...]]] = field(default_factory=dict)

    def note(self, why: Any, reason: str, *details: Any) -> None:
        """Keep a reason; it is formatted only if it is read."""
        if reason == _WRONG_WAY:
            return
        pair = (kernel_names.REFUSED_FIRST.of(why), kernel_names.REFUSED_SECOND.of(why))
        self._last.pop(pair, None)
        self._last[pair] = (reason, details)

    def between(self, kernels: Mapping[str, int]) -> dict[tuple[int, int], str]:
        """Return the last reason for each two kernels, in the order in which torch asked."""
        last: dict[tuple[int, int], tuple[str, tuple[Any, ...]]] = {}
        for (first, second), reason in self._last.items():
            one, other = _kernel(first, kernels), _kernel(second, kernels)
            if one is not None and other is not None and one != other:
                last[one, other] = reason
        return {pair: _formatted(*reason) for pair, reason in last.items()}


def _kernel(name: str, kernels: Mapping[str, int]) -> int | None:
    """The kernel that a node is all in."""
    own = {kernels.get(operation) for operation in operations_of(name)}
    return own.pop() if len(own) == 1 else None


def _formatted(reason: str, details: tuple[Any, ...]) -> str:
    try:
        return reason % details if details else reason
    except (TypeError, ValueError):
        return reason


@dataclass(frozen=True, slots=True)
class Operation:
    """One op of a graph's schedule, with the names of the buffers that it reads and writes."""

    name: str
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    loads: tuple[Access, ...]  # what it moves; of a buffer that has no memory of its own, nothing
    stores: tuple[Access, ...]


@dataclass(frozen=True, slots=True)
class Schedule:
    """The ops of one graph, in order, and why they were not fused."""

    operations: tuple[Operation, ...]
    refusals: Refusals
    options: tuple[str, ...]  # the options of Inductor for fusing that are on


def scheduled_operations(scheduler: Any) -> Iterator[Operation]:
    """Yield the ops of a scheduler whose graph is being generated."""
    for node in kernel_names.SCHEDULED.of(scheduler):
        for leaf in kernel_names.GET_NODES.of(node)():
            moved = traffic(leaf)
            names = operations_of(str(kernel_names.LEAF_NAME.of(leaf)()))
            if moved is not None and len(names) == 1:
                yield _operation(names[0], leaf, moved)


def _operation(name: str, leaf: Any, moved: Traffic) -> Operation:
    touched = kernel_names.READ_WRITES.of(leaf)
    is_weak = kernel_names.WEAK_DEP.is_type_of
    read = (dep_name(dep) for dep in kernel_names.READS.of(touched) if not is_weak(dep))
    return Operation(
        name,
        reads=tuple(dict.fromkeys(read)),
        writes=tuple(dict.fromkeys(map(dep_name, kernel_names.WRITES.of(touched)))),
        loads=tuple(access for access in moved.accesses if access.users is None),
        stores=tuple(access for access in moved.accesses if access.users is not None),
    )


def extern_operations(kernel: Any) -> tuple[str, ...]:
    """Return the op that an extern kernel is."""
    name = kernel_names.OPERATION_NAME.maybe(kernel)
    return () if name is None else operations_of(str(name()))


def options_on() -> tuple[str, ...]:
    """Return the names of Inductor's options for fusing that are on now."""
    return tuple(option.name for option in artifact_names.FUSION_OPTIONS if option.get())


def distinct_bytes(accesses: Iterable[Access]) -> int:
    """Return the bytes of accesses, each of them once, of each buffer at most all of it."""
    moved: dict[str, int] = defaultdict(int)
    whole: dict[str, int] = defaultdict(int)
    for each in set(accesses):
        moved[each.buffer] += each.bytes
        whole[each.buffer] = max(whole[each.buffer], each.buffer_bytes)
    return sum(min(own, whole[buffer]) for buffer, own in moved.items())
