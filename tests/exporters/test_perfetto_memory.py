"""The trace processor reads memory as counters, and the peak of each step as a mark."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from profiler_ext.exporters.perfetto import export_perfetto
from profiler_ext.memory.over_time import memory_of_steps
from tests.analyses import gpu_step
from tests.memory.test_recorded_peaks import PEAKS, recorded
from tests.trace_processor import Reader, reading

NAME = "gpt_compiled"
_COUNTERS = "from counter c join counter_track t on c.track_id = t.id where t.name glob 'GPU 0 *'"
_MARKS = (
    "select s.ts, s.dur, s.name, s.arg_set_id from slice s join track t on s.track_id = t.id "
    "join track g on t.parent_id = g.id where g.name = 'GPU 0 memory' order by s.ts"
)


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    path = tmp_path_factory.mktemp("memory") / "trace.pftrace"
    with reading(export_perfetto(recorded(NAME).analysis, path)) as opened:
        yield opened


def test_nothing_is_lost_on_import(reader: Reader) -> None:
    assert reader.import_errors() == []


def test_each_kind_is_a_counter_in_bytes(reader: Reader) -> None:
    found = reader.rows(f"select distinct t.name, t.unit {_COUNTERS} order by t.name")
    steps = memory_of_steps(recorded(NAME).analysis)
    kinds = {kind.label for each in steps if each.peak.device == 0 for kind in each.kinds}
    assert {name for name, _ in found} == {f"GPU 0 {kind}" for kind in ("allocated", *kinds)}
    assert {unit for _, unit in found} == {"bytes"}


def test_the_mark_is_where_the_counter_is_highest(reader: Reader) -> None:
    marks = reader.rows(_MARKS)
    assert [(dur, name) for _, dur, name, _ in marks] == [(0, "peak 404 MiB")] * 3
    assert reader.rows(f"select max(c.value) {_COUNTERS} and t.name = 'GPU 0 allocated'") == [
        (float(max(PEAKS[NAME])),)
    ]
    for (ts, _, _, arguments), peak in zip(marks, PEAKS[NAME], strict=True):
        at = f"{_COUNTERS} and c.ts = {ts} and t.name"
        assert reader.rows(f"select c.value {at} = 'GPU 0 allocated'") == [(float(peak),)]
        assert reader.rows(f"select sum(c.value) {at} != 'GPU 0 allocated'") == [(float(peak),)]
        said = dict(
            reader.rows(f"select key, display_value from args where arg_set_id = {arguments}")
        )
        assert said["debug.peak_bytes"] == str(peak)
        assert said["debug.phase"] == "backward"
        assert "memory47_program.py:33" in said["debug.source_lines[0]"]
        own = {"debug.peak_bytes"}
        sizes = [int(v) for k, v in said.items() if k.endswith("_bytes") and k not in own]
        assert sum(sizes) == peak


def test_a_session_without_memory_has_no_such_track(tmp_path) -> None:
    with reading(export_perfetto(gpu_step(), tmp_path / "trace.pftrace")) as opened:
        assert opened.rows("select name from track where name like '%memory%'") == []
