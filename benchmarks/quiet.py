"""Tries the rules of findings on steps that have no flaw: what they say there is a false alarm.

A step of gradient accumulation runs forward and backward several times before its optimizer, eager
or compiled, with and without CUDA graphs, also under DDP of one rank, which reduces after each of
them (nothing is transferred). Tuned steps keep their device busy: a GPT and a ResNet-50, compiled
with their loss, in bfloat16, with a fused optimizer.

    python -m benchmarks.quiet [--tiny] [--only NAME ...] [--out DIR]

Prints what the rules say of each, and writes the sessions into DIR. It ends with 1 where they say
anything.
"""

from __future__ import annotations

import argparse
import gc
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch
from torch import distributed
from torch._C._distributed_c10d import HashStore
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

import profiler_ext
from benchmarks.cases import GPT, LARGE, TINY, Sizes, inputs, training
from benchmarks.flaws_eager import cross_entropy, eager_loss
from benchmarks.models import channels_last
from benchmarks.steps import Step, recorded

_MICRO_BATCHES = 4
_WARM_UP = 5
_RECORDED = 5


def accumulating(sizes: Sizes, mode: str | None) -> Step:
    """Return a step of four micro-batches; a mode of ``torch.compile``, or ``None`` for eager."""
    torch._dynamo.reset()
    model = GPT(sizes).to(sizes.device, torch.bfloat16)
    wrapped = DistributedDataParallel(model) if distributed.is_initialized() else model
    run: Callable[[torch.Tensor], torch.Tensor] = (
        wrapped if mode is None else torch.compile(wrapped, mode=mode)
    )
    batch = 2 if sizes.is_tiny else 32
    for each in model.parameters():  # of a CUDA graph's first gradient the memory is used again
        each.grad = torch.zeros_like(each)
    parts = [inputs(sizes, batch, torch.bfloat16) for _ in range(_MICRO_BATCHES)]
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=sizes.device == "cuda")

    def step() -> None:
        for part in parts:
            torch.compiler.cudagraph_mark_step_begin()
            (run(part) / len(parts)).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)

    return step


def reducing(sizes: Sizes) -> Step:
    """Return the step with CUDA graphs under DDP of one rank, without ``no_sync``; fewer layers."""
    backend = "nccl" if sizes.device == "cuda" else "gloo"
    distributed.init_process_group(backend, store=HashStore(), rank=0, world_size=1)
    return accumulating(replace(sizes, layers=4), "reduce-overhead")


def tuned(sizes: Sizes, mode: str | None) -> Step:
    """Return a step of a GPT in bfloat16, compiled with its loss, with a fused AdamW."""
    torch._dynamo.reset()
    pair = eager_loss(sizes, cross_entropy, batch=32, layers=12, mode=mode)
    return pair.remedied


def tuned_resnet(sizes: Sizes) -> Step:
    """Return a step of a compiled ResNet-50 in bfloat16, channels last, with its loss."""
    from torchvision.models import resnet50

    torch._dynamo.reset()
    count, side = (2, 64) if sizes.is_tiny else (256, 224)
    model = channels_last(resnet50().to(sizes.device, torch.bfloat16))
    images = torch.randn(count, 3, side, side, device=sizes.device, dtype=torch.bfloat16)
    images = images.to(memory_format=torch.channels_last)
    wanted = torch.randint(1000, (count,), device=sizes.device)
    run = torch.compile(lambda: functional.cross_entropy(model(images).float(), wanted))
    return training(model, forward=run)


QUIET: dict[str, Callable[[Sizes], Step]] = {
    "eager": lambda sizes: accumulating(sizes, None),
    "compiled": lambda sizes: accumulating(sizes, "default"),
    "replayed": lambda sizes: accumulating(sizes, "reduce-overhead"),
    "one_rank": reducing,
    "tuned_gpt": lambda sizes: tuned(sizes, None),
    "tuned_gpt_replayed": lambda sizes: tuned(sizes, "reduce-overhead"),
    "tuned_resnet": tuned_resnet,
}


def findings_of(step: Step, folder: Path | None) -> list[str]:
    """Return what the rules say of a step, once it is warm; the session is kept in a folder."""
    for _ in range(_WARM_UP):
        step()
    session = recorded(step, _RECORDED)
    if folder is not None:
        session.save(folder)
    found = session.recommendations.ranked
    return [f"{each.rule} {each.est_saving_ns / 1e6:.2f}: {each.summary}" for each in found]


def main() -> int:
    """Try the steps that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tiny", action="store_true", help="small sizes, on the CPU")
    parser.add_argument("--only", nargs="*", metavar="NAME", default=list(QUIET))
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    profiler_ext.enable()
    alarms = 0
    for name in options.only:
        folder = None if options.out is None else options.out / name
        found = findings_of(QUIET[name](TINY if options.tiny else LARGE), folder)
        alarms += len(found)
        print(f"{name}: {'; '.join(found) or 'nothing'}", flush=True)
        gc.collect()
    return 1 if alarms else 0


if __name__ == "__main__":
    sys.exit(main())
