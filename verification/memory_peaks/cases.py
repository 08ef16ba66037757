"""Cases of the allocator, of streams, of CUDA graphs, and of several devices and ranks.

``tiny`` runs the same on the CPU as far as it goes: without streams, CUDA graphs and settings of
the CUDA allocator, on one device, with gloo.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

from verification.memory_prices.programs import Block, device

from .programs import BFLOAT16, Program, Step, adamw, sent, small_gpt

__all__ = ["CASES"]


def gpt(tiny: bool) -> tuple[nn.Module, list[Tensor]]:
    """A GPT and its batch, on the device."""
    torch.manual_seed(0)
    model = small_gpt(tiny)
    return model.module.to(device(tiny)), sent(model.batch, device(tiny))


def stepped(model: nn.Module, forward: Callable[[], Tensor], tiny: bool, **options: Any) -> Step:
    """A step under autocast."""
    optimizer = adamw(model, **options)

    def step() -> Tensor:
        optimizer.zero_grad()
        with torch.autocast(device(tiny), BFLOAT16):
            loss = forward()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def plain(tiny: bool) -> Step:
    model, batch = gpt(tiny)
    return stepped(model, lambda: model(*batch), tiny)


def on_cpu(tiny: bool) -> Step:
    model, batch = gpt(tiny)

    def forward() -> Tensor:
        with torch.autograd.graph.save_on_cpu(pin_memory=not tiny):
            loss: Tensor = model(*batch)
        return loss

    return stepped(model, forward, tiny)


def streams(tiny: bool) -> Step:
    """Two towers on two streams; what the second makes is handed to the first."""
    if tiny:
        return plain(tiny)
    torch.manual_seed(0)
    left, right = (
        nn.Sequential(*(Block(768, 12) for _ in range(4))).to(device(tiny)) for _ in range(2)
    )
    x, side = torch.randn(8, 256, 768, device=device(tiny)), torch.cuda.Stream()

    def forward() -> Tensor:
        current = torch.cuda.current_stream()
        side.wait_stream(current)
        with torch.cuda.stream(side):
            y = right(x)
        own = left(x)
        current.wait_stream(side)
        y.record_stream(current)
        return F.mse_loss(own.float(), y.float())

    return stepped(nn.ModuleList([left, right]), forward, tiny)


def own_graph(tiny: bool) -> Step:
    """A whole step in a CUDA graph of the program's own, as torch's notes have it."""
    if tiny:
        return plain(tiny)
    model, batch = gpt(tiny)
    step = stepped(model, lambda: model(*batch), tiny, capturable=True)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph: Any = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = step()

    def replay() -> object:
        graph.replay()
        return loss

    return replay


def reduce_overhead(tiny: bool) -> Step:
    model, batch = gpt(tiny)
    run = torch.compile(model, mode="reduce-overhead")
    return stepped(model, lambda: run(*batch), tiny)


def towers(tiny: bool) -> tuple[nn.Module, nn.Module, list[str], Tensor]:
    """Two halves of a model, on two devices."""
    torch.manual_seed(0)
    width, heads, layers, shape = (32, 2, 1, (4, 8)) if tiny else (768, 12, 4, (8, 512))
    places = ["cpu", "cpu"] if tiny else ["cuda:0", "cuda:1"]
    first, second = (
        nn.Sequential(*(Block(width, heads) for _ in range(layers))).to(place) for place in places
    )
    return first, second, places, torch.randn(*shape, width, device=places[0])


def two_devices(tiny: bool) -> Step:
    first, second, places, x = towers(tiny)

    def forward() -> Tensor:
        result: Tensor = second(first(x).to(places[1]))
        return result.float().square().mean()

    return stepped(nn.ModuleList([first, second]), forward, tiny)


# -- of two ranks ---------------------------------------------------------------------------------


def place_of_rank(tiny: bool) -> str:
    return "cpu" if tiny else f"cuda:{dist.get_rank()}"


def half(tiny: bool) -> tuple[nn.Module, tuple[int, ...], Tensor]:
    """This rank's half, the shape of what it is given, and the first rank's input."""
    torch.manual_seed(0)
    width, heads, layers, shape = (32, 2, 1, (4, 8)) if tiny else (768, 12, 4, (8, 512))
    own = nn.Sequential(*(Block(width, heads) for _ in range(layers))).to(place_of_rank(tiny))
    return own, (*shape, width), torch.randn(*shape, width, device=place_of_rank(tiny))


def by_hand(tiny: bool, parts: int = 4) -> Step:
    """A pipeline by ``send`` and ``recv``: all forwards, then all backwards."""
    model, shape, x = half(tiny)
    optimizer, is_first = adamw(model), dist.get_rank() == 0
    part = (shape[0] // parts, *shape[1:])

    def step() -> None:
        optimizer.zero_grad()
        given, results = [], []
        for chunk in x.chunk(parts):
            if is_first:
                results.append(model(chunk))
                dist.send(results[-1].detach().contiguous(), 1)
            else:
                given.append(torch.empty(part, device=x.device).requires_grad_())
                dist.recv(given[-1].detach(), 0)
                results.append(model(given[-1]).square().mean())
        for at, result in enumerate(results):
            if is_first:
                gradient = torch.empty_like(result)
                dist.recv(gradient, 1)
                result.backward(gradient)
            else:
                result.backward()
                dist.send(given[at].grad.contiguous(), 0)
        optimizer.step()

    return step


def pipeline_stage(tiny: bool, parts: int = 4) -> Step:
    """``PipelineStage`` of torch, with the schedule of GPipe."""
    from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

    model, _, x = half(tiny)
    rank, optimizer = dist.get_rank(), adamw(model)
    stage = PipelineStage(model, rank, 2, x.device)
    schedule = ScheduleGPipe(stage, parts, loss_fn=F.mse_loss)
    target = torch.zeros_like(x)

    def step() -> None:
        optimizer.zero_grad()
        if rank == 0:
            schedule.step(x)
        else:
            schedule.step(target=target)
        optimizer.step()

    return step


def ddp(tiny: bool, *, views: bool) -> Step:
    model, batch = gpt(tiny)
    run = nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=views)
    return stepped(model, lambda: run(*batch), tiny)


def fsdp1(tiny: bool) -> Step:
    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy

    model, batch = gpt(tiny)
    run = FSDP(
        model,
        auto_wrap_policy=ModuleWrapPolicy({Block}),
        device_id=torch.device(place_of_rank(tiny)),
        use_orig_params=True,
    )
    return stepped(run, lambda: run(*batch), tiny)


def fsdp2(tiny: bool) -> Step:
    from torch.distributed.fsdp import fully_shard

    model, batch = gpt(tiny)
    mesh = dist.init_device_mesh(device(tiny), (dist.get_world_size(),))
    for module in model.modules():
        if isinstance(module, Block):
            fully_shard(module, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return stepped(model, lambda: model(*batch), tiny)


def _settings(text: str) -> dict[str, str]:
    return {"PYTORCH_CUDA_ALLOC_CONF": text, "PYTORCH_ALLOC_CONF": text}


CASES = (
    Program("eager", plain),
    Program("save_on_cpu", on_cpu),
    Program("two_streams", streams),
    Program("own_cuda_graph", own_graph),
    Program("reduce_overhead", reduce_overhead),
    Program("expandable_segments", plain, environment=_settings("expandable_segments:True")),
    Program("malloc_async", plain, environment=_settings("backend:cudaMallocAsync")),
    Program("two_devices", two_devices, devices=2),
    Program("pipeline_by_hand", by_hand, ranks=2),
    Program("pipeline_stage", pipeline_stage, ranks=2),
    Program("ddp", partial(ddp, views=False), ranks=2),
    Program("ddp_views", partial(ddp, views=True), ranks=2),
    Program("fsdp1", fsdp1, ranks=2),
    Program("fsdp2", fsdp2, ranks=2),
)
