"""Traces of torch's own profiler have the rank of their header in every command."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from decimal import Decimal
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import pytest

import profiler_ext
from profiler_ext import cli
from profiler_ext.errors import TraceError, UsageError
from profiler_ext.kineto.document import EXTENSION_KEY
from profiler_ext.sessions.merging import MergedSession
from tests.plain_ranks import Ran, in_group, write

RECORDED = Path(__file__).parent / "fixtures" / "h200" / "cases"
LATE = ((250, 500), (650, 100))
"""Start and length of an all-reduce on two ranks, which ends at once: rank 0 waits 400 us."""


def two(folder: Path, **reported: object) -> list[Path]:
    return [
        write(folder, rank, [Ran(*when, in_group(**reported))]) for rank, when in enumerate(LATE)
    ]


def test_a_trace_has_the_rank_of_its_header(tmp_path: Path) -> None:
    first, second = two(tmp_path)
    ranks = [profiler_ext.load(each).recording.settings for each in (first, second)]
    assert [(each.rank, each.world_size) for each in ranks] == [(0, 2), (1, 2)]


@pytest.mark.parametrize(
    "info", [{"backend": "nccl"}, {"rank": -1, "world_size": 2}, {"rank": 2, "world_size": 2}]
)
def test_a_header_that_tells_no_rank_of_its_job_is_of_none(tmp_path: Path, info: object) -> None:
    settings = profiler_ext.load(write(tmp_path, 0, [], info=info)).recording.settings
    assert (settings.rank, settings.world_size) == (0, 1)


def test_a_folder_of_traces_is_the_session_of_its_ranks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    two(tmp_path)
    (tmp_path / "notes.json").write_text('{"no": "trace"}')
    loaded = profiler_ext.load(tmp_path)
    assert isinstance(loaded, MergedSession)
    assert [each.recording.settings.rank for each in loaded.sessions] == [0, 1]
    assert cli.main(["report", str(tmp_path)]) == 0
    assert "2 ranks" in capsys.readouterr().out.splitlines()[0]


def test_traces_by_any_name_are_found_where_none_is_called_a_trace(tmp_path: Path) -> None:
    for rank in (0, 1):
        write(tmp_path, rank, [], name="rank-{rank}.json")
    (tmp_path / "config.json").write_text('{"no": "trace"}')
    loaded = profiler_ext.load(tmp_path)
    assert [each.recording.settings.rank for each in loaded.sessions] == [0, 1]


def test_a_folder_of_one_trace_is_that_trace(tmp_path: Path) -> None:
    write(tmp_path, 1, [])
    assert profiler_ext.load(tmp_path).recording.settings.rank == 1


def test_collectives_without_a_number_are_matched_by_order_and_size(tmp_path: Path) -> None:
    """Both ranks leave the all-reduce at 750 us: what rank 0 waits is 400 us, and 100 transfer."""
    two(tmp_path)
    table = profiler_ext.load(tmp_path).communication()
    columns = ["launches", "duration_ns", "exposed_ns", "waiting_ns", "transfer_ns"]
    assert table[columns].to_numpy().tolist() == [[2, 600_000, 600_000, 400_000, 200_000]]


@pytest.mark.parametrize(
    "other",
    [
        in_group(elements=512),
        in_group(group="1"),
        {**in_group(), "Process Group Ranks": "[1, 3]"},
        None,
    ],
)
def test_what_is_not_reported_to_be_the_same_has_no_waiting(tmp_path: Path, other: object) -> None:
    mine = {**in_group(), "Process Group Ranks": "[0, 2]"} if other and len(other) > 4 else None
    write(tmp_path, 0, [Ran(*LATE[0], mine or in_group())])
    write(tmp_path, 1, [Ran(*LATE[1], other)])
    table = profiler_ext.load(tmp_path).communication()
    assert table.duration_ns.sum() == 600_000
    assert table.waiting_ns.isna().all() and table.transfer_ns.isna().all()


def test_an_all_to_all_is_no_message(tmp_path: Path) -> None:
    kernel = "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclDevComm*)"
    around = ("nccl:all_to_all", "nccl:coalesced")
    ran = [Ran(250 * at, 50 * at, None, kernel, name) for at, name in enumerate(around, 1)]
    table = profiler_ext.load(write(tmp_path, 0, ran)).communication()
    assert dict(zip(table.collective, table.duration_ns, strict=True)) == {
        "all_to_all": 50_000,
        "sendrecv": 100_000,
    }


def test_a_rank_that_is_not_there_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, second = two(tmp_path)
    for command in ("report", "annotate"):
        assert cli.main([command, str(second), "--rank", "5"]) == 2
        assert "there is no rank 5" in capsys.readouterr().err
    assert cli.main(["report", str(second), "--rank", "5", "--format", "json"]) == 2
    assert "there is no rank 5; the session is of rank 1 alone" in capsys.readouterr().err
    assert cli.main(["report", str(second), "--rank", "1"]) == 0


def test_merge_takes_traces_and_keeps_their_ranks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    traces = map(str, two(tmp_path / "log"))
    assert cli.main(["merge", *traces, "-o", str(tmp_path / "all")]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'all'}\n"
    again = profiler_ext.load(tmp_path / "all")
    assert [each.recording.settings.rank for each in again.sessions] == [0, 1]
    assert again.communication().waiting_ns.tolist() == [400_000]


def test_two_traces_of_one_rank_are_named(tmp_path: Path) -> None:
    write(tmp_path, 0, [], name="a.pt.trace.json")
    write(tmp_path, 0, [], name="b.pt.trace.json")
    with pytest.raises(UsageError, match=r"two sessions are of rank 0: \S+a.pt.\S+, \S+b.pt."):
        profiler_ext.load(tmp_path)


def test_traces_that_tell_no_rank_are_distinguished_from_two_of_one_rank(tmp_path: Path) -> None:
    for name in "ab":
        write(tmp_path, 0, [], info={"backend": "nccl"}, name=f"{name}.pt.trace.json")
    with pytest.raises(UsageError, match="is not known: no rank is in its distributedInfo"):
        profiler_ext.load(tmp_path)


def test_a_folder_of_a_rank_tells_it_where_the_trace_does_not(tmp_path: Path) -> None:
    for rank in (0, 3):
        write(tmp_path / f"rank_{rank}", 0, [], info={"backend": "nccl"}, name="t.pt.trace.json")
    loaded = profiler_ext.load(tmp_path)
    assert [each.recording.settings.rank for each in loaded.sessions] == [0, 3]


def test_of_several_traces_in_a_rank_s_folder_one_is_asked_for(tmp_path: Path) -> None:
    for name in "ab":
        write(tmp_path / "rank_0", 0, [], name=f"{name}.pt.trace.json")
    with pytest.raises(TraceError, match=r"holds 2 traces, a\.pt\S+ and others; give one"):
        profiler_ext.load(tmp_path)


def test_a_name_that_a_user_adds_is_communication_in_every_sum(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path, 0, [Ran(250, 100, kernel="void mine::ring_sum<float>(float*)")])
    assert len(profiler_ext.load(path).communication()) == 0
    monkeypatch.setenv("PROFILER_EXT_COMMUNICATION", "mine::ring_*;other")
    assert profiler_ext.load(path).communication().exposed_ns.tolist() == [100_000]


@pytest.mark.parametrize("case", ["ddp", "fsdp2"])
def test_recorded_ranks_wait_as_long_as_their_plain_json_says(case: str, tmp_path: Path) -> None:
    """What an H200 recorded, without anything of ours in it: torch 2.11 writes no ``Seq``."""
    traces = [plain_of(case, rank) for rank in (0, 1)]
    for rank, each in enumerate(traces):
        (tmp_path / f"rank-{rank}.json").write_text(json.dumps(each))
    table = profiler_ext.load(tmp_path).communication()
    assert table.groupby("collective").waiting_ns.sum().to_dict() == waits_ns(*traces)


def plain_of(case: str, rank: int) -> dict[str, Any]:
    packed = RECORDED / f"{case}.rank_{rank}.session.pt.trace.json.gz"
    whole: dict[str, Any] = json.loads(gzip.decompress(packed.read_bytes()))
    return {key: value for key, value in whole.items() if key != EXTENSION_KEY}


def waits_ns(first: dict[str, Any], second: dict[str, Any]) -> dict[str, int]:
    """How long both ranks waited: collectives in order, clocks by the median of their ends."""
    pairs = list(zip(collectives_of(first), collectives_of(second), strict=True))
    shift = round(median((a.start + a.took) - (b.start + b.took) for a, b in pairs))
    waits = Counter[str]()
    for a, b in pairs:
        assert a.name == b.name
        last = max(a.start, b.start + shift)
        waits[a.name] += min(last - a.start, a.took) + min(last - b.start - shift, b.took)
    return dict(waits)


def collectives_of(trace: dict[str, Any]) -> list[Kernel]:
    base = int(trace["baseTimeNanoseconds"])
    kernels = (each for each in trace["traceEvents"] if each.get("cat") == "kernel")
    found = (
        Kernel(base + whole_ns(each["ts"]), whole_ns(each["dur"]), name)
        for each in kernels
        if (name := each["args"].get("Collective name"))
    )
    return sorted(found)


def whole_ns(microseconds: float) -> int:
    return int(Decimal(repr(microseconds)) * 1000)


class Kernel(NamedTuple):
    start: int
    took: int
    name: str
