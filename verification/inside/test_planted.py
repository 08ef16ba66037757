"""The planted pairs: both forms run, and the kernels that Inductor writes have the marked line."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from typing import Any

import pytest
import torch

import profiler_ext
from profiler_ext.inside.kernel_text import Kernel, is_store
from profiler_ext.inside.knock_out import passed_loads, text_without
from profiler_ext.inside.source_lines import SourceLines
from profiler_ext.isolation.guard import Guard
from profiler_ext.profiling import switch
from profiler_ext.records.kernel_lines import KernelSource, LinePart
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
def test_without_the_marked_line_a_kernel_loads_what_the_second_program_loads(case: Case) -> None:
    pytest.importorskip("triton", reason="the kernels are Triton's")
    sources, nodes = generated(case, is_whole=True)
    texts = list[str]()
    for source in sources:
        numbered = enumerate(zip(source.lines, source.text.split("\n"), strict=True), start=1)
        own = {
            at
            for at, (line, text) in numbered
            if line.part is LinePart.NODE and {*line.nodes} <= nodes and not is_store(text)
        }
        kernel = Kernel(source.text, source.kernel)
        own -= passed_loads(kernel, own)
        ranges = dict.fromkeys(kernel.arguments, (0, 15))
        texts.append(text_without(kernel, own, CONFIG, "_x", ranges) if own else source.text)
    assert [*texts] != [source.text for source in sources]
    second, _ = generated(case, is_whole=False)
    assert sum(map(loads, texts)) == sum(loads(source.text) for source in second)


def loads(text: str) -> int:
    """Count the loads that are not masked out."""
    return sum("tl.load(" in line and "knock_out_zero" not in line for line in text.split("\n"))


def generated(case: Case, is_whole: bool) -> tuple[Sequence[KernelSource], set[str]]:
    """Return the kernels of a form, and the nodes of the marked line."""
    torch._dynamo.reset()
    lines = SourceLines(Guard(strict=True))
    with stubbed("triton"), lines.observed():
        profiler_ext.enable(cpu_events=False)
        inputs = case.inputs(Sizes("cpu", is_tiny=True))
        torch.compile(case.run, dynamic=False)(*inputs, is_whole=is_whole)
    capture: Any = switch.current()
    nodes = {
        node.name
        for graph in capture.graphs
        for node in graph.nodes
        if any((each.file, each.line) == case.marked for each in node.lineage.stack)
    }
    profiler_ext.disable()
    return lines.sources, nodes
