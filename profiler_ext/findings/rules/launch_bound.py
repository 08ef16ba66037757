"""The rule for CPU launch-bound steps."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import median_low

import numpy as np

from profiler_ext.findings.facts import (
    FUSION_SAVING,
    CannotJudge,
    Facts,
    eager_kernels,
    idle_by_line,
    idle_per_step,
    idle_pieces,
    median_per_step,
)
from profiler_ext.findings.finding import NOWHERE, Confidence, Figure, FigureUnit, Location
from profiler_ext.findings.launch_groups import Kind, LaunchGroup, idle_without_ns, launch_groups
from profiler_ext.findings.rule import NO_ROWS, Candidate, Rule
from profiler_ext.kineto import classify, names
from profiler_ext.records.events import Ints, flag_rows
from profiler_ext.records.provenance import CallSite
from profiler_ext.records.vocabulary import IdleCause, Scope

_MIN_IDLE = 0.1
_MIN_GRAPHS = 8  # fewer calls of compiled graphs a step are not what keeps the CPU
_MIN_LAUNCHES = 5  # fewer launches are no stream of them that the CPU could be behind with
_LINE_PART = 0.5
_MAX_FRACTION = 0.5
# From one launch to the next Python takes some tens of microseconds; so long it does else
_LONG_NS = 1_000_000

# What the CPU does on its way to the next launch; what follows a wait is that wait's
_LAUNCHING = (
    IdleCause.LAUNCHING,
    IdleCause.PYTHON,
    IdleCause.AUTOGRAD,
    IdleCause.LAUNCH_LATENCY,
    IdleCause.END_OF_STEP,
)

_EAGER = "torch.compile(model, mode='reduce-overhead') for what runs eagerly; or a larger batch"
_COMPILED = (
    "torch.compile(model, mode='reduce-overhead'), which replays CUDA graphs; or a larger batch"
)
_MANY_GRAPHS = (
    "torch.compile the whole model as one graph (fullgraph=True shows each break), in place of its "
    "parts; then mode='reduce-overhead', which replays CUDA graphs"
)
_CONTROL_FLOW = (
    "a larger batch; or torch.where in place of torch.cond and while_loop, which "
    "CUDA graphs cannot replay (mode='reduce-overhead')"
)
_REPLAYED = "a larger batch; or include the loss and the optimizer step in the CUDA graphs"

_ELSEWHERE = "busy in Python that launches nothing"
_PYTHON = (
    "move that Python (logging, checks, data preparation) out of the step or into "
    "another thread; idle_by_line() has the lines, and launching faster does not help"
)

_RANKS = (
    "a larger batch on each rank; or compile whole blocks at once for fewer, longer "
    "kernels (CUDA graphs do not include the collectives between them)"
)


def _judge(facts: Facts) -> Iterable[Candidate] | CannotJudge:
    if not facts.on_device:
        return CannotJudge("the launches ran on the CPU, which waits for no launch")
    rows = idle_pieces(facts, *_LAUNCHING)
    of_ns = facts.step_ns - facts.training.overhead_ns
    slower_ns = max(facts.training.overhead_ns - facts.profiler_ns, 0)
    est_saving_ns = _next_to_groups(facts, idle_per_step(facts, rows) - slower_ns)
    launches = np.flatnonzero(facts.in_steps(facts.launches.start_ns >= 0))
    is_stream = facts.launches_per_step(launches) >= _MIN_LAUNCHES
    if not is_stream or est_saving_ns < _MIN_IDLE * of_ns:
        return ()
    merged = [facts.idle_before(each.launches) for each in _groups(facts)]
    rows = np.setdiff1d(rows, np.concatenate([NO_ROWS, *merged]))
    return (_candidate(facts, rows, (est_saving_ns, of_ns), launches),)


def _next_to_groups(facts: Facts, est_saving_ns: int) -> int:
    """Return what of the idle time the launches cost that other rules do not speak of."""
    merged_ns = sum(each.saving_ns for each in _groups(facts))
    left_ns = est_saving_ns - merged_ns
    return min(left_ns, idle_without_ns(facts)) if merged_ns else left_ns


def _groups(facts: Facts) -> list[LaunchGroup]:
    return [each for each in launch_groups(facts) if each.saving_ns and each.kind is not Kind.READS]


def _candidate(facts: Facts, idle: Ints, times_ns: tuple[int, int], launches: Ints) -> Candidate:
    # The pieces in which Python launched nothing for long, and their time in a step.
    rows = idle_pieces(facts, IdleCause.PYTHON, IdleCause.END_OF_STEP)
    long = rows[facts.analysis.idle.duration_ns[rows] >= _LONG_NS]
    python, python_ns = (long, median_per_step(facts, long))
    is_python = python_ns > _MAX_FRACTION * median_per_step(facts, idle)
    remedy = _PYTHON if is_python else _remedy(facts, launches)
    fused = eager_kernels(facts) if remedy == _EAGER else NO_ROWS
    fused = np.setdiff1d(
        fused, np.concatenate([NO_ROWS, *(own.launches for own in _groups(facts))])
    )
    eager_ns = facts.median_per_step(fused, facts.launches.duration_ns[fused])
    fused_ns = int(FUSION_SAVING * eager_ns)
    return Candidate(
        summary=f"GPU idle: the CPU is {_ELSEWHERE if is_python else 'launch-bound'}",
        est_saving_ns=times_ns[0] + fused_ns,
        busy_ns=fused_ns,
        confidence=Confidence.ESTIMATED,
        remedy=remedy,
        location=_where(facts, python if is_python else idle),
        evidence=(
            Figure("launches a step", facts.launches_per_step(launches)),
            Figure("idle in the recorded step", idle_per_step(facts, idle), FigureUnit.NS),
            *_figure_if_any("of it in such Python", python_ns if is_python else 0),
            *_figure_if_any("kernels of eager ops", eager_ns),
            *_of_step(facts, times_ns[1], launches),
            *([Figure("compiled graphs a step", _graph_calls(facts))] * (remedy == _MANY_GRAPHS)),
        ),
        launches=fused,
        idle=idle,
    )


def _figure_if_any(name: str, time_ns: int) -> tuple[Figure, ...]:
    return (Figure(name, time_ns, FigureUnit.NS),) if time_ns else ()


def _of_step(facts: Facts, of_ns: int, launches: Ints) -> tuple[Figure, ...]:
    durations = facts.launches.duration_ns[launches]
    known = "step time without profiling"
    return (
        Figure(
            known if facts.training.is_known else "the step without recording, estimated",
            of_ns,
            FigureUnit.NS,
        ),
        Figure("median launch", float(median_low(durations.tolist())), FigureUnit.NS),
        Figure("compiled", _compiled(facts, launches), FigureUnit.FRACTION),
        Figure("replayed by CUDA graphs", _replayed(facts, launches), FigureUnit.FRACTION),
    )


def _compiled(facts: Facts, launches: Ints) -> float:
    return float(facts.launches.scope.where(Scope.COMPILED)[launches].mean())


def _replayed(facts: Facts, launches: Ints) -> float:
    return float(facts.pace.replayed[launches].mean())


def _remedy(facts: Facts, launches: Ints) -> str:
    if _replayed(facts, launches) > _MAX_FRACTION:
        return _REPLAYED
    if len(facts.analysis.communication):
        return _RANKS
    if _compiled(facts, launches) <= _MAX_FRACTION:
        return _EAGER
    # Source: ``torch/_inductor/lowering.py``, ``cond`` and ``while_loop``; a loop is a partition of
    # its own (``config.graph_partition``).
    graphs = facts.analysis.recording.graphs
    has_branches = [any(map(_is_of_branch, graph.call_sites)) for graph in graphs]
    called = launches[~np.ma.getmaskarray(facts.launches.graph)[launches]]
    columns = facts.launches.graph[called], facts.launches.call_site[called]
    rows = zip(*(column.tolist() for column in columns), strict=True)
    result = [
        has_branches[graph] or (site is not None and _is_of_loop(graphs[graph].call_sites[site]))
        for graph, site in rows
    ]
    has_control_flow = bool(sum(result) > _MAX_FRACTION * len(result))
    if has_control_flow:
        return _CONTROL_FLOW
    return _MANY_GRAPHS if _graph_calls(facts) >= _MIN_GRAPHS else _COMPILED


def _graph_calls(facts: Facts) -> int:
    """Return how many compiled graphs the usual step calls, their backward left out."""
    events, steps = facts.analysis.recording.trace.events, facts.analysis.steps
    is_call = flag_rows(events.name, classify.is_compiled_forward)
    if not is_call.any():
        is_call = flag_rows(events.name, names.is_graph_marker)
    starts_ns = np.sort(events.start_ns[is_call])
    bounds = np.array([(step.cpu_start_ns, step.cpu_end_ns) for step in steps])
    begins, ends = np.searchsorted(starts_ns, bounds).T
    return int(median_low((ends - begins).tolist()))


def _is_of_branch(site: CallSite) -> bool:
    return bool(site.within) and site.within[0].part.startswith("branch")


def _is_of_loop(site: CallSite) -> bool:
    return bool(site.within) and site.within[0].part in ("condition", "body")


def _where(facts: Facts, idle: Ints) -> Location:
    """Return the line at which the CPU was for most of that time, if any."""
    duration_ns = facts.analysis.idle.duration_ns
    lines = idle_by_line(facts, idle, facts.analysis.idle.place)
    sums = {where: int(duration_ns[rows].sum()) for where, rows in lines.items()}
    first = max(sums, key=lambda where: sums[where], default=NOWHERE)
    return first if sums.get(first, 0) > _LINE_PART * sum(sums.values()) else NOWHERE


RULE = Rule(
    name="launch_bound",
    title="GPU idle: the CPU is launch-bound",
    means="In more than a tenth of a step the device has finished all its work and waits for the "
    "CPU. The CPU does not wait for the device, load data or compile: it is on its way to the "
    "next launch. Optimizers that update parameters one by one, Python loops and eager code next "
    "to compiled graphs have rules of their own; this one is about the rest. If most of that time "
    "is Python that launches nothing for a millisecond or longer, the finding says so and has "
    "another remedy.",
    because="A launch costs the CPU several microseconds, an eager op with Python and the "
    "dispatcher tens of microseconds. If kernels are shorter than that, the device waits.",
    remedy="CUDA graphs launch hundreds of kernels at once: `mode='reduce-overhead'`. Compiling "
    "eager code makes fewer and longer kernels. A larger batch makes kernels longer at the same "
    "number of launches. Move other Python work out of the step.",
    saving="Idle time of the usual step that is launching, Python between ops, autograd's engine, "
    "launch latency or the end of the step (see the causes of idle time), minus what profiling "
    "adds to it. The steps before the recording show how much that is, beyond the profiler's own "
    "idle time. Without them, the CPU is assumed to need 1.45 times as long for the rest of a "
    "recorded step; 1.1 to 2.0 were measured. CUDA graphs leave some of it. What "
    "the rules of groups of launches save is subtracted, and no more is left than the device idles "
    "in a replay without these groups. If the remedy is to compile, three fifths of the time of "
    "torch's own eager kernels are added, as in `uncompiled`, because compiling fuses them.",
    judge=_judge,
)
