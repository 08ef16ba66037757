"""Tries the rules of findings that are about several ranks; see ``benchmarks/findings.py``.

    torchrun --nproc_per_node 2 -m benchmarks.findings_ranks [--tiny] [--rounds 7] --out DIR

Each rank records its own session; rank 0 merges them, asks the rules and prints the table. Where
devices are joined more slowly, ``NCCL_MAX_CTAS=4`` stands for it: of the same link less is used.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

import profiler_ext
from benchmarks.cases import LARGE, TINY, Sizes
from benchmarks.findings import BLOCK_S, MOST_STEPS
from benchmarks.findings_outcomes import Outcome, outcome_of, table
from benchmarks.flaws_ranks import RANK_CASES, RankCase
from benchmarks.flaws_unseen import UNSEEN
from benchmarks.steps import Step, recorded, synchronize
from profiler_ext.exporters.json_output.answers import findings_answer
from profiler_ext.exporters.json_output.bounds import answer_text
from profiler_ext.findings import Findings


def tried(case: RankCase, sizes: Sizes, rounds: int, out: Path) -> Outcome | None:
    """Return on rank 0 what a case came to."""
    pair = case.make(sizes)
    reported = [
        _found(step, out / case.name / name)
        for name, step in (("flawed", pair.flawed), ("remedied", pair.remedied))
    ]
    times = [[_timed(step, sizes) for step in (pair.flawed, pair.remedied)] for _ in range(rounds)]
    if dist.get_rank() != 0:
        return None
    flawed, remedied = reported
    assert flawed is not None and remedied is not None
    both = [(before, after) for before, after in times]
    return outcome_of(case.rule, case.words, (flawed, remedied), both)


def _found(step: Step, folder: Path) -> Findings | None:
    for _ in range(5):
        step()
    recorded(step, 5).save(folder / f"rank_{dist.get_rank()}")
    dist.barrier()
    if dist.get_rank() != 0:
        return None
    ranks = profiler_ext.load(folder)
    (folder / "findings.json").write_text(answer_text(findings_answer(ranks)))
    return ranks.recommendations


def _timed(step: Step, sizes: Sizes) -> float:
    """Return milliseconds a step; all ranks make as many."""
    step()
    synchronize()
    dist.barrier()
    started = time.perf_counter()
    step()
    synchronize()
    took = torch.tensor([time.perf_counter() - started])
    count = torch.tensor([min(MOST_STEPS, max(3, int(BLOCK_S / float(took))))], device=sizes.device)
    dist.broadcast(count, 0)
    dist.barrier()
    started = time.perf_counter()
    for _ in range(int(count)):
        step()
    synchronize()
    return 1e3 * (time.perf_counter() - started) / int(count)


def main() -> int:
    """Try the cases on this rank."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tiny", action="store_true", help="small sizes, on the CPU")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", nargs="*", metavar="CASE", help="after, unit, again, late, ...")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    sizes = TINY if options.tiny else LARGE
    if sizes.device == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("gloo" if options.tiny else "nccl")
    profiler_ext.enable()
    if dist.get_rank() == 0:
        print(table(()), end="", flush=True)
    cases = (*RANK_CASES, *UNSEEN)
    chosen = [case for case in cases if not options.only or case.name in options.only]
    reported = []
    for case in chosen:
        outcome = tried(case, sizes, options.rounds, options.out)
        gc.collect()
        if outcome is not None:
            reported.append(outcome)
            print(table([outcome]).splitlines()[-1], flush=True)
    dist.destroy_process_group()
    for outcome in reported:
        print(f"{outcome.words}: also said: {outcome.others or 'nothing'}")
    return 0 if all(outcome.holds for outcome in reported) else 1


if __name__ == "__main__":
    sys.exit(main())
