"""Ranks in one session: rows with their rank, sums over ranks, clocks laid over each other."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from pandas import DataFrame

from profiler_ext import cli, load, merge
from profiler_ext.attribution.clock_sync import Clock
from profiler_ext.errors import CoverageError, TraceError, UsageError
from profiler_ext.exporters.table_kinds import table_named
from profiler_ext.exporters.tables import ranks as of_ranks
from profiler_ext.kineto.distributed import Collective, collective, only_group
from profiler_ext.kineto.reader import read_trace
from profiler_ext.records.recording import Recording, Settings
from profiler_ext.sessions.merging import MergedSession
from profiler_ext.sessions.session import Session
from tests.analyses import gpu_step
from tests.frames import as_frames
from tests.kineto.traces import H200

HOUR_NS = 3_600_000_000_000


def kernel(start_us: float, correlation: int) -> list[dict[str, object]]:
    launch = {"correlation": correlation, "External id": correlation}
    on_device = {**launch, "device": 0, "stream": 7}
    name = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*)"
    return [
        event("cuda_runtime", "cudaLaunchKernel", 5, start_us - 8, 2, launch),
        event("kernel", name, 7, start_us, 10, on_device),
    ]


def collective_op(start_us: float, number: int, sequence: int, group: str) -> dict[str, object]:
    arguments = {"Process Group Name": group, "Seq": sequence, "Collective name": "allreduce"}
    args = {"External id": number, **arguments}
    return event("cpu_op", "record_param_comms", 5, start_us - 10, 6, args)


def event(
    category: str, name: str, tid: int, ts: float, dur: float, args: dict[str, object]
) -> dict[str, object]:
    pid = 0 if category == "kernel" else 5
    parts = {"ph": "X", "cat": category, "name": name, "pid": pid, "tid": tid}
    return {**parts, "ts": ts, "dur": dur, "args": args}


def rank(
    folder: Path, number: int, starts_us: dict[int, float], *, group: str = "0", base_ns: int = 0
) -> Session:
    """A session of one rank, whose collectives start as told, by their number in the group."""
    events = []
    for sequence, start_us in starts_us.items():
        events += [collective_op(start_us, sequence, sequence, group)]
        events += kernel(start_us, sequence)
    document = {"schemaVersion": 1, "baseTimeNanoseconds": base_ns, "traceEvents": events}
    file = folder / f"{number}.json"
    file.write_text(json.dumps(document))
    settings = Settings(rank=number, world_size=4)
    return Session(Recording(trace=read_trace(file), settings=settings))


def test_a_collective_has_its_process_group(tmp_path: Path) -> None:
    table = rank(tmp_path, 0, {1: 100}, group="tp").launches()
    assert table[["kind", "process_group"]].to_numpy().tolist() == [["communication", "tp"]]


def test_clocks_are_laid_over_each_other_by_the_ends_of_shared_collectives(tmp_path: Path) -> None:
    merged = merge(
        [
            rank(tmp_path, 1, {8: 300, 9: 407, 77: 500}, base_ns=HOUR_NS),
            rank(tmp_path, 0, {7: 100, 8: 200, 9: 300}),
        ]
    )
    assert merged.clocks == (Clock(0, 0, 0), Clock(1, -HOUR_NS - 103_500, 2))
    starts = merged.launches().groupby("rank").start_ns.apply(list)
    assert starts.to_dict() == {0: [100_000, 200_000, 300_000], 1: [196_500, 303_500, 396_500]}
    assert merged.notes[0] == (
        "the clock of rank 1 was moved by -3,600,000,103,500 ns, so that 2 collectives end at "
        "one moment"
    )


def test_a_rank_is_laid_over_one_that_shares_a_group_with_it(tmp_path: Path) -> None:
    first = rank(tmp_path, 0, {1: 100})
    between = rank(tmp_path, 1, {1: 200})
    other = rank(tmp_path, 2, {1: 50}, group="tp")
    assert [c.collectives for c in merge([first, between, other]).clocks] == [0, 1, 0]


def test_a_rank_that_shares_with_another_than_the_first_is_laid_over_the_first_by_that(
    tmp_path: Path,
) -> None:
    first = rank(tmp_path, 0, {1: 100})
    between = rank(tmp_path, 1, {1: 200, 2: 500})
    last = rank(tmp_path, 2, {2: 50})
    shifts = [clock.shift_ns for clock in merge([first, between, last]).clocks]
    assert shifts == [0, -100_000, 350_000]


def test_without_shared_collectives_the_wall_clocks_stand_and_a_note_says_so(
    tmp_path: Path,
) -> None:
    merged = merge([rank(tmp_path, 0, {1: 100}), rank(tmp_path, 3, {2: 50}, base_ns=1000)])
    assert merged.clocks == (Clock(0, 0, 0), Clock(3, 0, 0))
    assert merged.launches(rank=3).start_ns.tolist() == [51_000]
    assert merged.notes[0].startswith("ranks 0 and 3 are laid over each other by their wall clocks")


def test_what_is_left_one_by_one_is_no_clock() -> None:
    reported = [
        Collective("0", 1, name).is_synchronizing for name in ("broadcast", "send", "reduce")
    ]
    assert reported == [False, False, False]
    names = ("allreduce", "_allgather_base", "reduce_scatter_tensor", "ALLTOALL_BASE", "barrier")
    assert all(Collective("0", 1, name).is_synchronizing for name in names)


def test_an_event_without_a_process_group_is_no_collective() -> None:
    assert collective(b'{"args": {"Seq": 3}}') is None
    assert collective(b'{"args": {"Process Group Name": 3}}') is None


def two_ranks() -> MergedSession:
    one = gpu_step().recording
    settings = replace(one.settings, rank=1, world_size=2)
    return merge([Session(one), Session(replace(one, settings=settings))])


def test_tables_hold_the_rows_of_all_ranks() -> None:
    merged, alone = two_ranks(), Session(gpu_step().recording)
    for name in ("launches", "attribution", "graphs"):
        table = getattr(merged, name)()
        assert len(table) == 2 * len(getattr(alone, name)())
        assert set(table["rank"]) == {0, 1}
    assert not merged.launches().duplicated(["rank", "launch"]).any()
    assert set(merged.launches(rank=1)["rank"]) == {1}


@pytest.mark.parametrize(
    "name", ["by_line", "by_module", "by_op", "by_phase", "by_kernel", "by_site"]
)
def test_sums_are_over_ranks_and_a_steps_mean_is_of_one_rank(name: str) -> None:
    merged, alone = getattr(two_ranks(), name)(), getattr(Session(gpu_step().recording), name)()
    assert merged.duration_ns.tolist() == [2 * time for time in alone.duration_ns]
    for column in ("fraction", "per_step_ns", "steps"):
        assert merged[column].tolist() == pytest.approx(alone[column].tolist())
    assert set(merged.ranks) == {2}
    rates = ("est_gb_per_s", "est_tflop_per_s", "est_attainable_tflop_per_s", "est_peak_fraction")
    left = (*rates, "median_ns")
    assert list(merged.columns) == [*(c for c in alone.columns if c not in left), "ranks"]


def test_of_ranks_the_extremes_of_launches_and_the_shapes_that_are_alike_are_reported() -> None:
    recording = load(H200 / "cases" / "llama.session.pt.trace.json.gz").recording
    settings = replace(recording.settings, rank=1, world_size=2)
    alone = Session(recording).by_kernel()
    merged = merge([Session(recording), Session(replace(recording, settings=settings))]).by_kernel()
    names = ["kernel", "min_ns", "max_ns", "grid", "registers_per_thread", "est_occupancy"]
    assert merged[names].equals(alone[names])
    assert 0 < alone["grid"].isna().sum() < len(alone)


add_means, sum_over_ranks = map(as_frames, (of_ranks.add_means, of_ranks.sum_over_ranks))


def _estimated(table: DataFrame, time_ns: int, bound: str | None, unit: str | None) -> DataFrame:
    """A table whose rows all took a time and say the same."""
    fields = {"duration_ns": time_ns, "bound": bound, "unit": unit}
    return table.assign(**fields).astype({name: table[name].dtype for name in fields})


def test_what_bounds_a_row_of_ranks_is_what_bounds_it_where_it_took_longest() -> None:
    kind, alone = table_named("by_line"), Session(gpu_step().recording).by_line()
    reported = [(157, "latency", "fp32"), (40_000_000, None, None), (900, "memory", "bf16_tensor")]
    ranks = [_estimated(alone, *each) for each in reported]
    short = add_means(kind, sum_over_ranks(kind, [ranks[0], ranks[2]]), [(0,)] * 2)
    assert {*short["bound"]} == {"memory"} and {*short["unit"]} == {"bf16_tensor"}
    whole = add_means(kind, sum_over_ranks(kind, ranks), [(0,)] * 3)
    assert whole["bound"].isna().all() and whole["unit"].isna().all()
    grouped = sum_over_ranks(kind, [sum_over_ranks(kind, [ranks[0], ranks[2]]), ranks[1]])
    assert add_means(kind, grouped, [(0,)] * 3).equals(whole)


def test_coverage_is_over_all_ranks_in_the_same_order() -> None:
    merged, alone = two_ranks().coverage(), Session(gpu_step().recording).coverage()
    assert merged.category.tolist() == alone.category.tolist()
    assert merged.duration_ns.tolist() == [2 * time for time in alone.duration_ns]
    assert two_ranks().fraction_at() == pytest.approx(
        alone[(alone.scope == "compiled") & (alone.level == "line")].duration_ns.sum()
        / alone[alone.scope == "compiled"].duration_ns.sum()
    )
    with pytest.raises(CoverageError, match="of all ranks is attributed to a line"):
        two_ranks().assert_coverage(1.1)


def test_what_makes_no_sense_is_refused_in_a_sentence(tmp_path: Path) -> None:
    session = Session(gpu_step().recording)
    with pytest.raises(UsageError, match="two sessions are of rank 0"):
        merge([session, session])
    with pytest.raises(UsageError, match="there is no session to merge"):
        merge([])
    with pytest.raises(UsageError, match="there is no rank 9; ask for one of the ranks: 0, 1"):
        two_ranks().launches(rank=9)
    with pytest.raises(UsageError, match="step 99 was not profiled"):
        two_ranks().by_line(step=99)
    with pytest.raises(UsageError, match="chrome cannot hold several ranks"):
        two_ranks().export(tmp_path / "r.json")


def test_merge_writes_a_folder_that_loads_back_with_clocks_set(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    rank(tmp_path, 0, {8: 200}).save(run / "rank_0")
    rank(tmp_path, 1, {8: 300}).save(run / "rank_1")
    assert cli.main(["merge", str(run), "-o", str(tmp_path / "all")]) == 0
    written = capsys.readouterr()
    assert written.out == f"{tmp_path / 'all'}\n"
    assert "moved by -100,000 ns" in written.err
    again = load(tmp_path / "all")
    assert isinstance(again, MergedSession)
    assert again.clocks == (Clock(0, 0, 0), Clock(1, 0, 1))
    assert again.launches().start_ns.tolist() == [200_000, 200_000]
    assert (tmp_path / "all" / "trace.pftrace").stat().st_size > 0
    assert cli.main(["report", str(run), "--by", "kernel", "--format", "csv"]) == 0
    assert "launches" in capsys.readouterr().out


def test_a_report_of_a_folder_of_ranks_is_of_all(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    two_ranks().save(tmp_path)
    assert cli.main(["report", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("2 ranks: Step ")
    assert any("attributed to source" in line for line in lines)


def test_the_only_process_group_is_known_by_the_header(tmp_path: Path) -> None:
    trace = rank(tmp_path, 0, {1: 100}).recording.trace
    one = b'{"pg_config": [{"pg_name": "0"}]}'
    two = b'{"pg_config": [{"pg_name": "0"}, {"pg_name": "1"}]}'
    found = [
        only_group(replace(trace, header=(("distributedInfo", info),))) for info in (one, two, b"3")
    ]
    assert [only_group(trace), *found] == [None, "0", None, None]


def test_a_folder_that_may_not_be_read_is_refused_in_a_sentence(tmp_path, monkeypatch):
    def refused(_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "iterdir", refused)
    with pytest.raises(TraceError, match=f"^cannot read {tmp_path}: Permission denied"):
        load(tmp_path)
