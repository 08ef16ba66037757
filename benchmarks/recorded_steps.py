"""What a recorded step takes more with all that is ours: step beside step, within one recording.

A host of many users is slow and quick for a tenth of a second, and blocks of steps each have a
noise of some percent. So ours is on and off step by step (on, off, off, on: what follows an "on" is
as often the one as the other), and the figure is the median of the differences of neighbours, in
microseconds and in parts of the step without ours. A step is timed with the device's work awaited.

What is switched from step to step: marks of compiled graphs by what asks whether it is recorded,
watched lines by taking Python its callbacks. What that leaves on the other side: a call that
returns at once for each mark, and lines that Python finds nobody to tell of.

    python -m benchmarks.recorded_steps [--device cuda] [--model gpt|llama] [--seconds 60]
"""

from __future__ import annotations

import argparse
import functools
import gc
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import torch

import profiler_ext
from benchmarks.figures import Figure, add_json, tell, write
from benchmarks.pairs import WITH, interval, sides_of_turn
from benchmarks.profiled_steps import NOT_COUNTED, add_model, compiled_step, cpu_model
from benchmarks.steps import Step, synchronize
from profiler_ext.capture.called_modules import CalledModules
from profiler_ext.isolation.guard import Guard
from profiler_ext.profiling import switch
from profiler_ext.profiling.lines import RecordedLines
from profiler_ext.python_lines.monitoring import NAME
from profiler_ext.torch_compat import points, process

_STEPS_OF_A_RECORDING = 160
"""More would take memory for what nobody reads."""

Times = dict[str, float]


@dataclass(eq=False)
class Ours:
    """All that is ours in a recorded step, to be switched on and off between steps.

    Attributes:
        has_lines: lines of the program are watched, too.
        is_recording: it is on.
    """

    has_lines: bool
    is_recording: bool = False
    _callbacks: list[tuple[int, int, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Have it wait."""
        guard = Guard(strict=True)
        self._lines = RecordedLines(guard, is_wanted=self.has_lines)
        self._called = CalledModules(switch, guard, self)

    def begin(self) -> None:
        """Have a recording begin."""
        self._called.begin()
        self._called.watch()
        self._lines.begin()
        self.is_recording = True

    def end(self) -> None:
        """Have a recording end."""
        self.turn(is_on=True)
        self._called.leave()
        self._lines.forget()
        self.is_recording = False

    def turn(self, *, is_on: bool) -> None:
        """Switch it on or off.

        Args:
            is_on: whether it is to be on.
        """
        if self.is_recording and not is_on:
            self._callbacks = list(_taken_callbacks())
        elif is_on and not self.is_recording:
            for tool, event, callback in self._callbacks:
                vars(sys)["monitoring"].register_callback(tool, event, callback)
        self.is_recording = is_on

    def end_step(self) -> None:
        """Do what ``prof.step`` does at the end of a step."""
        if self.is_recording:
            self._lines.end_step()


def _taken_callbacks() -> list[tuple[int, int, Any]]:
    """Take our callbacks from Python, which goes on looking at each watched line."""
    monitoring: Any = vars(sys).get("monitoring")
    if monitoring is None:
        return []
    ours = (tool for tool in range(6) if monitoring.get_tool(tool) == NAME)
    names = (name for name in dir(monitoring.events) if name.startswith(("PY_", "LINE")))
    events = [getattr(monitoring.events, name) for name in names]
    return [
        (tool, event, monitoring.register_callback(tool, event, None))
        for tool in ours
        for event in events
    ]


def taken(step: Step, ours: Ours) -> Times:
    """Return what a step takes, in microseconds: until it is issued, and until it is done.

    Args:
        step: what runs.
        ours: what is on or off.
    """
    began_ns = time.perf_counter_ns()
    step()
    ours.end_step()
    issued_ns = time.perf_counter_ns()
    synchronize()
    done_ns = time.perf_counter_ns()
    return {"wall": (done_ns - began_ns) / 1e3, "until issued": (issued_ns - began_ns) / 1e3}


def recorded_pairs(step: Step, ours: Ours, steps: int) -> list[tuple[Times, Times]]:
    """Record some steps; return each step with ours and its neighbour without.

    Args:
        step: what runs.
        ours: what is on and off.
        steps: so many, four for each turn.
    """
    gc.collect()  # what the recording before left
    pairs: list[tuple[Times, Times]] = []
    with torch.profiler.profile(experimental_config=process.threads_config(are_all=True)):
        ours.begin()
        for _ in range(NOT_COUNTED):
            taken(step, ours)
        for turn in range(steps // 4):
            pairs += _turn(step, ours, turn)
        ours.end()
    return pairs


def _turn(step: Step, ours: Ours, turn: int) -> list[tuple[Times, Times]]:
    sides: dict[bool, list[Times]] = {True: [], False: []}
    for side in sides_of_turn(turn):
        ours.turn(is_on=side == WITH)
        sides[ours.is_recording].append(taken(step, ours))
    return list(zip(sides[True], sides[False], strict=True))


def compared(name: str, pairs: list[tuple[Times, Times]]) -> list[Figure]:
    """Return what a step takes, and what ours adds to it.

    Args:
        name: what is on and off.
        pairs: steps with it, each with its neighbour without.
    """
    figures = []
    for what in pairs[0][0]:
        without = median(off[what] for _, off in pairs)
        low, middle, high = interval([on[what] - off[what] for on, off in pairs])
        parts = [each / without * 100 for each in (middle, low, high)]
        figures += [
            Figure(f"a recorded step without: {what}", without / 1e3, "ms", len(pairs)),
            Figure(f"{name} adds: {what}", middle, "us", len(pairs), (low, high)),
            Figure(f"{name} adds: {what}, of it", parts[0], "%", len(pairs), (parts[1], parts[2])),
        ]
    return figures


def marks_us(step: Step, steps: int) -> list[Figure]:
    """Return what each mark of a step takes by a clock around it and one within.

    Args:
        step: what runs.
        steps: so many are recorded.
    """
    owner, name = points.ARTIFACT_CALL.owner(), points.ARTIFACT_CALL.name
    original, ours = getattr(owner, name), Ours(has_lines=False)
    within: list[int] = []
    around: list[int] = []
    with torch.profiler.profile(experimental_config=process.threads_config(are_all=True)):
        setattr(owner, name, _clocked(original, within))
        ours.begin()
        marked = getattr(owner, name)
        setattr(owner, name, _clocked(marked, around))
        for _ in range(NOT_COUNTED + steps):
            step()
            synchronize()
        setattr(owner, name, marked)
        ours.end()
        setattr(owner, name, original)
    each = [(a - w) / 1e3 for a, w in zip(around, within, strict=True)]
    calls = len(each) // (NOT_COUNTED + steps)
    return [_mark(number, calls, each) for number in range(calls)]


def _mark(number: int, calls: int, each: Sequence[float]) -> Figure:
    """Return the figure of one of the calls that a step makes; the first ones are not counted."""
    taken = each[NOT_COUNTED * calls + number :: calls]
    low, middle, high = interval(taken)
    return Figure(f"a mark, call {number + 1} of {calls}", middle, "us", len(taken), (low, high))


def _clocked(function: Callable[..., Any], into: list[int]) -> Callable[..., Any]:
    def clocked(*args: Any, **kwargs: Any) -> Any:
        began_ns = time.perf_counter_ns()
        try:
            return function(*args, **kwargs)
        finally:
            into.append(time.perf_counter_ns() - began_ns)

    # A mark looks for who calls the graph, beyond what is torch's and ours.
    clocked.__code__ = clocked.__code__.replace(co_filename=profiler_ext.__file__)
    return functools.wraps(function)(clocked)


def measured(step: Step, options: argparse.Namespace, lines: str) -> list[Figure]:
    """Compare neighbours for as long as was asked for.

    Args:
        step: what runs.
        options: the command line's.
        lines: whether lines are watched, ``on`` or ``off``.
    """
    ours = Ours(has_lines=lines == "on")
    pairs: list[tuple[Times, Times]] = []
    ends = time.monotonic() + options.seconds
    while not pairs or time.monotonic() < ends:
        pairs += recorded_pairs(step, ours, options.steps)
    return compared(f"ours with lines {lines}", pairs)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_model(parser)
    parser.add_argument("--seconds", type=float, default=60.0, help="for each of --lines")
    parser.add_argument("--steps", type=int, default=_STEPS_OF_A_RECORDING, help="in a recording")
    parser.add_argument("--lines", choices=("on", "off"), action="append", help="on, if not given")
    add_json(parser)
    options = parser.parse_args()
    profiler_ext.enable()
    step = compiled_step(options)
    for _ in range(NOT_COUNTED):
        step()
    print(cpu_model(options), flush=True)
    figures = marks_us(step, 50)
    tell(figures)
    for lines in options.lines or ["on"]:
        part = measured(step, options, lines)
        tell(part)
        figures += part
    write(figures, options.json)


if __name__ == "__main__":
    main()
