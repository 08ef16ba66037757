"""What it costs to watch the lines of eager training steps that torch.profiler records.

Each recording has two blocks of steps, one with its lines watched and one without, in an order
that is drawn; the first steps of a block are not counted. What a step takes is compared within the
recording, a second apart, so what else the machine does meets both. Besides the wall time there is
the processor time of the main thread, which other processes disturb less.

    python -m benchmarks.eager_lines [--device cuda] [--model gpt|llama] [--batch 8] [--rounds 12]

A small batch leaves the GPU waiting for Python, a large one Python for the GPU.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional

from benchmarks.models import GPT
from benchmarks.steps import Step, synchronize
from profiler_ext.isolation.guard import Guard
from profiler_ext.profiling.lines import RecordedLines

NOT_COUNTED = 2
"""The first steps of a block: Python looks at all code once when a watch begins."""


@dataclass(frozen=True)
class Taken:
    """What a step took, in milliseconds."""

    wall: float
    thread: float


def model_of(name: str, width: int, layers: int) -> nn.Module:
    """Make a model."""
    if name == "gpt":
        return GPT(width, layers)
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=50304,
        hidden_size=width,
        intermediate_size=4 * width,
        num_hidden_layers=layers,
        num_attention_heads=width // 64,
    )
    return LlamaForCausalLM(config)


def step_of(options: argparse.Namespace) -> Step:
    """Make a training step."""
    model = model_of(options.model, options.width, options.layers).to(options.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    ids = torch.randint(0, 50304, (options.batch, options.length), device=options.device)

    def step() -> None:
        with torch.autocast(options.device, torch.bfloat16):
            given = model(ids)
            logits = given if isinstance(given, torch.Tensor) else given.logits
            loss = functional.cross_entropy(logits.flatten(0, 1), ids.flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def step_taken(step: Step) -> Taken:
    """Run a step and wait for the device."""
    synchronize()
    started, of_thread = time.perf_counter(), time.thread_time()
    step()
    of_thread = time.thread_time() - of_thread
    synchronize()
    return Taken((time.perf_counter() - started) * 1e3, of_thread * 1e3)


def block(step: Step, steps: int, lines: RecordedLines | None) -> list[Taken]:
    """Return what the steps of a block took."""
    if lines is not None:
        lines.prepare()
        lines.begin()
    taken = [step_taken(step) for _ in range(NOT_COUNTED + steps)]
    if lines is not None:
        lines.end()
        lines.forget()
    return taken[NOT_COUNTED:]


def recorded(step: Step, steps: int) -> tuple[list[Taken], list[Taken]]:
    """Record both blocks; return what their steps took without lines and with them."""
    taken: dict[bool, list[Taken]] = {}
    with torch.profiler.profile() as profiler:
        for is_watched in random.sample((False, True), 2):
            lines = RecordedLines(Guard(), is_wanted=True) if is_watched else None
            taken[is_watched] = block(step, steps, lines)
    del profiler
    return taken[False], taken[True]


def main() -> None:
    """Measure and print."""
    options = parsed()
    step = step_of(options)
    for _ in range(3):
        step()
    show(options, [recorded(step, options.steps) for _ in range(options.rounds)])


def show(options: argparse.Namespace, rounds: list[tuple[list[Taken], list[Taken]]]) -> None:
    """Print the times with lines beside those without of the same recording."""
    size = f"{options.width}x{options.layers}, batch {options.batch} of {options.length}"
    print(f"{options.model} {size}, {options.device}, {len(rounds)} recordings")
    for name in ("wall", "thread"):
        pairs = [[[getattr(t, name) for t in each] for each in pair] for pair in rounds]
        middles = [[statistics.median(each) for each in pair] for pair in pairs]
        ratios = sorted(watched / without for without, watched in middles)
        spread = f"{ratios[len(ratios) // 4]:.4f} to {ratios[-1 - len(ratios) // 4]:.4f}"
        least = [min(t for pair in pairs for t in pair[at]) for at in (0, 1)]
        print(
            f"  {name:7} {statistics.median(without for without, _ in middles):8.2f} ms a step, "
            f"with lines {statistics.median(ratios):.4f} of it (middle half {spread}); "
            f"the fastest steps {least[1] / least[0]:.4f}"
        )


def parsed() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--model", choices=("gpt", "llama"), default="gpt")
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--steps", type=int, default=8)
    return parser.parse_args()


if __name__ == "__main__":
    main()
