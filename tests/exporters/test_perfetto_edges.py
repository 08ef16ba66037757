from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from profiler_ext.errors import TraceError
from profiler_ext.exporters.perfetto import export_perfetto
from profiler_ext.records.analysis import Analysis, Place
from profiler_ext.records.events import Device, Thread
from profiler_ext.records.recording import Recording, Settings
from tests import analyses
from tests.handmade import Mark, Row, launches, shares, trace
from tests.trace_processor import Reader, reading

HOST = Thread(77, 77)
STREAM = Thread(0, 7)
ON_STREAMS = "from slice s join track t on t.id = s.track_id where t.name like 'stream %'"


@pytest.fixture
def export_and_read(tmp_path: Path) -> Iterator[Callable[[Analysis], Reader]]:
    with ExitStack() as stack:

        def both(analysis: Analysis) -> Reader:
            path = tmp_path / "trace.pftrace"
            export_perfetto(analysis, path)
            return stack.enter_context(reading(path))

        yield both


def _analysis(marks: list[Mark], rows: list[Row], places: tuple[Place, ...]) -> Analysis:
    recording = Recording(trace=trace(marks, (Device(0, "NVIDIA H200"),)), settings=Settings())
    return Analysis(
        recording=recording,
        steps=(),
        launches=launches(marks, rows),
        places=places,
        shares=shares(rows),
    )


def _kernel(name: str, start: int, duration: int, correlation: int) -> Mark:
    args = {"device": 0, "stream": 7, "correlation": correlation}
    return Mark(name, "kernel", STREAM, start, duration, args)


def test_nasty_names_come_back_as_they_were(
    export_and_read: Callable[[Analysis], Reader],
) -> None:
    names = ["'\"; drop table slice; --", "名前 ядро 🚀", "</script><b>&amp;", "k" * 10_000, ""]
    marks = [_kernel(name, 1_000 * row, 500, row) for row, name in enumerate(names)]
    rows = [Row(row, ((0, 500),), "eager", "other", "op", name) for row, name in enumerate(names)]
    code = 'x = "</script>" + \'é\' + "\\\\"'
    place = Place(aten_op="aten::add", file="/tmp/ü b/m.py", line=1, code=code, module="a'\"b")
    reader = export_and_read(_analysis(marks, rows, (place,)))
    drawn = reader.rows(f"""
        select s.name as name, extract_arg(s.arg_set_id, 'debug.kernel') as kernel,
               extract_arg(s.arg_set_id, 'debug.source_lines[0]') as line,
               extract_arg(s.arg_set_id, 'debug.modules[0]') as module
        {ON_STREAMS} order by ts
    """)
    assert reader.import_errors() == []
    assert drawn == [(name, name or None, f"m.py:1  {code}", "a'\"b") for name in names]


def test_half_a_surrogate_pair_becomes_a_question_mark(
    export_and_read: Callable[[Analysis], Reader],
) -> None:
    rows = [Row(0, ((0, 5),), "eager", "other", "op")]
    place = Place(module="bad \ud83d name")
    reader = export_and_read(_analysis([_kernel("k", 0, 5, 1)], rows, (place,)))
    assert reader.rows("select name from slice where category = 'module'") == [("bad ? name",)]


def test_replayed_cuda_graph_is_a_star_of_arrows(
    export_and_read: Callable[[Analysis], Reader],
) -> None:
    call = Mark("cudaGraphLaunch", "cuda_runtime", HOST, 0, 90, {"correlation": 5})
    marks = [call, *(_kernel(f"k{row}", 100 * row, 50, 5) for row in (1, 2, 3))]
    rows = [Row(row, ((0, 50),), "triton", "forward", "op") for row in (1, 2, 3)]
    reader = export_and_read(_analysis(marks, rows, (Place(),)))
    drawn = reader.rows("""
        select o.name as call, i.name as kernel from flow
        join slice o on o.id = slice_out join slice i on i.id = slice_in order by 2
    """)
    assert reader.import_errors() == []
    assert drawn == [("cudaGraphLaunch", kernel) for kernel in ("k1", "k2", "k3")]


def test_cpu_events_that_cross_each_other_all_keep_their_time(
    export_and_read: Callable[[Analysis], Reader],
) -> None:
    marks = [
        Mark("outer", "cpu_op", HOST, 0, 100),
        Mark("crossing", "user_annotation", HOST, 50, 100),
        Mark("same start", "cpu_op", HOST, 0, 10),
        Mark("instant", "cpu_op", HOST, 100, 0),
        Mark("Buffer Request", "overhead", Thread(-1, 0), 3, 4),
    ]
    reader = export_and_read(_analysis(marks, [], ()))
    drawn = reader.rows("select name, category, ts, dur from slice")
    assert reader.import_errors() == []
    assert sorted(drawn) == sorted(
        (mark.name, mark.category, mark.start_ns, mark.duration_ns) for mark in marks
    )


def test_what_kineto_spans_beyond_the_recording_does_not_lengthen_the_time_axis(
    export_and_read: Callable[[Analysis], Reader],
) -> None:
    marks = [
        Mark("aten::add", "cpu_op", HOST, 100, 100),
        _kernel("k", 210, 50, 5),
        Mark("ProfilerStep#0", "gpu_user_annotation", STREAM, 210, 900),
        Mark("ProfilerStep#1", "gpu_user_annotation", STREAM, 1_200, 100),
        Mark("PyTorch Profiler (0)", "Trace", Thread("Spans", "PyTorch Profiler"), 0, 5_000),
    ]
    rows = [Row(1, ((0, 50),), "eager", "other", "op")]
    reader = export_and_read(_analysis(marks, rows, (Place(aten_op="aten::add"),)))
    assert reader.rows("select start_ts, end_ts from trace_bounds") == [(100, 260)]
    annotations = "select name, ts, dur from slice where category = 'gpu_user_annotation'"
    assert reader.rows(annotations) == [("ProfilerStep#0", 210, 50)]


def test_device_events_that_are_no_launches_stay_off_the_streams(
    export_and_read: Callable[[Analysis], Reader],
) -> None:
    annotation = Mark("ProfilerStep#0", "gpu_user_annotation", STREAM, 0, 900, {"External id": 9})
    marks = [_kernel("k", 10, 50, 5), annotation]
    rows = [Row(0, ((0, 50),), "eager", "other", "op")]
    reader = export_and_read(_analysis(marks, rows, (Place(),)))
    drawn = reader.rows(
        "select t.name as track, s.name as name from slice s join track t on t.id = s.track_id "
        "where s.category in ('eager', 'gpu_user_annotation') order by 1"
    )
    assert drawn == [("gpu user annotation", "ProfilerStep#0"), ("stream 7", "k")]


def test_many_launches_of_one_call_site_each_keep_their_own_numbers(
    export_and_read: Callable[[Analysis], Reader],
) -> None:
    count = 17_000
    marks = [_kernel("k", 10 * row, 7, row) for row in range(count)]
    rows = [Row(row, ((0, 7),), "triton", "forward", "op", "k") for row in range(count)]
    reader = export_and_read(_analysis(marks, rows, (Place(aten_op="aten::add"),)))
    drawn = reader.rows(f"""
        select count(*) as n, sum(dur) as total,
               sum(extract_arg(s.arg_set_id, 'debug.correlation')) as correlations,
               sum(extract_arg(s.arg_set_id, 'debug.shares_ns.aten::add #0')) as shares {ON_STREAMS}
    """)
    assert reader.import_errors() == []
    assert drawn == [(count, 7 * count, sum(range(count)), 7 * count)]


def test_launches_of_one_call_site_in_different_places_are_distinguished(
    export_and_read: Callable[[Analysis], Reader],
) -> None:
    marks = [_kernel("k", 0, 7, 1), _kernel("k", 10, 7, 2)]
    rows = [Row(row, ((row, 7),), "triton", "forward", "op", "k") for row in (0, 1)]
    places = (Place(aten_op="aten::add"), Place(aten_op="aten::mul"))
    reader = export_and_read(_analysis(marks, rows, places))
    op = "extract_arg(s.arg_set_id, 'debug.aten_ops[0]') as op"
    assert reader.rows(f"select {op} {ON_STREAMS} order by ts") == [("aten::add",), ("aten::mul",)]


def test_a_name_is_sent_once_however_many_launches_have_it(tmp_path: Path) -> None:
    marks = [_kernel("a_kernel_name", 10 * row, 7, row) for row in range(5)]
    rows = [Row(row, ((0, 7),), "eager", "other", "op") for row in range(5)]
    export_perfetto(_analysis(marks, rows, (Place(),)), tmp_path / "trace.pftrace")
    assert (tmp_path / "trace.pftrace").read_bytes().count(b"a_kernel_name") == 1


def test_empty_recording_is_a_trace_without_slices(
    export_and_read: Callable[[Analysis], Reader],
) -> None:
    reader = export_and_read(_analysis([], [], ()))
    assert reader.import_errors() == []
    assert reader.rows("select name from slice") == []


def test_rank_stands_in_the_name_of_the_process(
    export_and_read: Callable[[Analysis], Reader],
) -> None:
    analysis = analyses.gpu_step()
    settings = Settings(command=("train.py",), rank=3, world_size=8)
    recording = dataclasses.replace(analysis.recording, settings=settings)
    reader = export_and_read(dataclasses.replace(analysis, recording=recording))
    assert reader.rows("select name from process where pid = 4242") == [
        ("rank 3: python train.py",)
    ]


def test_event_before_time_zero_is_one_clear_sentence(tmp_path: Path) -> None:
    path = tmp_path / "trace.pftrace"
    with pytest.raises(TraceError, match=r"an event at -5 ns, but .* start at zero; record it"):
        export_perfetto(_analysis([Mark("early", "cpu_op", HOST, -5, 9)], [], ()), path)
    assert list(tmp_path.iterdir()) == []


def test_a_number_of_more_than_64_bits_is_a_text(
    export_and_read: Callable[[Analysis], Reader],
) -> None:
    large = {"shared memory": -(10**30)}
    mark = _kernel("k", 0, 5, 1)
    mark = dataclasses.replace(mark, args={**mark.args, **large})
    rows = [Row(0, ((0, 5),), "eager", "other", "op", "k")]
    reader = export_and_read(_analysis([mark], rows, (Place(aten_op="aten::add"),)))
    reported = {
        value
        for (value,) in reader.rows(
            "select string_value from args where string_value like '%00000000000%'"
        )
    }
    assert reported == {str(-(10**30))}
