"""Communication of recorded ranks adds up in each table, and Perfetto's slices say the same."""

from __future__ import annotations

import io
from functools import lru_cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from profiler_ext.exporters.perfetto import queries
from profiler_ext.exporters.terminal.report import print_session
from profiler_ext.exporters.views.formatting import time_text
from profiler_ext.exporters.views.idle import straggler_lines
from profiler_ext.exporters.views.summary import coverage_lines
from profiler_ext.records.analysis import Communication
from profiler_ext.records.vocabulary import Scope
from profiler_ext.sessions.merging import MergedSession, merge
from profiler_ext.sessions.session import load
from tests.attribution.reading import assert_conserves
from tests.cases.neutral import FOLDER
from tests.trace_processor import reading

CASES = ("ddp", "fsdp2", "tensor_parallel", "traced_fsdp")
every_case = pytest.mark.parametrize("case", CASES)


@lru_cache
def ranks(case: str) -> MergedSession:
    names = (f"{case}.rank_{rank}.session.pt.trace.json.gz" for rank in (0, 1))
    return merge([load(FOLDER / name) for name in names])


@every_case
def test_exposed_and_overlapped_waiting_and_transfer_add_up(case: str) -> None:
    table = ranks(case).communication()
    launches = ranks(case).launches().dropna(subset="step").query("kind == 'communication'")
    assert int(table["duration_ns"].sum()) == int(launches["duration_ns"].sum()) > 0
    assert int(table["launches"].sum()) == len(launches)
    for one, other in (("exposed_ns", "overlapped_ns"), ("waiting_ns", "transfer_ns")):
        assert (table[one] + table[other]).tolist() == table["duration_ns"].tolist()
        assert (table[[one, other]] >= 0).all(axis=None)


def test_a_terminal_shows_next_to_what_collectives_ran_and_how_long_they_waited() -> None:
    text = io.StringIO()
    console = Console(file=text, width=120, force_terminal=False)
    print_session(ranks("fsdp2"), console, by="communication")
    heading, first = text.getvalue().partition("collective ")[2].splitlines()[:2]
    assert heading.split()[:5] == ["time/step", "%", "total", "exposed", "overlapped"]
    row = ranks("fsdp2").communication().iloc[0]
    shown = [time_text(row[name] / row["steps"] / 2) for name in ("exposed_ns", "waiting_ns")]
    assert all(each in first for each in shown)


@every_case
def test_a_rank_alone_knows_no_waiting(case: str) -> None:
    alone = ranks(case).sessions[0]
    table = alone.communication()
    assert table["waiting_ns"].isna().all() and table["transfer_ns"].isna().all()
    assert len(alone.skew()) == 0
    of_merged = ranks(case).communication(rank=0)
    assert table["exposed_ns"].tolist() == of_merged["exposed_ns"].tolist()


@every_case
def test_the_steps_add_up_with_exposed_communication_as_a_part(case: str) -> None:
    for analysis in ranks(case).analyses:
        assert_conserves(analysis)
        exposed = sum(e.duration_ns for e in analysis.breakdown if e.scope == "communication")
        # What a collective has outside of the steps is no part of their wall time.
        assert 0 < exposed <= int(analysis.communication.exposed_ns.sum())


@every_case
def test_what_a_late_rank_did_adds_up_to_how_late_it_was(case: str) -> None:
    late_ns = []
    for analysis in ranks(case).analyses:
        found, late = analysis.communication, analysis.rank_delay
        sums = np.zeros(len(analysis.launches), dtype=np.int64)
        np.add.at(sums, late.launch, late.duration_ns)
        assert sums[found.launch].tolist() == found.late_ns.filled(0).tolist()
        late_ns.append(int(found.late_ns.filled(0).sum()))
    table = ranks(case).skew()
    assert int(table["duration_ns"].sum()) == sum(late_ns) > 0
    assert table["duration_ns"].is_monotonic_decreasing


def test_of_two_ranks_one_is_late_by_what_of_the_other_s_waiting_is_exposed() -> None:
    first, second = (analysis.communication for analysis in ranks("ddp").analyses)
    for waits, is_late in ((first, second), (second, first)):
        assert (is_late.late_ns <= waits.waiting_ns).all()
        assert (is_late.late_ns <= waits.exposed_ns).all()
        hidden = waits.waiting_ns.sum() - is_late.late_ns.sum()
        overlapped = analysed_ns(waits) - int(waits.exposed_ns.sum())
        assert 0 <= hidden <= overlapped


def analysed_ns(found: Communication) -> int:
    """Return the whole time of the collectives of the rank whose they are."""
    (of_rank,) = (a for a in ranks("ddp").analyses if a.communication is found)
    return int(of_rank.launches.duration_ns[found.launch].sum())


def test_the_report_says_who_came_last() -> None:
    lines = [each.text for each in straggler_lines(ranks("fsdp2").analyses)]
    assert lines == [
        "rank 1 came last 28 of 28 times, others waited 46.7 ms a step: CPU launch overhead (44.7%)"
    ]


def test_communication_is_reported_of_a_step_as_the_step_time_breakdown_next_to_it_is() -> None:
    (rank, _) = ranks("fsdp2").analyses
    of_scope = (line for line in rank.breakdown if line.scope == Scope.COMMUNICATION)
    exposed_ns = sum(line.duration_ns for line in of_scope)
    assert time_text(exposed_ns / len(rank.steps)) == "46.8 ms"
    assert coverage_lines([rank])[-1] == (
        "Communication 47.4 ms a step: 46.8 ms exposed, 623 us overlapped; 47.3 ms waiting for "
        "the last rank."
    )


def test_perfetto_says_the_same(tmp_path: Path) -> None:
    merged = ranks("ddp")
    path = merged.export(tmp_path / "ranks.pftrace")
    with reading(path) as reader:
        reader.rows(queries())
        drawn = reader.rows("""
            select
              sum(extract_arg(arg_set_id, 'debug.exposed_ns')) as exposed,
              sum(extract_arg(arg_set_id, 'debug.overlapped_ns')) as overlapped,
              sum(extract_arg(arg_set_id, 'debug.waiting_ns')) as waiting
            from slice where category = 'communication'
        """)
        causes = reader.rows("select cause, sum(duration_ns) as ns from idle_by_cause group by 1")
    sums = merged.communication()[["exposed_ns", "overlapped_ns", "waiting_ns"]].sum()
    assert drawn == [tuple(sums.astype(int))]
    reported: pd.Series[int] = merged.idle_by_cause().groupby("cause")["duration_ns"].sum()
    assert dict(causes) == reported.to_dict()
