"""The planted pairs: both forms run, and the kernels that Inductor writes have the marked line."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

import pytest
import torch

import profiler_ext
from profiler_ext.inside.kernel_text import Kernel, is_store
from profiler_ext.inside.knock_out import text_without, whole_text
from profiler_ext.inside.source_lines import SourceLines
from profiler_ext.isolation.guard import Guard
from profiler_ext.profiling import switch
from profiler_ext.records.kernel_lines import LinePart
from tests.compiling import fresh_torch as fresh_torch
from verification.flaws.programs.program import Sizes
from verification.inside.measuring import by_planted
from verification.inside.planted import CASES, Case
from verification.inside.running import TINY
from verification.oracle.stubs import stubbed

CONFIG = {"XBLOCK": 8, "R0_BLOCK": 8, "num_warps": 4, "num_stages": 1}
SAME = ("twenty_of_60_exp",)  # its value comes to rest


@pytest.mark.parametrize("case", CASES.values(), ids=lambda case: case.name)
def test_a_pair_computes_alike_and_not_the_same(case: Case) -> None:
    assert by_planted(case.name, Namespace(tiny=True)) == TINY
    inputs = case.inputs(Sizes("cpu", is_tiny=True))
    whole, without = (case.run(*inputs, is_whole=is_whole) for is_whole in (True, False))
    assert torch.equal(whole, without) == (case.name in SAME)


@pytest.mark.whole
@pytest.mark.parametrize("case", CASES.values(), ids=lambda case: case.name)
@pytest.mark.usefixtures("fresh_torch")
def test_the_marked_line_can_be_taken_out_of_its_kernels(case: Case) -> None:
    pytest.importorskip("triton", reason="the kernels are Triton's")
    guard = Guard(strict=True)
    lines = SourceLines(guard)
    with stubbed("triton"), lines.observed():
        profiler_ext.enable(cpu_events=False)
        inputs = case.inputs(Sizes("cpu", is_tiny=True))
        torch.compile(case.run, dynamic=False)(*inputs, is_whole=True)
    capture: Any = switch.current()
    nodes = {
        node.name
        for graph in capture.graphs
        for node in graph.nodes
        if any((each.file, each.line) == case.marked for each in node.lineage.stack)
    }
    taken_out = 0
    for source in lines.sources:
        numbered = enumerate(zip(source.lines, source.text.split("\n"), strict=True), start=1)
        own = {
            at
            for at, (line, text) in numbered
            if line.part is LinePart.NODE and {*line.nodes} <= nodes and not is_store(text)
        }
        if own:
            kernel = Kernel(source.text, source.kernel)
            whole = whole_text(kernel, CONFIG, "_x")
            without = text_without(
                kernel, own, CONFIG, "_x", dict.fromkeys(kernel.arguments, (0, 15))
            )
            taken_out += without != whole
    assert nodes and taken_out
