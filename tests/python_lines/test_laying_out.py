"""Logs become positions: frames, calls of modules, what is not seen to end, threads' ids."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import CodeType
from typing import Any

from profiler_ext.python_lines.layout import TorchCode, build_python_lines
from profiler_ext.python_lines.watch import (
    CALLED,
    ENTERED,
    EXITED,
    LINES_DISABLED,
    SNAPSHOT,
    THREAD_STARTED,
)
from profiler_ext.records.consistency import inconsistency_of_lines
from profiler_ext.records.lineage import Frame, ModuleFrame
from profiler_ext.records.recording import MAX_POSITION_DEPTH, Function, Position, PythonLines

PYTHON, SYSTEM = 1, 71
"""A thread's id, as Python has it and as the system has it."""


def code(name: str) -> CodeType:
    function: Any = eval(f"lambda: {name!r}")
    made: CodeType = function.__code__.replace(co_filename="/m.py", co_name=name)
    return made


STEP, INNER, CALL = code("step"), code("inner"), code("_wrapped_call_impl")
WRITTEN = code("written")
"""Dynamo's: its line 7 means line 5, and line 9 may be one of several."""
TORCH_CODE = TorchCode(CALL, True, lambda each: {7: 5, 9: None} if each is WRITTEN else {})


def _held(modules: Sequence[Any]) -> list[tuple[ModuleFrame, int]]:
    """Say that a name before a colon is that of a model of its own."""
    return [(ModuleFrame(each, "M"), len(each.rpartition(":")[0])) for each in map(str, modules)]


def lines(*log: tuple[int, Any, int] | tuple[int, Any, int, int]) -> PythonLines:
    """Lay out entries of time, subject and number; with a thread where it is another."""
    flat = [
        part
        for time, subject, number, *thread in log
        for part in (time, *(thread or [PYTHON]), subject, number)
    ]
    return build_python_lines(flat, (), 999, TORCH_CODE, _held)


def test_a_line_of_a_graph_has_the_frames_that_it_was_traced_from() -> None:
    graph = code("graph")
    outer, inner = Frame("/model.py", 3, "forward", "y = f(x)"), Frame("/f.py", 8, "f", "x + 1")
    torch_code = replace(TORCH_CODE, traced={id(graph): {4: (outer, inner)}})
    log = [(1, STEP, ENTERED), (2, STEP, 5), (3, graph, ENTERED), (4, graph, 4), (5, graph, 6)]
    flat = [part for at, subject, line in log for part in (at, PYTHON, subject, line)]
    flat = [0, PYTHON, SYSTEM, THREAD_STARTED, *flat, 6, PYTHON, graph, EXITED]
    found = build_python_lines(flat, (), 999, torch_code, _held)
    assert found.functions == (
        Function("/m.py", "step"),
        Function("/model.py", "forward", is_traced=True),
        Function("/f.py", "f", is_traced=True),
    )
    assert found.positions[2:] == (
        Position(1, 1, 3, code="y = f(x)"),
        Position(2, 2, 8, code="x + 1"),
    )
    # Lines that no op was traced from are at the line that called the graph.
    assert times(found) == [(1, 0), (2, 1), (4, 3), (5, 1)]


def times(found: PythonLines, thread: int = 0) -> list[tuple[int, int]]:
    """When which position began in a thread."""
    own = found.threads[thread]
    return list(zip(own.times_ns.tolist(), own.indices.tolist(), strict=True))


BEGINS = (0, SYSTEM, THREAD_STARTED)


def test_the_call_of_a_module_that_the_outermost_one_does_not_hold_names_none() -> None:
    calls = [(1, "", CALLED), (2, "other:1", CALLED), (3, "0", CALLED)]
    left = [(4, "0", EXITED), (5, "other:1", EXITED), (6, "", EXITED)]
    found = lines(BEGINS, *calls, *left, (7, "other:1", CALLED))
    assert found.modules == (*(ModuleFrame(each, "M") for each in ("", "other:1", "0")), None)
    assert [(each.parent, each.module) for each in found.positions] == [
        (None, 0),
        (0, 3),
        (1, 2),
        (None, 1),
    ]
    assert inconsistency_of_lines(found) is None


def test_frames_and_calls_of_modules_are_chains_of_positions() -> None:
    found = lines(
        BEGINS,
        (1, STEP, ENTERED),
        (2, STEP, 5),
        (3, "blocks.0", CALLED),
        (4, INNER, ENTERED),
        (5, INNER, 9),
        (6, INNER, EXITED),
        (7, CALL, EXITED),
        (8, STEP, 6),
        (9, STEP, EXITED),
    )
    assert found.functions == (Function("/m.py", "step"), Function("/m.py", "inner"))
    assert found.modules == (ModuleFrame("blocks.0", "M"),)
    assert found.positions == (
        Position(None, 0),
        Position(None, 0, 5),
        Position(1, module=0),
        Position(2, 1),
        Position(2, 1, 9),
        Position(None, 0, 6),
    )
    assert times(found) == [
        *((1, 0), (2, 1), (3, 2), (4, 3), (5, 4)),
        *((6, 2), (7, 1), (8, 5), (9, -1)),
    ]
    assert found.threads[0].thread == SYSTEM


def test_frames_whose_end_was_not_seen_are_left_when_an_outer_one_goes_on() -> None:
    found = lines(
        BEGINS,
        (1, STEP, ENTERED),
        (2, STEP, 5),
        (3, "m", CALLED),
        (4, INNER, ENTERED),
        (5, STEP, 6),
    )
    assert found.positions[times(found)[-1][1]] == Position(None, 0, 6)


def test_a_line_of_a_frame_that_was_not_seen_to_begin_begins_it() -> None:
    found = lines(BEGINS, (1, STEP, 5), (2, INNER, EXITED), (3, STEP, EXITED))
    assert found.positions == (Position(None, 0, 5),)
    assert times(found) == [(1, 0), (3, -1)]


def test_recursive_frames_are_left_one_by_one() -> None:
    found = lines(
        BEGINS, (1, STEP, 5), (2, STEP, ENTERED), (3, STEP, 6), (4, STEP, EXITED), (5, STEP, EXITED)
    )
    assert found.positions == (Position(None, 0, 5), Position(0, 0), Position(0, 0, 6))
    assert times(found) == [(1, 0), (2, 1), (3, 2), (4, 0), (5, -1)]


def test_the_lines_of_silenced_code_are_not_known_from_then_on_also_of_open_frames() -> None:
    found = lines(
        BEGINS,
        (1, STEP, 5),
        (2, INNER, 9),
        (3, INNER, LINES_DISABLED),
        (4, INNER, EXITED),
        (5, STEP, 6),
    )
    assert found.positions == (
        *(Position(None, 0, 5), Position(0, 1, 9)),
        *(Position(0, 1), Position(None, 0, 6)),
    )
    assert times(found) == [(1, 0), (2, 1), (3, 2), (4, 0), (5, 3)]


def test_python_s_id_of_a_thread_that_is_over_may_be_another_thread_s() -> None:
    found = lines(BEGINS, (1, STEP, 5), (2, 72, THREAD_STARTED), (3, INNER, 9))
    assert [each.thread for each in found.threads] == [SYSTEM, 72]
    assert (times(found, 0), times(found, 1)) == ([(1, 0)], [(3, 1)])
    assert found.positions[1] == Position(None, 1, 9)


def test_threads_that_take_turns_stand_each_where_it_stands() -> None:
    found = lines(BEGINS, (0, 72, THREAD_STARTED, 2), (1, STEP, 5), (2, INNER, 9, 2), (3, STEP, 6))
    assert (times(found, 0), times(found, 1)) == ([(1, 0), (3, 2)], [(2, 1)])


def test_stock_that_is_taken_of_a_thread_replaces_what_it_wrote_meanwhile() -> None:
    found = lines(BEGINS, (1, INNER, 9), (2, SYSTEM, SNAPSHOT), (3, STEP, 5))
    assert len(found.threads) == 1
    assert [found.positions[at] for _, at in times(found)] == [Position(None, 1, 5)]


def test_the_text_of_a_line_is_kept_unless_no_one_wrote_it(tmp_path: Path) -> None:
    file = tmp_path / "written.py"
    file.write_text("x = 1\n" + "x = " + "1" * 4093 + "\n")
    own = STEP.replace(co_filename=str(file))
    found = lines(BEGINS, (1, own, 1), (2, own, 2))
    assert [each.code for each in found.positions] == ["x = 1", None]


def test_what_lies_deeper_than_positions_go_has_no_line_that_is_known() -> None:
    one = code("one")
    deep = [(at, one, ENTERED) for at in range(1, MAX_POSITION_DEPTH + 3)]
    found = lines(BEGINS, *deep, (9_000, one, 7), (9_001, None, CALLED))
    assert inconsistency_of_lines(found) is None
    last = found.positions[times(found)[-1][1]]
    assert (last.line, last.module) == (0, None)


def test_a_line_of_code_that_torch_wrote_is_the_one_that_is_meant() -> None:
    found = lines(BEGINS, (1, WRITTEN, ENTERED), (2, WRITTEN, 7), (3, WRITTEN, 8), (4, WRITTEN, 9))
    reported = [(each.line, found.functions[each.function].is_compiled) for each in found.positions]
    assert reported == [(0, False), (5, False), (8, False), (9, True)]
