"""Programs that capture CUDA graphs of their own, each beside the same step without a graph.

A program is a generator. It yields its step as it is launched, and once that was recorded, what
replays it: both run the same kernels. So that each program captures as its users do, it is written
with torch's own functions; without a GPU these are those of ``simulating``.

``tensordict_module`` needs the wheels tensordict, pyvers, orjson, cloudpickle, importlib_metadata
and zipp, which can be carried to a machine without a network.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from verification.flaws.programs.program import Sizes, compiled, seeded
from verification.fusions.swiglu import swiglu
from verification.memory_prices.programs import GPT

from .apart import graphed_as_megatron, graphed_as_transformer_engine
from .served import decoding_llama, decoding_moe

__all__ = ["BRANCHES", "PROGRAMS", "SkippedError", "Steps"]

Step = Callable[[], object]
Steps = Iterator[Step]
Program = Callable[[Sizes], Steps]
T = TypeVar("T")
_WARM_UP = 3


class SkippedError(Exception):
    """A program cannot run here, and why."""


def captured(step: Step, pool: Any = None) -> Any:
    """Return a CUDA graph of a step, after a warm-up on a side stream, as torch's notes say."""
    warmed_up(step)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=pool):
        step()
    return graph


def warmed_up(step: Step) -> None:
    """Run a step on a side stream."""
    side: Any = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(_WARM_UP):
            step()
    torch.cuda.current_stream().wait_stream(side)


class Layer(nn.Module):
    """A block whose lines are those of each other one."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        h = self.norm(x)
        h = F.gelu(self.up(h))
        out: Tensor = x + self.down(h)
        return out


class Model(nn.Module):
    """Layers, of which one may be called twice."""

    def __init__(self, width: int, layers: int, repeated: int | None = None) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer(width) for _ in range(layers))
        self.head = nn.Linear(width, width)
        self.repeated = repeated

    def forward(self, x: Tensor) -> Tensor:
        for at, layer in enumerate(self.layers):
            x = layer(x)
            if at == self.repeated:
                x = layer(x)
        out: Tensor = self.head(x)
        return out


def model_of(sizes: Sizes, layers: int = 4, repeated: int | None = None) -> tuple[Model, Tensor]:
    """Return a model on its device, and an input."""
    width, rows = sizes.of(512, 8), sizes.of(1024, 4)
    model = seeded(lambda: Model(width, layers, repeated), sizes)
    return model, seeded(lambda: torch.randn(rows, width), sizes)


def optimizer_of(model: nn.Module, sizes: Sizes) -> torch.optim.Optimizer:
    """Return AdamW whose step can be captured."""
    return torch.optim.AdamW(model.parameters(), lr=1e-4, capturable=sizes.device == "cuda")


def inference_of(model: Any, x: Tensor) -> Steps:
    """Yield a forward, and its replay."""

    def step() -> Tensor:
        with torch.no_grad():
            out: Tensor = model(x)
        return out

    yield step
    graph = captured(step)
    yield graph.replay


def eager_layers(sizes: Sizes) -> Steps:
    """Layers of which two have changed places, and one is called twice."""
    model, x = model_of(sizes, repeated=1)
    model.layers[0], model.layers[2] = model.layers[2], model.layers[0]
    yield from inference_of(model, x)


def compiled_layers(sizes: Sizes) -> Steps:
    """The same, compiled layer by layer: they share one artifact."""
    model, x = model_of(sizes, repeated=1)
    for layer in model.layers:
        layer.compile(dynamic=False)
    model.layers[0], model.layers[2] = model.layers[2], model.layers[0]
    yield from inference_of(model, x)


def compiled_whole(sizes: Sizes) -> Steps:
    model, x = model_of(sizes)
    yield from inference_of(compiled(model, sizes), x)


def swapped_after(sizes: Sizes) -> Steps:
    """A graph keeps the modules that it was captured with, whatever the program does with them."""
    model, x = model_of(sizes)
    replayed = inference_of(model, x)
    yield next(replayed)
    replay = next(replayed)
    layers = model.layers
    layers[1], layers[3] = layers[3], layers[1]
    model.layers = nn.ModuleList([*layers])
    yield replay


def renamed(sizes: Sizes) -> Steps:
    """The function that captured is gone, and its name is another one's."""
    model, x = model_of(sizes)

    def forward() -> Tensor:
        return (model(x) * 0.5).relu()

    step = torch.no_grad()(forward)
    yield step
    graph = captured(step)
    forward.__name__ = forward.__qualname__ = "backward"
    del forward, step
    yield graph.replay


def training(sizes: Sizes, is_compiled: bool) -> Steps:
    """Forward, backward and AdamW in one graph."""
    model, x = model_of(sizes)
    optimizer = optimizer_of(model, sizes)
    run = compiled(model, sizes) if is_compiled else model

    def step() -> Tensor:
        loss: Tensor = run(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss

    for _ in range(_WARM_UP):
        step()
    yield step
    yield captured(step).replay


def optimizer_alone(sizes: Sizes) -> Steps:
    """The graph has the optimizer's step; forward and backward are launched."""
    model, x = model_of(sizes)
    optimizer = optimizer_of(model, sizes)

    def of_loss() -> None:
        for parameter in model.parameters():
            if parameter.grad is not None:
                parameter.grad.zero_()
        model(x).square().mean().backward()

    def update() -> None:
        optimizer.step()

    def step() -> None:
        of_loss()
        update()

    for _ in range(_WARM_UP):
        step()
    yield step
    graph = captured(update)

    def replay() -> None:
        of_loss()
        graph.replay()

    yield replay


def graphed_callables(sizes: Sizes) -> Steps:
    """torch's own captures of forward and backward, by ``make_graphed_callables``."""

    def graphed(layers: tuple[nn.Module, ...], x: Tensor) -> None:
        args = tuple((x.detach().clone().requires_grad_(),) for _ in layers)
        torch.cuda.make_graphed_callables(layers, args)

    yield from in_parts(sizes, graphed)


def in_parts(sizes: Sizes, graphed: Callable[[tuple[nn.Module, ...], Tensor], None]) -> Steps:
    """Yield a step of a loss, then the same with layers that something made graphs of."""
    model, x = model_of(sizes)
    x.requires_grad_()
    parameters = [*model.parameters()]

    def step() -> object:
        loss = model(x).square().mean()
        return torch.autograd.grad(loss, parameters)

    yield step
    graphed((*model.layers,), x)
    yield step


def transformer_engine(sizes: Sizes) -> Steps:
    """Forward and backward in graphs of their own, as Transformer Engine captures them."""
    yield from in_parts(sizes, graphed_as_transformer_engine)


def megatron(sizes: Sizes) -> Steps:
    """The same as Megatron does, whose backwards add to gradients that stay."""
    yield from in_parts(sizes, graphed_as_megatron)


def compiled_apart(sizes: Sizes) -> Steps:
    """Compiled layers with a backward apart: their artifact is one, their layers are not."""

    model, x = model_of(sizes)
    for layer in model.layers:
        layer.compile(dynamic=False)
    x.requires_grad_()
    parameters = [*model.parameters()]

    def step() -> object:
        return torch.autograd.grad(model(x).square().mean(), parameters)

    yield step
    graphed_as_transformer_engine((*model.layers,), x)
    yield step


def three_sizes(sizes: Sizes) -> Steps:
    """Graphs of three batches in one pool, as serving engines keep them."""
    model, x = model_of(sizes)
    parts = [x[: len(x) // part].contiguous() for part in (1, 2, 4)]

    @torch.no_grad()
    def step() -> None:
        for part in parts:
            model(part)

    yield step
    graphs: list[Any] = []
    for part in parts:
        pool = graphs[0].pool() if graphs else None
        graphs.append(captured(torch.no_grad()(partial(model, part)), pool))

    def replay() -> None:
        for graph in graphs:
            graph.replay()

    yield replay


def recaptured(sizes: Sizes) -> Steps:
    """A graph object that is captured a second time, with other work."""
    model, x = model_of(sizes)

    @torch.no_grad()
    def first() -> Tensor:
        out: Tensor = model.layers[0](x)
        return out

    @torch.no_grad()
    def second() -> Tensor:
        out: Tensor = model.head(model.layers[1](x)).relu()
        return out

    yield second
    graph = captured(first)
    graph.replay()
    graph.reset()
    warmed_up(second)
    with torch.cuda.graph(graph):
        second()
    yield graph.replay


def two_streams(sizes: Sizes) -> Steps:
    """Equal modules on two streams, of which one has the half of the rows."""
    model, x = model_of(sizes, layers=2)
    half = x[: len(x) // 2].contiguous()
    side: Any = torch.cuda.Stream()

    @torch.no_grad()
    def step() -> Tensor:
        main = torch.cuda.current_stream()
        side.wait_stream(main)
        first = model.layers[0](x)
        with torch.cuda.stream(side):
            second = model.layers[1](half)
        main.wait_stream(side)
        out: Tensor = first.sum() + second.sum()
        return out

    yield step
    yield captured(step).replay


def after_on_side_streams(sizes: Sizes) -> Steps:
    """What follows a replay is launched on a side stream, before the next one waits for it."""
    model, x = model_of(sizes)
    side: Any = torch.cuda.Stream()
    out = x.clone()

    @torch.no_grad()
    def forward() -> None:
        out.copy_(model(x))

    @torch.no_grad()
    def after() -> None:
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            out.mul(0.5).tanh()
        torch.cuda.current_stream().wait_stream(side)

    def step() -> None:
        forward()
        after()

    yield step
    graph = captured(forward)

    def replay() -> None:
        graph.replay()
        after()

    yield replay


def user_triton(sizes: Sizes) -> Steps:
    """A kernel in Triton, copies and fills."""
    dtype = sizes.of(torch.bfloat16, torch.float32)
    x, up = seeded(lambda: torch.randn(2, sizes.of(4096, 8), 512), sizes).to(dtype)
    kept, count = torch.empty_like(x), torch.zeros(64, device=x.device)

    def step() -> None:
        h = swiglu(x, up)
        kept.copy_(h)
        count.zero_()
        count.add_(h.float().mean())

    yield step
    yield captured(step).replay


class CapturingModule(nn.Module):
    """LeanRL's mechanism, as tensordict does it: warm-ups, then a capture, then replays."""

    def __init__(self, function: Step, warm_up: int) -> None:
        super().__init__()
        self.function, self.left, self.graph = function, warm_up, None

    def forward(self) -> None:
        if self.left:
            self.left -= 1
            self.function()
            return
        if self.graph is None:
            warmed_up(self.function)
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self.function()
        self.graph.replay()


def update_of(sizes: Sizes, is_compiled: bool) -> Callable[[], Tensor]:
    """Return a step of reinforcement learning as LeanRL has it: two critics and a target."""
    width = sizes.of(256, 8)

    def critic() -> nn.Module:
        layers = (nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        return nn.Sequential(*layers, nn.Linear(width, 1))

    first, second, target = (seeded(critic, sizes) for _ in range(3))
    optimizer = optimizer_of(nn.ModuleList([first, second]), sizes)
    state, reward = seeded(lambda: torch.randn(2, sizes.of(256, 4), width), sizes)

    def update() -> Tensor:
        optimizer.zero_grad()
        with torch.no_grad():
            wanted = reward[:, :1] + 0.99 * target(state)
        loss = F.mse_loss(first(state), wanted) + F.mse_loss(second(state), wanted)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return torch.compile(update) if is_compiled else update


def leanrl(sizes: Sizes, is_compiled: bool) -> Steps:
    module = CapturingModule(update_of(sizes, is_compiled), warm_up=1000)
    for _ in range(_WARM_UP):
        module()
    yield module
    module.left = 0
    yield module


def tensordict_module(sizes: Sizes) -> Steps:
    """The same in tensordict's own ``CudaGraphModule``."""
    if sizes.device != "cuda":
        raise SkippedError("tensordict captures on a GPU only")
    try:
        nn_of_tensordict = importlib.import_module("tensordict.nn")
    except ImportError as error:
        raise SkippedError(f"tensordict: {error}") from None
    update = update_of(sizes, False)
    for _ in range(_WARM_UP):
        update()
    yield update
    module = nn_of_tensordict.CudaGraphModule(update, warmup=3)
    for _ in range(_WARM_UP):
        module()
    yield module


def conditional_nodes(sizes: Sizes) -> Steps:
    """A ``torch.cond`` whose branch the device chooses, in a body graph of its own."""
    name = "torch._higher_order_ops.cudagraph_conditional_nodes"
    if sizes.device != "cuda":
        raise SkippedError("conditional nodes need a GPU")
    try:
        modes = importlib.import_module(name)
    except ImportError:
        raise SkippedError(f"torch {torch.__version__} has no {name}") from None
    model, x = model_of(sizes)
    is_positive = torch.ones((), dtype=torch.bool, device=x.device)

    @torch.compile(backend="eager")
    def step() -> Tensor:
        h = model(x)
        out: Tensor = torch.cond(is_positive, lambda h: h.sin(), lambda h: h.cos(), (h,))
        return out

    with torch.no_grad():
        yield step
        with modes.ControlFlowOpWarmupDispatchMode():
            step()
        graph = torch.cuda.CUDAGraph()
        with ExitStack() as stack:
            stack.enter_context(torch.cuda.graph(graph))
            stack.enter_context(modes.CUDAGraphCaptureControlFlowOpDispatchMode())
            step()
        yield graph.replay


def decode(sizes: Sizes, is_compiled: bool) -> Steps:
    """One token of a GPT of eight layers, and the choice of the next."""
    time, vocabulary = sizes.of(64, 4), sizes.of(8192, 16)
    width = sizes.of(512, 8)
    model = seeded(lambda: GPT(vocabulary, width, sizes.of(8, 2), 8, time), sizes)
    tokens = seeded(lambda: torch.zeros(sizes.of(8, 2), time, dtype=torch.long), sizes)
    next_token = torch.zeros(len(tokens), 1, dtype=torch.long, device=tokens.device)

    def of_tokens() -> Tensor:
        h = model.tok(tokens) + model.pos(model.at)
        for block in model.blocks:
            h = block(h)
        out: Tensor = model.head(model.norm(h)[:, -1:])
        return out

    run = compiled(of_tokens, sizes) if is_compiled else of_tokens

    @torch.no_grad()
    def step() -> None:
        next_token.copy_(run().argmax(-1))

    yield step
    yield captured(step).replay


BRANCHES = frozenset({"two_streams", "after_on_side_streams"})
"""Programs whose kernels have no order among streams."""
PROGRAMS: dict[str, Program] = {
    "eager_layers": eager_layers,
    "compiled_layers": compiled_layers,
    "compiled_whole": compiled_whole,
    "swapped_after": swapped_after,
    "renamed": renamed,
    "training": partial(training, is_compiled=False),
    "training_compiled": partial(training, is_compiled=True),
    "optimizer_alone": optimizer_alone,
    "graphed_callables": graphed_callables,
    "transformer_engine": transformer_engine,
    "megatron": megatron,
    "compiled_apart": compiled_apart,
    "three_sizes": three_sizes,
    "recaptured": recaptured,
    "two_streams": two_streams,
    "after_on_side_streams": after_on_side_streams,
    "user_triton": user_triton,
    "leanrl": partial(leanrl, is_compiled=False),
    "leanrl_compiled": partial(leanrl, is_compiled=True),
    "tensordict_module": tensordict_module,
    "conditional_nodes": conditional_nodes,
    "decode": partial(decode, is_compiled=False),
    "decode_compiled": partial(decode, is_compiled=True),
    "decoding_llama": partial(decoding_llama, capture=captured),
    "decoding_moe": partial(decoding_moe, capture=captured),
}
