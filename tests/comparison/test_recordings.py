"""Recorded sessions compared: nothing is lost, and the two ways round are each other's negative."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import cache

import pytest

from profiler_ext.comparison.comparison import BY, Comparison, compare
from profiler_ext.comparison.records import Change, Interval, Match, Row, Table, Verdict
from profiler_ext.comparison.sides import RunOfRanks
from profiler_ext.records.analysis import Analysis
from tests.comparison.recordings import recorded

PAIRS = (
    ("findings/dtype_conversion", "findings/dtype_conversion.remedied"),
    ("findings/layout_conversion", "findings/data_loader.remedied"),
    ("cases/eager", "cases/autocast"),
    ("cases/autocast", "cases/max_autotune"),
    ("cases/cudagraphs", "cases/checkpoint"),
    ("cases/fsdp2.rank_0", "cases/fsdp2.rank_1"),
    ("cases/side_stream", "cases/side_stream"),
    ("compiles/graph_break", "compiles/checkpoint"),
)
OTHER_WAY = {
    Verdict.SLOWER: Verdict.FASTER,
    Verdict.FASTER: Verdict.SLOWER,
    Verdict.NEW: Verdict.REMOVED,
    Verdict.REMOVED: Verdict.NEW,
    Match.NEW: Match.REMOVED,
    Match.REMOVED: Match.NEW,
}


@cache
def between(pair: tuple[str, str]) -> Comparison:
    base, head = pair
    return compare([recorded(base)], [recorded(head)])


def wall_ns(analysis: Analysis) -> int:
    return sum(line.duration_ns for line in analysis.breakdown)


@pytest.mark.parametrize("pair", PAIRS, ids=" ".join)
def test_every_table_adds_up_to_the_step_time_breakdown_of_each_side(pair):
    comparison = between(pair)
    base, head = (recorded(name).analyses[0] for name in pair)
    for by in (by for by in BY if by != "compile"):
        changes = [row.change for row in comparison.table(by).rows]
        assert sum(change.base_ns for change in changes) == wall_ns(base), by
        assert sum(change.head_ns for change in changes) == wall_ns(head), by
        assert {(c.base_steps, c.head_steps) for c in changes} == {
            (len(base.steps), len(head.steps))
        }


def test_runs_of_several_ranks_add_up_too() -> None:
    """Each side is one run of two ranks; its steps are those of both, its mean that of one."""
    sides = [
        RunOfRanks(name, tuple(recorded(f"cases/{name}.rank_{n}").analyses[0] for n in (0, 1)))
        for name in ("ddp", "fsdp2")
    ]
    comparison = compare(sides[:1], sides[1:])
    for by in (by for by in BY if by != "compile"):
        changes = [row.change for row in comparison.table(by).rows]
        for side, name in ((sides[0], "base_ns"), (sides[1], "head_ns")):
            reported = sum(getattr(change, name) for change in changes)
            assert reported == sum(map(wall_ns, side.analyses)), by
    steps = sum(len(each.steps) for each in sides[0].analyses)
    assert comparison.total.base_steps == steps == 4
    assert [run.ranks for run in comparison.head.runs] == [(0, 1)]


@pytest.mark.parametrize("pair", PAIRS, ids=" ".join)
def test_the_phases_of_a_row_are_its_device_time(pair):
    for by in ("line", "module", "op", "kernel", "phase"):
        for row in between(pair).table(by).rows:
            if row.subject.account == "device":
                assert sum(phase.base_ns for phase in row.phases) == row.change.base_ns
                assert sum(phase.head_ns for phase in row.phases) == row.change.head_ns


@pytest.mark.parametrize("pair", PAIRS, ids=" ".join)
def test_the_other_way_round_is_the_negative(pair):
    there, back = between(pair), between(pair[::-1])
    for by in BY:
        rows = Counter(map(turned, there.table(by).rows))
        assert rows == Counter(map(plain, back.table(by).rows))
        assert turned_change(there.table(by).total) == back.table(by).total
    assert Counter((f.head, f.base, turned_change(f.change)) for f in there.fusions) == Counter(
        (f.base, f.head, f.change) for f in back.fusions
    )


@pytest.mark.parametrize("name", sorted({name for pair in PAIRS for name in pair}))
def test_a_session_compared_with_itself_is_equal_in_every_row(name):
    comparison = between((name, name))
    for by in BY:
        table: Table = comparison.table(by)
        assert {row.change.verdict for row in table.rows} <= {Verdict.EQUAL}
        assert {row.match for row in table.rows} <= {Match.SAME, Match.NUMBER}
        assert all(row.base == row.head for row in table.rows)
    assert comparison.fusions == ()


def plain(row: Row) -> Row:
    return replace(row, modules=tuple(sorted(row.modules)))


def turned(row: Row) -> Row:
    phases = tuple(replace(p, base_ns=p.head_ns, head_ns=p.base_ns) for p in row.phases)
    return plain(
        Row(
            row.head,
            row.base,
            OTHER_WAY.get(row.match, row.match),
            turned_change(row.change),
            phases,
            row.modules,
        )
    )


def turned_change(change: Change) -> Change:
    interval = change.interval
    return Change(
        base_ns=change.head_ns,
        head_ns=change.base_ns,
        base_steps=change.head_steps,
        head_steps=change.base_steps,
        base_launches=change.head_launches,
        head_launches=change.base_launches,
        interval=interval
        and Interval(-interval.high_ns, -interval.low_ns, interval.p_value, interval.q_value),
        verdict=OTHER_WAY.get(change.verdict, change.verdict),
    )
