"""A trace reads the same block by block and at once, or it is left to the careful way."""

import gzip
from dataclasses import fields

import msgspec
import numpy as np
import pytest

from profiler_ext.errors import TraceError
from profiler_ext.kineto import blocks
from profiler_ext.kineto.blocks import FastPathError, read_in_blocks
from profiler_ext.kineto.reader import read_slow_path, read_trace
from profiler_ext.records.events import Interned
from tests.kineto.traces import EVENTS, H200, text_of, written

NAMED = b'{"ph":"X","name":"%s","ts":1.000,"dur":2.000,"args":{"correlation":5}}'
ODD = {
    "a name of JSON": NAMED % rb"[{\"a\": 1}, {\"b\": 2}]",
    "a name of raw braces": NAMED % b"}, {",
    "a list of objects": b'{"ph":"X","name":"a","ts":1,"dur":2,"args":{"x":[{"a":1}, {"b":2}]}}',
    "no object's text": b'{"ph":"X","name":"a","ts":1.0,"dur":2.0,"args":{"x":"},{"}}',
    "a bare word": b'{"ph":"X","name":"a: NaN, b","ts":1.0,"dur":2.0,"args":{"x":[NaN,inf]}}',
    "half a pair": NAMED % rb"a\ud800",
    "an id of a list": b'{"ph":"X","name":"a","ts":1.0,"dur":2.0,"args":{"External id":[7]}}',
    "an id of text": b'{"ph":"X","name":"a","ts":1.0,"dur":2.0,"args":{"External id":"7"}}',
    "an empty event": b"{}",
    "a false comma for a true one": NAMED % b"}, {" + b" " * 40,
    "many blanks": b" " * 100 + NAMED % b"a" + b"\n" * 100,
    "an old time": b'{"ph":"X","name":"a","ts":1700000000000000.123,"dur":2.0625}',
    "a time between nanoseconds": b'{"ph":"X","name":"a","ts":1.000,"dur":0.0005}',
    "a long time": b'{"ph":"X","name":"a","ts":1.000,"dur":4500000000000.125}',
    "a text for a time of no event": b'{"ph":"i","name":"a","ts":1.000,"dur":"no"}',
    "a name of another alphabet": NAMED % "层".encode(),
}


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    for module in (blocks, blocks):
        monkeypatch.setattr(module, "BLOCK_BYTES", 600)


def reported(document):
    """Everything that a document says, as values that can be compared."""
    columns, clamped = document.columns()
    table = {field.name: getattr(columns, field.name) for field in fields(columns)}
    rows = {
        name: (column.codes.tolist(), column.strings)
        if isinstance(column, Interned)
        else (column.tolist(), getattr(column, "dtype", None))
        if isinstance(column, np.ndarray)
        else column
        for name, column in table.items()
    }
    header = [(key, bytes(value)) for key, value in document.header.items()]
    return rows, clamped, header, list(document.raw)


@pytest.mark.parametrize("name", ["user", "cg"])
def test_a_recording_reads_the_same_in_blocks_and_at_once(name):
    text = gzip.decompress((H200 / f"{name}.pt.trace.json.gz").read_bytes())
    assert len(text) > 20 * 600
    assert reported(read_in_blocks(text)) == reported(read_slow_path(text))


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD.keys())
def test_an_odd_event_among_others_reads_the_same_in_blocks_and_at_once(odd):
    text = text_of([*EVENTS, *EVENTS, odd, *EVENTS, *EVENTS, odd])
    assert reported(read_in_blocks(text)) == reported(read_slow_path(text))


def test_keys_behind_the_events_are_in_the_header_too():
    tail = b'], "deviceProperties": [{"id":0,"name":"a"}, {"id":1,"name":"b"}], "traceName": "t"}'
    text = text_of(EVENTS * 8)
    text = text[: text.rindex(b"]")] + tail
    document = read_in_blocks(text)
    assert list(document.header)[-2:] == ["deviceProperties", "traceName"]
    assert reported(document) == reported(read_slow_path(text))


def test_a_list_of_events_within_another_key_is_not_taken_for_the_events():
    text = text_of(head=b'"meta": {"traceEvents": [{}]},')
    with pytest.raises((FastPathError, msgspec.DecodeError)):
        read_in_blocks(text)
    assert len(read_slow_path(text).raw) == len(EVENTS)


@pytest.mark.parametrize("second", [b'"traceEvents"', rb'"trace\u0045vents"'])
def test_of_two_lists_of_events_the_quick_way_takes_none(tmp_path, second):
    text = text_of(EVENTS)
    text = text[: text.rindex(b"]")] + b"], " + second + b": [" + EVENTS[4] + b"]}"
    with pytest.raises((FastPathError, msgspec.DecodeError)):
        read_in_blocks(text)
    assert list(read_trace(written(tmp_path, text)).raw) == [EVENTS[4]]


def test_text_that_is_no_utf8_is_left_to_the_careful_way():
    with pytest.raises(FastPathError, match="no UTF-8"):
        read_in_blocks(text_of([*EVENTS, NAMED % b"caf\xe9"]))


def test_an_error_names_the_event_by_its_place_in_the_file(tmp_path):
    events = [*EVENTS * 6, b'{"ph":"X","name":"a","dur":1.0}']
    with pytest.raises(TraceError, match="event 30 has no ts"):
        read_trace(written(tmp_path, text_of(events)))


def test_a_number_among_the_events_is_refused_by_its_place(tmp_path):
    path = written(tmp_path, text_of([*EVENTS, b"7", *EVENTS]))
    with pytest.raises(TraceError, match='event 5 in "traceEvents" is no object'):
        read_trace(path)


def test_a_comma_too_many_between_blocks_is_no_json(tmp_path):
    text = text_of(EVENTS * 8).replace(b"},\n  {", b"},,\n  {", 1)
    with pytest.raises(TraceError, match="is not valid JSON"):
        read_trace(written(tmp_path, text))
