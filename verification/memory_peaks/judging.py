"""What a recording names of each peak, beside the allocator's own count; and tables."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from profiler_ext.memory.blocks import NEVER, Block, Peak, Timeline, peaks
from profiler_ext.memory.peak import AliveBlock, StepPeak, peaks_of
from profiler_ext.records.analysis import Analysis, Step
from profiler_ext.records.memory import MemoryKind, MemoryRecord, UnusedKind
from profiler_ext.sessions.merging import load

__all__ = ["SHARES", "is_exact", "row_of", "table"]

ENOUGH = 0.99
SHOWN = 0.001  # of a peak: rows of unnamed blocks below that are not printed
MOST_ROWS = 5  # of a program
Row = dict[str, Any]

SHARES: dict[str, Callable[[AliveBlock], bool]] = {
    "kind": lambda each: each.kind is not MemoryKind.OTHER,
    "line or owner": lambda each: each.has_source or bool(each.name),
    "line": lambda each: each.place.line is not None,
    "module": lambda each: each.place.module is not None,
    "reason": lambda each: each.life.reason is not None,
}
"""What may be known of a block. ``line`` and ``module`` are no goals: parameters have no line."""
GOALS = ("kind", "line or owner", "reason")
_OUTSIDE = (UnusedKind.OUTSIDE, UnusedKind.OTHER_PROCESSES)


def row_of(session: Path) -> Row:
    """What a session says of its peaks: of the GPUs, or of the CPU where no GPU was used."""
    analysis = load(session).analyses[0]
    record = analysis.recording.memory
    if record is None:
        return {"peaks": []}
    timeline = Timeline(record, analysis.recording.trace.events)
    found = zip(peaks(timeline, analysis.steps), peaks_of(analysis), strict=True)
    steps = {each.number: each for each in analysis.steps}
    rows = [_peak(record, steps, *each) for each in found]
    of_gpus = [each for each in rows if each["device"] >= 0]
    return {"peaks": of_gpus or rows, "has_history": _has_history(analysis)}


def _has_history(analysis: Analysis) -> bool:
    record = analysis.recording.memory
    return record is not None and bool(record.history.device)


def _peak(record: MemoryRecord, steps: Mapping[int, Step], peak: Peak, described: StepPeak) -> Row:
    blocks, step = described.blocks, steps[described.step]
    unused = None
    if described.unused is not None:
        unused = sum(each.size_bytes for each in described.unused if each.kind not in _OUTSIDE)
    return {
        "step": described.step,
        "device": described.device,
        "peak_bytes": described.peak_bytes,
        "blocks_bytes": sum(each.size_bytes for each in blocks),
        "unseen_bytes": peak.unseen_bytes,
        "unused_bytes": unused,
        "phase": str(described.place.phase),
        "shares": {
            name: sum(each.size_bytes for each in blocks if is_known(each))
            / max(described.peak_bytes, 1)
            for name, is_known in SHARES.items()
        },
        "unnamed": [*_unnamed(record, peak, blocks, step)],
    }


def _unnamed(
    record: MemoryRecord, peak: Peak, blocks: Sequence[AliveBlock], step: Step
) -> Iterator[Row]:
    """Yield groups of blocks of which a goal is missed, by all that is known of them."""
    base = record.base
    asked = {
        (device, address): size
        for device, address, size in zip(
            base.device, base.address, base.requested_bytes, strict=False
        )
    }
    groups: dict[tuple[tuple[str, Any], ...], list[int]] = defaultdict(list)
    raw: Sequence[Block | None] = [*peak.blocks, *[None] * (len(blocks) - len(peak.blocks))]
    for block, each in zip(raw, blocks, strict=True):
        missing = [name for name in GOALS if not SHARES[name](each)]
        if missing:
            known = {"missing": ", ".join(missing), **_known(block, each, step, asked)}
            groups[tuple(known.items())].append(each.size_bytes)
    for own, sizes in sorted(groups.items(), key=lambda each: -sum(each[1])):
        yield {**dict(own), "count": len(sizes), "bytes": sum(sizes)}


def _known(
    block: Block | None, each: AliveBlock, step: Step, asked: Mapping[tuple[int, int], int]
) -> Row:
    is_older = block is not None and block.is_older
    requested = asked.get((block.device, block.address)) if block and is_older else None
    place, gap = each.place, each.place.gap
    return {
        "block_bytes": each.size_bytes,
        "requested_bytes": requested,
        "kind": str(each.kind),
        "phase": str(place.phase),
        "born": "" if block is None else _born(block, step),
        "freed": "" if block is None else _freed(block, step),
        "op": place.aten_op or "",
        "module": place.module or "",
        "line": "" if place.line is None else f"{Path(place.file or '').name}:{place.line}",
        "name": each.name,
        "kernel": each.kernel,
        "gap": "" if gap is None else str(gap),
        "pool": 0 if block is None else block.pool,
        "has_stack": block is not None and block.stack >= 0,
    }


def _born(block: Block, step: Step) -> str:
    if block.is_older:
        return "before the recording"
    return "in this step" if block.born_ns >= step.cpu_start_ns else "in an earlier step"


def _freed(block: Block, step: Step) -> str:
    if block.freed_ns == NEVER:
        return "not in the recording"
    return "in this step" if block.freed_ns <= step.cpu_end_ns else "in a later step"


# -- against the allocator ------------------------------------------------------------------------


def pairs(row: Row) -> Iterator[tuple[Row, Row]]:
    """Yield each peak of a GPU with what the allocator said of that step and device."""
    steps = sorted({each["step"] for each in row["peaks"]})
    for each in row["peaks"]:
        counted = row["counted"][steps.index(each["step"])].get(str(each["device"]))
        if counted is not None:
            yield each, counted


def off_bytes(row: Row) -> int | None:
    """By how much the peak, or the sum of its blocks, is off at most; ``None`` without a GPU."""
    differences = [
        each[name] - counted["peak_bytes"]
        for each, counted in pairs(row)
        for name in ("peak_bytes", "blocks_bytes")
    ]
    return max(differences, key=abs, default=None)


def reserved_off_bytes(row: Row) -> int | None:
    """By how much peak and unused memory are off what was reserved; ``None`` where not known.

    The allocator tells the most that a step had reserved, so the figure is for steps that neither
    reserve nor return segments.
    """
    differences = [
        each["blocks_bytes"] + each["unused_bytes"] - counted["reserved_bytes"]
        for each, counted in pairs(row)
        if each["unused_bytes"] is not None and counted["is_steady"]
    ]
    return max(differences, key=abs, default=None)


def without_us_bytes(row: Row) -> int | None:
    """By how much the peak of recorded steps is off that of one before the recording."""
    differences = [
        counted["peak_bytes"] - row["before"][device]["peak_bytes"]
        for step in row["counted"]
        for device, counted in step.items()
        if device in row["before"]
    ]
    return max(differences, key=abs, default=None)


def shares(row: Row) -> dict[str, float]:
    """The least part of a peak of which something is known, over steps and devices."""
    return {name: min(each["shares"][name] for each in row["peaks"]) for name in SHARES}


def is_exact(row: Row) -> bool:
    """Whether the allocator's count of each step is equal to the peak, and to its blocks."""
    return off_bytes(row) == 0 and all(each["unseen_bytes"] == 0 for each in row["peaks"])


def is_named(row: Row) -> bool:
    """Whether 99% of the bytes have a kind, a line or an owner, and a reason."""
    return all(shares(row)[name] >= ENOUGH for name in GOALS)


# -- tables ---------------------------------------------------------------------------------------


def table(rows: Sequence[Row]) -> str:
    """All programs in Markdown, how many are right, and what is unnamed."""
    judged = [row for row in rows if row.get("peaks")]
    lines = [
        "| program | peak MiB | off by bytes | reserved, off by | without us, off by | "
        + " | ".join(f"{name} %" for name in SHARES)
        + " |",
        "| --- | ---: | ---: | ---: | ---: |" + " ---: |" * len(SHARES),
        *(_line(row) if row.get("peaks") else _failed(row) for row in rows),
        "",
        *_summary(judged),
    ]
    return "\n".join([*lines, "", *_unnamed_table(judged)]) + "\n"


def _failed(row: Row) -> str:
    return f"| {row['name']} | {row.get('failure', 'the session has no peak')} |"


def _line(row: Row) -> str:
    most = max(each["peak_bytes"] for each in row["peaks"])
    offs = (off_bytes(row), reserved_off_bytes(row), without_us_bytes(row))
    cells = [
        row["name"],
        f"{most / 2**20:,.0f}",
        *("not known" if each is None else f"{each:+,}" if each else "0" for each in offs),
        *(_percent(share) for share in shares(row).values()),
    ]
    return f"| {' | '.join(cells)} |"


def _percent(share: float) -> str:
    """Rounded down: 100.0 is all."""
    return f"{int(1000 * share) / 10:.1f}"


def _summary(rows: Sequence[Row]) -> Iterator[str]:
    count = len(rows)
    yield f"The peak is the allocator's to the byte in {sum(map(is_exact, rows))} of {count}."
    for name in GOALS:
        enough = sum(shares(row)[name] >= ENOUGH for row in rows)
        least = min(rows, key=lambda row: shares(row)[name], default=None)
        worst = "" if least is None else f", least {least['name']}: {_percent(shares(least)[name])}"
        yield f"At least 99% have a {name} in {enough} of {count}{worst}."


def _unnamed_table(rows: Sequence[Row]) -> Iterator[str]:
    columns = ("missing", "kind", "phase", "born", "freed", "op", "module", "line", "name")
    columns = (*columns, "kernel", "gap", "pool", "has_stack")
    titles = ("program", "%", "blocks", "bytes of one", "requested", *columns)
    yield "What is unnamed, by what is known of it:"
    yield ""
    yield f"| {' | '.join(titles)} |"
    yield f"|{' --- |' * len(titles)}"
    for row in rows:
        peak = max(row["peaks"], key=lambda each: sum(own["bytes"] for own in each["unnamed"]))
        for own in peak["unnamed"][:MOST_ROWS]:
            if own["bytes"] >= SHOWN * peak["peak_bytes"]:
                size = "" if own["requested_bytes"] is None else f"{own['requested_bytes']:,}"
                cells = [
                    row["name"],
                    f"{100 * own['bytes'] / peak['peak_bytes']:.2f}",
                    str(own["count"]),
                    f"{own['block_bytes']:,}",
                    size,
                    *(str(own[name]) for name in columns),
                ]
                yield f"| {' | '.join(cells)} |"
