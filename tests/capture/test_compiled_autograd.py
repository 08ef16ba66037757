"""Each kernel of compiled autograd's graph leads to its backward node, or to its hook's line.

Torch's own metadata says nothing of these nodes: no line, no number, no tag.
"""

import linecache
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
import torch._dynamo.compiled_autograd
import torch._inductor.compile_fx

import profiler_ext
from profiler_ext.attribution.enclosing import CallContext
from profiler_ext.attribution.phases import node_phase
from profiler_ext.records.evidence import LineEvidence
from profiler_ext.records.provenance import CallSite, FxNode, GraphInstance
from tests.compiling import cache_keys, capture, generated_code

pytestmark = [  # what Dynamo warns of itself when it traces an autograd.Function
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor"),
    pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning"),
]

MIX = torch.eye(8) * 2

# Every line here is a matrix product, which is a library call and needs no C++ compiler.


class Mixed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x @ MIX

    @staticmethod
    def backward(ctx, gradient):
        return gradient @ MIX.t()


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.eye(8))

    def forward(self, x):
        return x @ self.weight


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = Layer(), Layer()

    def forward(self, x):
        x = self.up(x)
        torch._dynamo.graph_break()
        return self.down(Mixed.apply(x))


def twice_used(x):
    return x.mm(MIX)


def on_gradient(gradient):
    return gradient.mm(MIX)


def on_accumulated(parameter):
    torch.mm(parameter.grad, MIX, out=parameter.grad)


def before_node(gradients):
    return (MIX.mm(gradients[0]),)


def after_node(inputs, outputs):
    return (inputs[0].matmul(MIX), inputs[1])


def pack(tensor):
    return tensor


def unpack(tensor):
    return tensor @ MIX


def made():
    """Return the compiled parts; each call compiles anew."""
    torch.manual_seed(0)
    model = Model()
    model.up.weight.register_hook(on_gradient)
    return model, torch.compile(model), torch.compile(twice_used)


def step(model, compiled, shared, *, hooked):
    x = torch.ones(8, 8, requires_grad=True)
    y = shared(shared(compiled(x)))
    if hooked:
        with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
            y = y.mm(MIX.clone().requires_grad_())
        y.grad_fn.register_prehook(before_node)
        y.grad_fn.register_hook(after_node)
    y.backward(torch.ones(8, 8))
    return x.grad


@contextmanager
def compiled_autograd() -> Iterator[None]:
    with torch._dynamo.compiled_autograd._enable(torch.compile):
        yield


def ours() -> GraphInstance:
    return [graph for graph in capture().graphs if graph.is_of_compiled_autograd][-1]


def code_of(node: FxNode) -> str | None:
    frame = node.lineage.stack[-1] if node.lineage.stack else None
    return linecache.getline(frame.file, frame.line).strip() if frame else None


def described(graph: GraphInstance, site: CallSite) -> list[tuple[object, ...]]:
    nodes = {node.name: node for node in graph.nodes}
    return [
        (
            node_phase(node, graph, CallContext(), in_torch_optim=False).value,
            code_of(node),
            node.lineage.modules[-1].path if node.lineage.modules else None,
            forward_code(node),
        )
        for node in (nodes[name] for name in site.nodes)
    ]


def forward_code(node: FxNode) -> str | None:
    """The line of the forward node in the joint graph that the node came from."""
    forward = {
        (graph.provenance.joint, each.lineage.joint_name): each
        for graph in capture().graphs
        if graph.provenance and not graph.is_backward and not graph.is_of_compiled_autograd
        for each in graph.nodes
    }
    found = forward.get((node.lineage.joint, node.lineage.forward_node))
    return code_of(found) if found else None


def table(graph: GraphInstance | None = None) -> list[list[tuple[object, ...]]]:
    graph = graph or ours()
    assert graph.provenance is not None
    return [described(graph, site) for site in graph.provenance.call_sites]


def site(line, module=None, forward=None):
    return [("backward", line, module, forward)]


SHARED = site("return x.mm(MIX)", None, "return x.mm(MIX)")
DOWN = site("return x @ self.weight", "down", "return x @ self.weight")
FUNCTION = site("return gradient @ MIX.t()", None, "return x @ MIX")
UP = site("return x @ self.weight", "up", "return x @ self.weight")
WHOLE = [SHARED, SHARED, DOWN, DOWN, FUNCTION, UP, site("return gradient.mm(MIX)"), UP]
NO_LINE = site(None)  # autograd's own node of an op that ran eagerly
HOOKED = [
    site("return tensor @ MIX"),
    site("return (MIX.mm(gradients[0]),)"),
    NO_LINE,
    site("return tensor @ MIX"),
    NO_LINE,
    site("return (inputs[0].matmul(MIX), inputs[1])"),
]


@pytest.mark.usefixtures("fresh_torch")
def test_each_kernel_leads_to_its_line_hooks_and_a_graph_used_twice_included() -> None:
    profiler_ext.enable(strict=True)
    model, compiled, shared = made()
    model.up.weight.register_post_accumulate_grad_hook(on_accumulated)
    with compiled_autograd():
        step(model, compiled, shared, hooked=True)
    last = site("torch.mm(parameter.grad, MIX, out=parameter.grad)")
    assert table() == [*HOOKED, *WHOLE, last]
    assert {node.lineage.evidence for node in ours().nodes} == {
        LineEvidence.COMPILED,
        LineEvidence.GRADIENT,
        LineEvidence.EAGER_BACKWARD,
    }


@pytest.mark.usefixtures("fresh_torch")
def test_a_forward_from_autograds_cache_gives_the_same() -> None:
    profiler_ext.enable(strict=True)
    step(*made(), hooked=False)
    torch._dynamo.reset()
    with compiled_autograd():
        step(*made(), hooked=False)
    states = {graph.compile_id: graph.cache_state for graph in capture().graphs}
    # Torch bypasses its cache where an autograd.Function is compiled.
    assert (states["0/0"], states["1/0"], states["2/0"]) == ("aot_hit", "fx_hit", "aot_hit")
    assert table() == WHOLE
    assert LineEvidence.FRESH_DYNAMO in {node.lineage.evidence for node in ours().nodes}


@pytest.mark.usefixtures("fresh_torch")
def test_a_forward_that_torch_wiped_gives_the_same_and_sums_are_a_phase_of_their_own() -> None:
    profiler_ext.enable(strict=True)
    parts = made()
    expected = step(*parts, hooked=False)
    with compiled_autograd():
        gradient = step(*parts, hooked=False)
    assert torch.equal(gradient, expected)
    down = [("gradient_accumulation", "return x @ self.weight", "down", None)]
    hooked = [("gradient_accumulation", "return gradient.mm(MIX)", None, None)]
    assert table() == [*WHOLE[:3], down, *WHOLE[3:7], hooked, *WHOLE[7:]]


def breaking(gradient):
    torch._dynamo.graph_break()
    return gradient.mm(MIX)


@pytest.mark.usefixtures("fresh_torch")
def test_what_follows_a_graph_break_in_a_hook_and_sizes_that_vary_are_attributed_too() -> None:
    profiler_ext.enable(strict=True)
    # With sizes that vary torch compiles the backward at once, and wipes the graph it keeps.
    below, above = (torch.compile(Layer(), dynamic=True) for _ in range(2))
    with compiled_autograd():
        y = below(torch.ones(4, 8, requires_grad=True))
        y.register_hook(breaking)
        above(y).backward(torch.ones(4, 8))
    graphs = [graph for graph in capture().graphs if graph.is_of_compiled_autograd]
    line = site("return x @ self.weight", "", "return x @ self.weight")
    tables = [table(graph) for graph in graphs]
    assert tables == [[line, line], [site("return gradient.mm(MIX)")], [line, line]]


class Convolution(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(4, 4, 3, 3))

    def forward(self, x):
        return torch.nn.functional.conv2d(x, self.weight)


@pytest.mark.usefixtures("fresh_torch")
@pytest.mark.parametrize("is_cached", [pytest.param(False, marks=pytest.mark.whole), True])
def test_an_op_with_several_results_is_attributed_by_them(is_cached: bool) -> None:
    def train() -> None:
        y = torch.compile(Convolution())(torch.ones(2, 4, 8, 8, requires_grad=True))
        y.backward(torch.ones_like(y))

    profiler_ext.enable(strict=True)
    if is_cached:
        train()
        torch._dynamo.reset()
    with compiled_autograd():
        train()
    found = [node for node in ours().nodes if node.target == "aten.convolution_backward.default"]
    assert [
        (node.lineage.forward_node, code_of(node), node.lineage.joint is None) for node in found
    ] == [("convolution", "return torch.nn.functional.conv2d(x, self.weight)", False)]


def train(part, x):
    part(x).backward(torch.ones(8, 8))


def test_keys_and_generated_code_are_the_same_under_the_flag_with_and_without_capture(
    fresh_torch: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with torch._dynamo.config.patch(compiled_autograd=True):
        torch.compile(train)(Layer(), torch.ones(8, 8, requires_grad=True))
        keys, code = cache_keys(fresh_torch), generated_code(fresh_torch)
        torch._dynamo.reset()
        monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "other"))
        profiler_ext.enable(strict=True)
        torch.compile(train)(Layer(), torch.ones(8, 8, requires_grad=True))
    assert cache_keys(tmp_path / "other") == keys
    assert generated_code(tmp_path / "other") == code
    assert len(code) == 2
    assert table() == [site("return x @ self.weight", "", "return x @ self.weight")] * 2
