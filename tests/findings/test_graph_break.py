"""A break costs the idle time from one graph to the next; one that the device works across none."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from profiler_ext.findings import Location, SavingPer
from profiler_ext.findings.facts import time_within
from profiler_ext.findings.rules import graph_break, launch_bound
from profiler_ext.findings.rules.graph_break import RULE
from profiler_ext.kineto.names import CACHE_LOOKUP
from profiler_ext.records.analysis import Analysis
from profiler_ext.records.compiles import Compilation, CompileFailure, CompileKind, GraphBreak
from profiler_ext.records.lineage import Frame
from profiler_ext.records.provenance import CallSite, GraphInstance, Provenance
from profiler_ext.records.vocabulary import CacheState, SiteKind
from tests.findings.stepping import CPU, MS, US, Script, is_silent, judged, only
from tests.handmade import Mark, masked

REASON = """Encountered graph break when attempting to trace CALL: a function call, e.g. f(x, y):

Call to a builtin that Dynamo does not trace
  Explanation: it prints

  Developer debug context: builtin print
"""
BREAK = GraphBreak(
    REASON,
    (Frame("/m.py", 12, "forward", "print(x.shape)"),),
)


def compiled(compile_id: str, line: int, *, resumed: bool) -> Compilation:
    return Compilation(
        index=int(compile_id[0]),
        kind=CompileKind.FRAME,
        compile_id=compile_id,
        dynamo_number=0,
        thread=1,
        started_ns=-9_000 * MS,
        duration_ns=MS,
        times=(),
        file="/m.py",
        line=line,
        is_resumed=resumed,
        breaks=() if resumed else (BREAK,),
    )


def steps(kernel_us: int, resumed_at: int = 12) -> Analysis:
    """Steps of two graphs, with 300 us of Python between them."""
    script = Script()
    for _ in range(3):
        forward(script, kernel_us)
        script.end_step()
    return of_breaks(script.analysis(), resumed_at)


def forward(script: Script, kernel_us: int = 5) -> None:
    first = script.now_ns
    graph(script, kernel_us)
    script.now_ns += 200 * US
    second = script.now_ns
    script.now_ns += 100 * US
    graph(script, kernel_us)
    for name, begun in (("0/0", first), ("1/0", second)):
        spent = script.now_ns - begun
        region = f"Torch-Compiled Region: {name}"
        script.marks.append(Mark(region, "user_annotation", CPU, begun, spent))


def of_breaks(made: Analysis, resumed_at: int = 12) -> Analysis:
    compiles = (compiled("0/0", 10, resumed=False), compiled("1/0", resumed_at, resumed=True))
    return replace(made, recording=replace(made.recording, compiles=compiles))


def graph(script: Script, kernel_us: int) -> None:
    begun = script.now_ns
    for _ in range(10):
        script.launch("triton_poi_fused_gelu_0", kernel_us * US, op="triton_poi_fused_gelu_0")
    spent = script.now_ns - begun
    script.marks.append(
        Mark("## Call CompiledFxGraph fabc ##", "user_annotation", CPU, begun, spent)
    )


def test_a_break_is_reported_with_the_idle_way_to_the_next_graph() -> None:
    found = only(RULE, steps(5))
    assert found.location == Location("/m.py", 12, "print(x.shape)")
    assert (found.saving_per, found.est_saving_ns) == (SavingPer.UNKNOWN, 0)
    # The last kernel of the first graph runs 5 us into the way.
    assert [each.value for each in found.evidence] == [
        1,
        300 * US - 5 * US,
        "Call to a builtin that Dynamo does not trace; Explanation: it prints",
    ]


def test_a_function_that_goes_on_at_another_line_is_of_no_break() -> None:
    assert is_silent(RULE, steps(5, resumed_at=13))


def test_a_break_that_the_device_works_across_costs_nothing() -> None:
    assert is_silent(RULE, steps(200))


def test_the_idle_time_of_all_breaks_is_looked_up_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made, reported = steps(5), []
    lines = (compiled(f"{at}/0", at, resumed=True) for at in range(2, 100))
    breaks = (replace(BREAK, stack=(Frame("/m.py", at, "forward", ""),)) for at in range(2, 100))
    broken = replace(compiled("0/0", 10, resumed=False), breaks=(BREAK, *breaks))
    compiles = (broken, compiled("1/0", 12, resumed=True), *lines)
    many = replace(made, recording=replace(made.recording, compiles=compiles))
    monkeypatch.setattr(
        graph_break, "time_within", lambda *spans: reported.append(spans) or time_within(*spans)
    )
    assert only(RULE, many) == only(RULE, made)
    assert len(reported) == 2


def test_without_compiles_it_cannot_be_judged() -> None:
    made = steps(5)
    (unjudged,) = judged(
        RULE, replace(made, recording=replace(made.recording, compiles=()))
    ).rules_skipped
    assert unjudged.reason == "nothing was compiled"


def graphs_known(made: Analysis, *graphs: int, tensors: int = 0) -> Analysis:
    """The same steps with a record of each graph, by ten launches; 2 and 3 are of backwards.

    Each backward, and the second graph, is given so many tensors.
    """
    site = CallSite(0, "0", SiteKind.TRITON, "k", None, (), (), tuple(map(str, range(tensors))))
    instances = tuple(
        GraphInstance(
            at,
            None,
            f"{at % 2}/0",
            at > 1,
            CacheState.MISS,
            None,
            0,
            None,
            Provenance("", "2.11.0", at > 1, False, None, None, (), (site,) if at else ()),
        )
        for at in range(4)
    )
    of_launch = [graphs[at // 10 % len(graphs)] for at in range(len(made.launches))]
    recording = replace(made.recording, graphs=instances)
    launches = replace(made.launches, graph=masked(of_launch))
    return replace(made, recording=recording, launches=launches)


def names(made: Analysis) -> list[str]:
    """Return the name of each launch."""
    return [made.launches.name[at] for at in range(len(made.launches))]


def unrecorded(gone_ns: int) -> object:
    """What a step saves without so much recorded work: the CPU is assumed 1.45 times as fast."""
    return pytest.approx(gone_ns / 1.45, abs=1)


def test_one_graph_in_place_of_two_saves_torchs_way_to_the_second() -> None:
    found = only(RULE, graphs_known(steps(5), 0, 1))
    # The Python before it stays
    assert found.saving_per is SavingPer.STEP
    assert found.est_saving_ns == unrecorded(100 * US)
    figures = {each.name: each.value for each in found.evidence}
    assert figures["further graphs a step"] == 1
    assert figures["of them in the backward, too"] == 0
    assert figures["their guards and wrappers, as recorded"] == 100 * US


def test_what_runs_eagerly_between_two_graphs_would_be_of_one() -> None:
    script = Script()
    for _ in range(3):
        first = script.now_ns
        graph(script, 5)
        for _ in range(10):
            script.launch("void at::native::prod", 5 * US, op="aten::prod", cost_ns=20 * US)
        script.launch("Memcpy DtoH", 5 * US, op="aten::_local_scalar_dense", cost_ns=20 * US)
        second = script.now_ns
        script.now_ns += 100 * US
        graph(script, 5)
        for name, begun in (("0/0", first), ("1/0", second)):
            region = f"Torch-Compiled Region: {name}"
            spent = script.now_ns - begun
            script.marks.append(Mark(region, "user_annotation", CPU, begun, spent))
        script.end_step()
    made = graphs_known(of_breaks(script.analysis()), 0, 1)
    known = np.array([name.startswith("triton") for name in names(made)])
    graphs = np.ma.masked_array(np.where(np.arange(len(known)) % 31 < 10, 0, 1), ~known)
    found = only(RULE, replace(made, launches=replace(made.launches, graph=graphs)))
    figures = {each.name: each.value for each in found.evidence}
    assert figures["launched eagerly between them, a step"] == 10
    # Of these 15% are left; the first one's time begins with the end of the graph's last call
    gone_ns = (100 * US + 0.85 * 10 * 20 * US) / 1.45
    assert found.est_saving_ns == pytest.approx(gone_ns, rel=0.01)


def test_the_guards_of_the_second_graph_are_part_of_it() -> None:
    script = Script()
    for _ in range(3):
        begun = script.now_ns
        forward(script)
        guards = Mark(CACHE_LOOKUP, "cpu_op", CPU, begun + 250 * US, 20 * US)
        script.marks.append(guards)
        script.end_step()
    found = only(RULE, graphs_known(of_breaks(script.analysis()), 0, 1))
    assert found.est_saving_ns == unrecorded(120 * US)


def test_what_the_way_is_for_tensors_is_not_saved() -> None:
    assert only(RULE, graphs_known(steps(5), 0, 1, tensors=10)).est_saving_ns == unrecorded(70 * US)
    assert only(RULE, graphs_known(steps(5), 0, 1, tensors=17)).saving_per is SavingPer.UNKNOWN


def test_what_a_break_saves_is_not_left_for_launch_bound() -> None:
    made = graphs_known(steps(5), 0, 1)
    without = replace(made, recording=replace(made.recording, compiles=()))
    left_ns = only(launch_bound.RULE, made).est_saving_ns
    whole_ns = only(launch_bound.RULE, without).est_saving_ns
    assert left_ns + only(RULE, made).est_saving_ns == whole_ns


def test_the_backwards_of_its_graphs_count_without_the_engine_between() -> None:
    script = Script()
    for _ in range(3):
        forward(script)
        for _ in range(2):
            script.work("autograd::engine::evaluate_function: MulBackward0", 50 * US)
            begun = script.now_ns
            script.now_ns += 100 * US
            graph(script, 5)
            spent = script.now_ns - begun
            node = Mark("CompiledFunctionBackward", "cpu_op", CPU, begun, spent)
            script.marks.append(node)
        script.end_step()
    found = only(RULE, graphs_known(of_breaks(script.analysis()), 0, 1, 3, 2))
    assert found.est_saving_ns == unrecorded(200 * US)
    figures = {each.name: each.value for each in found.evidence}
    assert figures["of them in the backward, too"] == 1
    assert figures["their guards and wrappers, as recorded"] == 200 * US


SKIPPED = Frame("/m.py", 20, "loop", "x = block(x)")


@pytest.mark.parametrize(("function", "gone_ns"), [("loop", 100 * US), ("step", 0)])
def test_graphs_that_a_skipped_function_calls_count_where_lines_show_it(
    function: str, gone_ns: int
) -> None:
    script = Script()
    for _ in range(3):
        for name in ("0/0", "1/0"):
            script.now_ns += 200 * US
            begun = script.now_ns
            script.now_ns += 100 * US
            graph(script, 5)
            region = f"Torch-Compiled Region: {name}"
            spent = script.now_ns - begun
            script.marks.append(Mark(region, "user_annotation", CPU, begun, spent))
        script.end_step()
    made = graphs_known(script.analysis(), 0, 1)
    stack = (replace(SKIPPED, function=function),)
    places = tuple(replace(each, stack=stack) for each in made.idle.places)
    broken = replace(BREAK, stack=(SKIPPED, *BREAK.stack))
    failed = replace(
        compiled("2/0", 19, resumed=False),
        function="loop",
        breaks=(broken,),
        failure=CompileFailure("Unsupported", "a break in a loop"),
    )
    blocks = (replace(compiled(name, 10, resumed=False), breaks=()) for name in ("0/0", "1/0"))
    recording = replace(made.recording, compiles=(*blocks, failed))
    found = judged(
        RULE, replace(made, recording=recording, idle=replace(made.idle, places=places))
    ).ranked
    assert sum(each.est_saving_ns for each in found) == unrecorded(gone_ns)
