"""What capture costs a program that is never profiled: a start, a cold compile, a step, memory.

Each pair runs one process with capture and one without, in an order that is drawn; what is compared
is the processor time of the process and its children, by pairs. ``warm`` starts from AOTAutograd's
cache, ``fx`` from the FX graph cache alone, ``cold`` from neither; ``steps`` takes turns of capture
on and off in one process (on a GPU by the wall clock); ``memory`` tells what is held and stored.

    python -m benchmarks.capture_cost [--only warm] [--only memory] [--device cuda] [--pairs 10]
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

KINDS = ("warm", "fx", "cold", "steps", "memory")
_TURNS = 40


def spent_s() -> float:
    """Return the processor time of this process and of its children that have ended."""
    used = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in used)


def training(options: argparse.Namespace) -> Callable[[], None]:
    """Return a step of training: forward, backward and AdamW compiled."""
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
    if options.side == "with":
        import profiler_ext

        profiler_ext.enable()
    enabled_s = spent_s()
    step = training(options)
    made_s = spent_s()
    step()
    if options.device == "cuda":
        torch.cuda.synchronize()
    ended_s = spent_s()
    told: dict[str, Any] = {
        "enable": enabled_s - began_s,
        "first step": ended_s - made_s,
        "start": ended_s - began_s,
    }
    if options.child == "memory":
        told |= held()
    return told


def held() -> dict[str, Any]:
    """Return what capture holds for each FX node, before its graphs are asked for and after."""
    from profiler_ext.profiling import switch

    capture = switch.current()
    assert capture is not None
    gc.collect()
    before, riding = sized([capture]), [_record_bytes(kept) for kept in capture._registry._graphs]
    graphs = capture.graphs
    gc.collect()
    return {
        "nodes": [len(graph.nodes) for graph in graphs],
        "states": [graph.cache_state.value for graph in graphs],
        "record bytes": riding,
        "held before": before,
        "held after": sized([capture]),
    }


def _record_bytes(kept: Any) -> int:
    artifact = kept._artifact
    return len(artifact.sealed.data if artifact.sealed else artifact.riding or b"")


def sized(roots: Iterable[object]) -> int:
    """Return the bytes of all that can be reached, but for modules, types, code and torch's own."""
    todo, seen, total = list(roots), set[int](), 0
    while todo:
        thing = todo.pop()
        if id(thing) in seen or not _is_counted(thing):
            continue
        seen.add(id(thing))
        total += sys.getsizeof(thing)
        todo += gc.get_referents(thing)
    return total


def _is_counted(thing: object) -> bool:
    kind = type(thing)
    if issubclass(kind, type) or kind.__name__ in ("module", "function", "code", "frame"):
        return False
    return kind.__module__.partition(".")[0] in (
        "builtins",
        "collections",
        "profiler_ext",
        "_thread",
    )


def turns(options: argparse.Namespace) -> dict[str, Any]:
    """Take turns of capture on and off in one process; return the time of a step of each turn."""
    import torch

    import profiler_ext

    profiler_ext.enable()
    step = training(options)
    clock = time.perf_counter if options.device == "cuda" else time.process_time
    for _ in range(3):
        step()
    took: dict[str, list[float]] = {"with": [], "without": []}
    draw = random.Random(0)
    for _ in range(options.turns):
        for side in draw.sample(("with", "without"), 2):
            (profiler_ext.enable if side == "with" else profiler_ext.disable)()
            began = clock()
            for _ in range(options.steps):
                step()
            if options.device == "cuda":
                torch.cuda.synchronize()
            took[side].append((clock() - began) / options.steps)
    return took


def in_child(options: argparse.Namespace, kind: str, side: str, cache: Path) -> dict[str, Any]:
    """Run one process."""
    names = ("device", "layers", "width", "tokens", "batch", "steps", "turns")
    told = [text for name in names for text in (f"--{name}", str(getattr(options, name)))]
    told += ["--mode", options.mode] if options.mode else []
    told += ["--eager-optimizer"] if options.eager_optimizer else []
    env = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(cache)}
    env |= {"TORCHINDUCTOR_COMPILE_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    env |= {"TORCHINDUCTOR_AUTOGRAD_CACHE": "0"} if kind == "fx" else {}
    command = [sys.executable, "-m", "benchmarks.capture_cost", "--child", kind, "--side", side]
    done = subprocess.run(
        [*command, *told], env=env, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def paired(options: argparse.Namespace, kind: str, folder: Path) -> None:
    """Run the pairs of one kind, and print their differences."""
    draw, took = random.Random(0), dict[str, list[dict[str, float]]]()
    if kind != "cold":
        for side in ("with", "without"):
            in_child(options, kind, side, folder / side)
    for number in range(options.pairs):
        for side in draw.sample(("with", "without"), 2):
            cache = folder / side if kind != "cold" else folder / f"cold-{number}-{side}"
            took.setdefault(side, []).append(in_child(options, kind, side, cache))
        shown = {
            side: {what: round(s, 4) for what, s in each[-1].items()} for side, each in took.items()
        }
        print(f"{kind}, pair {number}: {json.dumps(shown)}", flush=True)
    for what in ("first step", "start"):
        pairs = zip(took["with"], took["without"], strict=True)
        compare(f"{kind}: {what}", [(own[what], other[what]) for own, other in pairs])
    enabled = statistics.median(each["enable"] for each in took["with"])
    print(f"{kind}: enable() {enabled:.3f} s, brought forward or ours", flush=True)


def compare(what: str, pairs: list[tuple[float, float]]) -> None:
    """Print the medians of both sides, of the differences and of the ratios, with intervals."""
    own, other = (statistics.median(side) for side in zip(*pairs, strict=True))
    more = interval([a - b for a, b in pairs])
    ratio = interval([a / b for a, b in pairs])
    print(
        f"{what}: with {own:.4f} s, without {other:.4f} s; more {more[1] * 1e3:+.2f} ms "
        f"({more[0] * 1e3:+.2f} to {more[2] * 1e3:+.2f}); ratio {ratio[1]:.4f} "
        f"({ratio[0]:.4f} to {ratio[2]:.4f}); {len(pairs)} pairs",
        flush=True,
    )


def interval(values: list[float]) -> tuple[float, float, float]:
    """Return the median, between the ends of its 95% interval by drawing anew."""
    draw, middle = random.Random(0), statistics.median
    drawn = sorted(middle(draw.choices(values, k=len(values))) for _ in range(2000))
    return drawn[50], middle(values), drawn[-51]


def remember(options: argparse.Namespace, folder: Path) -> None:
    """Print what is held for each FX node after a cold and a warm start, and what is stored."""
    for state in ("cold", "warm"):
        told = in_child(options, "memory", "with", folder / "memory")
        nodes = sum(told["nodes"])
        per = {name: round(told[name] / nodes) for name in ("held before", "held after")}
        print(
            f"memory, {state}: {len(told['nodes'])} graphs, {nodes} nodes; bytes a node: "
            f"{per['held before']} until a profile asks, {per['held after']} then; record on the "
            f"artifact: {sum(told['record bytes']) / nodes:.0f}",
            flush=True,
        )
    stored = list((folder / "memory" / "profiler_ext").rglob("*.pxpr"))
    total = sum(file.stat().st_size for file in stored)
    print(f"store: {len(stored)} files, {total / 1000:.1f} kB, {total / nodes:.0f} bytes a node")


def main() -> None:
    """Run what is asked for, or be one of its processes."""
    options = _options()
    if options.child:
        # What a process does at its end is no part of a start.
        print(json.dumps((turns if options.child == "steps" else started)(options)), flush=True)
        os._exit(0)
    with tempfile.TemporaryDirectory(prefix="capture-cost-") as folder:
        for kind in options.only or KINDS:
            own = Path(folder) / kind
            if kind == "steps":
                took = in_child(options, kind, "with", own)
                compare("a step", list(zip(took["with"], took["without"], strict=True)))
            elif kind == "memory":
                remember(options, own)
            else:
                paired(options, kind, own)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=KINDS, action="append", help="all, if none is given")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--mode")
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--tokens", type=int, default=16)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--steps", type=int, default=10, help="steps in a turn")
    parser.add_argument("--turns", type=int, default=_TURNS)
    parser.add_argument("--eager-optimizer", action="store_true")
    parser.add_argument("--child", choices=KINDS)
    parser.add_argument("--side", choices=("with", "without"))
    return parser.parse_args()


if __name__ == "__main__":
    main()
