"""Times variants of a kernel in turn, as Kineto measures them, with the L2 cache cold or warm."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

_FLUSH_NS = 60_000  # about what it takes to write twice the L2 cache
_LEAST_ROUNDS, _MOST_ROUNDS = 15, 60
_SETTLING_ROUNDS = 3  # the clocks of a device that was idle rise
_BUDGET_NS = 1_000_000_000  # for one kernel's variants

Launching = Mapping[str, Callable[[], object]]
"""What launches each variant, by the name of its kernel."""


@dataclass(frozen=True, slots=True)
class Saved:
    """What a kernel's time is shorter without some of its lines, with its 95% interval."""

    value_ns: float
    low_ns: float
    high_ns: float


@dataclass(frozen=True, slots=True)
class Times:
    """The times of each variant of a kernel in rounds that run all of them."""

    by_name: Mapping[str, Sequence[int]]
    is_cold: bool

    def median_ns(self, name: str) -> float:
        """The median of a variant."""
        return float(np.median(self.by_name[name]))

    def saved(self, whole: str, without: str) -> Saved:
        """Compare two variants round by round; the interval is that of the median's ranks."""
        pairs = zip(self.by_name[whole], self.by_name[without], strict=True)
        differences = np.sort([one - other for one, other in pairs])
        count = len(differences)
        reach = 1.96 * math.sqrt(count) / 2
        low = max(math.floor(count / 2 - reach), 0)
        high = min(math.ceil(count / 2 + reach), count - 1)
        return Saved(float(np.median(differences)), *map(float, differences[[low, high]]))


class Timer:
    """Times launches on the current device."""

    def __init__(self) -> None:
        properties: Any = torch.cuda.get_device_properties(torch.cuda.current_device())
        size = 2 * max(int(properties.L2_cache_size), 1 << 20)
        self._flushed = torch.empty(size, dtype=torch.uint8, device="cuda")

    def times(self, launching: Launching, step_ns: float) -> tuple[Times, dict[str, float]]:
        """Time variants, the first whole, with the cache in the state that is nearest to the step.

        Returns:
            the times, and the whole kernel's median in both states.
        """
        whole = next(iter(launching))
        only = {whole: launching[whole]}
        medians = {
            state: self._timed(only, is_cold, _LEAST_ROUNDS).median_ns(whole)
            for state, is_cold in (("cold", True), ("warm", False))
        }
        is_cold = _distance(medians["cold"], step_ns) <= _distance(medians["warm"], step_ns)
        of_round = len(launching) * (max(medians.values()) * (2 - is_cold) + is_cold * _FLUSH_NS)
        rounds = min(max(int(_BUDGET_NS / of_round), _LEAST_ROUNDS), _MOST_ROUNDS)
        return self._timed(launching, is_cold, rounds), medians

    def _timed(self, launching: Launching, is_cold: bool, rounds: int) -> Times:
        """Time variants in turn; where the cache is warm, each after a launch of its own.

        After another variant it would find other data in the cache than in a program that has it.
        """
        from torch.profiler import ProfilerActivity, profile

        launches = 1 if is_cold else 2
        with profile(activities=[ProfilerActivity.CUDA], acc_events=True) as profiler:
            for _ in range(rounds + _SETTLING_ROUNDS):
                for launch in launching.values():
                    if is_cold:
                        self._flushed.zero_()
                    for _ in range(launches):
                        launch()
            torch.cuda.synchronize()
        took = {name: list[tuple[float, int]]() for name in launching}
        for event in profiler.events() or ():
            if event.name in took and event.device_type.name == "CUDA":
                span = event.time_range
                took[event.name].append((span.start, round(span.elapsed_us() * 1000)))
        ordered = {name: [ns for _, ns in sorted(each)][launches - 1 :: launches][_SETTLING_ROUNDS:]
                   for name, each in took.items()}  # fmt: skip
        if any(len(each) != rounds for each in ordered.values()):
            counts = {name: len(each) for name, each in ordered.items()}
            raise RuntimeError(f"Kineto reported {counts} launches, expected {rounds} of each")
        return Times(ordered, is_cold)


def _distance(one: float, other: float) -> float:
    return abs(math.log(one / other))
