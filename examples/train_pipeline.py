"""Two stages of a model, one on each rank: pipeline parallelism by torch.distributed.pipelining.

torchrun --nproc-per-node 2 -m profiler_ext run examples/train_pipeline.py [1f1b|gpipe]
"""

import argparse
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from mlp import MLP
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

SCHEDULES = {"1f1b": Schedule1F1B, "gpipe": ScheduleGPipe}


def train(options: argparse.Namespace, device: torch.device) -> None:
    rank = dist.get_rank()
    stage = nn.Sequential(*(MLP(options.width) for _ in range(options.layers))).to(device)
    stage.compile()
    pipeline = PipelineStage(stage, rank, dist.get_world_size(), device)
    schedule = SCHEDULES[options.schedule](pipeline, n_microbatches=4, loss_fn=F.mse_loss)
    optimizer = torch.optim.AdamW(stage.parameters(), lr=1e-3)
    batch, target = torch.randn(2, options.batch, options.width, device=device)
    for _ in range(options.steps):
        if rank == 0:
            schedule.step(batch)
        else:
            schedule.step(target=target)
        optimizer.step()
        optimizer.zero_grad()


def main() -> None:
    on_gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("schedule", nargs="?", choices=sorted(SCHEDULES), default="1f1b")
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--width", type=int, default=4096 if on_gpu else 256)
    parser.add_argument("--batch", type=int, default=4096 if on_gpu else 64)
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
