"""The GPT of gpt.py on several devices, by DDP or by FSDP2.

torchrun --nproc-per-node 2 -m profiler_ext run examples/train_ranks.py [ddp|fsdp2] [--layers N]
"""

import argparse
import os

import torch
import torch.distributed as dist
from gpt import GPT, VOCABULARY
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel


def over_ranks(model: nn.Module, kind: str, device: torch.device) -> nn.Module:
    if kind == "ddp":
        model = DistributedDataParallel(model, [device] if device.type == "cuda" else None)
        return torch.compile(model)
    for block in model.blocks:
        block.compile()
        fully_shard(block)
    return fully_shard(model)


def train(options: argparse.Namespace, device: torch.device) -> None:
    model = GPT(options.layers, options.width, options.heads, options.tokens).to(device)
    model = over_ranks(model, options.kind, device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    batch = torch.randint(VOCABULARY, (options.batch, options.tokens + 1), device=device)
    for _ in range(options.steps):
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            loss = model(batch[:, :-1], batch[:, 1:])
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    print(f"rank {dist.get_rank()}: loss {loss.item():.4f}")


def main() -> None:
    on_gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kind", nargs="?", choices=["ddp", "fsdp2"], default="ddp")
    parser.add_argument("--layers", type=int, default=12 if on_gpu else 2)
    parser.add_argument("--width", type=int, default=768 if on_gpu else 128)
    parser.add_argument("--heads", type=int, default=12 if on_gpu else 4)
    parser.add_argument("--tokens", type=int, default=1024 if on_gpu else 64)
    parser.add_argument("--batch", type=int, default=8 if on_gpu else 4)
    parser.add_argument("--steps", type=int, default=8)
    options = parser.parse_args()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if on_gpu else torch.device("cpu")
    if on_gpu:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if on_gpu else "gloo")
    torch.manual_seed(0)
    train(options, device)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
