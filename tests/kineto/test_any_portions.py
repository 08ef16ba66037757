"""Whatever texts a file holds, and however it is damaged: several processes read what one reads."""

import io
import json
import os
import random
from contextlib import contextmanager, suppress

import pytest

from profiler_ext.errors import TraceError
from profiler_ext.kineto import blocks, parallel_reading, source
from profiler_ext.kineto.blocks import Reading
from profiler_ext.kineto.parallel_reading import add_portion, send_portion
from profiler_ext.kineto.reader import read_document, read_slow_path, trace_of
from profiler_ext.kineto.source import FileText
from tests.kineto.test_together import _columns

TEXTS = (
    "}, {",
    "},{",
    "}",
    "{",
    "]",
    '"',
    "\\",
    '}, {"ph":"X","name":"z","ts":1,"dur":1},{',
    '], "traceEvents": [',
    "\n",
    "层",
    "\ud83d",
    ": NaN,",
    "x" * 70,
)
DAMAGE = (b"{", b"}", b'"', b"\\", b"},{", b"]", b"\xff", b" " * 40, b"7,", b'"traceEvents":[')
OTHERS = [b'{"ph":"X","name":"other","ts":1,"dur":1}'] * 40
SEEDS = range(250)


def _text(chosen):
    return "".join(chosen.choices(TEXTS, k=chosen.choice((0, 1, 1, 3, 9))))


def _event(chosen, number):
    event = {
        "ph": chosen.choice("XXXi"),
        "cat": chosen.choice(("kernel", f"kind {number // 9}")),
        "name": chosen.choice((f"op {number // 5}", _text(chosen))),
        "pid": chosen.choice((0, "Spans")),
        "tid": chosen.choice((number // 20, _text(chosen))),
        "ts": chosen.choice((number, number + 0.125, 4_500_000_000_000 + number / 8)),
        "dur": chosen.choice((1, 0, -1, 2.0625)),
        "args": {"correlation": chosen.choice((number, str(number), 2**64 - 1)), "stream": 7},
    }
    event["args"] |= {"odd": chosen.choice((_text(chosen), [{"ph": "X", "name": "in"}] * 3))}
    separators = chosen.choice(((",", ":"), (", ", ": ")))
    return json.dumps(event, separators=separators).encode()


def _file(chosen):
    """A file of hostile texts, every second one with some damage."""
    events = [_event(chosen, number) for number in range(chosen.choice((1, 5, 30, 60)))]
    between = chosen.choice((b",", b",\n  ", b"\t,\r\n" + b" " * 40))
    more = b'"more": [' + b",".join(OTHERS) + b"]"
    head = chosen.choice((b"", more + b","))
    tail = chosen.choice((b"", b"", b"," + more))
    text = b"{" + head + b'"traceEvents": [' + between.join(events) + b"]" + tail + b"}"
    for _ in range(chosen.choice((0, 0, 1, 3))):
        at = chosen.randrange(len(text))
        text = text[:at] + chosen.choice(DAMAGE) + text[at + chosen.choice((0, 0, 1, 90)) :]
    return text


@contextmanager
def _handed_here(text, portion):
    """What a process hands over, without the process; nothing where it ends with an error."""
    out = io.BytesIO()
    with suppress(ValueError, RecursionError, TraceError):
        reading = Reading(portion.end - portion.begin)
        add_portion(reading, FileText(os.dup(text.descriptor), "the file"), portion)
        send_portion(reading, out)
    out.seek(0)
    yield out


def _reported(trace):
    return [*_columns(trace)], [*trace.raw], trace.header, trace.clamped


def _result(path, jobs):
    try:
        return _reported(trace_of(path, read_document(path, jobs)))
    except TraceError as error:
        return str(error)


@pytest.fixture
def small(monkeypatch):
    """Return a function that makes files of so many bytes long ones, cut with these block sizes."""
    monkeypatch.setattr(parallel_reading, "_portion_reader", _handed_here)
    monkeypatch.setattr(parallel_reading, "_cores", lambda: 9)
    monkeypatch.setattr(source, "IN_MEMORY_BYTES", 0)

    def made(length, block_bytes):
        monkeypatch.setattr(parallel_reading, "MIN_BYTES", max(1, length // 9))
        monkeypatch.setattr(blocks, "BLOCK_BYTES", block_bytes)

    return made


def test_any_file_is_to_several_what_it_is_to_one(tmp_path, small):
    differing, read = [], 0
    for seed in SEEDS:
        chosen = random.Random(seed)
        path = tmp_path / "any.json"
        path.write_bytes(text := _file(chosen))
        small(len(text), chosen.choice((100, 300, 600, 2000)))
        alone = _result(path, 1)
        differing += [seed] * (_result(path, 9) != alone)
        if not isinstance(alone, str):
            read += 1
            differing += [seed] * (_reported(trace_of(path, read_slow_path(text))) != alone)
    assert differing == []
    assert 0 < read < len(SEEDS)  # some are refused
