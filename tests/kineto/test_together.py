"""What several processes read of a file is what one reads of it, and what they tell is the same."""

import dataclasses
import gzip
import json
import os
import subprocess
import sys

import numpy as np
import pytest

from profiler_ext.errors import TraceError
from profiler_ext.kineto import blocks, parallel_reading, source
from profiler_ext.kineto.reader import read_document, trace_of
from profiler_ext.kineto.source import read_text
from tests.kineto.traces import EVENTS, text_of, written
from tests.patience import patience_s


def _event(number):
    """An event whose name, thread and ids are seen first in its part of the file."""
    event = {
        "ph": "X" if number % 3 else "i",
        "cat": "kernel" if number % 2 else f"kind {number // 40}",
        "name": f'op {number // 7} {{[ \\ " }}',
        "pid": number % 2,
        "tid": f"stream {number // 30}",
        "ts": 4_500_000_000_000 + number / 8,
        "dur": number - 1,
        "args": {"correlation": str(number) if number % 5 else 2**64 - 1, "stream": number % 4},
    }
    event["args"] |= {"grid": [number // 50, 1, 1], "External id": number} if number % 4 else {}
    return json.dumps(event).encode()


MANY = (*EVENTS, *map(_event, range(200)))


@pytest.fixture(autouse=True)
def everything_is_long(monkeypatch):
    monkeypatch.setattr(source, "IN_MEMORY_BYTES", 100)
    monkeypatch.setattr(parallel_reading, "MIN_BYTES", 1_000)
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 2_000)


def _columns(trace):
    """All that the columns have, each with its type."""
    for field in dataclasses.fields(trace.events):
        column = getattr(trace.events, field.name)
        codes = getattr(column, "codes", column)
        yield field.name, getattr(column, "strings", None)
        if isinstance(codes, np.ndarray):
            yield codes.dtype, np.ma.getdata(codes).tolist(), np.ma.getmaskarray(codes).tolist()
        else:
            yield codes


def _read(path, jobs):
    trace = trace_of(path, read_document(path, jobs))
    return [*_columns(trace)], [*trace.raw], trace.header, trace.clamped


def _refusal(path, jobs):
    with pytest.raises(TraceError) as reported:
        _read(path, jobs)
    return str(reported.value)


@pytest.mark.parametrize("jobs", [2, 3])
def test_several_processes_read_what_one_reads(tmp_path, jobs, monkeypatch):
    path = written(tmp_path, text_of(MANY))
    alone = _read(path, 1)
    monkeypatch.setattr(
        parallel_reading.blocks, "document_of", _once(parallel_reading.blocks.document_of)
    )
    assert _read(path, jobs) == alone
    assert parallel_reading.blocks.document_of.calls == 1


def test_a_packed_file_is_read_by_several_too(tmp_path):
    path = tmp_path / "packed.pt.trace.json.gz"
    path.write_bytes(gzip.compress(text_of(MANY)))
    assert _read(path, 2) == _read(path, 1)


class _once:
    """Counts the calls of a function that return."""

    def __init__(self, function):
        self.function, self.calls = function, 0

    def __call__(self, *arguments):
        result = self.function(*arguments)
        self.calls += 1
        return result


_BAD = {
    "cut short": text_of(MANY)[:-9_000],
    "an event of the first portion": text_of((b'{"ph": "X", "name": 7}', *MANY)),
    "an event of the last portion": text_of((*MANY, b'{"ph": "X", "ts": "x"}', *MANY[:20])),
    "no object": text_of((*MANY, b"7", *MANY)),
}


@pytest.mark.parametrize("text", _BAD.values(), ids=_BAD)
def test_what_is_wrong_is_reported_as_one_process_tells_it(tmp_path, text):
    path = written(tmp_path, text)
    assert _refusal(path, 2) == _refusal(path, 1)


def test_a_limit_holds_for_all_portions_together(tmp_path, monkeypatch):
    monkeypatch.setenv("PROFILER_EXT_MAX_EVENTS", str(len(MANY) - 1))
    path = written(tmp_path, text_of(MANY))
    assert "too many events" in _refusal(path, 1)
    assert _refusal(path, 2) == _refusal(path, 1)


def test_a_portion_that_begins_within_a_text_is_read_by_one(tmp_path):
    text = '"}, {' * 1_000
    event = json.dumps({"ph": "X", "name": "x", "ts": 1, "dur": 1, "args": {"text": text}})
    path = written(tmp_path, text_of((*MANY[:20], event.replace('\\"', "").encode(), *MANY[:20])))
    assert _read(path, 2) == _read(path, 1)


def test_of_few_events_behind_long_keys_there_is_no_portion():
    text = text_of(EVENTS, b'"more": [' + b", ".join(EVENTS * 30) + b"],")
    begin = text.rindex(b'"traceEvents": [') + len(b'"traceEvents": [')
    assert parallel_reading.portions(text, begin, 3) == ([], begin)


def test_what_others_print_when_python_starts_is_not_taken_for_events(tmp_path, monkeypatch):
    path, alone = written(tmp_path, text_of(MANY)), tmp_path / "site"
    alone.mkdir()
    (alone / "sitecustomize.py").write_text("print('how do you do')\n")
    monkeypatch.syspath_prepend(alone)
    read_by_one = _read(path, 1)
    monkeypatch.setattr(
        parallel_reading.blocks, "document_of", _once(parallel_reading.blocks.document_of)
    )
    assert _read(path, 2) == read_by_one
    assert parallel_reading.blocks.document_of.calls == 1


def test_a_process_that_ends_before_its_time_costs_nothing_but_time(tmp_path, monkeypatch):
    path = written(tmp_path, text_of(MANY))
    monkeypatch.setattr(parallel_reading, "_MODULE", "profiler_ext.there_is_none")
    assert _read(path, 2) == _read(path, 1)


def test_a_short_file_is_read_by_one(tmp_path, monkeypatch):
    text = read_text(written(tmp_path, text_of(MANY)))
    monkeypatch.setattr(parallel_reading, "MIN_BYTES", len(text) // 2)
    assert [parallel_reading.reader_processes(text, jobs) for jobs in (1, 2, 9)] == [1, 2, 2]
    monkeypatch.setattr(parallel_reading, "MIN_BYTES", len(text) + 1)
    assert parallel_reading.reader_processes(text, 9) == 0


_READS_FOR_LONG = """
import time
from profiler_ext.kineto import parallel_reading
parallel_reading.add_portion = lambda *_: time.sleep(6_000)
parallel_reading.main()
"""


def test_the_process_of_a_portion_ends_when_who_asked_for_it_has_gone(tmp_path):
    reads, writes = os.pipe()
    with written(tmp_path, text_of(MANY)).open("rb") as file:
        given = file.fileno(), writes
        process = subprocess.Popen(
            [sys.executable, "-c", _READS_FOR_LONG, *map(str, (*given, 0, 9))],
            pass_fds=given,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        )
    os.close(writes)
    os.close(reads)
    assert process.wait(patience_s(60)) == 1
