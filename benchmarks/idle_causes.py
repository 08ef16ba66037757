"""Whether the causes of idle time are right: each is made on purpose, told, and then taken away.

A case is a step that leaves a device idle for one reason, and the same step without that reason.
What the recording of the first tells as idle time of that cause is compared with how much shorter
the other step is, in turns and without a profiler.

    python -m benchmarks.idle_causes [--device cuda] [--rounds 9] [--out FOLDER]
    torchrun --nproc-per-node 2 -m benchmarks.idle_causes --ranks [--out FOLDER]
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import profiler_ext
from benchmarks.steps import Step, recorded, synchronize
from profiler_ext.records.vocabulary import IdleCause

WARM_UP, STEPS = 5, 8


@dataclass(frozen=True)
class Case:
    """A cause, and the idle time that it is told by."""

    name: str
    flawed: Step
    remedied: Step
    causes: tuple[IdleCause, ...]


class Trained:
    """A model that keeps a device busy for some milliseconds a step, and its input."""

    def __init__(self, device: str, width: int, layers: int, rows: int) -> None:
        parts = (part for _ in range(layers) for part in (nn.Linear(width, width), nn.GELU()))
        self.model: nn.Module = nn.Sequential(*parts).to(device)
        self.x = torch.randn(rows, width, device=device)

    def forward(self) -> torch.Tensor:
        """Return the loss."""
        loss: torch.Tensor = self.model(self.x).square().mean()
        return loss

    def step(self) -> torch.Tensor:
        """Run forward and backward."""
        loss = self.forward()
        loss.backward()
        self.model.zero_grad()
        return loss


_WAITS = (IdleCause.SYNCHRONISATION, IdleCause.AFTER_SYNCHRONISATION)


def cases(device: str) -> Iterator[Case]:
    """Yield the cases of one device."""
    large = Trained(device, *((4096, 6, 512) if device == "cuda" else (64, 2, 64)))
    yield _item("item, bound by the device", large)
    yield _item("item, bound by launches", Trained(device, 64, 40, 64))
    yield _busy_python(large)
    yield _slow_loader(large)
    yield _emptied_cache(large, device)


def _item(name: str, trained: Trained) -> Case:
    def step(read: bool) -> None:
        for _ in range(4):
            loss = trained.step()
            if read:
                loss.item()

    return Case(name, lambda: step(True), lambda: step(False), _WAITS)


def _busy_python(trained: Trained) -> Case:
    def step(seconds: float) -> None:
        trained.step().item()
        until = time.perf_counter() + seconds
        while time.perf_counter() < until:
            pass

    causes = (IdleCause.PYTHON, IdleCause.END_OF_STEP, *_WAITS)
    return Case("Python", lambda: step(0.01), lambda: step(0), causes)


def _slow_loader(trained: Trained) -> Case:
    def step(seconds: float) -> None:
        with torch.profiler.record_function("enumerate(DataLoader)#Slow.__next__"):
            time.sleep(seconds)
        trained.step().item()

    return Case("data loader", lambda: step(0.01), lambda: step(0), (IdleCause.DATA_LOADER,))


def _emptied_cache(trained: Trained, device: str) -> Case:
    def step(empties: bool) -> None:
        trained.step()
        if empties and device == "cuda":
            torch.cuda.empty_cache()

    causes = (IdleCause.ALLOCATING, *_WAITS)
    return Case("empty_cache", lambda: step(True), lambda: step(False), causes)


def late(rank: int) -> Case:
    """Return the case of a rank that comes late to every all-reduce."""
    torch.cuda.set_device(rank)
    trained = Trained("cuda", 4096, 4, 4096)
    trained.model = DistributedDataParallel(trained.model, device_ids=[rank])

    def step(seconds: float) -> None:
        torch.cuda.synchronize()
        if rank == 1 and seconds:
            time.sleep(seconds)
        trained.step()
        torch.cuda.synchronize()

    return Case("a late rank", lambda: step(0.01), lambda: step(0), ())


def timed(step: Step) -> float:
    """Return how many milliseconds a step takes, of several in a row."""
    synchronize()
    began = time.perf_counter()
    for _ in range(STEPS):
        step()
    synchronize()
    return 1e3 * (time.perf_counter() - began) / STEPS


def reported_ms(session: profiler_ext.Session, causes: tuple[IdleCause, ...]) -> float:
    """Return the idle time of some causes in a usual step."""
    idle = session.analysis.idle
    chosen = idle.cause.where(*causes)
    sums = [
        int(idle.duration_ns[chosen & (idle.step == step.number)].sum())
        for step in session.analysis.steps
    ]
    return statistics.median(sums) / 1e6


def tried(case: Case, rounds: int, out: Path | None) -> str:
    """Return a row of the table: told, and measured."""
    for step in (case.flawed, case.remedied):
        timed(step)
    pairs = [(timed(case.flawed), timed(case.remedied)) for _ in range(rounds)]
    saved = statistics.median(flawed - remedied for flawed, remedied in pairs)
    flawed_ms = statistics.median(flawed for flawed, _ in pairs)
    reported = reported_ms(recorded(case.flawed, 4, warm_up=1), case.causes)
    session = recorded(case.flawed, 4, warm_up=1)
    left = reported_ms(recorded(case.remedied, 4, warm_up=1), case.causes)
    if out is not None:
        name = case.name.replace(" ", "_").replace(",", "")
        rank = int(os.environ.get("RANK", "0"))
        session.save(out / name / f"rank_{rank}")
    return f"| {case.name} | {flawed_ms:.3f} | {reported:.3f} | {left:.3f} | {saved:.3f} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--ranks", action="store_true", help="the case of a late rank")
    parser.add_argument("--out", type=Path, help="keep the sessions in this folder")
    options = parser.parse_args()
    profiler_ext.enable()
    remedied = "reported ms, remedied" if not options.ranks else ""
    print(
        f"| case | step ms | reported ms | {remedied} | saved ms |\n| --- | --- | --- | --- | --- |"
    )
    if options.ranks:
        dist.init_process_group("nccl")
        row = tried(late(dist.get_rank()), options.rounds, options.out)
        print(f"rank {dist.get_rank()} {row}", flush=True)
        dist.destroy_process_group()
        return
    for case in cases(options.device):
        print(tried(case, options.rounds, options.out), flush=True)


if __name__ == "__main__":
    main()
