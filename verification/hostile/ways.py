"""What a user does with a file: each way from reading it to a table, a report or an export."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

import profiler_ext
from profiler_ext.attaching import attach
from profiler_ext.exporters.formats import FORMATS, Format
from profiler_ext.exporters.table_kinds import BY
from profiler_ext.exporters.tensorboard_plugin.document import SUFFIX, read_checked
from profiler_ext.kineto.recording import read_recording
from profiler_ext.records.analysis import Analysis
from profiler_ext.sessions.merging import MergedSession
from profiler_ext.sessions.session import Session
from profiler_ext.store import Store
from verification.hostile.making import BASE, FOLDER
from verification.hostile.making import SUFFIX as RECORDED

Way = Callable[[Session, Path, Path], None]


def read(path: Path) -> Session:
    """Read a file and attribute it; the shares and the breakdown must add up."""
    found = profiler_ext.load(path)
    for analysis in found.analyses if isinstance(found, MergedSession) else (found.analysis,):
        check_conservation(analysis)
    return found.sessions[0] if isinstance(found, MergedSession) else found


def check_conservation(analysis: Analysis) -> None:
    """Raise unless the shares of each launch, and the breakdown of each step, add up."""
    launches, shares = analysis.launches, analysis.shares
    summed = np.zeros(len(launches), np.int64)
    np.add.at(summed, shares.launch, shares.duration_ns)
    assert (summed == launches.duration_ns).all(), "shares do not add up to their launches"
    walls: dict[tuple[int, int], int] = {}
    for line in analysis.breakdown:
        assert line.duration_ns >= 0, "a line of the breakdown is below zero"
        key = (line.step, line.device)
        walls[key] = walls.get(key, 0) + line.duration_ns
    by_number: dict[int, int] = {}
    for step in analysis.steps:
        by_number[step.number] = by_number.get(step.number, 0) + step.wall_ns
    wrong = {key for key, wall in walls.items() if wall != by_number[key[0]]}
    assert not wrong, "the breakdown does not add up to its steps"
    check_idle(analysis)


def check_idle(analysis: Analysis) -> None:
    """Raise unless idle time by line adds up to the breakdown's; less where steps overlap."""
    ends = [step.end_ns for step in analysis.steps]
    starts = [step.start_ns for step in analysis.steps]
    overlap = any(end > start for end, start in zip(ends, starts[1:], strict=False))
    idle = sum(line.duration_ns for line in analysis.breakdown if line.scope == "idle")
    by_line = int(analysis.idle.duration_ns.sum())
    assert by_line == idle or (overlap and by_line < idle), "idle time by line does not add up"


def _report(session: Session, path: Path, out: Path) -> None:
    assert session.report(top=5).encode()
    for by in BY:
        assert session.report(by, top=5, format="md").encode()
    assert json.loads(session.report(format="json")) is not None
    assert "".join(session.notes) is not None
    session._repr_html_().encode()


def _tables(session: Session, path: Path, out: Path) -> None:
    frames = [session.launches(), session.attribution(), session.graphs(), session.coverage()]
    frames += [session.idle_by_line(), session.idle_by_cause()]
    summed = (session.by_line, session.by_module, session.by_op, session.by_phase)
    ruled = (session.by_link, session.by_mechanism)
    frames += [table() for table in (*summed, *ruled, session.by_kernel)]
    total = int(session.analysis.launches.duration_ns.sum())
    assert int(frames[0]["duration_ns"].sum()) == total, "the launches do not add up"
    assert int(frames[1]["duration_ns"].sum()) == total, "the attribution does not add up"


def _annotate(session: Session, path: Path, out: Path) -> None:
    session.annotate().encode()


def _export(format: Format) -> Way:
    def way(session: Session, path: Path, out: Path) -> None:
        written = format.write(session.analysis, out / format.name / format.target)
        if format.name == "chrome":
            back = profiler_ext.load(written)
            assert len(back.analysis.launches) == len(session.analysis.launches)
            assert back.recording.graphs == session.recording.graphs
        elif format.name == "tensorboard":
            for document in written.parent.glob(f"*{SUFFIX}"):
                read_checked(document)

    return way


def _merge(session: Session, path: Path, out: Path) -> None:
    good = profiler_ext.load(FOLDER / f"{BASE}{RECORDED}")
    rank = session.recording.settings.rank
    if rank == 0:
        good = profiler_ext.load(FOLDER / f"ddp.rank_1{RECORDED}")
    merged = profiler_ext.merge([session, good])
    assert merged.by_line() is not None and merged.coverage() is not None
    assert "".join(merged.notes) is not None
    merged.export(out / "merged.pftrace")


def _attach(session: Session, path: Path, out: Path) -> None:
    source = path if path.is_file() else path / "session.pt.trace.json.gz"
    if source.exists():
        attached = attach(read_recording(source), Store(out / "store"), out)
        Session(attached.recording).report()


WAYS: dict[str, Way] = {
    "report": _report,
    "tables": _tables,
    "annotate": _annotate,
    **{f"export {format.name}": _export(format) for format in FORMATS},
    "merge": _merge,
    "attach": _attach,
}


def walk(
    path: Path, out: Path, wanted: tuple[str, ...]
) -> Iterator[tuple[str, Callable[[], None]]]:
    """Yield what to call, in order: first the reading, then each way."""
    held: list[Session] = []
    yield "read", lambda: held.append(read(path))
    for name in wanted:
        yield name, lambda name=name: WAYS[name](held[0], path, out)
