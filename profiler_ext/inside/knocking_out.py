"""Measures which lines of generated kernels take their time, by taking each out."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from profiler_ext.inside.kernel_text import Kernel, NotTakenOutError, is_store
from profiler_ext.inside.knock_out import (
    NOTHING_TO_TAKE_OUT,
    passed_loads,
    text_without,
    whole_text,
)
from profiler_ext.inside.launches import Launch
from profiler_ext.inside.selection import ChosenKernel
from profiler_ext.inside.timing import Saved, Timer, Times
from profiler_ext.isolation.failures import failure_detail
from profiler_ext.records.inside import (
    InsideRoute,
    KernelPart,
    MeasuredKernel,
    apportioned,
)
from profiler_ext.records.kernel_lines import LinePart
from profiler_ext.torch_compat.names import running_names

_MOST_PARTS = 64
_LEAST_EXPLAINED = 0.5  # of the kernel's time; below, one line's removal says little
_MOST_APART = 1.25  # between the kernel alone and in the step
_WHOLE = "_whole"
_OVER = "the time of --limit was over"


@dataclass(slots=True)
class _Variants:
    """The variants of one kernel, being compiled."""

    chosen: ChosenKernel
    launch: Launch | None = None
    names: list[str] = field(default_factory=list)  # of the kernels, the whole one first
    futures: list[Any] = field(default_factory=list)
    parts: list[KernelPart] = field(default_factory=list)
    of_part: dict[int, int] = field(default_factory=dict)  # index of a part: of its variant
    reason: str = ""


def knock_out(
    chosen: Sequence[ChosenKernel],
    launches: Mapping[str, Launch],
    until_s: float,
    tell: Callable[[str], object],
) -> list[MeasuredKernel]:
    """Measure kernels, all variants compiled at once in Inductor's processes.

    Args:
        chosen: the kernels, the most important first.
        launches: the first launch of each, by the text of its source.
        until_s: when to stop, by the monotonic clock.
        tell: says how far it is.
    """
    variants = [
        _submitted(each, launches.get(each.source.text.strip()), until_s) for each in chosen
    ]
    measured = list[MeasuredKernel]()
    timer: Timer | None = None
    failure = ""
    for number, each in enumerate(variants, start=1):
        tell(f"[{number}/{len(chosen)}] {each.chosen.kernel}")
        if not (each.reason or failure) and time.monotonic() > until_s:
            each.reason = _OVER
        if each.reason or failure:
            measured.append(_unmeasured(each, each.reason or failure))
            continue
        try:
            timer = timer or Timer()
            measured.append(_measured(each, timer))
        except torch.cuda.OutOfMemoryError:
            measured.append(_unmeasured(each, "its arguments do not fit beside the program's"))
        except Exception as error:
            measured.append(_unmeasured(each, failure_detail(error)))
            failure = _device_failure()
    return measured


def parts_of(chosen: ChosenKernel) -> list[KernelPart]:
    """Return the lines of a kernel by the nodes that they compute, and by what they do.

    A part without its op leaves what that passes on, and what is written, as the program without
    that line would: loads of that operand, and stores, are parts of their own.
    """
    try:
        kernel = Kernel(chosen.source.text, chosen.kernel)
    except NotTakenOutError:
        kernel = None
    lines = dict[tuple[str, ...], list[int]]()
    for number, line in enumerate(chosen.source.lines, start=1):
        if line.part is LinePart.NODE and line.nodes:
            lines.setdefault(line.nodes, []).append(number)
    return [
        part
        for nodes, numbers in lines.items()
        for part in _parts_of_nodes(chosen, kernel, nodes, numbers)
    ]


def _parts_of_nodes(
    chosen: ChosenKernel, kernel: Kernel | None, nodes: tuple[str, ...], numbers: Sequence[int]
) -> Iterator[KernelPart]:
    texts = chosen.source.text.split("\n")
    stores = {each for each in numbers if is_store(texts[each - 1])}
    loads = passed_loads(kernel, {*numbers} - stores) if kernel is not None else frozenset()
    computing = [each for each in numbers if each not in loads | stores]
    parts = (
        chosen.part(nodes, computing),
        replace(chosen.part(nodes, [each for each in numbers if each in loads]), is_load=True),
        replace(chosen.part(nodes, [each for each in numbers if each in stores]), is_store=True),
    )
    first, *others = (each for each in parts if each.lines)
    yield first  # with the one share that the cost model has of these nodes
    yield from (replace(each, modelled_share=None) for each in others)


def _submitted(chosen: ChosenKernel, launch: Launch | None, until_s: float) -> _Variants:
    """Begin to compile a kernel, whole and without each of its parts."""
    variants = _Variants(chosen, launch, parts=parts_of(chosen))
    if launch is None:
        variants.reason = "no launch of it was seen in Python"
        return variants
    if any(line.part is LinePart.PROGRAM for line in chosen.source.lines):
        variants.reason = "the program's own kernel has no lines of the model to take out"
        return variants
    try:
        kernel = Kernel(chosen.source.text, chosen.kernel)
        config = launch.config
        _submit(variants, whole_text(kernel, config, _WHOLE), _WHOLE)
    except NotTakenOutError as error:
        variants.reason = str(error)
        return variants
    ranges = {kernel.arguments[at]: low_high for at, low_high in launch.ranges.items()}
    for at in _most_important(variants):
        part = variants.parts[at]
        if time.monotonic() > until_s:  # where no process compiles, this one does
            variants.reason = _OVER
            return variants
        try:
            text = text_without(kernel, set(part.lines), config, f"_without_{at}", ranges)
        except NotTakenOutError as error:
            variants.parts[at] = replace(part, reason=str(error))
            continue
        variants.of_part[at] = len(variants.names)
        _submit(variants, text, f"_without_{at}")
    return variants


def _most_important(variants: _Variants) -> list[int]:
    """Return the indices of the parts to measure, those that the model says take most."""
    parts = variants.parts
    shares = {each.nodes: each.modelled_share for each in parts if each.modelled_share is not None}
    order = sorted(range(len(parts)), key=lambda at: -(shares.get(parts[at].nodes) or 0))
    for at in order[_MOST_PARTS:]:
        reason = f"only {_MOST_PARTS} of {len(order)} parts are measured"
        parts[at] = replace(parts[at], reason=reason)
    return order[:_MOST_PARTS]


def _submit(variants: _Variants, text: str, suffix: str) -> None:
    name = f"{variants.chosen.kernel}{suffix}"
    variants.names.append(name)
    try:
        variants.futures.append(_compiling(name, text))
    except Exception as error:  # where no process compiles, it failed here
        variants.futures.append(error)


def _compiling(name: str, text: str) -> Any:
    """Begin to compile a kernel as Inductor does: in a process of its pool, if there is one."""
    return running_names.COMPILE_TRITON.of(running_names.ASYNC_COMPILE.get()())(name, text)


def _measured(variants: _Variants, timer: Timer) -> MeasuredKernel:
    assert variants.launch is not None
    launching = dict[str, Callable[[], object]]()
    given = [*variants.launch.made_arguments(), 0]
    stream = torch.cuda.current_stream().cuda_stream
    problems = dict[int, str]()
    for at, future in enumerate(variants.futures):
        try:
            kernel = _result(future)
            kernel.run(*given, stream=stream)
        except torch.cuda.OutOfMemoryError:
            raise
        except Exception as error:
            if at == 0 or _device_failure():
                raise
            problems[at] = f"it does not compile without it: {failure_detail(error)[-200:]}"
            continue
        launching[variants.names[at]] = _launching(kernel, given, stream)
    times, states = timer.times(launching, variants.chosen.step_ns)
    parts = [
        _timed_part(part, variants, variants.of_part.get(at), times, problems)
        for at, part in enumerate(variants.parts)
    ]
    return _with_shares(variants.chosen, parts, times.median_ns(variants.names[0]), states,
                        is_cold=times.is_cold)  # fmt: skip


def _launching(kernel: Any, given: Sequence[Any], stream: int) -> Callable[[], object]:
    return lambda: kernel.run(*given, stream=stream)


def _result(future: Any) -> Any:
    """Return a kernel: compiled here at once, or in another process; raises what failed."""
    if isinstance(future, Exception):
        raise future
    is_future = running_names.COMPILE_FUTURE.is_type_of(future)
    return running_names.COMPILE_RESULT.of(future)() if is_future else future


def _timed_part(
    part: KernelPart,
    variants: _Variants,
    variant: int | None,
    times: Times,
    problems: Mapping[int, str],
) -> KernelPart:
    if variant is None:
        return part
    if variant in problems:
        return replace(part, reason=problems[variant])
    saved: Saved = times.saved(variants.names[0], variants.names[variant])
    return replace(
        part,
        saved_ns=saved.value_ns,
        saved_low_ns=saved.low_ns,
        saved_high_ns=saved.high_ns,
    )


def _with_shares(
    chosen: ChosenKernel,
    parts: Sequence[KernelPart],
    whole_ns: float,
    states: Mapping[str, float],
    *,
    is_cold: bool,
) -> MeasuredKernel:
    """Scale what each part saves so that they add up to the launch in the step."""
    weights = [each.known_saved_ns for each in parts]
    reason = _why_modelled(chosen, parts, weights, whole_ns)
    times_ns = apportioned(chosen.step_ns, weights) if any(weights) else [0] * len(parts)
    timed = [replace(each, time_ns=time_ns) for each, time_ns in zip(parts, times_ns, strict=True)]
    sites = () if reason else chosen.times_of_sites(timed)
    if not (reason or sites):
        reason = "its lines are of other nodes than its call sites"
    return MeasuredKernel(
        chosen.kernel,
        InsideRoute.KNOCK_OUT,
        chosen.launches,
        chosen.total_ns,
        chosen.step_ns,
        whole_ns=whole_ns,
        cold_ns=states["cold"],
        warm_ns=states["warm"],
        is_cold=is_cold,
        parts=tuple(sorted(timed, key=lambda each: (-each.time_ns, -(each.saved_ns or 0)))),
        sites=sites,
        text=chosen.source.text,
        reason=reason,
    )


def _why_modelled(
    chosen: ChosenKernel, parts: Sequence[KernelPart], weights: Sequence[float], whole_ns: float
) -> str:
    """Return why the cost model's shares stay, if they do."""
    if any(line.part is LinePart.TEMPLATE for line in chosen.source.lines):
        return "the body of a template cannot be taken out"
    if unmeasured := [each for each in parts if each.saved_ns is None and _is_lost(each)]:
        return f"{len(unmeasured)} of {len(parts)} parts could not be measured"
    apart = max(whole_ns / chosen.step_ns, chosen.step_ns / whole_ns)
    if apart > _MOST_APART:
        return "alone it takes another time than in the step"
    if len(parts) > 1 and sum(weights) < _LEAST_EXPLAINED * whole_ns:
        return "its lines hide behind each other: no single one takes the time"
    return ""


def _is_lost(part: KernelPart) -> bool:
    return part.reason != NOTHING_TO_TAKE_OUT


def _unmeasured(variants: _Variants, reason: str) -> MeasuredKernel:
    chosen = variants.chosen
    return MeasuredKernel(
        chosen.kernel,
        InsideRoute.KNOCK_OUT,
        chosen.launches,
        chosen.total_ns,
        chosen.step_ns,
        parts=tuple(variants.parts),
        text=chosen.source.text,
        reason=reason,
    )


def _device_failure() -> str:
    """Return why the device can run nothing more, if so."""
    try:
        torch.cuda.synchronize()
    except Exception as error:
        return f"the device failed: {failure_detail(error)}"
    return ""
