"""What capture costs a program that serves: a decode loop that replays CUDA graphs, not recorded.

Two processes decode with the same model, one with capture on from its start (``PROFILER_EXT=1``)
and one without. They take turns at blocks of tokens (``pairs.py``), so that what the host does
meets both, and nothing is recorded in either. Told are the tokens of a second, with capture as a
part of those without; the time from a new process to its first token; what memory grows by; and
what the capture of a CUDA graph takes, also with ``PROFILER_EXT_LEARN=1``, which records it.

    python -m benchmarks.inference [--seconds 40] [--starts 2] [--device cuda] [--json FILE]

On a CPU (``--device cpu``) nothing is captured and the compiled model decodes.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.figures import Figure, add_json, tell, write
from benchmarks.pairs import WITH, WITHOUT, compared, sides_of_turn, turns

COMPILED, OWN = "reduce-overhead", "torch.cuda.graph"
_READY, _BLOCK, _MEMORY, _CAPTURES = "ready", "block", "memory", "captures"
_RECORDING = "with, captures recorded"
_FIRST, _NEXT = "the first of a process", "of each further one"
_WIDTH = 768
_GROWTH_BLOCKS = 10
_GRAPHS = 10


def decoders(device: str, layers: int) -> dict[str, Callable[[], None]]:
    """Return what decodes one token, by what replays it; on a CPU nothing is replayed."""
    import torch

    from benchmarks.models import Block

    torch.manual_seed(0)
    blocks = (Block(_WIDTH, _WIDTH // 64) for _ in range(layers))
    model = torch.nn.Sequential(*blocks).to(device).requires_grad_(False)
    compiled = torch.compile(model, mode="reduce-overhead" if device == "cuda" else None)
    token = torch.randn(1, 1, _WIDTH, device=device)
    made: dict[str, Callable[[], None]] = {COMPILED: lambda: compiled(token)}
    if device == "cuda":
        made[OWN] = _own_graph(model, token)
    return made


def _own_graph(model: Any, token: Any) -> Callable[[], None]:
    """Return the replay of a graph that the program captures itself."""
    import torch

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        model(token)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        model(token)
    replay: Callable[[], None] = graph.replay
    return replay


def _capture_s(device: str, layers: int) -> dict[str, float]:
    """Return how long captures take, warm-ups included; nothing on a CPU."""
    if device != "cuda":
        return {}
    import torch

    from benchmarks.models import Block

    blocks = (Block(_WIDTH, _WIDTH // 64) for _ in range(layers))
    model = torch.nn.Sequential(*blocks).to(device).requires_grad_(False)
    token = torch.randn(1, 1, _WIDTH, device=device)
    took_s, graphs = [], []
    for _ in range(_GRAPHS):
        torch.cuda.synchronize()
        began_s = time.perf_counter()
        graphs.append(_own_graph(model, token))
        torch.cuda.synchronize()
        took_s.append(time.perf_counter() - began_s)
    return {_FIRST: took_s[0], _NEXT: median(took_s[1:])}


def serve(device: str, tokens: int, layers: int, captures: bool) -> None:
    """Decode blocks of tokens as the parent asks for them, and tell how long each took."""
    import torch

    took_s = _capture_s(device, layers) if captures else {}  # before any other capture
    synchronize = torch.cuda.synchronize if device == "cuda" else (lambda: None)
    made = decoders(device, layers)
    for decode in made.values():
        decode()
    synchronize()
    print(json.dumps({_READY: sum(resource.getrusage(resource.RUSAGE_SELF)[:2])}), flush=True)
    for _ in range(3):
        for decode in made.values():
            decode()
    synchronize()
    for line in sys.stdin:
        if line.strip() == _MEMORY:
            print(json.dumps(_held(device)), flush=True)
            continue
        if line.strip() == _CAPTURES:
            print(json.dumps(took_s), flush=True)
            continue
        took_s = {}
        for name, decode in made.items():
            synchronize()
            began_s = time.perf_counter()
            for _ in range(tokens):
                decode()
            synchronize()
            took_s[name] = time.perf_counter() - began_s
        print(json.dumps(took_s), flush=True)


def _held(device: str) -> dict[str, int]:
    import torch

    pages = int(Path("/proc/self/statm").read_text().split()[1])
    on_device = torch.cuda.memory_allocated() if device == "cuda" else 0
    return {"resident": pages * os.sysconf("SC_PAGE_SIZE"), "device": on_device}


class Decoder:
    """A process that decodes when asked."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.spent_s: float = self._answer()[_READY]  # of processor time, until its first tokens

    def ask(self, what: str) -> dict[str, Any]:
        """Return what the process tells."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{what}\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer


@contextmanager
def decoder(
    options: argparse.Namespace, side: str, cache: Path, captures: bool = False
) -> Iterator[Decoder]:
    """Start a process that decodes; it ends with the block."""
    env = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(cache / side)}
    env |= {"PYTHONPATH": os.pathsep.join(sys.path)}
    for variable in ("PROFILER_EXT", "PROFILER_EXT_LEARN"):
        env.pop(variable, None)
    command = [sys.executable, "-m", "benchmarks.inference", "--serve"]
    if side != WITHOUT:  # as the installed package does for PROFILER_EXT=1
        command = [sys.executable, "-c", _WITH_CAPTURE, "--serve"]
    if side == _RECORDING:
        env["PROFILER_EXT_LEARN"] = "1"
    own = ["--device", options.device, "--tokens", str(options.tokens)]
    own += ["--layers", str(options.layers)] + ["--captures"] * captures
    process = subprocess.Popen(
        [*command, *own], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        yield Decoder(process)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        process.wait()


_WITH_CAPTURE = """
import os
os.environ["PROFILER_EXT"] = "1"
from profiler_ext import autostart
autostart.at_start()
from benchmarks.inference import main
main()
"""


def throughput(options: argparse.Namespace, cache: Path) -> list[Figure]:
    """Return throughput with capture by that without, and what replays leave in memory."""
    with ExitStack() as stack:
        sides = (WITH, WITHOUT)
        both = {side: stack.enter_context(decoder(options, side, cache)) for side in sides}
        before = {side: own.ask(_MEMORY) for side, own in both.items()}
        taken: dict[str, dict[str, list[float]]] = {side: {} for side in both}

        def take(side: str) -> dict[str, float]:
            took_s: dict[str, float] = both[side].ask(_BLOCK)
            for name, own_s in took_s.items():
                taken[side].setdefault(name, []).append(own_s)
            return took_s

        ratios = list(turns(take, time.monotonic() + options.seconds))
        for own in both.values():
            for _ in range(_GROWTH_BLOCKS):
                own.ask(_BLOCK)
        after = {side: own.ask(_MEMORY) for side, own in both.items()}
    tokens = options.tokens * (2 * len(ratios) + _GROWTH_BLOCKS)
    return [
        *(
            Figure(f"{side} capture, {name}", options.tokens / median(own), "tokens/s", len(own))
            for side, by_name in taken.items()
            for name, own in by_name.items()
        ),
        *(
            compared(f"throughput with capture by without, {name}", [1 / r[name] for r in ratios])
            for name in ratios[0]
        ),
        *(
            Figure(
                f"{side} capture, {where} memory after {tokens:,} tokens more",
                (after[side][where] - before[side][where]) / 2**20,
                "MiB",
            )
            for side in both
            for where in ("resident", "device")
        ),
    ]


def starts(options: argparse.Namespace, cache: Path) -> list[Figure]:
    """Return how long new processes take to their first tokens, from warm caches."""
    wall: dict[str, list[float]] = {WITH: [], WITHOUT: []}
    spent: dict[str, list[float]] = {WITH: [], WITHOUT: []}
    for side in wall if not any(cache.iterdir()) else ():
        with decoder(options, side, cache):  # fills the caches
            pass
    for number in range(options.starts):
        for side in sides_of_turn(number):
            began_s = time.monotonic()
            with decoder(options, side, cache) as own:
                wall[side].append(time.monotonic() - began_s)
                spent[side].append(own.spent_s)
    return [
        compared(
            f"start to the first token with capture by without, {what}",
            [a / b for a, b in zip(taken[WITH], taken[WITHOUT], strict=True)],
        )
        for what, taken in (("wall time", wall), ("processor time", spent))
    ]


def captures(options: argparse.Namespace, cache: Path) -> list[Figure]:
    """Return how long the capture of a CUDA graph takes, without capture, with, and recorded."""
    figures = []
    for side in (WITHOUT, WITH, _RECORDING):
        with decoder(options, side, cache, captures=True) as own:
            figures += [
                Figure(f"capture of a CUDA graph {what}, {side} capture", 1e3 * took_s, "ms")
                for what, took_s in own.ask(_CAPTURES).items()
            ]
    return figures


def main() -> None:
    """Measure, or decode for a parent that measures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--seconds", type=float, default=40, help="of turns, about")
    parser.add_argument("--starts", type=int, default=2, help="turns of four new processes")
    parser.add_argument("--tokens", type=int, default=500, help="of a block")
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--captures", action="store_true", help=argparse.SUPPRESS)
    add_json(parser)
    options = parser.parse_args()
    if options.serve:
        serve(options.device, options.tokens, options.layers, options.captures)
        return
    with tempfile.TemporaryDirectory() as folder:
        figures = throughput(options, Path(folder))
        tell(figures)
        more = starts(options, Path(folder)) if options.starts else []
        more += captures(options, Path(folder)) if options.device == "cuda" else []
    tell(more)
    write([*figures, *more], options.json)


if __name__ == "__main__":
    main()
