"""What noting compiles costs them, and whether its figures are torch's own.

Each round compiles one model twice, each time in a process of its own without caches: with all
hooks of capture, and with those that note compiles left out, in an order that is drawn. CPU time is
compared. One more process takes the time within the hooks, and holds what was noted against torch's
``CompilationMetrics``.

    python -m benchmarks.compile_hooks [--device cuda] [--mode reduce-overhead] [--rounds 5]
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import time

import torch
from torch import nn

import profiler_ext
from benchmarks.models import Block
from profiler_ext.capture.hooks.compile_log import CompileHooks
from profiler_ext.isolation.guard import Observation, Observed
from profiler_ext.profiling import switch
from profiler_ext.records.compiles import CompileKind, CompilePhase
from profiler_ext.torch_compat.patches import Hook

WIDTH, HEADS, LENGTH, BATCH = 256, 4, 128, 4


class Clock:
    """The time within the hooks that note compiles."""

    def __init__(self) -> None:
        self.spent_ns = 0
        self.calls = 0

    def timed(self, hook: Hook) -> Hook:
        """Return a hook whose time is added up."""
        point, observe = hook
        assert callable(observe)

        def observed(call: Observed) -> Observation:
            watch, began = observe(call), time.perf_counter_ns()
            next(watch, None)
            self.spent_ns += time.perf_counter_ns() - began
            self.calls += 1
            yield
            began = time.perf_counter_ns()
            next(watch, None)
            self.spent_ns += time.perf_counter_ns() - began

        return point, observed


def compile_once(options: argparse.Namespace) -> dict[str, object]:
    """Compile a model here; return what it took."""
    clock, original = Clock(), CompileHooks.observations
    if options.child == "timed":
        CompileHooks.observations = lambda self: map(clock.timed, original(self))  # type: ignore[method-assign]
    elif options.child == "without":
        CompileHooks.observations = lambda self: iter(())  # type: ignore[method-assign]
    profiler_ext.enable()
    model = nn.Sequential(*(Block(WIDTH, HEADS) for _ in range(options.layers))).to(options.device)
    compiled = torch.compile(model, mode=options.mode)
    x = torch.randn(BATCH, LENGTH, WIDTH, device=options.device)
    began = time.process_time(), time.perf_counter()
    for _ in range(3):
        torch.compiler.cudagraph_mark_step_begin()
        compiled(x).sum().backward()
        model.zero_grad(set_to_none=True)
    fields: dict[str, object] = {
        "cpu_s": time.process_time() - began[0],
        "wall_s": time.perf_counter() - began[1],
        "hooks_s": clock.spent_ns / 1e9,
        "calls": clock.calls,
    }
    return fields | (compared() if options.child == "timed" else {})


def compared() -> dict[str, object]:
    """Hold the phases against torch's figures, in microseconds."""
    capture = switch.current()
    assert capture is not None
    noted = capture.compiles_since(1)
    metrics = torch._dynamo.utils.get_compilation_metrics()
    spans = [span for each in noted for span in each.spans]

    def of(*names: str) -> int:
        return sum(span.duration_ns // 1000 for span in spans if span.name in names)

    def torchs(column: str) -> int:
        return sum(getattr(each, column) or 0 for each in metrics)

    kinds = {kind.value: sum(each.kind is kind for each in noted) for kind in CompileKind}
    phases = {
        phase.value: sum(each.phase_ns(phase) for each in noted) / 1e9 for phase in CompilePhase
    }
    return {
        "kinds": kinds,
        "phases_s": phases,
        "ours_us": {
            "frames": of("entire_frame_compile"),
            "backwards": of("entire_backward_compile"),
            "inductor": of("inductor_compile"),
        },
        "torchs_us": {
            "frames": torchs("dynamo_cumulative_compile_time_us"),
            "backwards": torchs("backward_cumulative_compile_time_us"),
            "inductor": torchs("inductor_cumulative_compile_time_us"),
            "triton": torchs("triton_compile_time_us"),
            "autotuning at run time": torchs("runtime_triton_autotune_time_us"),
            "CUDA graphs": torchs("runtime_cudagraphify_time_us"),
        },
        "gaps": [gap.detail for gap in capture.all_gaps],
    }


def in_child(options: argparse.Namespace, which: str) -> dict[str, float]:
    """Compile in a process of its own."""
    same = ["--device", options.device, "--layers", str(options.layers)]
    same += ["--mode", options.mode] if options.mode else []
    command = [sys.executable, "-m", "benchmarks.compile_hooks", "--child", which, *same]
    env = {**os.environ, "TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1"}
    env |= {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(command, env=env, check=True, stdout=subprocess.PIPE, text=True)
    answer: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return answer


def main() -> None:
    """Compile round by round, and print what was found."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--mode")
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--child", choices=("with", "without", "timed"))
    options = parser.parse_args()
    if options.child:
        print(json.dumps(compile_once(options)))
        return
    print(json.dumps(in_child(options, "timed")), flush=True)
    draw, ratios = random.Random(0), []
    for _ in range(options.rounds):
        order = draw.sample(("with", "without"), 2)
        spent = {which: in_child(options, which)["cpu_s"] for which in order}
        ratios.append(spent["with"] / spent["without"])
        print(spent, flush=True)
    if ratios:
        middle = statistics.median(ratios)
        message = ", ".join(f"{ratio:.3f}" for ratio in sorted(ratios))
        print(f"CPU time with hooks over without: {middle:.3f} (median of {message})")


if __name__ == "__main__":
    main()
