"""Tries the rules of findings that are about several ranks; see ``benchmarks/findings.py``.

    torchrun --nproc_per_node 2 -m benchmarks.findings_ranks [--tiny] [--rounds 7] --out DIR

Each rank records its own session; rank 0 merges them, asks the rules and prints the table.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import profiler_ext
from benchmarks.cases import GPT, LARGE, TINY, Pair, Sizes, inputs, training
from benchmarks.findings import BLOCK_S, MOST_STEPS
from benchmarks.findings_outcomes import Outcome, outcome_of, table
from benchmarks.steps import Step, recorded, synchronize
from profiler_ext.exporters.answers.bounds import answer_text
from profiler_ext.exporters.answers.making import findings_answer
from profiler_ext.findings import Findings

_LATE_S = 0.01
Make = Callable[[Sizes], Pair]


def after_backward(sizes: Sizes) -> Pair:
    """Each gradient is reduced by itself when the backward is over; DDP does it meanwhile."""
    width, rows = (64, 8) if sizes.is_tiny else (4096, 6144)
    x = torch.randn(rows, width, device=sizes.device, dtype=torch.bfloat16)
    alone, ranked = (wide(sizes, width) for _ in range(2))
    optimizer = torch.optim.AdamW(alone.parameters(), lr=1e-5, fused=sizes.device == "cuda")

    def step() -> None:
        alone(x).float().square().mean().backward()
        for parameter in alone.parameters():
            dist.all_reduce(parameter.grad)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    beside = DistributedDataParallel(ranked)
    return Pair(step, training(beside, forward=lambda: beside(x).float().square().mean()))


def wide(sizes: Sizes, width: int) -> nn.Module:
    """Return layers that have much to communicate, for what they compute."""
    layers = (nn.Linear(width, width) for _ in range(sizes.layers))
    return nn.Sequential(*layers).to(sizes.device, torch.bfloat16)


def late_rank(sizes: Sizes) -> Pair:
    """Rank 1 does something else for ten milliseconds in each step; it does not."""
    step = data_parallel(sizes, bucket_mb=25)

    def late() -> None:
        if dist.get_rank() == 1:
            if sizes.device == "cuda":
                torch.cuda.synchronize()
            time.sleep(_LATE_S)
        step()

    return Pair(late, step)


CASES: tuple[tuple[str, str, Make], ...] = (
    ("exposed_communication", "gradients reduced after the backward; DDP", after_backward),
    ("late_rank", "rank 1 sleeps 10 ms a step; not", late_rank),
)


def data_parallel(sizes: Sizes, bucket_mb: int) -> Step:
    """Return a step of a GPT under DDP, whose first bucket is as large as the others."""
    model = GPT(sizes).to(sizes.device, torch.bfloat16)
    ranked = DistributedDataParallel(model, bucket_cap_mb=bucket_mb)
    return training(ranked, inputs(sizes, 48, torch.bfloat16))


def tried(case: tuple[str, str, Make], sizes: Sizes, rounds: int, out: Path) -> Outcome | None:
    """Return on rank 0 what a case came to."""
    rule, words, make = case
    pair = make(sizes)
    told = [
        _found(step, out / rule / name)
        for name, step in (("flawed", pair.flawed), ("remedied", pair.remedied))
    ]
    times = [[_timed(step, sizes) for step in (pair.flawed, pair.remedied)] for _ in range(rounds)]
    if dist.get_rank() != 0:
        return None
    flawed, remedied = told
    assert flawed is not None and remedied is not None
    return outcome_of(rule, words, (flawed, remedied), [(before, after) for before, after in times])


def _found(step: Step, folder: Path) -> Findings | None:
    for _ in range(5):
        step()
    recorded(step, 5).save(folder / f"rank_{dist.get_rank()}")
    dist.barrier()
    if dist.get_rank() != 0:
        return None
    ranks = profiler_ext.load(folder)
    (folder / "findings.json").write_text(answer_text(findings_answer(ranks)))
    return ranks.found


def _timed(step: Step, sizes: Sizes) -> float:
    """Return milliseconds a step; all ranks make as many."""
    step()
    synchronize()
    dist.barrier()
    begun = time.perf_counter()
    step()
    synchronize()
    took = torch.tensor([time.perf_counter() - begun])
    count = torch.tensor([min(MOST_STEPS, max(3, int(BLOCK_S / float(took))))], device=sizes.device)
    dist.broadcast(count, 0)
    dist.barrier()
    begun = time.perf_counter()
    for _ in range(int(count)):
        step()
    synchronize()
    return 1e3 * (time.perf_counter() - begun) / int(count)


def main() -> int:
    """Try the cases on this rank."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tiny", action="store_true", help="small sizes, on the CPU")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    sizes = TINY if options.tiny else LARGE
    if sizes.device == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("gloo" if options.tiny else "nccl")
    profiler_ext.enable()
    outcomes = [tried(case, sizes, options.rounds, options.out) for case in CASES]
    dist.destroy_process_group()
    told = [outcome for outcome in outcomes if outcome is not None]
    if told:
        print(table(told))
        for outcome in told:
            print(f"{outcome.rule}: also said: {outcome.others or 'nothing'}")
    return 0 if all(outcome.holds for outcome in told) else 1


if __name__ == "__main__":
    sys.exit(main())
