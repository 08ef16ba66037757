"""The line of each eager launch, on traces and positions made by hand."""

from __future__ import annotations

from typing import Any

from profiler_ext.attribution import attribute
from profiler_ext.kineto.names import clock_mark
from profiler_ext.records.analysis import Analysis, Place
from profiler_ext.records.lineage import ModuleFrame
from profiler_ext.records.recording import (
    ClockMark,
    Function,
    Position,
    PythonLines,
    Recording,
    ThreadPositions,
    thread_positions,
)
from profiler_ext.records.vocabulary import IdleCause
from tests.attribution.reading import assert_conserves
from tests.attribution.test_idle_wait_lines import WAITS
from tests.attribution.timeline import AUTOGRAD, MAIN, SETTINGS, Timeline
from tests.handmade import Mark, pieces, trace

FORWARD, BACKWARD, HOOK, UNKNOWN, RECOMPUTED = 1, 2, 3, 4, 6
POSITIONS = (
    Position(None, module=0),
    Position(0, 0, 5, code="y = layer(x)"),
    Position(None, 0, 9, code="y.backward()"),
    Position(2, 1, 20, code="return gradient / 2"),
    Position(None, 0),
    Position(2, 2),
    Position(5, 0, 5, code="y = layer(x)"),
)
FUNCTIONS = (
    Function("/home/me/m.py", "forward"),
    Function("/home/me/m.py", "hook"),
    Function("/lib/torch/utils/checkpoint.py", "recompute_fn", is_recompute=True),
)
MARK = Mark(clock_mark(0), "user_annotation", MAIN, 10, 0)


class Lived(Timeline):
    """A timeline whose threads note where they stand."""

    def __init__(self) -> None:
        super().__init__()
        self.noted: dict[int, list[tuple[int, int]]] = {}

    def at(self, position: int) -> None:
        """Stand at a position of this thread from now on."""
        thread = self.thread.tid
        assert isinstance(thread, int)
        self.noted.setdefault(thread, []).append((self._tick(), position))

    def analysis(self, *, until_ns: int = 10**6, without: bool = False) -> Analysis:
        """What was written, attributed."""
        threads: list[ThreadPositions] = [
            thread_positions(thread, *map(list, zip(*noted, strict=True)))
            for thread, noted in self.noted.items()
        ]
        modules = (ModuleFrame("layer", "Linear"),)
        marks = (ClockMark(0, 10, 10),)
        lines = PythonLines(FUNCTIONS, modules, POSITIONS, tuple(threads), marks, until_ns)
        events = self.marks if without else [*self.marks, MARK]
        analysis = attribute(Recording(trace(events), (), SETTINGS, python=lines))
        assert_conserves(analysis)
        return analysis

    def attributed(self, *, until_ns: int = 10**6, without: bool = False) -> list[Place]:
        """The place of each launch."""
        analysis = self.analysis(until_ns=until_ns, without=without)
        return [analysis.places[at] for at in analysis.shares.place.tolist()]


def node(timeline: Timeline, name: str, sequence: int | None = 5, inner: bool = True) -> Any:
    """The engine's evaluation of a node; ``inner`` is whether the engine's event has the number."""
    args = {} if sequence is None else {"Sequence number": sequence, "Fwd thread id": 1}
    outer = args if inner else {}
    return (
        timeline.range(f"autograd::engine::evaluate_function: {name}", **outer),
        timeline.range(name, **args),
    )


def forward(timeline: Lived, sequence: int = 5) -> None:
    timeline.at(FORWARD)
    timeline.op("aten::mul", "k_mul", **{"Sequence number": sequence})
    timeline.at(-1)


def brief(place: Place) -> tuple[Any, ...]:
    return place.line, place.module, str(place.phase), place.evidence, place.forward_evidence


def test_a_forward_launch_has_the_line_that_ran_and_its_backward_the_same() -> None:
    timeline = Lived()
    forward(timeline)
    with timeline.on(AUTOGRAD):
        engine, own = node(timeline, "MulBackward0")
        with engine, own:
            timeline.op("aten::mul", "k_mul")
    first, second = timeline.attributed()
    assert brief(first) == (5, "layer", "forward", "line_that_ran", None)
    assert brief(second) == (
        *(5, "layer", "backward", "line_of_forward_op"),
        "autograd_sequence_number",
    )


def test_what_fsdp_prefetches_in_the_backward_of_one_module_belongs_to_the_other() -> None:
    timeline = Lived()
    timeline.at(FORWARD)
    with timeline.annotation("FSDP::all_gather (layer)"):
        timeline.op("c10d::_allgather_base_", "gather", **{"Sequence number": 5})
    timeline.at(-1)
    with timeline.on(AUTOGRAD):
        engine, own = node(timeline, "MulBackward0")
        with engine, own, timeline.annotation("FSDP::backward_prefetch for first"):
            timeline.op("c10d::_allgather_base_", "gather")
    gathers = [(each.line, each.module, each.module_class) for each in timeline.attributed()]
    assert gathers == [(5, "layer", "Linear"), (5, "first", None)]


def test_what_a_hook_runs_has_its_own_line_and_the_node_after_it_the_number_of_its_forward() -> (
    None
):
    timeline = Lived()
    forward(timeline)
    timeline.at(BACKWARD)
    engine, own = node(timeline, "MulBackward0", inner=False)
    with engine:
        timeline.at(HOOK)
        timeline.op("aten::div", "k_div")
        timeline.at(BACKWARD)
        with own:
            timeline.op("aten::mul", "k_mul")
    timeline.at(-1)
    _, hook, product = timeline.attributed()
    assert brief(hook) == (20, "layer", "backward", "line_that_ran", "hook")
    assert brief(product) == (
        *(5, "layer", "backward", "line_of_forward_op"),
        "autograd_sequence_number",
    )


def test_a_sum_of_gradients_is_of_the_op_whose_node_gave_the_last_of_them() -> None:
    timeline = Lived()
    forward(timeline)
    engine, own = node(timeline, "MulBackward0")
    with engine:
        with own:
            timeline.op("aten::mul", "k_mul")
        timeline.op("aten::add_", "k_add")
        timeline.op("aten::sum", "k_sum")  # brings a gradient to its size: the node's own
    _, _, added, summed = timeline.attributed()
    assert brief(added) == (
        *(5, "layer", "gradient_accumulation", "line_of_last_gradient"),
        "sum_of_gradients",
    )
    assert brief(summed)[2:4] == ("backward", "line_of_forward_op")


def test_a_forward_that_runs_again_within_a_node_is_recompute_and_its_backward_is_not() -> None:
    timeline = Lived()
    timeline.at(BACKWARD)
    engine, own = node(timeline, "MulBackward0", sequence=7)
    with engine, own:
        timeline.at(RECOMPUTED)
        timeline.op("aten::mul", "k_mul", **{"Sequence number": 5})
        timeline.at(BACKWARD)
    inner, its_own = node(timeline, "MulBackward0", sequence=5)
    with inner, its_own:
        timeline.op("aten::mul", "k_mul")
    timeline.at(-1)
    again, backward = timeline.attributed()
    assert brief(again) == (5, None, "recompute", "line_that_ran", "recomputed_forward")
    assert brief(backward) == (
        *(5, None, "backward", "line_of_forward_op"),
        "autograd_sequence_number",
    )


def gaps(timeline: Lived, **options: Any) -> list[str | None]:
    return [place.gap for place in timeline.attributed(**options)]


def test_each_reason_why_there_is_no_line_is_a_gap_of_its_own() -> None:
    unknown, nowhere = Lived(), Lived()
    unknown.at(UNKNOWN)
    unknown.op("aten::mul", "k_mul")
    assert gaps(unknown) == ["line_of_hot_code"]
    nowhere.op("aten::mul", "k_mul")
    assert gaps(nowhere) == ["no_line_ran"]
    assert gaps(nowhere, until_ns=20) == ["lines_full"]
    assert gaps(nowhere, without=True) == ["lines_failed"]


def test_the_backward_of_a_forward_that_is_not_in_the_trace_is_a_gap() -> None:
    timeline = Lived()
    engine, own = node(timeline, "MulBackward0")
    with engine, own:
        timeline.op("aten::mul", "k_mul")
    accumulate, grad = node(timeline, "torch::autograd::AccumulateGrad", sequence=None)
    with accumulate, grad:
        timeline.op("aten::add_", "k_add")
    assert gaps(timeline) == ["forward_not_recorded"] * 2


def test_a_gradient_is_added_to_a_parameter_s_at_the_line_of_the_op_that_gave_it() -> None:
    timeline = Lived()
    forward(timeline)
    engine, own = node(timeline, "MulBackward0")
    with engine, own:
        timeline.op("aten::mul", "k_mul")
    accumulate, grad = node(timeline, "torch::autograd::AccumulateGrad", sequence=None)
    with accumulate, grad:
        timeline.op("aten::add_", "k_add")
    assert brief(timeline.attributed()[-1]) == (
        *(5, "layer", "gradient_accumulation", "line_of_last_gradient"),
        "sum_of_gradients",
    )


def test_a_wait_in_a_node_is_at_the_line_of_its_forward() -> None:
    timeline = Lived()
    with timeline.annotation("ProfilerStep#1"):
        forward(timeline)
        timeline.at(BACKWARD)
        with timeline.on(AUTOGRAD):
            engine, own = node(timeline, "MulBackward0")
            with engine, own:
                with timeline.range("aten::norm"):
                    timeline.launch("k_norm")
                    timeline.wait()
                timeline.op("aten::mul", "k_mul")
    waits = [each for each in pieces(timeline.analysis()) if each.cause in WAITS]
    assert {(each.cause, each.cause_place.line) for each in waits} == {
        (IdleCause.SYNCHRONISATION, 5),
        (IdleCause.AFTER_SYNCHRONISATION, 5),
    }
    (wait,) = {each.place for each in waits if each.cause == IdleCause.SYNCHRONISATION}
    assert brief(wait) == (
        *(5, "layer", "backward", "line_of_forward_op"),
        "autograd_sequence_number",
    )


def test_a_hook_that_synchronizes_waits_at_its_own_line() -> None:
    timeline = Lived()
    with timeline.annotation("ProfilerStep#1"):
        forward(timeline)
        timeline.at(BACKWARD)
        engine, own = node(timeline, "MulBackward0")
        with engine:
            with own:
                timeline.op("aten::mul", "k_mul")
            timeline.at(HOOK)
            timeline.wait()
            timeline.op("aten::div", "k_div")
            timeline.at(BACKWARD)
    waits = [each for each in pieces(timeline.analysis()) if each.cause in WAITS]
    assert {each.cause_place.line for each in waits} == {20}
