"""What is read has limits, and each is raised by the variable that its error names."""

import gzip

import pytest

from profiler_ext.errors import TraceError, UsageError
from profiler_ext.kineto import reader
from profiler_ext.kineto.reader import read_trace
from tests.kineto.traces import EVENTS, text_of, written

NAMED = b'{"ph":"X","name":"%s","ts":1.0,"dur":1.0}' % (b"n" * 70_000)
NESTED = b'{"ph":"X","name":"a","ts":1.0,"dur":1.0,"args":{"a":' + b"[" * 200 + b"]" * 200 + b"}}"
NUMBERED = b'{"ph":"X","name":"a","ts":1.0,"dur":1.0,"args":{"a":' + b"7" * 500 + b"}}"


@pytest.mark.parametrize(
    ("event", "variable"),
    [
        (NAMED, "PROFILER_EXT_MAX_NAME_BYTES"),
        (NESTED, "PROFILER_EXT_MAX_DEPTH"),
        (NUMBERED, "PROFILER_EXT_MAX_DIGITS"),
    ],
)
def test_a_limit_is_raised_by_the_variable_in_its_error(tmp_path, monkeypatch, event, variable):
    path = written(tmp_path, text_of([*EVENTS, event]))
    with pytest.raises(TraceError, match=f"is the limit; if you trust it, set {variable} higher"):
        read_trace(path)
    monkeypatch.setenv(variable, "1000000")
    assert len(read_trace(path).events) == 5


def test_what_the_decoder_itself_cannot_nest_is_no_matter_of_the_limit(tmp_path, monkeypatch):
    path = written(tmp_path, text_of([*EVENTS, NESTED.replace(b"[", b"[" * 50)]))
    monkeypatch.setenv("PROFILER_EXT_MAX_DEPTH", "1000000")
    with pytest.raises(TraceError, match="too deep for the decoder of JSON, whatever limit is set"):
        read_trace(path)


def test_a_file_unpacks_to_a_hundred_times_its_size_at_most(tmp_path, monkeypatch):
    text = text_of(head=b'"schemaVersion": 1,' + b" " * (80 << 20))
    path = tmp_path / "blank.json.gz"
    path.write_bytes(gzip.compress(text))
    with pytest.raises(TraceError, match="unpacks to too many bytes"):
        read_trace(path)
    monkeypatch.setenv("PROFILER_EXT_MAX_BYTES", str(100 << 20))
    assert len(read_trace(path).events) == 4


def test_events_are_counted(tmp_path, monkeypatch):
    monkeypatch.setenv("PROFILER_EXT_MAX_EVENTS", "4")
    with pytest.raises(TraceError, match="holds too many events, and 4 is the limit"):
        read_trace(written(tmp_path, text_of()))
    monkeypatch.setenv("PROFILER_EXT_MAX_EVENTS", "5")
    assert len(read_trace(written(tmp_path, text_of())).raw) == 5


def test_steps_are_counted_on_each_device(tmp_path, monkeypatch):
    steps = [b'{"ph":"X","name":"ProfilerStep#%d","ts":%d.0,"dur":1.0}' % (n, n) for n in range(2)]
    kernels = [
        b'{"ph":"X","name":"k","cat":"kernel","ts":1.0,"dur":1.0,"args":{"device":%d}}' % n
        for n in range(3)
    ]
    path = written(tmp_path, text_of([*steps, *kernels]))
    monkeypatch.setenv("PROFILER_EXT_MAX_STEPS", "5")
    with pytest.raises(TraceError, match="has too many steps on too many devices, and 5 is the"):
        read_trace(path)
    monkeypatch.setenv("PROFILER_EXT_MAX_STEPS", "6")
    assert len(read_trace(path).events) == 5


@pytest.mark.parametrize("asked", ["many", "-1", "1e9", "²", "9" * 30])
def test_a_limit_that_is_no_number_is_reported(tmp_path, monkeypatch, asked):
    monkeypatch.setenv("PROFILER_EXT_MAX_DEPTH", asked)
    with pytest.raises(UsageError, match=r"PROFILER_EXT_MAX_DEPTH is .*, expected a whole number"):
        read_trace(written(tmp_path, text_of()))


def test_a_text_of_brackets_and_digits_is_no_depth_and_no_number(tmp_path):
    args = b'{"a": "' + b"[" * 1000 + b'\\"' + b"7" * 1000 + b'"}'
    event = b'{"ph":"X","name":"a","ts":1.0,"dur":1.0,"args":' + args + b"}"
    assert len(read_trace(written(tmp_path, text_of([event]))).events) == 1


class Asked(bytes):
    """A text that knows how much of it was asked for."""

    def __getitem__(self, part):
        self.most = max(getattr(self, "most", 0), len(range(*part.indices(len(self)))))
        return super().__getitem__(part)


def test_too_many_events_are_refused_before_all_of_them_are_read(tmp_path, monkeypatch):
    text = Asked(text_of(EVENTS * 4_000))
    monkeypatch.setenv("PROFILER_EXT_MAX_EVENTS", "100")
    monkeypatch.setattr(reader.source, "read_text", lambda path: text)
    with pytest.raises(TraceError, match="holds too many events, and 100 is the limit"):
        read_trace(tmp_path / "t.pt.trace.json")
    assert text.most < len(text) / 2
