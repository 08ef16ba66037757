"""The cases that need two ranks; each rank runs the same step under torchrun."""

from __future__ import annotations

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)
from torch.nn.parallel import DistributedDataParallel

from tests.cases import FULL, Case
from tests.cases.models import GPT, MLP, tokens, training


def join(device: str) -> DeviceMesh:
    """Join the other rank; each rank has a GPU of its own."""
    rank = int(os.environ["RANK"])
    if device == "cuda":
        torch.cuda.set_device(rank)
    here = torch.device(device, rank) if device == "cuda" else None
    dist.init_process_group("nccl" if device == "cuda" else "gloo", device_id=here)
    torch.manual_seed(0)
    return init_device_mesh(device, (2,))


def ddp(device):
    join(device)
    model = GPT(layers=4, width=128).to(device)  # three buckets, so three graphs
    parallel = DistributedDataParallel(model, bucket_cap_mb=1)
    optimizer = torch.optim.AdamW(model.parameters())
    compiled = torch.compile(parallel)
    step = training(model, *tokens(device), compiled=compiled, optimizer=optimizer)
    return Case(step, phases=FULL)


def ddp_buckets(device):
    """A layer fills a bucket, so there are equal graphs; gradients of two batches are added up.

    One rank is enough for that, and needs one GPU.
    """
    backend = "nccl" if device == "cuda" else "gloo"
    dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)
    torch.manual_seed(0)
    model = GPT(layers=4, width=160).to(device)
    parallel = DistributedDataParallel(model, bucket_cap_mb=1)
    optimizer = torch.optim.AdamW(model.parameters())
    compiled, inputs = torch.compile(parallel), tokens(device)

    def step():
        for is_last in (False, True):
            parallel.require_backward_grad_sync = is_last
            with torch.autocast(device, torch.bfloat16):
                loss = compiled(*inputs)
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return Case(step, phases=FULL)


def fsdp2(device):
    mesh = join(device)
    model = GPT(layers=4).to(device)
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters())
    step = training(model, *tokens(device), optimizer=optimizer)
    return Case(step, phases=FULL)


def tensor_parallel(device):
    mesh = join(device)
    model = MLP(64).to(device)
    parallelize_module(model, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
    x = torch.randn(32, 64, device=device)
    compiled = torch.compile(lambda x: model(x).square().mean())
    optimizer = torch.optim.AdamW(model.parameters())
    step = training(model, x, compiled=compiled, optimizer=optimizer)
    return Case(step, phases=FULL)


class Gathered(nn.Module):
    """Gathers a sharded weight where it is used, so that its collectives are traced."""

    def __init__(self, mesh: DeviceMesh) -> None:
        super().__init__()
        self.mesh = mesh

    def forward(self, weight: DTensor) -> torch.Tensor:
        whole = weight.redistribute(self.mesh, [Replicate()])
        return whole.to_local(grad_placements=[Partial("avg")])


def traced_fsdp(device):
    mesh = join(device)
    torch._inductor.config.bucket_all_gathers_fx = "all"
    torch._inductor.config.bucket_reduce_scatters_fx = "all"
    layers = nn.ModuleList(nn.Linear(64, 64, bias=False) for _ in range(4)).to(device)
    for layer in layers:
        sharded = distribute_tensor(layer.weight, mesh, [Shard(0)])
        layer.weight = nn.Parameter(sharded)
        nn.utils.parametrize.register_parametrization(layer, "weight", Gathered(mesh), unsafe=True)

    def work(x):
        for layer in layers:
            x = torch.tanh(layer(x)) * 1.25
        return x.square().mean()

    x = torch.randn(32, 64, device=device)
    return Case(training(layers, x, compiled=torch.compile(work)))


RANKED = {case.__name__: case for case in (ddp, fsdp2, tensor_parallel, traced_fsdp)}
RANKS = 2
CASES = (ddp_buckets,)
