"""Each line of a generated kernel is of the FX node whose op it computes, or is a gap."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from profiler_ext.inside.source_lines import SourceLines
from profiler_ext.isolation.guard import Guard
from profiler_ext.records.kernel_lines import KernelLineEvidence, KernelSource, LinePart
from profiler_ext.torch_compat import kernel_code
from tests.compiling import fresh_torch, generated_code
from verification.oracle.stubs import stubbed

__all__ = ["fresh_torch"]
pytest.importorskip("triton")


@pytest.fixture
def compiled(fresh_torch: Path) -> Iterator[Callable[..., tuple[KernelSource, ...]]]:
    """Compiles a function to Triton code that is not run, and returns its kernels' lines."""

    def compile_it(
        function: Callable[..., object], *given: torch.Tensor, **options: object
    ) -> tuple[KernelSource, ...]:
        lines = SourceLines(Guard(strict=True))
        with stubbed("triton"), lines.observed():
            torch.compile(function, options=options)(*given)
        return lines.sources

    yield compile_it


def normalized(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    centered = x - x.mean(-1, keepdim=True)
    scale = torch.rsqrt(centered.pow(2).mean(-1, keepdim=True) + 1e-5)
    return torch.relu(centered * scale * weight) + 0.25


def of_values(source: KernelSource) -> dict[str, tuple[str, ...]]:
    """The nodes of each line that computes or moves a value, by what it computes."""
    texts = zip(source.text.split("\n"), source.lines, strict=True)
    found = ((text.strip(), line) for text, line in texts if line.part is LinePart.NODE)
    return {text.partition(" = ")[2] or text: line.nodes for text, line in found}


def parts(source: KernelSource) -> set[LinePart]:
    return {line.part for line in source.lines}


def test_each_line_of_a_fused_reduction_is_of_its_own_node(compiled):
    (source,) = compiled(normalized, torch.rand(64, 512), torch.rand(512))
    nodes = of_values(source)
    assert source.kernel == "triton_per_fused_add_mean_mul_pow_relu_rsqrt_sub_0"
    assert source.gaps == ()
    assert parts(source) == {LinePart.NODE, LinePart.INDEX, LinePart.MASK, LinePart.FRAME}
    by_op = {
        "libdevice.rsqrt(": ("rsqrt",),
        "triton_helpers.maximum(": ("relu",),
        "tl.full([1, 1], 0.25,": ("add_1",),
        "tl.full([1, 1], 1e-05,": ("add",),
        "tl.store(out_ptr": ("add_1",),
    }
    for begin, expected in by_op.items():
        assert [own for text, own in nodes.items() if text.startswith(begin)] == [expected], begin
    loads = {text.partition(" +")[0]: own for text, own in nodes.items() if "tl.load" in text}
    assert loads == {"tl.load(in_ptr0": ("mean", "sub"), "tl.load(in_ptr1": ("mul_1",)}


def test_the_loop_of_a_reduction_is_its_frame_and_its_sums_are_of_the_node(compiled):
    (source, *_) = compiled(lambda x: torch.softmax(x, -1), torch.rand(8, 100_000))
    texts = source.text.split("\n")
    frames = [t.strip() for t, line in zip(texts, source.lines, strict=True) if is_frame(line.part)]
    assert all(text.startswith("for r0_offset in tl.range(") for text in frames) and frames
    assert source.gaps == ()


def is_frame(part: LinePart) -> bool:
    return part is LinePart.REDUCTION


def test_a_value_that_two_nodes_share_is_of_both(compiled):
    def twins(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.sin(x) * 2.0, torch.sin(x.view(-1)) * 3.0

    sources = compiled(twins, torch.rand(8, 16))
    sines = [own for s in sources for text, own in of_values(s).items() if "sin(" in text]
    assert sines == [("sin", "sin_1")]


def test_equal_kernels_of_a_graph_have_the_nodes_of_each_call(compiled):
    def layers(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        for _ in range(3):
            x = torch.relu(x @ w)
        return x

    sources = compiled(layers, torch.rand(8, 8), torch.rand(8, 8))
    assert len({source.kernel for source in sources}) == 1
    named = [{name for line in s.lines for name in line.nodes} for s in sources]
    assert named == [{"relu"}, {"relu_1"}, {"relu_2"}]
    assert len({source.writes for source in sources}) == 3


@pytest.fixture
def all_sines(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mechanism names the graph's sine for all that is lowered."""
    real = kernel_code.lowered_node

    def first() -> torch.fx.Node | None:
        node = real()
        called = [] if node is None else node.graph.find_nodes(op="call_function", target=SINE)
        return called[0] if called else node

    monkeypatch.setattr(kernel_code, "lowered_node", first)


@pytest.mark.usefixtures("all_sines")
def test_a_line_of_another_nodes_op_is_a_gap(compiled):
    (source,) = compiled(lambda x: torch.rsqrt(torch.sin(x)) / 3.5, torch.rand(8, 16))
    why = {line.detail: line.evidence for _, line in source.gaps}
    contradicted = KernelLineEvidence.CONTRADICTED
    assert why == {
        "sin does not compute rsqrt": contradicted,
        "sin does not compute /": contradicted,
        "out_ptr0 is buf0, which sin does not access": contradicted,
    }
    assert all(line.nodes == ("sin",) for _, line in source.gaps)


@pytest.mark.usefixtures("all_sines")
def test_a_load_of_what_a_node_does_not_read_is_a_gap(compiled):
    (source,) = compiled(lambda x, y: torch.sin(x) + y, torch.rand(8, 16), torch.rand(8, 16))
    why = {line.detail for _, line in source.gaps}
    assert why == {"in_ptr1 is arg1_1, which sin does not access", "sin does not compute +"}


SINE = torch.ops.aten.sin.default


def test_the_parts_of_a_combo_are_told_apart_though_their_lines_are_alike(compiled):
    def apart(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return torch.sin(a) + 1.0, torch.cos(b) + 1.0

    sources = compiled(apart, torch.rand(64, 32), torch.rand(8, 512), combo_kernels=True)
    (combo,) = sources
    assert "elif pid < num_xblocks_1:" in combo.text
    lines = [line.nodes for line in combo.lines if line.part is LinePart.NODE]
    assert lines == [("sin",)] * 2 + [("add",)] * 3 + [("cos",)] * 2 + [("add_1",)] * 3
    assert combo.gaps == ()


def test_observing_changes_no_generated_code_and_leaves_nothing_behind(
    compiled, fresh_torch, monkeypatch, tmp_path
):
    given = (torch.rand(64, 512), torch.rand(512))
    before = torch._inductor.ir.IRNode.__post_init__
    compiled(normalized, *given)
    observed = generated_code(fresh_torch)
    assert torch._inductor.ir.IRNode.__post_init__ is before
    torch._dynamo.reset()
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "other"))
    with stubbed("triton"):
        torch.compile(normalized)(*given)
    assert generated_code(tmp_path / "other") == observed
