"""A name leads to the line, module or kernel that is meant, or to those that it may mean."""

from __future__ import annotations

from dataclasses import replace

import pytest

from profiler_ext.errors import UnclearNameError
from profiler_ext.exporters.explain.subjects import Kind, Subject, resolve_subject
from tests.analyses import GPU_PLACES, gpu_step
from tests.exporters.explained import (
    LOADER,
    gpt,
    loaded,
    of,
    session_of,
)
from tests.gpu_model import MODEL

LINE_58 = Subject(Kind.LINE, "/src/benchmarks/eager_lines.py", 58)


@pytest.mark.parametrize(
    ("name", "subject"),
    [
        ("eager_lines.py:58", LINE_58),
        (
            "./benchmarks/eager_lines.py:58",
            Subject(Kind.LINE, "/src/benchmarks/eager_lines.py", 58),
        ),
        ("line:eager_lines.py:58", LINE_58),
        ("(model)", Subject(Kind.MODULE, "")),
        ("0.up", Subject(Kind.MODULE, "blocks.0.up")),
        ("blocks.*.up", Subject(Kind.MODULE, "blocks.*.up")),
        ("fused_gelu_view_2", Subject(Kind.KERNEL, "triton_poi_fused_gelu_view_2")),
    ],
)
def test_a_name_may_be_the_end_of_a_path_or_a_part_of_a_kernel(name: str, subject: Subject) -> None:
    assert resolve_subject(name, gpt().analyses) == subject


def test_a_name_of_several_things_lists_them_largest_first() -> None:
    with pytest.raises(UnclearNameError) as caught:
        of("up")
    assert caught.value.is_ambiguous
    assert set(caught.value.candidates) == {f"blocks.{layer}.up" for layer in range(4)}
    times = [of(each).time.duration_ns for each in caught.value.candidates]
    assert times == sorted(times, reverse=True)
    assert str(caught.value).startswith("up fits 4 things; ask for one of: blocks.")


def test_a_file_lists_its_lines_with_time() -> None:
    with pytest.raises(UnclearNameError) as caught:
        of("eager_lines.py")
    table = gpt().by_line()
    lines = table[table["file"] == "/src/benchmarks/eager_lines.py"]["line"].tolist()
    assert caught.value.candidates == tuple(f"eager_lines.py:{line}" for line in lines)


def test_names_that_are_alike_when_short_are_reported_whole() -> None:
    at = next(n for n, place in enumerate(GPU_PLACES) if place.line == 13)
    other = replace(GPU_PLACES[at], file="/elsewhere/gpt/model.py")
    places = (*GPU_PLACES[:at], other, *GPU_PLACES[at + 1 :])
    session = session_of(replace(gpu_step(), places=places))
    with pytest.raises(UnclearNameError, match="fits 2 things") as caught:
        of("model.py:13", session)
    for name in caught.value.candidates:
        assert of(name, session).subject.file == name.removesuffix(":13")
    assert set(caught.value.candidates) == {f"{MODEL}:13", "/elsewhere/gpt/model.py:13"}


def test_an_unknown_name_is_answered_with_close_ones() -> None:
    with pytest.raises(UnclearNameError) as caught:
        of("Blocs.0.up")
    assert not caught.value.is_ambiguous
    assert caught.value.candidates[0] == "blocks.0.up"
    with pytest.raises(UnclearNameError, match="'zzz' in the session; name one as report --by"):
        of("zzz")


def test_a_line_of_more_digits_than_python_reads_is_an_unknown_name() -> None:
    with pytest.raises(UnclearNameError, match="in the session; name one as report --by"):
        of("model.py:" + "9" * 5000)


# Why there is no time


def test_a_line_without_time_says_why() -> None:
    loader = loaded(LOADER)
    waits = of("flaws.py:298", loader)
    assert (waits.time.duration_ns, waits.time.launches) == (0, 0)
    assert waits.no_time_reason == (
        "it launches nothing: while the CPU was there the device waited for 9.28 ms a step"
    )
    assert [each.rule for each in waits.findings] == ["data_loader"]
    calls = of("findings.py:157", loader)
    assert calls.no_time_reason is not None
    assert calls.no_time_reason.startswith(
        "it launches nothing itself: it calls lines that do, which to"
    )
    nothing = of("flaws.py:9999", loader)
    assert nothing.no_time_reason is not None
    assert "the nearest lines of flaws.py with time are flaws.py:319" in nothing.no_time_reason


def test_a_line_whose_ops_launch_nothing_says_which(monkeypatch: pytest.MonkeyPatch) -> None:
    step = gpu_step()
    graph, *others = step.recording.graphs
    node = graph.nodes[0]
    frame = replace(node.lineage.stack[-1], line=99)
    lost = replace(node, name="gone", target="aten.view.default")
    lost = replace(lost, lineage=replace(node.lineage, stack=(frame,)))
    graphs = (replace(graph, nodes=(*graph.nodes, lost)), *others)
    changed = replace(step, recording=replace(step.recording, graphs=graphs))
    assert of("model.py:99", session_of(changed)).no_time_reason == (
        "no kernel computes its ops (aten.view.default): they only change how memory is seen, or "
        "the compiler took them away"
    )
