"""Regions of a joint graph that are compiled by themselves lead to their lines, modules and phases.

The regions are matrix products, library calls which need no C++ compiler.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch._dynamo
from torch import nn
from torch._dynamo.backends.common import aot_autograd
from torch.fx.passes.regional_inductor import regional_inductor
from torch.utils.checkpoint import checkpoint

import profiler_ext
from profiler_ext.profiling import switch
from profiler_ext.records.provenance import GraphInstance
from tests.compiling import fresh_torch, torch

__all__ = ["fresh_torch"]
pytestmark = [
    pytest.mark.usefixtures("fresh_torch"),
    pytest.mark.filterwarnings("ignore"),
]

Row = tuple[str, str, str | None, int]
"""Phase, module, forward node and line of a launch."""


def marked(name: str = "all") -> Any:
    return torch.fx.traceback.annotate({"compile_with_inductor": {"inductor_region": name}})


def compiled(model: Any) -> Any:
    compilers = dict.fromkeys(
        ("fw_compiler", "bw_compiler", "inference_compiler"), regional_inductor
    )
    return torch.compile(model, backend=aot_autograd(**compilers), fullgraph=True)


def step(model: Any) -> None:
    """Train once; the input is made by an operator that reads autograd's counter."""
    model(torch.ones(4, 8) * 2).sum().backward()


def profiled(model: Any) -> Any:
    with profiler_ext.profile(strict=True) as prof:
        step(model)
        prof.step()
    return prof


def products(prof: Any) -> list[Row]:
    """Return the launches of products in compiled regions, in order."""
    rows = prof.attribution()
    found = rows[rows.aten_op == "aten.mm.default"]
    columns = (found.phase, found.module, found.forward_node, found.line)
    reported = [column.astype(object).where(column.notna(), None) for column in columns]
    return list(zip(*reported, strict=True))


def instances() -> tuple[GraphInstance, ...]:
    capture = switch.current()
    assert capture is not None
    return capture.graphs


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(8, 8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with marked():
            inside = x.sin() @ self.weight
        return inside.cos()


class Blocks(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        return x


BLOCK_LINE = Block.forward.__code__.co_firstlineno + 2
NODES = ("mm", "mm_1", "mm_2", "mm_3")
FORWARD: list[Row] = [("forward", f"blocks.{n}", None, BLOCK_LINE) for n in range(4)]
BACKWARD: Counter[Row] = Counter()
for _n, _node in enumerate(NODES):
    BACKWARD["backward", f"blocks.{_n}", _node, BLOCK_LINE] = 2 if _n else 1


def halves(rows: list[Row]) -> tuple[list[Row], Counter[Row]]:
    """Return the forward's rows in order, and the backward's."""
    return [r for r in rows if r[0] == "forward"], Counter(r for r in rows if r[0] != "forward")


def test_each_launch_of_repeated_regions_leads_to_its_own_module_and_forward_node() -> None:
    profiler_ext.enable(strict=True)
    model = compiled(Blocks())
    step(model)
    prof = profiled(model)
    assert halves(products(prof)) == (FORWARD, BACKWARD)
    prof.assert_coverage(1.0)
    assert prof.attribution().duration_ns.sum() == prof.launches().duration_ns.sum() > 0


def test_regions_of_one_joint_graph_carry_its_id_and_their_half() -> None:
    profiler_ext.enable(strict=True)
    step(compiled(Blocks()))
    records = [graph.provenance for graph in instances()]
    assert all(record is not None and record.joint for record in records)
    assert len({record.joint for record in records if record}) == 1
    assert {record.is_inference for record in records if record} == {False}
    assert [graph.parent_graph for graph in instances() if not graph.is_backward] == [0] * 4
    assert {graph.parent_graph for graph in instances() if graph.is_backward} == {1}
    numbers = {
        n.lineage.joint_name: n.lineage.seq_nr
        for g in instances()
        for n in g.nodes
        if n.lineage.joint_name
    }
    links = [
        (n.lineage.seq_nr, n.lineage.forward_node)
        for g in instances()
        if g.is_backward
        for n in g.nodes
    ]
    assert links
    assert [number for number, _ in links] == [numbers[str(node)] for _, node in links]


def test_after_a_reset_the_cached_regions_have_the_modules_of_this_compile() -> None:
    profiler_ext.enable(strict=True)
    for _ in range(2):
        torch._dynamo.reset()
        model = compiled(Blocks())
        step(model)
    assert {graph.cache_state for graph in instances()[-3:]} == {"aot_hit"}
    assert halves(products(profiled(model))) == (FORWARD, BACKWARD)


def first(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    with marked():
        inside = x @ w
    return inside.cos()


def second(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    with marked():
        inside = x @ w
    return inside.sin()


def test_a_region_that_the_cache_has_from_another_function_has_the_lines_of_this_one() -> None:
    profiler_ext.enable(strict=True)
    for function in (first, second):
        torch._dynamo.reset()
        w = torch.ones(8, 8, requires_grad=True)
        compiled(function)(torch.ones(4, 8), w).sum().backward()
    assert {graph.cache_state for graph in instances()[-2:]} == {"aot_hit"}
    line = second.__code__.co_firstlineno + 2
    found = [node.lineage.stack[-1].line for g in instances()[-2:] for node in g.nodes]
    assert set(found) == {line}


class Apart(nn.Module):
    """Two regions that follow each other; a torch that knows no names makes them one."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = Block(), Block()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with marked("one"):
            x = x @ self.one.weight
        with marked("two"):
            x = x @ self.two.weight
        return x.cos()


def test_regions_with_marks_of_their_own_have_their_own_lines() -> None:
    profiler_ext.enable(strict=True)
    model = compiled(Apart())
    step(model)
    line = Apart.forward.__code__.co_firstlineno + 2
    forward, backward = halves(products(profiled(model)))
    assert forward == [("forward", "", None, line), ("forward", "", None, line + 2)]
    assert backward == {("backward", "", "mm", line): 1, ("backward", "", "mm_1", line + 2): 2}


class Checkpointed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = Block(), Block()

    def inner(self, x: torch.Tensor) -> torch.Tensor:
        with marked():
            return (x @ self.one.weight).sin() @ self.two.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return checkpoint(self.inner, x.exp(), use_reentrant=False).cos()


def test_what_a_region_of_the_backward_recomputes_is_recompute() -> None:
    profiler_ext.enable(strict=True)
    model = compiled(Checkpointed())
    step(model)
    phases = Counter((phase, node) for phase, _, node, _ in products(profiled(model)))
    assert phases == {
        ("forward", None): 2,
        ("recompute", None): 2,
        ("backward", "mm"): 1,
        ("backward", "mm_1"): 2,
    }


def test_a_region_of_a_graph_without_gradient_is_forward_work() -> None:
    profiler_ext.enable(strict=True)
    model = compiled(Blocks())
    step(model)
    with torch.no_grad():
        model(torch.ones(4, 8))
        with profiler_ext.profile(strict=True) as prof:
            model(torch.ones(4, 8))
            prof.step()
    assert products(prof) == FORWARD


def test_what_runs_eagerly_in_the_backward_of_a_compiled_forward_is_of_no_operator_before_it() -> (
    None
):
    profiler_ext.enable(strict=True)
    model = compiled(Blocks())
    step(model)
    rows = profiled(model).attribution()
    eager = rows[rows.node.isna() & rows.aten_op.isin(["aten::sin", "aten::neg"])]
    assert set(eager.phase) == {"backward"}
    assert set(eager.forward_node.dropna()) == set()


def test_without_the_joint_graph_a_regions_links_and_numbers_are_unknown_not_wrong(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("profiler_ext.torch_compat.fx.has_region_marks", lambda gm: False)
    profiler_ext.enable(strict=True)
    model = compiled(Blocks())
    step(model)
    unlinked = [(*row[:2], None, row[3]) for row in [*FORWARD, *BACKWARD.elements()]]
    assert Counter(products(profiled(model))) == Counter(unlinked)
    assert {g.provenance.joint for g in instances() if g.provenance} == {None}
