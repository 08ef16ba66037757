"""Checks of recorded sessions that what has to add up does, and says what the rules find in each.

    python -m benchmarks.sums DIR ...

Reads every session below the folders, the ranks of one together. Of each step and device: the
breakdown is the wall time, idle time by cause and by line is the breakdown's, and what the
breakdown has of communication is no more than what is exposed. Of each row of communication:
exposed and overlapped time are its time, and so are waiting and transfer. Prints one line a session
and a sum of all, and ends with 1 where anything does not add up.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import profiler_ext
from profiler_ext.errors import ProfilerExtError
from profiler_ext.records.analysis import Analysis
from profiler_ext.records.vocabulary import BreakdownCategory, Scope

_FILES = ("*.pt.trace.json.gz", "*.pt.trace.json")
_Session = profiler_ext.Session | profiler_ext.MergedSession


def sessions(folders: Iterable[Path]) -> Iterator[Path]:
    """Yield each session below the folders; of several ranks the folder that holds them."""
    files = {file for folder in folders for kind in _FILES for file in folder.rglob(kind)}
    ranks = {file.parent.parent for file in files if file.parent.name.startswith("rank_")}
    yield from sorted(ranks | {file for file in files if file.parent.parent not in ranks})


def off_in_steps(analysis: Analysis) -> Iterator[str]:
    """Yield what does not add up in a step of a device."""
    idle, breakdown = analysis.idle, analysis.breakdown
    for step in analysis.steps:
        for device in {line.device for line in breakdown if line.step == step.number}:
            own = [line for line in breakdown if (line.step, line.device) == (step.number, device)]
            if sum(line.duration_ns for line in own) != step.wall_ns:
                yield "the breakdown"
            in_breakdown = sum(
                line.duration_ns for line in own if line.category is BreakdownCategory.IDLE
            )
            pieces = (idle.step == step.number) & (idle.device == device)
            if int(idle.duration_ns[pieces].sum()) != in_breakdown:
                yield "idle time"
    exposed = sum(line.duration_ns for line in breakdown if line.scope == Scope.COMMUNICATION)
    if exposed > int(analysis.communication.exposed_ns.sum()):
        yield "exposed communication"


def off_in_tables(session: _Session) -> Iterator[str]:
    """Yield what does not add up in the tables."""
    coverage, causes = session.coverage(), session.idle_by_cause()
    idle_ns = int(coverage.loc[coverage["category"] == "idle", "duration_ns"].sum())
    for table in (causes, session.idle_by_line()):
        if int(table["duration_ns"].sum()) != idle_ns:
            yield "idle time in a table"
    table = session.communication()
    if (table["exposed_ns"] + table["overlapped_ns"] != table["duration_ns"]).any():
        yield "exposed and overlapped"
    known = table[table["waiting_ns"].notna()]
    if (known["waiting_ns"] + known["transfer_ns"] != known["duration_ns"]).any():
        yield "waiting and transfer"


def main() -> int:
    """Check the sessions below the folders that are named."""
    counts: Counter[str] = Counter()
    for path in sessions(map(Path, sys.argv[1:])):
        try:
            session = profiler_ext.load(path)
        except ProfilerExtError as error:
            counts["refused"] += 1
            print(f"{path}: refused: {str(error)[:100]}", flush=True)
            continue
        every = (
            session.of_rank(None)
            if isinstance(session, profiler_ext.MergedSession)
            else (session.analysis,)
        )
        off = [each for analysis in every for each in off_in_steps(analysis)]
        off += off_in_tables(session)
        found = sorted({each.rule for each in session.recommendations.ranked})
        counts.update(sessions=1, ranks=len(every), steps=sum(len(each.steps) for each in every))
        counts.update(off=bool(off), communicating=any(len(each.communication) for each in every))
        print(f"{path}: {', '.join(off) or 'adds up'}; {', '.join(found) or 'nothing'}", flush=True)
    print(dict(counts))
    return 1 if counts["off"] else 0


if __name__ == "__main__":
    sys.exit(main())
