"""Traces as others write them are what the independent reader says, and say what they are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from profiler_ext.attribution import attribute
from profiler_ext.exporters.views.summary import heading
from profiler_ext.findings import find
from profiler_ext.kineto.recording import read_recording
from profiler_ext.records.analysis import Analysis
from tests.attribution.reading import assert_conserves, rows
from tests.gpu_events import GPU_MARKS
from tests.independent import held
from tests.independent.made import MADE
from tests.independent.reader import launches, read_events


def written(tmp_path: Path, trace: dict[str, Any]) -> Path:
    path = tmp_path / "made.pt.trace.json"
    path.write_text(json.dumps(trace))
    return path


@pytest.fixture
def analysed(tmp_path):
    def analyse(name: str) -> Analysis:
        analysis = attribute(read_recording(written(tmp_path, MADE[name]())))
        assert_conserves(analysis)
        return analysis

    return analyse


@pytest.mark.parametrize("name", MADE)
def test_a_made_trace_is_what_intervals_alone_say(name: str, tmp_path: Path) -> None:
    path = written(tmp_path, MADE[name]())
    held.assert_same(attribute(read_recording(path)), launches(read_events(path)))


def test_a_step_made_by_hand_is_what_intervals_alone_say(tmp_path: Path) -> None:
    events = [json.loads(mark.as_json()) for mark in GPU_MARKS]
    path = written(tmp_path, {"schemaVersion": 1, "traceEvents": events})
    held.assert_same(attribute(read_recording(path)), launches(read_events(path)))


@pytest.mark.parametrize(
    ("event", "changes", "differs"),
    [
        (13, {"ts": 211}, "ran"),
        (7, {"args": {"correlation": 12, "device": 0, "stream": 7}}, "launching_ops"),
        (5, {"name": "aten::sub_"}, "time_by_op"),
        (1, {"name": "aten::addmm"}, "eager_ops"),
        (13, {"dur": 50}, "idle"),
    ],
)
def test_what_another_file_says_is_not_the_same(event, changes, differs, tmp_path) -> None:
    trace = MADE["torch_1_9"]()
    analysis = attribute(read_recording(written(tmp_path, trace)))
    trace["traceEvents"][event] |= changes
    ours, theirs = getattr(held, differs)(analysis, launches(read_events(written(tmp_path, trace))))
    assert ours != theirs


def ops(analysis: Analysis) -> list[tuple[str | None, str, str]]:
    places = {int(launch): analysis.places[place] for launch, place in _shares(analysis)}
    recorded = zip(*(getattr(analysis.launches, key) for key in ("phase", "evidence")), strict=True)
    return [(places[at].aten_op, *each) for at, each in enumerate(recorded)]


def _shares(analysis: Analysis) -> Any:
    return zip(analysis.shares.launch, analysis.shares.place, strict=True)


def test_an_id_that_is_a_correlation_names_no_op(analysed) -> None:
    analysis = analysed("external_id_is_correlation")
    assert ops(analysis) == [("aten::mm", "other", "enclosing_op")]
    assert [note for note in analysis.notes if "correlation ids" in note] == [
        "the external ids of this trace are correlation ids and name no op: each launch has the "
        "op around its launching call, on the thread of that call."
    ]


def test_an_id_names_the_op_where_its_call_stands_in_none(analysed) -> None:
    assert ops(analysed("id_of_an_op_on_another_thread")) == [
        ("aten::mm", "other", "launching_op"),
        ("aten::relu", "other", "launching_op"),
    ]


def test_a_trace_of_torch_1_9_is_read_like_todays(analysed) -> None:
    analysis = analysed("torch_1_9")
    assert [(step.number, step.wall_ns) for step in analysis.steps] == [(1, 355_500)]
    assert ops(analysis) == [
        ("aten::mm", "forward", "differentiated_op"),
        ("aten::mm", "backward", "autograd_sequence_number"),
        ("aten::mm", "backward", "autograd_sequence_number"),
        (None, "other", ""),
        ("aten::add_", "optimizer", "optimizer_range"),
    ]
    assert rows(analysis, "kind") == [("eager",), ("eager",), ("memset",), ("memcpy",), ("eager",)]
    assert analysis.launches.duration_ns.tolist() == [30_500] * 5
    assert analysis.launches.stream.tolist() == [7] * 5


def test_an_mtias_events_are_its_work_and_waits_are_none(analysed) -> None:
    analysis = analysed("mtia")
    assert rows(analysis, "name", "kind", "device", "gap") == [
        ("pe_exe", "eager", 17, ""),
        ("dma_request", "memcpy", 17, "no_correlation_id"),
    ]
    assert analysis.launches.stream.tolist() == [112, 801]
    assert heading(analysis) == "profile · ARTEMIS · 1 step · 2 launches"


def test_a_device_that_is_listed_by_another_number_has_its_name(tmp_path) -> None:
    trace = MADE["mtia"]() | {"deviceProperties": [{"id": 0, "name": "ARTEMIS"}]}
    analysis = attribute(read_recording(written(tmp_path, trace)))
    assert heading(analysis) == "profile · ARTEMIS · 1 step · 2 launches"


def test_an_xpus_queue_is_its_stream_and_of_two_calls_the_outer_one_launches(analysed) -> None:
    analysis = analysed("xpu")
    assert [op for op, _, _ in ops(analysis)] == ["aten::mul", "aten::add", None]
    assert analysis.launches.stream.tolist() == [64, 64, 64]


def test_a_device_without_a_name_and_a_trace_without_its_version_say_so(analysed) -> None:
    analysis = analysed("rocm")
    assert heading(analysis) == "profile · device 2, which has no name · 1 step · 1 launches"
    assert analysis.notes == (
        "the trace has no schemaVersion, which torch.profiler writes: a tool changed it.",
    )


@pytest.mark.parametrize("name", ["rocm", "xpu", "mtia"])
def test_copies_that_do_not_say_whether_memory_is_pageable_are_not_judged(analysed, name) -> None:
    unjudged = {each.rule: each.reason for each in find(analysed(name)).rules_skipped}
    recorded = "the trace does not say of its copies whether they use pageable memory"
    assert unjudged["pageable_copy"] == recorded


def test_what_the_programs_own_graph_replays_is_no_librarys(analysed) -> None:
    analysis = analysed("own_cuda_graph")
    assert rows(analysis, "kind", "gap") == [
        ("eager", "own_cuda_graph"),
        ("communication", "own_cuda_graph"),
        ("triton", "own_cuda_graph"),
    ]
    assert analysis.communication.exposed_ns.tolist() == [40_000]
    assert not [note for note in analysis.notes if "custom_op" in note]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (
            "profiler_ranges",
            "the trace lists NVIDIA A100, has 1 calls that launch work, has 1 profiler ranges, "
            "whose times are not measured",
        ),
        ("gloo_on_a_machine_with_gpus", "the trace lists NVIDIA A100"),
    ],
)
def test_times_of_the_cpu_are_not_called_a_devices(analysed, name, expected) -> None:
    analysis = analysed(name)
    assert heading(analysis) == "profile · CPU · 1 step · 1 launches"
    assert analysis.notes[0] == (
        f"{expected}, and has no event of a device: all times are the CPU's. If the program used a "
        "device, record it with that device's ProfilerActivity."
    )
