"""One planted pair on a GPU, in one process: what knock-out says of the line, and the truth.

The program with the line is recorded and its kernels are measured, as ``profiler-ext inside`` does.
Then both programs take turns, and torch.profiler times their kernels.
"""

from __future__ import annotations

import statistics
from argparse import Namespace
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import replace
from pathlib import Path

import torch

import profiler_ext
from profiler_ext.inside.observing import KernelObservation
from profiler_ext.inside.selection import ChosenKernel
from profiler_ext.isolation.guard import Guard
from profiler_ext.records.inside import KernelPart, MeasuredKernel
from profiler_ext.records.kernel_lines import LinePart
from verification.flaws.programs.program import Sizes
from verification.inside.planted import CASES, Case
from verification.inside.running import TINY, Row

__all__ = ["by_planted"]

UNRECORDED, RECORDED = 10, 10
BLOCKS, ROUNDS, SETTLING = 6, 20, 5
LIMIT_S = 100.0


def by_planted(name: str, options: Namespace) -> Row:
    """Return the row of a pair; a tiny one only runs."""
    case = CASES[name]
    if not options.tiny:
        return measure(case)
    inputs = case.inputs(Sizes("cpu", is_tiny=True))
    whole, without = (case.run(*inputs, is_whole=is_whole) for is_whole in (True, False))
    if (whole.shape, whole.dtype) != (without.shape, without.dtype):
        raise ValueError(f"{whole.shape} {whole.dtype} with the line, {without.shape} without")
    return dict(TINY)


def measure(case: Case) -> Row:
    """Return the row of a pair."""
    inputs = case.inputs(Sizes("cuda", is_tiny=False))
    profiler_ext.enable()
    guard = Guard()
    observation = KernelObservation(guard)
    observation.begin()
    run = torch.compile(case.run, dynamic=False)
    session = _recorded(lambda: run(*inputs, is_whole=True))
    observation.end()
    chosen = observation.chosen(session.analysis, "", 16)
    marked = [(each, nodes) for each in chosen if (nodes := marked_nodes(each, *case.marked))]
    if not marked:
        names = [each.kernel for each in chosen]
        raise ValueError(f"no kernel of {names} computes the marked line; {guard.failures}")
    asked = [*(each for each, _ in marked), *(at_once(each, nodes) for each, nodes in marked)]
    measured = observation.knocked_out(asked, LIMIT_S, print)
    kernels = [
        kernel_row(parts, once, nodes)
        for (_, nodes), parts, once in zip(
            marked, measured[: len(marked)], measured[len(marked) :], strict=True
        )
    ]
    times = _in_turn(lambda is_whole: run(*inputs, is_whole=is_whole))
    return {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "kernels": kernels,
        "whole_ns": times[True],
        "without_ns": times[False],
    }


def _recorded(run: Callable[[], object]) -> profiler_ext.Session:
    schedule = torch.profiler.schedule(wait=UNRECORDED, warmup=2, active=RECORDED, repeat=1)
    with profiler_ext.profile(schedule=schedule) as prof:
        for _ in range(UNRECORDED + 2 + RECORDED):
            run()
            prof.step()
    session: profiler_ext.Session = prof.session
    return session


def marked_nodes(chosen: ChosenKernel, file: str, line: int) -> tuple[str, ...]:
    """The nodes of a kernel that are of a line."""
    name = Path(file).name
    return tuple(
        node
        for node, place in chosen.places.items()
        if place.line == line and Path(place.file or "").name == name
    )


def at_once(chosen: ChosenKernel, nodes: Sequence[str]) -> ChosenKernel:
    """The same kernel, as if its lines of these nodes were of all of them: they are one part."""
    first = chosen.sites[0]
    lines = tuple(
        replace(line, nodes=tuple(nodes))
        if line.part is LinePart.NODE and line.nodes and set(line.nodes) <= set(nodes)
        else line
        for line in first.source.lines
    )
    return replace(chosen, sites=(replace(first, source=replace(first.source, lines=lines)),))


def kernel_row(parts: MeasuredKernel, once: MeasuredKernel, nodes: Sequence[str]) -> Row:
    """What knock-out says of nodes of a kernel: part by part, and of all at once."""
    passed = {line for part in once.parts if part.is_load for line in part.lines}
    own, together = (_computing(each.parts, set(nodes), passed) for each in (parts, once))
    known = [each for each in own if not each.reason]
    saved = [each for each in together if each.saved_ns is not None]
    return {
        "kernel": parts.kernel,
        "step_ns": parts.step_ns,
        "alone_ns": parts.whole_ns,
        "is_cold": parts.is_cold,
        "cold_ns": parts.cold_ns,
        "warm_ns": parts.warm_ns,
        "reason": parts.reason,
        "parts": len(own),
        "parts_ns": _sum(each.known_saved_ns for each in own) if _are_known(own) else None,
        "share_ns": _sum(each.time_ns for each in known),
        "modelled_ns": _sum((each.modelled_share or 0) * parts.step_ns for each in own),
        "once_ns": saved[0].saved_ns if saved else None,
        "once_interval_ns": [saved[0].saved_low_ns, saved[0].saved_high_ns] if saved else None,
        "once_reason": "; ".join({each.reason for each in together if each.reason}) or once.reason,
    }


def _computing(parts: Iterable[KernelPart], nodes: Set[str], passed: Set[int]) -> list[KernelPart]:
    """The parts that compute these nodes: without them the kernel still writes what it did.

    It also reads what all of them together pass on, by its lines: what one of them passes on to
    another is no longer read.
    """
    own = (each for each in parts if set(each.nodes) <= nodes and not each.is_store)
    return [each for each in own if not (each.is_load and passed.issuperset(each.lines))]


def _are_known(parts: Sequence[KernelPart]) -> bool:
    from profiler_ext.inside.knock_out import NOTHING_TO_TAKE_OUT

    return all(each.saved_ns is not None or each.reason == NOTHING_TO_TAKE_OUT for each in parts)


def _sum(values: Iterable[float]) -> float:
    return float(sum(values))


def _in_turn(run: Callable[[bool], object]) -> dict[bool, list[float]]:
    """The time of the generated kernels of a call of each form: a median of each block."""
    times: dict[bool, list[float]] = {True: [], False: []}
    for is_whole in times:
        for _ in range(SETTLING):
            run(is_whole)
    for _ in range(BLOCKS):
        for is_whole, own in times.items():
            own.append(_block_ns(run, is_whole))
    return times


def _block_ns(run: Callable[[bool], object], is_whole: bool) -> float:
    from torch.profiler import ProfilerActivity, profile

    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA], acc_events=True) as profiler:
        for _ in range(SETTLING + ROUNDS):
            run(is_whole)
        torch.cuda.synchronize()
    spans = [
        (each.time_range.start, each.time_range.elapsed_us() * 1000)
        for each in profiler.events() or ()
        if each.device_type.name == "CUDA" and each.name.startswith("triton_")
    ]
    return median_of_calls([ns for _, ns in sorted(spans)], SETTLING + ROUNDS, SETTLING)


def median_of_calls(launches_ns: Sequence[float], calls: int, settling: int) -> float:
    """The median time of a call, from the times of all launches in order; the first are left out.

    Raises:
        ValueError: The calls do not launch equally many kernels.
    """
    count, left = divmod(len(launches_ns), calls)
    if left or not count:
        raise ValueError(f"{len(launches_ns)} launches of generated kernels in {calls} calls")
    sums = [sum(launches_ns[at : at + count]) for at in range(0, len(launches_ns), count)]
    return float(statistics.median(sums[settling:]))
