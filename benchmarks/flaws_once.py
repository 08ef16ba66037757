"""The cases of the trial whose flaw costs time once: compiles, first steps, caches.

Each runs by itself, from nothing compiled on, and tells what the rules say of it and what it took.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import nn
from torch._inductor.custom_graph_pass import CustomGraphPass
from torch._inductor.utils import fresh_inductor_cache

import profiler_ext
from benchmarks.cases import GPT, Sizes, inputs, training
from benchmarks.steps import Step, synchronize
from profiler_ext.findings import Findings

Measured = tuple[Findings, float]
"""What the rules say, and the milliseconds that the remedy is about."""


@dataclass(frozen=True)
class OnceCase:
    """A case whose flaw costs time once.

    Attributes:
        rule: the rule that should find it.
        words: the flaw and the remedy.
        flawed: runs with the flaw.
        remedied: runs without it.
        is_second: another process runs it first, with the same caches.
    """

    rule: str
    words: str
    flawed: Callable[[Sizes], Measured]
    remedied: Callable[[Sizes], Measured]
    is_second: bool = False


@contextmanager
def from_nothing() -> Iterator[None]:
    """Nothing is compiled yet, and nothing cached."""
    torch._dynamo.reset()
    with fresh_inductor_cache():
        yield
    torch._dynamo.reset()


def mean_step(step: Callable[[int], None], steps: int, *, warm_up: bool = True) -> Measured:
    """Return what the rules say of recorded steps, and their mean time by a clock."""
    first = int(warm_up)
    schedule = torch.profiler.schedule(wait=0, warmup=first, active=steps, repeat=1)
    took = []
    with profiler_ext.profile(schedule=schedule) as prof:
        for at in range(first + steps):
            begun = time.perf_counter()
            step(at)
            synchronize()
            took.append(time.perf_counter() - begun)
            prof.step()
    return prof.recommendations, 1e3 * sum(took[first:]) / steps


def small(sizes: Sizes, *, dynamic: bool | None = None) -> Callable[[int], Step]:
    """Return what makes a step of two compiled layers for a batch."""
    width = sizes.width
    model = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, width))
    compiled = torch.compile(model.to(sizes.device), dynamic=dynamic)

    def of(batch: int) -> Step:
        x = inputs(sizes, batch, torch.float32)
        return training(model, forward=lambda: compiled(x).square().mean())

    return of


def compile_within(sizes: Sizes) -> Measured:
    """The batch is smaller from the third step on."""
    with from_nothing():
        of = small(sizes, dynamic=False)
        large, less = of(8), of(4)
        large()
        return mean_step(lambda at: (large if at < 3 else less)(), 5)


def compiled_before(sizes: Sizes) -> Measured:
    """The same, recorded when both are compiled."""
    with from_nothing():
        of = small(sizes, dynamic=False)
        large, less = of(8), of(4)
        large()
        less()
        return mean_step(lambda at: (large if at < 3 else less)(), 5)


def first_steps(sizes: Sizes) -> Measured:
    """Steps from the first on that allocates, as nobody skips any."""
    step = eager(sizes)
    return mean_step(lambda _: step(), 6, warm_up=False)


def later_steps(sizes: Sizes) -> Measured:
    """The same, some steps later."""
    step = eager(sizes)
    for _ in range(5):
        step()
    return mean_step(lambda _: step(), 6)


def eager(sizes: Sizes) -> Step:
    """Return a step of a GPT that has not run yet, on memory that is not taken yet."""
    model = GPT(sizes).to(sizes.device, torch.bfloat16)
    if sizes.device == "cuda":
        torch.cuda.empty_cache()
    return training(model, inputs(sizes, 32, torch.bfloat16))


def batches(sizes: Sizes, *, dynamic: bool) -> Measured:
    """Batches of three sizes, from nothing compiled on."""
    with from_nothing():
        of = small(sizes, dynamic=dynamic)
        begun = time.perf_counter()
        for batch in (8, 6, 4):
            of(batch)()
        synchronize()
        took = time.perf_counter() - begun
        step = of(2)
        return mean_step(lambda _: step(), 3)[0], 1e3 * took


def custom_pass(sizes: Sizes, *, has_uuid: bool) -> Measured:
    """What a compile takes with a pass of one's own, in a process that is not the first."""
    named = Named() if has_uuid else changes_nothing
    width, layers = sizes.width, sizes.layers
    model = nn.Sequential(
        *(nn.Sequential(nn.Linear(width, width), nn.GELU()) for _ in range(layers))
    )
    compiled = torch.compile(model.to(sizes.device))
    x = inputs(sizes, 4, torch.float32)
    step = training(model, forward=lambda: compiled(x).square().mean())
    with torch._inductor.config.patch(post_grad_custom_post_pass=named):
        begun = time.perf_counter()
        step()
        synchronize()
        took = time.perf_counter() - begun
        return mean_step(lambda _: step(), 3)[0], 1e3 * took


def tuned(sizes: Sizes, *, is_tuned: bool) -> Measured:
    """Six small products beside a large layer; what they take with ten thousand calls more."""
    sides = [max(sizes.width // part, 16) for part in (6, 8, 10, 12, 14, 16)]
    weights = [torch.randn(side, side, device=sizes.device) for side in sides]

    def products(*rows: torch.Tensor) -> list[torch.Tensor]:
        return [row @ weight for row, weight in zip(rows, weights, strict=True)]

    with from_nothing():
        rows = [torch.randn(64, side, device=sizes.device) for side in sides]
        called = torch.compile(products, mode="max-autotune-no-cudagraphs" if is_tuned else None)
        layers = small(sizes)(8)
        layers()

        def step(_: int) -> None:
            layers()
            called(*rows)

        begun = time.perf_counter()
        for _ in range(10_001):
            called(*rows)
        synchronize()
        took = time.perf_counter() - begun
        return mean_step(step, 3)[0], 1e3 * took


def changes_nothing(_: torch.fx.Graph) -> None:
    """Stand for a pass that somebody wrote."""


class Named(CustomGraphPass):
    """The same, of which torch can tell whether another process has it."""

    def __call__(self, graph: torch.fx.Graph) -> None:
        """Change nothing."""

    def uuid(self) -> bytes:
        """Return what changes with the pass."""
        return b"changes nothing"


ONCE = (
    OnceCase("first_step", "recorded from the first step on; later", first_steps, later_steps),
    OnceCase(
        "compiling",
        "a new size in a recorded step; compiled before",
        compile_within,
        compiled_before,
    ),
    OnceCase(
        "recompilation",
        "three sizes, `dynamic=False`; `dynamic=True`",
        lambda sizes: batches(sizes, dynamic=False),
        lambda sizes: batches(sizes, dynamic=True),
    ),
    OnceCase(
        "uncached",
        "a pass without `uuid`; with one, both in a second process",
        lambda sizes: custom_pass(sizes, has_uuid=False),
        lambda sizes: custom_pass(sizes, has_uuid=True),
        is_second=True,
    ),
    OnceCase(
        "unpaid_tuning",
        "six small products with `max-autotune`; without, both with 10,000 calls",
        lambda sizes: tuned(sizes, is_tuned=True),
        lambda sizes: tuned(sizes, is_tuned=False),
    ),
)
