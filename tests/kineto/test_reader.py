import gzip
import json
from pathlib import Path

import pytest

from profiler_ext.errors import TraceError
from profiler_ext.kineto.raw_events import event_arguments
from profiler_ext.kineto.reader import read_trace
from profiler_ext.records.events import Device, Thread
from tests.kineto.traces import DEVICES, EVENTS, H200, text_of, written


@pytest.fixture
def trace(tmp_path: Path):
    head = b'"schemaVersion": 1,\n"deviceProperties": ' + DEVICES + b',"baseTimeNanoseconds": 17,'
    return read_trace(written(tmp_path, text_of(head=head)))


def test_only_complete_events_are_rows(trace):
    assert trace.events.position.tolist() == [0, 2, 3, 4]


def test_every_event_stays_as_it_stood(trace):
    assert tuple(trace.raw[at] for at in range(len(trace.raw))) == EVENTS


def test_times_are_exact_where_a_double_is_not(trace):
    assert trace.events.start_ns.tolist() == [1_700_000_000_000_000_123, 12_345, 13_000, 1_000]
    assert trace.events.duration_ns.tolist() == [5_000, 85, 1_500, 20_000]


def test_strings_and_threads_are_interned(trace):
    events = trace.events
    assert [events.name[row] for row in range(4)] == [
        "aten::mm",
        "nvjet",
        "Memset",
        "PyTorch Profiler (0)",
    ]
    assert [events.category[row] for row in range(4)] == ["cpu_op", "kernel", "gpu_memset", "Trace"]
    assert [events.threads[code] for code in events.thread] == [
        Thread(1, 2),
        Thread(0, 7),
        Thread(0, 7),
        Thread("Spans", "P"),
    ]


def test_absent_integers_are_masked(trace):
    events = trace.events
    assert {
        "correlation": events.correlation.tolist(),
        "external_id": events.external_id.tolist(),
        "sequence_number": events.sequence_number.tolist(),
        "fwd_thread_id": events.fwd_thread_id.tolist(),
        "device": events.device.tolist(),
        "bytes_moved": events.bytes_moved.tolist(),
    } == {
        "correlation": [None, 11, 12, None],
        "external_id": [7, 7, None, None],
        "sequence_number": [3, None, None, None],
        "fwd_thread_id": [0, None, None, None],
        "device": [None, 0, 0, None],
        "bytes_moved": [None, None, 4096, None],
    }


def test_only_device_events_have_a_stream(trace):
    assert trace.events.stream.tolist() == [None, 7, 7, None]


def test_the_header_is_kept_in_order(trace):
    assert trace.header == (
        ("schemaVersion", b"1"),
        ("deviceProperties", DEVICES),
        ("baseTimeNanoseconds", b"17"),
    )


def test_base_time_and_devices_are_read_from_the_header(trace):
    assert (trace.base_ns, trace.devices) == (
        17,
        (Device(0, "NVIDIA H200", (("numSms", "132"),)),),
    )


def test_a_trace_without_base_time_starts_at_zero(tmp_path):
    trace = read_trace(written(tmp_path, text_of()))
    assert (trace.base_ns, trace.devices) == (0, ())


def test_compression_is_reported_by_content(tmp_path):
    path = tmp_path / "named.json"
    path.write_bytes(gzip.compress(text_of()))
    assert len(read_trace(path).events) == 4


def test_a_trace_without_events_is_empty(tmp_path):
    trace = read_trace(written(tmp_path, text_of(events=())))
    assert (len(trace.events), len(trace.raw)) == (0, 0)


def test_ids_that_fit_no_column_are_masked(tmp_path):
    events = [
        b'{"ph":"X","name":"a","ts":1.0,"dur":1.0,"args":{"External id":18446744073709551615}}',
        b'{"ph":"X","name":"b","ts":1.0,"dur":1.0,"args":{"External id":"N/A"}}',
        b'{"ph":"X","name":"c","ts":1.0,"dur":1.0,"args":{"External id":"-1"}}',
    ]
    trace = read_trace(written(tmp_path, text_of(events)))
    assert trace.events.external_id.tolist() == [None, None, -1]


def test_an_id_of_no_known_type_is_none(tmp_path):
    events = [
        b'{"ph":"X","name":"a","ts":1.0,"dur":1.0,"args":{"External id":[7],"correlation":5}}',
        b'{"ph":"X","name":"b","ts":1.0,"dur":1.0,"args":{"External id":"","correlation":null}}',
    ]
    columns = read_trace(written(tmp_path, text_of(events))).events
    assert columns.external_id.tolist() == [None, None]
    assert columns.correlation.tolist() == [5, None]


def test_a_duration_below_zero_counts_as_none_and_is_counted(tmp_path):
    events = [b'{"ph":"X","name":"a","ts":1.0,"dur":-2.5}', EVENTS[0]]
    trace = read_trace(written(tmp_path, text_of(events)))
    assert (trace.events.duration_ns.tolist(), trace.clamped) == ([0, 5000], 1)
    assert trace.raw[0] == events[0]


def test_half_a_surrogate_pair_is_read_and_kept(tmp_path):
    event = rb'{"ph":"X","name":"a\ud800 \\ud800 \ud83d\ude00","ts":1.000,"dur":2.000}'
    trace = read_trace(written(tmp_path, text_of([event])))
    assert trace.events.name[0] == "a\ufffd \\ud800 \U0001f600"
    assert trace.raw[0] == event


def test_the_last_of_two_lists_of_events_counts(tmp_path):
    text = text_of(head=b'"schemaVersion": 1, "traceEvents": [' + EVENTS[4] + b"],")
    trace = read_trace(written(tmp_path, text))
    assert [trace.raw[at] for at in range(len(trace.raw))] == list(EVENTS)


def test_times_as_torchs_cuspy_writes_them_are_read(tmp_path):
    event = (
        b'{"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":81234567.0625,"dur":3.0,'
        b'"args":{"device":0,"context":1,"stream":7,"correlation":4,"graph node id":12}}'
    )
    columns = read_trace(written(tmp_path, text_of([event]))).events
    assert (columns.start_ns.tolist(), columns.duration_ns.tolist()) == ([81234567062], [3000])
    assert columns.stream.tolist() == [7]


def test_bare_words_that_json_does_not_know_are_read_over_and_kept(tmp_path):
    event = (
        b'{"ph":"X","name":"say \\"a, NaN, b\\"","ts":1.000,"dur":2.000,'
        b'"args":{"correlation":4,"x":[NaN,-Infinity],"bandwidth": inf,"y":N/A}}'
    )
    trace = read_trace(written(tmp_path, text_of([*EVENTS, event])))
    assert trace.raw[5] == event
    assert trace.events.name[4] == 'say "a, NaN, b"'
    assert trace.events.correlation.tolist() == [None, 11, 12, None, 4]
    assert event_arguments(event) == {"correlation": 4, "x": ["", ""], "bandwidth": "", "y": ""}


def test_a_name_that_is_not_utf8_is_read_and_kept(tmp_path):
    event = b'{"ph":"X","name":"caf\xe9","ts":1.000,"dur":2.000}'
    trace = read_trace(written(tmp_path, text_of([event])))
    assert (trace.events.name[0], trace.raw[0]) == ("caf?", event)


def test_a_name_outside_ascii_is_read(tmp_path):
    event = '{"ph":"X","name":"层","ts":1.000,"dur":2.000}'.encode()
    assert read_trace(written(tmp_path, text_of([event]))).events.name[0] == "层"


def test_arguments_of_an_event_without_any_are_empty():
    assert event_arguments(EVENTS[4]) == {}


@pytest.mark.parametrize("name", ["user", "cg"])
def test_a_recording_from_a_gpu_reads_as_json_reads_it(name):
    path = H200 / f"{name}.pt.trace.json.gz"
    expected = json.loads(gzip.decompress(path.read_bytes()))
    trace = read_trace(path)
    events = [json.loads(trace.raw[at]) for at in range(len(trace.raw))]
    assert events == expected.pop("traceEvents")
    assert {key: json.loads(value) for key, value in trace.header} == expected
    rows = [(at, event) for at, event in enumerate(events) if event["ph"] == "X"]
    columns = trace.events
    assert [
        (at, event["name"], event["cat"], event["pid"], event["tid"]) for at, event in rows
    ] == [
        (at, columns.name[row], columns.category[row], thread.pid, thread.tid)
        for row, at in enumerate(columns.position.tolist())
        for thread in [columns.threads[columns.thread[row]]]
    ]
    # These traces have a base time, so a double still holds their nanoseconds.
    assert columns.start_ns.tolist() == [round(event["ts"] * 1000) for _, event in rows]
    assert columns.duration_ns.tolist() == [round(event["dur"] * 1000) for _, event in rows]
    assert columns.correlation.tolist() == [
        event.get("args", {}).get("correlation") for _, event in rows
    ]


BAD = {
    "empty": (b"", "is empty"),
    "blank": (b" \n", "is empty"),
    "protobuf": (b"\n\x17\x08\x01", "Perfetto protobuf"),
    "text": (b"hello", "is not JSON"),
    "cut short": (text_of()[:-40], "is not valid JSON"),
    "list": (b"[" + EVENTS[2] + b"]", "no Kineto trace: it is a list"),
    "no events": (b'{"a": 1}', 'no "traceEvents"'),
    "events no list": (b'{"traceEvents": {}}', "Expected `array`"),
    "event no object": (b'{"traceEvents": [1]}', "no Kineto trace"),
    "no ts": (b'{"traceEvents": [{"ph":"X","name":"a","dur":1.0}]}', "event 0 has no ts"),
    "no dur": (b'{"traceEvents": [{"ph":"X","name":"a","ts":1.0}]}', "event 0 has no dur"),
    "ts a string": (b'{"traceEvents": [{"ph":"X","ts":"1","dur":1.0}]}', 'event 0 has ts "1", not'),
    "args a list": (b'{"traceEvents": [{"ph":"X","ts":1,"dur":1,"args":[]}]}', "$.args"),
    "base time": (b'{"baseTimeNanoseconds": "x", "traceEvents": []}', "Expected `int`"),
    "device": (b'{"deviceProperties": [{"name": "x"}], "traceEvents": []}', "field `id`"),
    "gzip cut short": (gzip.compress(text_of())[:-30], "is cut short"),
    "gzip garbage": (b"\x1f\x8b\x08\x00" + b"\xff" * 40, "damaged gzip"),
}


@pytest.mark.parametrize(("content", "found"), BAD.values(), ids=BAD.keys())
def test_bad_content_is_one_clear_error(tmp_path, content, found):
    path = tmp_path / "bad.json"
    path.write_bytes(content)
    with pytest.raises(TraceError) as raised:
        read_trace(path)
    assert str(path) in str(raised.value)
    assert found in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_missing_file_is_one_clear_error(tmp_path):
    with pytest.raises(TraceError, match="No such file or directory; check the path"):
        read_trace(tmp_path / "absent.json")


def test_a_folder_is_one_clear_error(tmp_path):
    with pytest.raises(TraceError, match="is a folder"):
        read_trace(tmp_path)
