import gzip
import json
import re
from dataclasses import fields, replace
from pathlib import Path

import msgspec
import numpy as np
import pytest

from profiler_ext.errors import TraceError
from profiler_ext.kineto.raw_events import original, with_arguments
from profiler_ext.kineto.reader import read_trace
from profiler_ext.kineto.recording import read_recording, with_valid_utf8, write_recording
from profiler_ext.records.evidence import LineEvidence
from profiler_ext.records.gaps import GapReason
from profiler_ext.records.provenance import Gap
from profiler_ext.records.recording import (
    Function,
    Position,
    PythonLines,
    Recording,
    Settings,
    thread_positions,
)
from profiler_ext.records.stored import flat
from profiler_ext.version import VERSION
from tests.analyses import gpu_step
from tests.attribution.graphs import graph, node
from tests.fx_nodes import changed
from tests.kineto.traces import EVENTS, H200, text_of, written

ADDED = {"compile.phase": "forward", "compile.lines": ['m.py:1  f("}") '], "stack": ["File"]}
OURS = gpu_step().recording
SETTINGS = Settings(("/home/ann",), (), ("train.py", "--lr=1"), "2.11.0", 1, 2, "prof.step")


def events_of(path: Path) -> list[dict]:
    content = path.read_bytes()
    text = gzip.decompress(content) if path.suffix == ".gz" else content
    return json.loads(text)["traceEvents"]


def plain(column) -> list:
    if isinstance(column, np.ndarray):
        return column.tolist()
    return (
        list(column) if isinstance(column, tuple) else [column[row] for row in range(len(column))]
    )


def same(one: Recording, other: Recording) -> None:
    assert (one.graphs, one.settings, one.gaps) == (other.graphs, other.settings, other.gaps)
    for name in ("header", "base_ns", "devices"):
        assert getattr(one.trace, name) == getattr(other.trace, name)
    raw, back = one.trace.raw, other.trace.raw
    assert [raw[at] for at in range(len(raw))] == [back[at] for at in range(len(back))]
    for column in fields(one.trace.events):
        values = [plain(getattr(r.trace.events, column.name)) for r in (one, other)]
        assert values[0] == values[1], column.name


@pytest.mark.parametrize("name", ["user", "cg"])
@pytest.mark.parametrize("suffix", [".json", ".json.gz"])
def test_what_is_written_is_read_back(tmp_path, name, suffix):
    trace = read_trace(H200 / f"{name}.pt.trace.json.gz")
    recording = Recording(trace, OURS.graphs, SETTINGS, (Gap("capture_failed", "why"),))
    path = tmp_path / f"session.pt.trace{suffix}"
    write_recording(path, recording, dict.fromkeys(range(len(trace.raw)), ADDED))
    same(read_recording(path), recording)


def test_a_thread_that_ran_many_lines_is_read_back(tmp_path):
    times, positions = list(range(10**15, 10**15 + 100_000)), [0, -1] * 50_000
    functions, places = (Function("/m/a.py", "f"),), (Position(None, 0, 1),)
    threads = (thread_positions(7, times, positions),)
    python = PythonLines(functions, (), places, threads, (), times[-1])
    path = tmp_path / "lines.json.gz"
    write_recording(path, replace(gpu_step().recording, python=python))

    read = read_recording(path).python
    assert read == python
    assert read.threads[0].times_ns.tolist() == times
    assert read.threads[0].indices.tolist() == positions


def test_every_event_and_argument_stands_in_the_file(tmp_path):
    source = H200 / "user.pt.trace.json.gz"
    path = tmp_path / "session.pt.trace.json.gz"
    trace = read_trace(source)
    row = int(trace.events.position[trace.events.category.where("kernel")][0])
    write_recording(path, Recording(trace), {row: ADDED})
    expected = events_of(source)
    expected[row]["args"] |= {"compile.added": "keys", **ADDED}
    assert events_of(path) == expected


def test_the_same_recording_gives_the_same_bytes(tmp_path):
    recording = Recording(read_trace(H200 / "user.pt.trace.json.gz"), OURS.graphs)
    paths = [tmp_path / "a.json.gz", tmp_path / "b.json.gz"]
    for path in paths:
        write_recording(path, recording)
    assert paths[0].read_bytes() == paths[1].read_bytes()


def test_a_written_trace_without_events_is_read_back(tmp_path):
    empty = Recording(read_trace(written(tmp_path, text_of(events=()))))
    write_recording(tmp_path / "out.json", empty)
    same(read_recording(tmp_path / "out.json"), empty)


def test_a_plain_trace_is_a_recording_without_graphs(tmp_path):
    recording = read_recording(written(tmp_path, text_of()))
    assert (recording.graphs, recording.settings, recording.gaps) == ((), Settings(), ())


def test_a_file_that_another_program_rewrote_still_reads(tmp_path):
    trace = read_trace(H200 / "user.pt.trace.json.gz")
    path, rewritten = tmp_path / "a.json", tmp_path / "b.json"
    write_recording(path, Recording(trace), dict.fromkeys(range(len(trace.raw)), ADDED))
    rewritten.write_text(json.dumps(json.loads(path.read_bytes()), indent=1))
    raw = read_recording(rewritten).trace.raw
    assert [json.loads(raw[at]) for at in range(len(raw))] == [
        json.loads(trace.raw[at]) for at in range(len(trace.raw))
    ]


@pytest.mark.parametrize(
    "raw",
    [
        *EVENTS,
        b'{"name": "a", "args": {}}',
        b'{"name": "a", "args": { }, "ph": "X"}',
        b'{"args": {"x": {"y": "}"}}, "name": "\\"args\\": {}"}',
        b'{"name": "args", "args": {"b": NaN}}',
        b'{"name": "a", "args": {"b": 1, "c": "\\"", "b": 2 } }',
        b'{"name": "a" , "args" : { "b": [",", {}] , "c": {"compile.added": "keys"}}}',
        b'{"name": "\xff", "args": {"compile.adde": "keys"}}',
    ],
)
def test_an_event_comes_back_byte_for_byte(raw):
    assert original(with_arguments(raw, ADDED)) == raw


def test_arguments_are_added_where_there_were_none():
    assert json.loads(with_arguments(b'{"name": "a"}', {"compile.phase": "forward"})) == {
        "name": "a",
        "args": {"compile.added": "args", "compile.phase": "forward"},
    }


def test_an_argument_of_the_profilers_own_is_left_alone():
    raw = b'{"name": "a", "args": {"stack": "torch\'s"}}'
    assert json.loads(with_arguments(raw, ADDED))["args"]["stack"] == "torch's"


def extended(tmp_path: Path, extension: bytes) -> Path:
    return written(tmp_path, text_of(head=b'"profilerExt": ' + extension + b","))


def test_an_older_schema_has_the_evidence_of_its_nodes_in_their_graph(tmp_path):
    nodes = [node("mm", 1), node("add", 2), node("view", 3)]
    now = replace(graph(nodes, []), nodes=tuple(nodes))
    before = flat(now) | {"line_evidence": ["compiled_here", "no_stack"]}
    whole = {"schema": 1, "settings": {}, "graphs": [before], "gaps": []}
    [read] = read_recording(extended(tmp_path, msgspec.json.encode(whole))).graphs
    evidence = (LineEvidence.COMPILED, LineEvidence.ABSENT, None)
    assert read.nodes == tuple(
        changed(n, evidence=each) for n, each in zip(nodes, evidence, strict=True)
    )
    assert read.provenance == now.provenance


def _stored(plain, path: list[str]) -> list:
    """Return what a file has under a path of keys, without what is unknown or empty."""
    if isinstance(plain, list) and path:
        return [value for each in plain for value in _stored(each, path)]
    if path:
        return _stored(plain[path[0]], path[1:]) if plain and path[0] in plain else []
    return [] if plain in (None, []) or plain is False else [plain]


@pytest.mark.parametrize(
    ("name", "before", "now"),
    [
        ("worked/infer_graphs", "settings.asked", "options"),
        ("worked/infer_graphs", "settings.steps_before_ns", "unprofiled_steps_ns"),
        ("cases/cudagraphs_in_parts", "graphs.copied_otherwise", "other_copied_inputs"),
        ("cases/regional", "graphs.cut_from", "parent_graph"),
        ("cases/graph_break", "graphs.provenance.entered", "entry_calls"),
        ("cases/eager_functions", "python.until_ns", "end_ns"),
        ("cases/eager_functions", "python.functions.recomputes", "is_recompute"),
        ("compiles/graph_break", "python.functions.resumes", "is_resume"),
        ("compiles/recompilations", "compiles.recompiles.of", "compile_id"),
    ],
)
def test_a_key_of_schema_2_is_read_under_its_other_name(tmp_path, name, before, now):
    earlier = H200 / f"{name}.session.pt.trace.json.gz"
    path, again = before.split("."), tmp_path / "r.json"
    write_recording(again, read_recording(earlier))
    with gzip.open(earlier) as file:
        values = _stored(json.load(file)["profilerExt"], path)
    ours = json.loads(again.read_bytes())["profilerExt"]
    assert values and _stored(ours, [*path[:-1], now]) == values
    assert (ours["schema"], _stored(ours, path)) == (3, [])


def test_a_newer_schema_is_refused(tmp_path):
    with pytest.raises(TraceError, match=r"newer profiler-ext \(schema 99; this one reads up to 3"):
        read_recording(extended(tmp_path, b'{"schema": 99, "unknown": true}'))


def _session_of(tmp_path: Path, version: str | None, **changed: object) -> Path:
    """Write a session as another version would, with fields of its graph changed."""
    write_recording(tmp_path / "r.json", OURS)
    whole = json.loads((tmp_path / "r.json").read_bytes())
    ours = whole["profilerExt"]
    assert ours.pop("written_by") == VERSION
    ours["graphs"][0] |= changed
    ours |= {} if version is None else {"written_by": version}
    (tmp_path / "r.json").write_text(json.dumps(whole))
    return tmp_path / "r.json"


def test_a_session_of_a_newer_version_is_read_where_all_of_it_is_known(tmp_path):
    back = read_recording(_session_of(tmp_path, "7.0"))
    assert (back.settings, back.graphs, back.gaps) == (OURS.settings, OURS.graphs, OURS.gaps)


@pytest.mark.parametrize("changed", [{"cache_state": "dreamt"}, {"index": "first"}])
def test_a_session_that_a_newer_version_wrote_is_reported_with_its_version(tmp_path, changed):
    with pytest.raises(TraceError) as raised:
        read_recording(_session_of(tmp_path, "0.4.0", **changed))
    message = rf"was written by a newer profiler-ext \(0\.4\.0; this one is {VERSION}: .*\$.graphs"
    assert re.search(message, str(raised.value))
    assert str(raised.value).endswith("); update profiler-ext to read it")


@pytest.mark.parametrize("version", [None, VERSION, "0.0.9"])
def test_a_word_of_a_session_that_is_not_known_is_reported(tmp_path, version):
    with pytest.raises(TraceError) as raised:
        read_recording(_session_of(tmp_path, version, cache_state="dreamt"))
    message = (
        f"has a word that this profiler-ext ({VERSION}) does not know (Invalid enum value 'dreamt'"
    )
    assert message in str(raised.value)
    assert str(raised.value).endswith("as a newer one may write; update profiler-ext to read it")


@pytest.mark.parametrize(
    ("extension", "found"),
    [
        (b"7", "profilerExt: Expected `object`"),
        (b"{}", "missing required field `schema`"),
        (b'{"schema": 1, "settings": {}, "gaps": []}', "missing required field `graphs`"),
        (b'{"schema": 1, "settings": {"rank": "0"}, "graphs": [], "gaps": []}', "$.settings.rank"),
        (b'{"schema": 1, "settings": {}, "graphs": [{"index": 0}], "gaps": []}', "$.graphs[0]"),
    ],
)
def test_damaged_data_of_ours_names_the_field(tmp_path, extension, found):
    with pytest.raises(TraceError) as raised:
        read_recording(extended(tmp_path, extension))
    assert found in str(raised.value)


def test_a_path_that_is_not_utf_8_is_kept_with_its_bytes_escaped(tmp_path):
    settings = Settings(("/home/\udcff",), (), ("a\udcfe.py", "\ud800", "\u00e4"))
    gaps = (Gap(GapReason.RECORD_UNREADABLE, "of\udcff"),)
    graph = replace(OURS.graphs[0], output_module="/cache\udcff/x.py")
    made = with_valid_utf8(replace(OURS, graphs=(graph,), settings=settings, gaps=gaps))
    write_recording(tmp_path / "r.json", made)
    back = read_recording(tmp_path / "r.json")
    expected = Settings(("/home/\\udcff",), (), ("a\\udcfe.py", "\\ud800", "\u00e4"))
    assert (back.settings, back.gaps) == (expected, (replace(gaps[0], detail="of\\udcff"),))
    assert back.graphs == (replace(graph, output_module="/cache\\udcff/x.py"),)


def test_a_recording_that_is_utf_8_stays_as_it_is():
    assert with_valid_utf8(OURS) is OURS
