"""What it costs to watch the lines of eager training steps, against torch.profiler alone.

Each round records the same number of steps three times, in an order that changes: with
torch.profiler, with profiler_ext and `lines=False`, with profiler_ext. The wall time of the
recorded steps is compared within the round, so what else the machine does meets all three.

    python benchmarks/eager_lines.py [--device cuda] [--model gpt|llama] [--batch 8] [--rounds 12]

A small batch leaves the GPU waiting for Python, a large one Python for the GPU.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional

import profiler_ext

Profiled = Callable[..., torch.profiler.profile]


class Unkept(profiler_ext.profile):
    """Records, and makes nothing of it: that is not what is measured here."""

    def _keep_session(self) -> bool:
        return False


class Block(nn.Module):
    """A block of a GPT."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return what the next block gets."""
        batch, time_, width = x.shape
        qkv = self.qkv(self.norm_1(x)).view(batch, time_, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(batch, time_, width))
        return x + self.down(functional.gelu(self.up(self.norm_2(x))))


class GPT(nn.Module):
    """A GPT as they are commonly written."""

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(50304, width)
        self.blocks = nn.ModuleList(Block(width, width // 64) for _ in range(layers))
        self.head = nn.Linear(width, 50304, bias=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Return the logits."""
        x = self.embed(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


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


def step_of(options: argparse.Namespace) -> Callable[[], None]:
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


def finish() -> None:
    """Wait for the device."""
    if torch.accelerator.is_available():
        torch.accelerator.synchronize()


def recorded_ms(profiled: Profiled, step: Callable[[], None], steps: int) -> tuple[float, float]:
    """Return the time of a recorded step after the first, and of the first."""
    taken: list[float] = []
    schedule = torch.profiler.schedule(wait=0, warmup=1, active=steps, repeat=1)
    with profiled(schedule=schedule) as profiler:
        for _ in range(steps + 1):
            finish()
            begun = time.perf_counter()
            step()
            finish()
            taken.append((time.perf_counter() - begun) * 1e3)
            profiler.step()
    return statistics.median(taken[2:]), taken[1]


def main() -> None:
    """Measure and print."""
    options = parsed()
    step = step_of(options)
    for _ in range(3):
        step()
    kinds: dict[str, Profiled] = {
        "torch.profiler": torch.profiler.profile,
        "lines=False": lambda **given: Unkept(lines=False, **given),
        "lines": Unkept,
    }
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in kinds}
    for _ in range(options.rounds):
        for name in random.sample(sorted(kinds), len(kinds)):
            times[name].append(recorded_ms(kinds[name], step, options.steps))
    show(options, times)


def show(options: argparse.Namespace, times: dict[str, list[tuple[float, float]]]) -> None:
    """Print the times beside torch.profiler's of the same round."""
    size = f"{options.width}x{options.layers}, batch {options.batch} of {options.length}"
    print(f"{options.model} {size}, {options.device}")
    base = times["torch.profiler"]
    for name, own in times.items():
        ratios = sorted(each[0] / other[0] for each, other in zip(own, base, strict=True))
        middle = statistics.median(ratios)
        spread = f"{ratios[len(ratios) // 4]:.4f} to {ratios[-len(ratios) // 4]:.4f}"
        first = statistics.median(each[1] for each in own)
        print(
            f"  {name:15} {statistics.median(each[0] for each in own):8.2f} ms a step, "
            f"{middle:.4f} of torch.profiler's ({spread}); the first recorded {first:.2f} ms"
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
