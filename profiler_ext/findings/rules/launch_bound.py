"""The rule for CPU launch-bound steps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from operator import itemgetter
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
    location_of,
)
from profiler_ext.findings.finding import NOWHERE, Confidence, Figure, FigureUnit, Location
from profiler_ext.findings.groups import Kind, LaunchGroup
from profiler_ext.findings.launch_groups import graphs_save_ns, idle_without_ns, launch_groups
from profiler_ext.findings.rule import NO_ROWS, Candidate, Rule, Turn
from profiler_ext.findings.rules.written_out import launches_written_out
from profiler_ext.kineto import classify, names
from profiler_ext.records.events import Ints, flag_rows
from profiler_ext.records.lineage import Frame
from profiler_ext.records.provenance import CallSite
from profiler_ext.records.vocabulary import IdleCause, Phase, Scope

_MIN_IDLE = 0.1
_MIN_GRAPHS = 8  # fewer calls of compiled graphs a step are not what keeps the CPU
_MIN_LAUNCHES = 5  # fewer launches are no stream of them that the CPU could be behind with
_LINE_PART = 0.5
_MIN_LAYERS = 4  # fewer modules that one function runs are no layers
_MAX_FRACTION = 0.5
# What the CPU does on its way to the next launch; what follows a wait is that wait's
_LAUNCHING = (
    IdleCause.LAUNCHING,
    IdleCause.PYTHON,
    IdleCause.AUTOGRAD,
    IdleCause.LAUNCH_LATENCY,
    IdleCause.END_OF_STEP,
)

_EAGER = "torch.compile(model, mode='reduce-overhead'), for what runs eagerly; or a larger batch"
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
_DECODING = (
    "a static cache of keys and values, so that torch.compile(model, mode='reduce-overhead') can "
    "replay each token (transformers: cache_implementation='static'); or a larger batch"
)
_SKIPPED = "remove what keeps torch from replaying the graph (it is compiled for CUDA graphs): "
_REPLAYED_TOKENS = (
    "a larger batch; or sample, and move to the next position, within the compiled function, so "
    "that one graph is all that a token replays"
)
_REPLAYED = "a larger batch; or include the loss and the optimizer step in the CUDA graphs"

# The idle time of these has causes of its own
_OF_OTHERS = (Kind.READS, Kind.COPIES, Kind.LOADING, Kind.ALLOCATING)
_BY_GRAPHS = (_EAGER, _DECODING, _COMPILED, _MANY_GRAPHS)
_RANKS = (
    "a larger batch on each rank; or compile whole blocks at once for fewer, longer "
    "kernels (CUDA graphs do not include the collectives between them)"
)


def _judge(facts: Facts) -> Iterable[Candidate] | CannotJudge:
    rows = idle_pieces(facts, *_LAUNCHING)
    of_ns = facts.step_ns - facts.training.overhead_ns
    slower_ns = max(facts.training.overhead_ns - facts.profiler_ns, 0)
    est_saving_ns = _next_to_groups(facts, idle_per_step(facts, rows) - slower_ns)
    if facts.training.is_known:
        est_saving_ns = min(est_saving_ns, max(of_ns - facts.busy_ns, 0))
    launches = np.flatnonzero(facts.in_steps(facts.launches.start_ns >= 0))
    if facts.launches_per_step(launches) < _MIN_LAUNCHES:
        return ()
    merged = [each.idle(facts) for each in _groups(facts)]
    merged.append(facts.idle_before(launches_written_out(facts)))
    rows = np.setdiff1d(rows, np.concatenate([NO_ROWS, *merged]))
    if est_saving_ns < _MIN_IDLE * of_ns:
        return ()
    remedy = _remedy(facts, launches)
    is_by_graphs = remedy in _BY_GRAPHS or remedy.startswith(_SKIPPED)
    by_graphs_ns = graphs_save_ns(facts) if is_by_graphs else None
    if by_graphs_ns is not None:
        est_saving_ns = min(est_saving_ns, by_graphs_ns)
    return (_candidate(facts, rows, (est_saving_ns, of_ns), launches, remedy),)


def _next_to_groups(facts: Facts, est_saving_ns: int) -> int:
    """Return what of the idle time is left once no group of launches or work is there."""
    left_ns = est_saving_ns - sum(each.saving_ns for each in _groups(facts))
    return left_ns if facts.replay is None else min(left_ns, idle_without_ns(facts))


def _groups(facts: Facts) -> list[LaunchGroup]:
    """Return the groups whose idle time is launching or Python, which have rules of their own."""
    return [each for each in launch_groups(facts) if each.saving_ns and each.kind not in _OF_OTHERS]


def _candidate(
    facts: Facts, idle: Ints, times_ns: tuple[int, int], launches: Ints, remedy: str
) -> Candidate:
    where, region = _where_launched(facts, idle)
    fused = eager_kernels(facts) if remedy in (_EAGER, _DECODING) else NO_ROWS
    fused = np.setdiff1d(
        fused, np.concatenate([NO_ROWS, *(own.launches for own in _groups(facts))])
    )
    eager_ns = facts.median_per_step(fused, facts.launches.duration_ns[fused])
    fused_ns = int(FUSION_SAVING * eager_ns)
    return Candidate(
        summary="GPU idle: the CPU is launch-bound",
        est_saving_ns=times_ns[0] + fused_ns,
        busy_ns=fused_ns,
        confidence=Confidence.ESTIMATED,
        remedy=remedy,
        location=where,
        evidence=(
            Figure("launches a step", facts.launches_per_step(launches)),
            Figure("idle in the recorded step", idle_per_step(facts, idle), FigureUnit.NS),
            *([Figure("most of it", region, FigureUnit.TEXT)] if region else ()),
            *_figure_if_any("kernels of eager ops", eager_ns),
            *_of_step(facts, times_ns[1], launches),
            *(
                Figure("slowed, too, by", name, FigureUnit.TEXT)
                for name in facts.analysis.recording.settings.debug_settings
            ),
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
        return _REPLAYED_TOKENS if facts.is_decoding else _REPLAYED
    if len(facts.analysis.communication):
        return _RANKS
    if _compiled(facts, launches) <= _MAX_FRACTION:
        return _DECODING if facts.is_decoding else _EAGER
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
    if skipped := _skip_reason(facts, called):
        return f"{_SKIPPED}{skipped}"
    return _MANY_GRAPHS if _graph_calls(facts) >= _MIN_GRAPHS else _COMPILED


def _skip_reason(facts: Facts, launches: Ints) -> str | None:
    """Return torch's reason for not replaying the graph with most of these launches."""
    graphs, counts = np.unique(facts.launches.graph[launches].compressed(), return_counts=True)
    known = facts.analysis.recording.graphs
    most = max(zip(counts.tolist(), graphs.tolist(), strict=True), default=None)
    return None if most is None else known[most[1]].replay_skipped


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


def _where_launched(facts: Facts, idle: Ints) -> tuple[Location, str]:
    """Return the line whose launches most of that time was before, and a region of the model.

    Where no line has most, that of a function which many modules run and which, with what it calls,
    launches most.
    """
    # Backward launches count for the line of their forward, not for that of ``loss.backward()``.
    launch, duration_ns = facts.launch_after(idle), facts.analysis.idle.duration_ns[idle]
    lines: Counter[Location] = Counter()
    regions: Counter[str] = Counter()
    places: Counter[int] = Counter()
    for row, time_ns in _alike(facts, launch, duration_ns):
        place, phase = facts.place(row), facts.launches.phase[row]
        # What a graph launches for its layers has one call
        if facts.launches.scope[row] == Scope.EAGER:
            places[int(facts.main_place[row])] += time_ns
        lines[replace(location_of(place), module=None)] += time_ns
        for module in _around(place.module):
            regions[f"{phase} of {module}"] += time_ns
            regions[module] += time_ns
        regions[f"the {phase}"] += time_ns
    most_ns = _LINE_PART * int(duration_ns.sum())
    known = [where for where, time_ns in lines.items() if time_ns > most_ns and where.line]
    large = [region for region, time_ns in regions.items() if time_ns > most_ns]
    # The innermost, and the phase if most of it is of one.
    region = max(large, key=lambda each: (each.count("."), len(each)), default="")
    where, longest = _functions_with_most(facts, places, most_ns)
    where = known[0] if known else where
    # In a backward the CPU is at the line of ``backward()``, which says no more than the region.
    if where == NOWHERE and f"the {Phase.BACKWARD}" not in large:
        where = _where_again(facts, idle)
    return longest if where == NOWHERE else where, region


def _functions_with_most(
    facts: Facts, places: Mapping[int, int], most_ns: float
) -> tuple[Location, Location]:
    """Return the longest line of the innermost function of many modules that has most time.

    And of the innermost of any.
    """
    functions: dict[tuple[str, str], Counter[tuple[int, Frame]]] = {}
    modules: dict[tuple[str, str], set[str]] = {}
    for at, time_ns in places.items():
        place = facts.analysis.places[at]
        # The innermost call of a function that calls itself
        calls = {(each.file, each.function): at for at, each in enumerate(place.stack)}
        for function, depth in calls.items():
            functions.setdefault(function, Counter())[depth, place.stack[depth]] += time_ns
        if calls and place.module:
            modules.setdefault((place.stack[-1].file, place.stack[-1].function), set()).add(
                place.module
            )
    large = [function for function, lines in functions.items() if lines.total() > most_ns]
    of_layers = [each for each in large if _are_layers(modules.get(each, ()))]
    longest = ([functions[each].most_common(1)[0][0] for each in own] for own in (of_layers, large))
    of_layer, of_any = (max(own, key=itemgetter(0), default=None) for own in longest)
    return _location(of_layer), _location(of_any)


def _location(found: tuple[int, Frame] | None) -> Location:
    return NOWHERE if found is None else Location(found[1].file, found[1].line, found[1].code)


def _are_layers(modules: Iterable[str]) -> bool:
    """Tell whether several of these modules differ by a number alone."""
    return max(Counter(_around(each)[-1] for each in modules).values(), default=0) >= _MIN_LAYERS


def _alike(facts: Facts, launch: Ints, duration_ns: Ints) -> Iterator[tuple[int, int]]:
    """Yield one launch of each place, phase and scope, with the time of all of them."""
    is_known = (launch >= 0) & (facts.main_place[launch] >= 0)
    rows, table = launch[is_known], facts.launches
    kinds = np.stack([facts.main_place[rows], table.phase.codes[rows], table.scope.codes[rows]])
    _, first, kind = np.unique(kinds, axis=1, return_index=True, return_inverse=True)
    times_ns = np.zeros(len(first), np.int64)
    np.add.at(times_ns, kind.ravel(), duration_ns[is_known])
    yield from zip(rows[first].tolist(), times_ns.tolist(), strict=True)


def _where_again(facts: Facts, idle: Ints) -> Location:
    """Return the CPU's line for most of that time, if a step comes there more than once."""
    # Only then the line is more than the one ``backward()`` of the step.
    where, pieces = _where(facts, idle), facts.analysis.idle
    if where == NOWHERE:
        return NOWHERE
    is_there = [(each.file, each.line) == (where.file, where.line) for each in pieces.places]
    comes = np.diff(np.array([*is_there, False], np.int8)[pieces.place], prepend=0) > 0
    return where if comes.sum() >= 2 * len(facts.analysis.steps) else NOWHERE


def _around(module: str | None) -> list[str]:
    """Return the modules around one, itself included, with ``*`` in place of a number."""
    parts = ["*" if part.isdigit() else part for part in (module or "").split(".")]
    return [".".join(parts[:end]) for end in range(1, len(parts) + 1) if parts[0]]


RULE = Rule(
    name="launch_bound",
    title="GPU idle: the CPU is launch-bound",
    means="In more than a tenth of a step the device has finished all its work and waits for the "
    "CPU. The CPU does not wait for the device, load data or compile: it is on its way to the "
    "next launch. Optimizers that update parameters one by one, Python loops and eager code next "
    "to compiled graphs have rules of their own, and so have ops that are written out; this one is "
    "about the rest. It has the line whose "
    "launches, in forward and backward, end most of that time. Without one it has the innermost "
    "function that, with what it calls, launches most, eagerly, at its line with most of that "
    "time: one that four or more layers of the model run, or any. It has the part of the model, "
    "too. "
    "What the CPU computes meanwhile, in ops or in Python, is `cpu_work`.",
    because="A launch costs the CPU several microseconds, an eager op with Python and the "
    "dispatcher tens of microseconds. If kernels are shorter than that, the device waits.",
    remedy="CUDA graphs launch hundreds of kernels at once: `mode='reduce-overhead'`. Compiling "
    "eager code makes fewer and longer kernels. A larger batch makes kernels longer at the same "
    "number of launches. A loop that generates tokens needs a static cache for that: a cache that "
    "grows has other sizes for each token. Where `reduce-overhead` was asked for and torch did not "
    "replay the graph, the remedy has torch's reason.",
    saving="Idle time of the usual step that is launching, Python between ops, autograd's engine, "
    "launch latency or the end of the step (see the causes of idle time), minus what profiling "
    "adds to it, and no more than the step idles without recording. "
    "The steps before the recording show how much that is, beyond the profiler's own "
    "idle time. Without them, the CPU is assumed to need 1.45 times as long for the rest of a "
    "recorded step; 1.1 to 2.0 were measured. What "
    "the rules of groups of launches and of the CPU's work save is subtracted, and no more is left "
    "than the device idles in a replay without these groups. If the remedy is CUDA graphs, no more "
    "than these win in a replay: of forward and backward the first launch keeps its way, each "
    "other costs two microseconds, and the optimizer stays as it is. If the remedy "
    "is to compile, three fifths of the time of torch's own eager kernels are added, as in "
    "`uncompiled`, because compiling fuses them.",
    not_on_cpu="the launches ran on the CPU, which waits for no launch",
    judge=_judge,
    turn=Turn.REST,
)
