from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

from profiler_ext.exporters.perfetto import export_perfetto, export_ranks, queries
from profiler_ext.exporters.perfetto.host import HostArguments, Names
from profiler_ext.records.analysis import Analysis, Place
from profiler_ext.records.events import Thread, Trace
from tests import analyses
from tests.gpu_events import FORWARD_KEY
from tests.handmade import Mark, Piece, RawList, idle, trace
from tests.trace_processor import reading

HOST = Thread(77, 77)


def _with_metadata(*named: tuple[str, int, int, str]) -> Trace:
    plain = trace([Mark("op", "cpu_op", HOST, 0, 10)])
    events: list[dict[str, Any]] = [
        {"ph": "M", "name": kind, "pid": pid, "tid": tid, "ts": 0, "args": {"name": name}}
        for kind, pid, tid, name in named
    ]
    flow = {"ph": "s", "name": "ac2g", "pid": 77, "tid": 77, "ts": 0, "id": 1}
    more = [json.dumps(event).encode() for event in (*events, flow)]
    return dataclasses.replace(plain, raw=RawList([*plain.raw, *more]))


def test_process_and_threads_are_called_what_the_trace_calls_them() -> None:
    names = Names(
        _with_metadata(
            ("process_name", 77, 0, "python3"),
            ("thread_name", 77, 77, "thread 77 (python3)"),
            ("thread_name", 77, 80, "thread 80 (python3)"),
            ("thread_name", 77, 80, "thread 80 (pt_autograd_0)"),
            ("thread_name", 77, 81, "loader"),
        )
    )
    assert names.process(77) == "python3"
    found = [names.thread(Thread(77, tid)) for tid in (77, 80, 81)]
    assert found == ["python3", "pt_autograd_0", "loader"]


def test_without_names_only_the_first_thread_is_known_to_be_main() -> None:
    names = Names(_with_metadata())
    found = [names.process(77), names.thread(HOST), names.thread(Thread(77, 80))]
    assert found == ["python", "main", "thread"]


def _arguments(args: dict[str, Any]) -> dict[str, Any]:
    return HostArguments(trace([Mark("op", "cpu_op", HOST, 0, 10, args)])).of(0)


def test_shapes_and_types_are_short_texts() -> None:
    args = {"Input Dims": [[4, 8], []], "Input type": ["float", ""], "Ev Idx": 3, "External id": 4}
    assert _arguments(args) == {"input_dims": "[[4,8],[]]", "input_type": '["float",""]'}


def test_empty_arguments_and_those_we_added_ourselves_are_left_out() -> None:
    args = {"Input Dims": [[], []], "Call stack": "", "compile.phase": "forward", "stack": ["x"]}
    assert _arguments(args) == {}


def test_long_text_is_cut() -> None:
    cut = _arguments({"Concrete Inputs": "x" * 5_000})["concrete_inputs"]
    assert cut == "x" * 299 + "…"


def test_argument_of_an_event_that_is_no_strict_json_is_read() -> None:
    bare = b'{"ph": "X", "name": "op", "pid": 77, "tid": 77, "ts": 0, "dur": 1, "args": {"a": NaN, "b": 2}}'  # noqa: E501
    plain = trace([Mark("op", "cpu_op", HOST, 0, 10)])
    assert HostArguments(dataclasses.replace(plain, raw=RawList([bare]))).of(0) == {"b": 2}


def test_an_idle_slice_is_called_by_its_cause_and_the_line_of_that(
    tmp_path: Path,
) -> None:
    marker = f"## Call CompiledFxGraph {FORWARD_KEY} ##"
    at = Place(file="/home/ann/gpt/train.py", line=87, code="print(loss.item())")
    of_cause = Piece(3, 1, 10, 5, "after_synchronisation", "aten::mm", cause_place=at)
    pieces = idle([Piece(3, 0, 0, 5, "launching", marker), of_cause])
    step = dataclasses.replace(analyses.gpu_step(), idle=pieces)
    export_perfetto(step, tmp_path / "trace.pftrace")
    with reading(tmp_path / "trace.pftrace") as reader:
        drawn = reader.rows("""
            select name, extract_arg(arg_set_id, 'debug.cause') as cause,
                extract_arg(arg_set_id, 'debug.cpu_activity') as did,
                extract_arg(arg_set_id, 'debug.source_lines[0]') as line
            from slice where category = 'idle' order by ts
        """)
    after = "idle: after a synchronization at train.py:87"
    assert drawn == [
        ("idle: CPU launch overhead", "launching", marker, None),
        (after, "after_synchronisation", "aten::mm", "train.py:87  print(loss.item())"),
    ]


def _of_rank(rank: int) -> Analysis:
    analysis = analyses.gpu_step()
    settings = dataclasses.replace(analysis.recording.settings, rank=rank, world_size=2)
    recording = dataclasses.replace(analysis.recording, settings=settings)
    return dataclasses.replace(analysis, recording=recording)


def test_ranks_are_groups_of_one_trace_and_keep_their_times(tmp_path: Path) -> None:
    path = tmp_path / "trace.pftrace"
    export_ranks([_of_rank(0), _of_rank(1)], path)
    with reading(path) as reader:
        reader.rows(queries())
        groups = reader.rows("select name from track where name like 'rank % GPU%' order by 1")
        times = reader.rows(
            "select rank, sum(duration_ns) as total from launch_share group by 1 order by 1"
        )
        flows = reader.rows("select count() as n from flow")
        per_step = reader.rows("select sum(per_step_ns) as total from time_by_phase")
        errors = reader.import_errors()
    assert errors == []
    assert groups == [("rank 0: GPU 0 - NVIDIA H200",), ("rank 1: GPU 0 - NVIDIA H200",)]
    assert times == [(0, 234_501), (1, 234_501)]
    assert flows == [(18,)]
    assert per_step == [(2 * 234_501.0,)]


def test_ranks_whose_clocks_begin_at_other_moments_are_drawn_on_one(tmp_path: Path) -> None:
    first, second = _of_rank(0), _of_rank(1)
    trace = dataclasses.replace(second.recording.trace, base_ns=first.recording.trace.base_ns - 700)
    recording = dataclasses.replace(second.recording, trace=trace)
    second = dataclasses.replace(second, recording=recording)
    path = tmp_path / "trace.pftrace"
    export_ranks([first, second], path)
    with reading(path) as reader:
        reader.rows(queries())
        starts = reader.rows("select rank, min(start_ns) as t from launch group by 1 order by 1")
        errors = reader.import_errors()
    assert errors == []
    assert [rank for rank, _ in starts] == [0, 1]
    assert starts[0][1] - starts[1][1] == 700


def test_files_of_single_ranks_can_be_joined(tmp_path: Path) -> None:
    parts = [tmp_path / "0.pftrace", tmp_path / "1.pftrace"]
    for rank, part in enumerate(parts):
        export_perfetto(_of_rank(rank), part)
    export_ranks([_of_rank(0), _of_rank(1)], tmp_path / "both.pftrace")
    joined = b"".join(part.read_bytes() for part in parts)
    assert joined == (tmp_path / "both.pftrace").read_bytes()
