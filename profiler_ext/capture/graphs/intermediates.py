"""The buffers that pass between the kernels of a graph through memory, and why they do."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

from profiler_ext.records.provenance import Intermediate
from profiler_ext.torch_compat.fusions import Operation, Schedule, distinct_bytes
from profiler_ext.torch_compat.traffic import Access

_OUTLIVES = "OUTPUT"


def passed_between(schedule: Schedule, kernels: Mapping[str, int]) -> Iterator[Intermediate]:
    """Yield each buffer that one kernel stores and another loads.

    Args:
        schedule: of one graph.
        kernels: the ordinal of the call site that each op is computed by. An op without one (a
            concatenation in place, one output of several) passes on what it reads.
    """
    refusals = schedule.refusals.between(kernels)
    stored = _stored(schedule, kernels)
    for (buffer, reader), loads in _loaded(schedule, kernels).items():
        read = distinct_bytes(loads)
        for writer, stores in stored.get(buffer, {}).items():
            if writer == reader or not stores:
                continue
            written = distinct_bytes(stores)
            yield Intermediate(
                buffer=buffer,
                writer=writer,
                reader=reader,
                read_bytes=min(read, written),
                written_bytes=written,
                is_kept=any(_OUTLIVES in (store.users or ()) for store in stores),
                refusal=refusals.get((writer, reader), refusals.get((reader, writer))),
            )


def _loaded(
    schedule: Schedule, kernels: Mapping[str, int]
) -> Mapping[tuple[str, int], list[Access]]:
    """What each kernel loads of each buffer."""
    loaded: dict[tuple[str, int], list[Access]] = defaultdict(list)
    for operation in schedule.operations:
        if (kernel := kernels.get(operation.name)) is not None:
            for access in operation.loads:
                loaded[access.buffer, kernel].append(access)
    return loaded


def _stored(
    schedule: Schedule, kernels: Mapping[str, int]
) -> Mapping[str, Mapping[int, list[Access]]]:
    """What each kernel stores of each buffer, also through ops that only pass it on."""
    stored: dict[str, dict[int, list[Access]]] = defaultdict(lambda: defaultdict(list))
    for operation in schedule.operations:
        if (kernel := kernels.get(operation.name)) is None:
            _pass_on(operation, stored)
            continue
        for buffer in operation.writes:
            stored[buffer][kernel] += (each for each in operation.stores if each.buffer == buffer)
    return stored


def _pass_on(operation: Operation, stored: dict[str, dict[int, list[Access]]]) -> None:
    """Count what an op without a kernel stores for the kernels whose buffers it reads."""
    own = {access.buffer: access for access in operation.stores}
    for read in operation.reads:
        for kernel, accesses in dict(stored[read]).items():
            for written in operation.writes:
                passed = accesses or ([own[written]] if written in own else [])
                stored[written][kernel] += passed
