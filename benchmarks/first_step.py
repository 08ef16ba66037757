"""One process that makes the first step of training, and tells what it took; see ``capture_cost``.

python -m benchmarks.first_step --side with [--device cuda] [--layers 12]
"""

from __future__ import annotations

import argparse
import json
import os
import resource
from collections.abc import Callable
from typing import Any

from benchmarks.pairs import WITH, WITHOUT

TIMED, HELD = "timed", "held"
"""With capture, and what is spent within its hooks or held by it is told, too."""


def spent_s() -> float:
    """Return the processor time of this process and of its children that have ended."""
    used = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in used)


def training(options: argparse.Namespace) -> Callable[[], None]:
    """Return a step of training: forward and backward compiled, AdamW where asked."""
    import torch

    from benchmarks.models import Block

    torch.manual_seed(0)
    blocks = (Block(options.width, max(options.width // 64, 1)) for _ in range(options.layers))
    model = torch.nn.Sequential(*blocks).to(options.device)
    compiled = torch.compile(model, mode=options.mode)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    update = optimizer.step if options.eager_optimizer else torch.compile(optimizer.step)
    x = torch.randn(options.batch, options.tokens, options.width, device=options.device)

    def step() -> None:
        with torch.autocast(options.device, torch.bfloat16, enabled=options.device == "cuda"):
            loss = compiled(x).float().square().mean()
        loss.backward()
        update()
        optimizer.zero_grad(set_to_none=True)

    return step


def started(options: argparse.Namespace) -> dict[str, Any]:
    """Make the first step here; return what it took, and the whole start after ``import torch``."""
    import torch

    began_s = spent_s()
    if options.side != WITHOUT:
        import profiler_ext

        in_hooks = _hook_time() if options.side == TIMED else None
        profiler_ext.enable()
    enabled_s = spent_s()
    step = training(options)
    made_s = spent_s()
    step()
    if options.device == "cuda":
        torch.cuda.synchronize()
    ended_s = spent_s()
    figures: dict[str, Any] = {
        "enable": enabled_s - began_s,
        "first step": ended_s - made_s,
        "start": ended_s - began_s,
    }
    if options.side == TIMED:
        assert in_hooks is not None
        figures["hooks"] = sum(in_hooks.spent_ns.values()) / 1e9
        figures["of each"] = {hook: ns / 1e9 for hook, ns in in_hooks.spent_ns.most_common(12)}
        figures["calls"] = dict(in_hooks.calls)
    if options.side == HELD:
        from benchmarks.held_memory import held

        figures |= held()
    return figures


def _hook_time() -> Any:
    from benchmarks.hook_time import HookTime

    in_hooks = HookTime()
    in_hooks.begin()
    return in_hooks


def add_program(parser: argparse.ArgumentParser) -> None:
    """Add the options of what is trained.

    Args:
        parser: who takes them.
    """
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--mode")
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--tokens", type=int, default=16)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--eager-optimizer", action="store_true")


def arguments(options: argparse.Namespace) -> list[str]:
    """Return the options of what is trained, as a command line has them.

    Args:
        options: they, as they were read.
    """
    names = ("device", "layers", "width", "tokens", "batch")
    figures = [text for name in names for text in (f"--{name}", str(getattr(options, name)))]
    figures += ["--mode", options.mode] if options.mode else []
    return [*figures, *(["--eager-optimizer"] if options.eager_optimizer else [])]


def main() -> None:
    """Make the step."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--side", choices=(WITH, WITHOUT, TIMED, HELD), required=True)
    add_program(parser)
    print(json.dumps(started(parser.parse_args())), flush=True)
    os._exit(0)  # what a process does at its end is no part of a start


if __name__ == "__main__":
    main()
