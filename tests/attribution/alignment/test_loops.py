"""A loop's call sites run as often as the data say; each turn leads to the same sites."""

from __future__ import annotations

from dataclasses import replace

import pytest

from profiler_ext.attribution.alignment.aligning import align
from profiler_ext.attribution.alignment.library_kernels import KnownKernels
from profiler_ext.attribution.alignment.loops import LoopGrammar
from profiler_ext.attribution.graph_calls import Match, WorkItem
from profiler_ext.records.gaps import GapReason
from profiler_ext.records.provenance import NestedIn
from tests.attribution.graphs import cpp, extern, numbered, triton

WHILE = (("2", "condition"), ("2", "body"))


def within(site, *calls: tuple[str, str]):
    return replace(site, within=tuple(NestedIn(call, part) for call, part in calls))


READ = extern("item", "while_loop")
SITES = numbered(
    (
        triton("before", "a"),
        READ,
        within(triton("less", "lt"), WHILE[0]),
        within(extern("mm", "mm"), WHILE[1]),
        within(triton("sin", "sin"), WHILE[1]),
        triton("after", "z"),
    )
)
TURN = ["aten::mm", "sin", "less", "aten::is_nonzero"]
ATTRIBUTED = [3, 4, 2, 1]


def attributed(sites, *names: str) -> list[int | None]:
    return [
        match.site for match in align(sites, [WorkItem(name) for name in names], KnownKernels())
    ]


@pytest.mark.parametrize("turns", [0, 1, 5])
def test_each_turn_leads_to_the_same_sites(turns):
    start = ["before", "less", "aten::is_nonzero", "aten::is_nonzero"]
    assert attributed(SITES, *start, *TURN * turns, "after") == [0, 2, 1, 1, *ATTRIBUTED * turns, 5]


def test_what_the_wrapper_does_between_the_sites_is_glue():
    items = ["before", "less", "aten::item", "aten::copy_", *TURN, "after", "aten::clone"]
    matches = align(SITES, [WorkItem(name) for name in items], KnownKernels())
    assert [match.site for match in matches] == [0, 2, 1, None, *ATTRIBUTED, 5, None]
    assert matches[3] == Match(gap=GapReason.WRAPPER_GLUE) == matches[-1]


@pytest.mark.parametrize(
    "broken",
    [
        ["before", "less", "aten::item", "sin", "less", "aten::item", "after"],
        ["before", "less", "aten::item", "aten::mm", "sin", "after"],
        ["before", "less", "aten::item", "sin", "aten::mm", "less", "aten::item", "after"],
        ["before", "less", "aten::item", *TURN, "sin", "after"],
    ],
)
def test_a_turn_that_is_not_whole_is_no_turn(broken):
    matches = align(SITES, [WorkItem(name) for name in broken], KnownKernels())
    assert [match.site for match in matches if match.site is not None] == [0, 5]
    gaps = {match.gap for match in matches[1:-1]}
    assert gaps <= {GapReason.ALIGNMENT_MISMATCH, GapReason.WRAPPER_GLUE}


BODY = ("2", "body")
NESTED = numbered(
    (
        READ,
        within(triton("less", "lt"), ("2", "condition")),
        within(triton("mul", "mul"), BODY),
        within(extern("item", "cond"), BODY),
        within(triton("sin", "sin"), BODY, ("2/2", "branch 0")),
        within(triton("cos", "cos"), BODY, ("2/2", "branch 1")),
        within(extern("item", "while_loop_1"), BODY),
        within(triton("inner", "inner"), BODY, ("2/4", "condition")),
        within(triton("step", "step"), BODY, ("2/4", "body")),
    )
)


def test_in_each_turn_a_branch_is_chosen_and_an_inner_loop_has_its_own_turns():
    item, inner = "aten::item", ["inner", "aten::item"]
    ran = ["less", item]
    ran += ["mul", item, "cos", *inner, "step", *inner, "step", *inner, "less", item]
    ran += ["mul", item, "sin", *inner, "less", item]
    assert attributed(NESTED, *ran) == [
        *[1, 0],
        *[2, 3, 5, 7, 6, 8, 7, 6, 8, 7, 6, 1, 0],
        *[2, 3, 4, 7, 6, 1, 0],
    ]


def test_a_sentence_that_can_be_read_in_two_ways_is_not_read():
    loops = (within(triton("add", n), (at, "body")) for n, at in (("a", "2"), ("b", "4")))
    sites = numbered((*loops, triton("after", "z")))
    matches = align(sites, [WorkItem("add"), WorkItem("add"), WorkItem("after")], KnownKernels())
    assert matches[:2] == (Match(gap=GapReason.ALIGNMENT_MISMATCH),) * 2
    assert matches[2].site == 2


def test_where_an_inner_loop_launches_nothing_no_sentence_is_read():
    sites = numbered(
        (
            READ,
            within(triton("less", "lt"), ("2", "condition")),
            within(triton("mul", "mul"), BODY),
            within(extern("item", "while_loop_1"), BODY),
            within(extern("item", "item"), BODY, ("2/4", "body")),
        )
    )
    assert LoopGrammar(sites, lambda site: site.op or site.kernel).order(["less"]) is None


def test_a_graph_that_is_called_in_each_turn_is_a_part_of_the_turn():
    called = [within(triton("sin", "sin"), BODY, ("2/2", "graph"))]
    sites = numbered((READ, within(triton("less", "lt"), ("2", "condition")), *called))
    turn = ["sin", "less", "aten::item"]
    assert attributed(sites, "less", "aten::item", *turn * 2) == [1, 0, *[2, 1, 0] * 2]


def test_a_cpp_kernel_that_no_event_names_may_have_run_in_each_turn():
    body = [within(cpp("counted", "add"), WHILE[1]), within(triton("sin", "sin"), WHILE[1])]
    start = [triton("before", "a"), cpp("zero", "zero"), READ]
    sites = numbered((*start, within(cpp("less", "lt"), WHILE[0]), *body, triton("after", "z")))
    turn = ["sin", "aten::is_nonzero"]
    assert attributed(sites, "before", *turn[1:], *turn * 3, "after") == [0, 2, *[5, 2] * 3, 6]
    seen = ["counted", "sin", "less", "aten::is_nonzero"]
    start_seen = ["before", "zero", "less", "aten::is_nonzero"]
    assert attributed(sites, *start_seen, *seen * 2, "after") == [0, 1, 3, 2, *[4, 5, 3, 2] * 2, 6]


def test_many_turns_are_read_in_time():
    start = ["before", "less", "aten::item"]
    found = attributed(SITES, *start, *TURN * 1_000, "after")
    assert found == [0, 2, 1, *ATTRIBUTED * 1_000, 5]
