"""Groups of launches that one change of the program would merge: whose launches a step waits for.

An optimizer that updates parameters one by one, a Python loop over tensors, a loop within a
forward, a line that calls the modules of a list. Each group's saving is that of a replay in which
its launches are merged, on top of the groups with a larger one, so that no time is saved twice.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from statistics import median_low

import numpy as np

from profiler_ext.findings.autograd_nodes import (
    backward_of,
    copies_whole,
    node_around,
    runs_in_rows,
)
from profiler_ext.findings.calls_of_lists import (
    CallLine,
    Item,
    callers_of,
    calls_of_lists,
    rounds_of,
)
from profiler_ext.findings.code_of_lines import carries_on, is_independent
from profiler_ext.findings.constants import constants
from profiler_ext.findings.cpu_work import work_of_cpu
from profiler_ext.findings.critical_path import Floats
from profiler_ext.findings.facts import (
    FUSED_AWAY,
    CannotJudge,
    Facts,
    Rows,
    eager_kernels,
    idle_by_line,
    location_of,
    median_per_step,
)
from profiler_ext.findings.finding import Confidence, Figure, FigureUnit, Location
from profiler_ext.findings.graph_breaks import groups_of_breaks
from profiler_ext.findings.groups import (
    EAGER_KEPT,
    OUTSIDE_BACKWARD,
    SHORT_NS,
    Kind,
    LaunchGroup,
    Replayed,
    busiest,
    busy_merged,
    longest_line,
    ops_of,
    placed,
    replayed_in_turn,
    saved_by_graphs_ns,
    usual_count,
)
from profiler_ext.findings.loops_of_lines import (
    MAX_BODY_LAUNCHES,
    MIN_CALLS,
    Function,
    Line,
    Run,
    function_of,
    functions_in,
    line_of,
    line_of_loop,
    lines_of_views,
    loops_of,
    repeated,
)
from profiler_ext.findings.recurrences import apart, in_turn
from profiler_ext.findings.rule import Candidate
from profiler_ext.findings.waiting import (
    checks,
    copies_to_host,
    is_read,
    lines_that_wait,
    pageable_copies,
    picks_by_masks,
    reads,
    waits_after,
)
from profiler_ext.records.analysis import Place
from profiler_ext.records.events import Ints, flag_rows
from profiler_ext.records.vocabulary import Phase, Scope

GROUPS = "groups of parameters"
_MIN_OPTIMIZER_LAUNCHES = 32
_MIN_GROUPS = 32  # a learning rate for each layer takes fewer
_MIN_TENSORS = 16
_MIN_EAGER = 16
# A gradient takes at most so many times the operations of what it is of (Baur and Strassen, 1983)
_MOST_OF_GRADIENT = 4
_MIN_COMPILED = 0.1
_LATE = 0.5  # of its launches a group that the CPU is late for has fewer on the critical path
_MERGED_OPS = ("aten::_foreach_", "aten::_fused_")
# The backward of a part of a tensor, which writes zeros for all of it in each round
_WHOLE_GRADIENTS = frozenset({"aten::new_zeros", "aten::select_backward", "aten::slice_backward"})
# These launch many kernels, too: of a list of tensors, or of what no other op does with fewer
_LIBRARY_LOOPS = re.compile(r"_foreach_|_fused_|rnn|lstm|gru|Optimizer|cudnn", re.IGNORECASE)
_PACKING = "aten::_pack_padded_sequence"
_PRODUCES = re.compile(r"^aten::(?:add|b|badd)?b?mm(?:_out)?$")


def launch_groups(facts: Facts) -> tuple[LaunchGroup, ...]:
    """Return the groups of a session, the largest saving first."""
    return _once(facts).groups


def groups_of(facts: Facts, *kinds: Kind) -> list[LaunchGroup]:
    """Return the groups of some kinds that save anything."""
    return [each for each in launch_groups(facts) if each.kind in kinds and each.saving_ns]


def idle_without_ns(facts: Facts) -> int:
    """Return the device's idle time in a step without all groups, in a replay."""
    return _once(facts).idle_ns


def graphs_save_ns(facts: Facts) -> int | None:
    """Return what CUDA graphs of forward and backward save of the step without all groups."""
    return saved_by_graphs_ns(facts, _once(facts))


def waits_in(facts: Facts, group: LaunchGroup) -> bool:
    """Tell whether the group is a loop whose line waits for each of its tensors."""
    waiting = {(each.file, each.line) for each in lines_that_wait(facts)}
    own = group.location.file, group.location.line
    is_read_or_copy = is_read(facts, group.launches) | copies_to_host(facts)[group.launches]
    return group.kind is Kind.TENSORS and bool(is_read_or_copy.any()) and own in waiting


def waits_of_calls(facts: Facts) -> set[tuple[str | None, int | None]]:
    """Return the lines whose waits go with a loop or an op, and cost nothing beside it."""
    replay, places = facts.replay, facts.analysis.places
    kinds = Kind.CALLS, Kind.OPS, Kind.PICKS
    groups = [each for each in launch_groups(facts) if each.kind in kinds]
    every = [each.waits for each in groups if each.waits is not None and each.saving_ns]
    if replay is None or not every:
        return set()
    at = facts.main_place[replay.waits.last_launch[np.logical_or.reduce(every)]]
    return {(places[each].file, places[each].line) for each in np.unique(at).tolist()}


def _once(facts: Facts) -> Replayed:
    def replayed() -> Replayed:
        return replayed_in_turn(
            facts, [*work_of_cpu(facts), *groups_of_breaks(facts), *_groups(facts)]
        )

    return facts.analysis.derived.once("launch groups", replayed)


def candidates_of(
    facts: Facts, kind: Kind, make: Callable[[LaunchGroup], tuple[str, str]]
) -> Iterable[Candidate] | CannotJudge:
    """Return a candidate for each group of a kind, with the summary and remedy made for it."""
    if not facts.on_device:
        return CannotJudge("the launches ran on the CPU, which waits for no launch")
    groups = (each for each in launch_groups(facts) if each.kind is kind and each.saving_ns)
    return [_candidate(facts, each, *make(each)) for each in groups if not waits_in(facts, each)]


def _candidate(facts: Facts, group: LaunchGroup, summary: str, remedy: str) -> Candidate:
    duration_ns = facts.launches.duration_ns[group.launches]
    busy_ns = facts.median_per_step(group.launches, duration_ns)
    gone_ns = ((1 - group.busy_kept) * duration_ns).astype(np.int64)
    is_late = facts.pace.is_critical[group.launches].mean() < _LATE
    idle = group.idle(facts)
    idle_ns = median_per_step(facts, idle)
    return Candidate(
        summary=f"{'CPU launch-bound: ' if is_late else ''}{summary}",
        est_saving_ns=group.saving_ns,
        busy_ns=facts.median_per_step(group.launches, gone_ns),
        confidence=Confidence.UPPER_BOUND if group.is_most else Confidence.ESTIMATED,
        remedy=remedy,
        location=group.location,
        evidence=(
            Figure("launches a step", facts.launches_per_step(group.launches)),
            Figure("they take", busy_ns, FigureUnit.NS),
            Figure("idle before them, as recorded", idle_ns, FigureUnit.NS),
            *_of_waits(facts, group),
        ),
        launches=group.launches,
        idle=idle,
    )


def _of_waits(facts: Facts, group: LaunchGroup) -> tuple[Figure, ...]:
    if group.waits is None:
        return ()
    count = int(group.waits.sum()) // len(facts.analysis.steps)
    return (Figure("waits for the device in them", count),)


def _groups(facts: Facts) -> Iterator[LaunchGroup]:
    launches = facts.launches
    # The CPU launches a whole CUDA graph at once
    is_eager = facts.in_steps(launches.scope.where(Scope.EAGER) & ~facts.pace.replayed)
    eager = np.flatnonzero(is_eager)
    yield from _optimizer(facts, np.flatnonzero(is_eager & launches.phase.where(Phase.OPTIMIZER)))
    is_other = is_eager & launches.phase.where(Phase.OTHER)
    # Checks of errors go by another op, with or without the loop around them
    unchecked = eager[checks(facts, eager) < 0]
    others = unchecked[is_other[unchecked]]
    loops = [*_tensor_loops(facts, others, unchecked), *_rows_of_autograd(facts, eager)]
    in_model: list[LaunchGroup] = []
    if _is_compiled(facts):
        in_model += _next_to_compiled(facts, eager)
        loops += _compiled_loops(facts)
    else:
        loops += (*_call_loops(facts, unchecked, unchecked), *_module_loops(facts, unchecked))
    for loop in _one_for_each_line(facts, _with_rounds(facts, loops), copies_whole(facts, eager)):
        in_model += apart(facts, loop)
    in_model += _looping_ops(facts, eager)
    in_model = _with_picks(in_model, list(picks_by_masks(facts, eager)))
    yield from in_model
    yield from constants(facts, eager)
    yield from pageable_copies(facts)
    yield from reads(facts, eager, [each.waits for each in in_model if each.waits is not None])


def _looping_ops(facts: Facts, launches: Ints) -> Iterator[LaunchGroup]:
    """Yield the launches of ops that launch many kernels a call, with those of their backward."""
    own = launches[facts.launches.phase.where(*OUTSIDE_BACKWARD)[launches]]
    calls = facts.called_ops(own)
    # Composite ops launch many kernels, too, but not the same one again and again
    kernels = np.stack([calls, facts.launches.name.codes[own]])
    of_kernel, counts = np.unique(kernels, axis=1, return_counts=True)
    name = facts.analysis.recording.trace.events.name
    families: dict[tuple[str | None, str | None, str], list[int]] = {}
    for call in np.unique(of_kernel[0, counts >= _MIN_TENSORS]).tolist():
        op, row = name[call], int(own[np.argmax(calls == call)])
        if call >= 0 and facts.main_place[row] >= 0 and _LIBRARY_LOOPS.search(op) is None:
            place = facts.place(row)
            family = _PACKING if "packed" in op else op
            families.setdefault((place.file, place.function, family), []).append(call)
    for (*_, op), every in families.items():
        forward = own[np.isin(calls, every)]
        first = facts.place(int(forward[facts.launches.start_ns[forward].argmin()]))
        rows = np.union1d(forward, backward_of(facts, np.array(every), launches))
        count = max(round(len(every) / len(facts.analysis.steps)), 1)
        kept, is_most = _without_excess(facts, forward, rows)
        where, waits = location_of(first), waits_after(facts, forward, count)
        yield LaunchGroup(Kind.OPS, where, rows, count, 0.1, kept, waits, what=op, is_most=is_most)


def _without_excess(facts: Facts, forward: Ints, rows: Ints) -> tuple[Floats, bool]:
    """Return what of the device's time of an op that loops is left, and whether that is a bound.

    Where its backward takes longer than a gradient need, its long elementwise kernels, which write
    for each part what the op alone reads, are left out up to that.
    """
    duration_ns, merged = facts.launches.duration_ns, busy_merged(facts, rows)
    is_behind = ~np.isin(rows, forward)
    needed_ns = _MOST_OF_GRADIENT * int(duration_ns[forward].sum())
    excess_ns = int(duration_ns[rows[is_behind]].sum()) - needed_ns
    is_pass = is_behind & (duration_ns[rows] >= SHORT_NS)
    is_pass &= facts.named(lambda name: "at::native::" in name)[rows]
    passes_ns = int(duration_ns[rows[is_pass]].sum())
    if excess_ns <= 0 or not passes_ns:
        return merged, False
    left = max(1 - excess_ns / passes_ns, 0.0)
    return np.where(is_pass, np.minimum(merged, left), merged), True


def _is_compiled(facts: Facts) -> bool:
    """Tell whether compiled graphs launch enough that the rest could be compiled with them."""
    in_steps = facts.launches.in_steps
    compiled = facts.launches.scope.where(Scope.COMPILED) & in_steps
    return bool(compiled.sum() > _MIN_COMPILED * in_steps.sum())


def _next_to_compiled(facts: Facts, launches: Ints) -> Iterator[LaunchGroup]:
    """Yield what forward and backward launch eagerly at lines, where most is compiled."""
    own = np.intersect1d(launches, eager_kernels(facts))
    own = own[_is_single(facts, own)]
    own = own[~facts.pace.is_critical[own]]  # its rule judges those by their device time
    if facts.launches_per_step(own) >= _MIN_EAGER:
        places = np.unique(facts.main_place[own]).tolist()
        lines = len({line_of(facts.analysis.places[at])[:2] for at in places})
        yield LaunchGroup(Kind.EAGER, busiest(facts, own), own, lines, EAGER_KEPT, 1 - FUSED_AWAY)


def _is_single(facts: Facts, launches: Ints) -> Rows:
    """Flag launches of torch's ops on one tensor, which no op on a list of tensors calls."""
    is_merged = flag_rows(ops_of(facts, launches), lambda name: name.startswith(_MERGED_OPS))
    return placed(facts, launches, lambda place: _is_of_one(place.aten_op or "")) & ~is_merged


def _is_of_one(op: str) -> bool:
    return op.startswith("aten") and not op.startswith(_MERGED_OPS)


def _optimizer(facts: Facts, launches: Ints) -> Iterator[LaunchGroup]:
    """Yield the launches of an optimizer's ops of one parameter each."""
    single = launches[_is_single(facts, launches) & ~is_read(facts, launches)]
    if facts.launches_per_step(single) >= _MIN_OPTIMIZER_LAUNCHES:
        count = usual_count(facts, single)
        yield LaunchGroup(Kind.OPTIMIZER, busiest(facts, single), single, count, 0.1, 0.35)
    yield from _parameter_groups(facts, np.setdiff1d(launches, single))


def _parameter_groups(facts: Facts, launches: Ints) -> Iterator[LaunchGroup]:
    """Yield an optimizer's ops on lists of tensors, where it calls each for many groups."""
    own = launches[flag_rows(ops_of(facts, launches), lambda name: name.startswith(_MERGED_OPS))]
    # One call launches several kernels where its list is long
    calls, first = np.unique(facts.launches.op_event[own].filled(-1), return_index=True)
    count = usual_count(facts, own[first[calls >= 0]])
    if count >= _MIN_GROUPS:
        kept = (1 / count, busy_merged(facts, own))
        yield LaunchGroup(Kind.OPTIMIZER, busiest(facts, own), own, count, *kept, what=GROUPS)


def _tensor_loops(facts: Facts, launches: Ints, eager: Ints) -> Iterator[LaunchGroup]:
    """Yield the launches of each function whose lines launch the same for many tensors."""
    for own in _by_function(facts, launches):
        if facts.launches_per_step(own) >= _MIN_TENSORS:
            count = usual_count(facts, own)
            if count >= _MIN_TENSORS and _is_dense(facts, own, count):
                where, own = busiest(facts, own), _with_backward(facts, own, eager)
                merged = _merged_rounds(facts, own, count)
                yield LaunchGroup(Kind.TENSORS, where, own, count, 0.1, merged)


def _with_backward(facts: Facts, launches: Ints, eager: Ints) -> Ints:
    """Return launches with those of their backward, and of that of views at their lines.

    Autograd may differentiate what no module's forward calls, too.
    """
    calls, places = np.unique(facts.called_ops(launches)), np.unique(facts.main_place[launches])
    lines = {line_of(facts.analysis.places[at]) for at in places[places >= 0].tolist()}
    behind = eager[~facts.launches.phase.where(*OUTSIDE_BACKWARD, Phase.OPTIMIZER)[eager]]
    behind = behind[placed(facts, behind, partial(_is_at, lines))]
    return np.unique([*launches, *behind, *backward_of(facts, calls[calls >= 0], eager)])


def _rows_of_autograd(facts: Facts, launches: Ints) -> Iterator[LaunchGroup]:
    """Yield the launches of nodes that one line's calls of autograd run for one row each."""
    runs = runs_in_rows(facts)
    if not runs.count:
        return
    at = node_around(facts, launches)
    own = launches[np.append(runs.is_own, False)[at]]
    if not len(own):  # compiled graphs run again
        return
    idle = facts.idle_before(launches[np.append(runs.is_run, False)[at]])
    where = longest_line(facts, idle_by_line(facts, idle, facts.analysis.idle.place))
    kept = 1 / runs.count
    yield LaunchGroup(Kind.ROWS, where, own, runs.count, kept, busy_merged(facts, own))


def _is_dense(facts: Facts, launches: Ints, count: int) -> bool:
    """Tell whether so many rounds launch little else, as a loop around a model would."""
    enqueued_ns, step = facts.pace.enqueued_ns, facts.launches.step[launches].filled(-1)
    ordered = np.sort(enqueued_ns)
    own = [np.searchsorted(ordered, enqueued_ns[launches[step == at]]) for at in np.unique(step)]
    return median_low([int(np.ptp(each)) for each in own]) <= MAX_BODY_LAUNCHES * count


def _compiled_loops(facts: Facts) -> Iterator[LaunchGroup]:
    """Yield what compiled graphs launch for the rounds of a loop, one product after the other.

    Dynamo unrolls the loop. Rounds that take each other's results stay, whoever runs them.
    """
    is_compiled = facts.launches.scope.where(Scope.COMPILED) & ~facts.pace.replayed
    launches = np.flatnonzero(facts.in_steps(is_compiled))
    products = launches[flag_rows(ops_of(facts, launches), lambda op: bool(_PRODUCES.search(op)))]
    for loop in (*_call_loops(facts, launches, products), *_module_loops(facts, launches)):
        if not _is_in_turn(facts, loop.launches):
            yield loop


def _call_loops(facts: Facts, launches: Ints, known: Ints) -> Iterator[LaunchGroup]:
    """Yield the launches of lines that one forward runs many times, and those of their backward.

    ``known`` are those of them that tell how often.
    """
    views = lines_of_views(facts, launches)
    for runs in loops_of(repeated(facts, known)):
        functions: dict[Function, dict[Line, int]] = {}
        for each in runs:
            lines = functions.setdefault(function_of(each.place), {})
            lines[line_of(each.place)] = max(lines.get(line_of(each.place), 0), each.count)
        for function, lines in functions.items():
            least, behind = min(lines.values()), views.get(function, {})
            lines |= {line: least for line, count in behind.items() if count >= least}
        yield _loop(facts, launches, functions, runs[0])


def _loop(
    facts: Facts, launches: Ints, functions: dict[Function, dict[Line, int]], first: Run
) -> LaunchGroup:
    """Return the group of a loop that runs some lines of functions so many times."""
    every = {line: count for lines in functions.values() for line, count in lines.items()}
    own = launches[placed(facts, launches, partial(_is_at, every))]
    lines = functions[function_of(first.place)]
    times, modules = median_low(lines.values()), len({module for _, _, module in lines})
    where = busiest(facts, own) if len(functions) == 1 else line_of_loop(facts, own)
    merged = _merged_rounds(facts, own, times)
    # Lines of a loop within the loop run more often than others
    counts = [every.get(line_of(place), times) for place in facts.analysis.places]
    kept = 1 / np.array(counts)[facts.main_place[own]]
    return replace(_calls(facts, where, own, (times, modules), merged), cpu_kept=kept)


def _with_rounds(facts: Facts, loops: Iterable[LaunchGroup]) -> Iterator[LaunchGroup]:
    """Yield loops; one in a forward has what needs no gradient in its rounds, and its waits."""
    every = list(loops)
    others = [each for each in every if each.kind is Kind.TENSORS]
    for loop in (each for each in every if each.kind is not Kind.TENSORS):
        own = functions_in(facts, loop.launches) if loop.kind is Kind.CALLS else set()
        of_loop = [each for each in others if functions_in(facts, each.launches) <= own]
        others = [each for each in others if not any(each is one for one in of_loop)]
        yield _joined(facts, loop, of_loop) if of_loop else loop
    yield from others


def _with_picks(groups: list[LaunchGroup], picks: list[LaunchGroup]) -> list[LaunchGroup]:
    """Return groups with picks of a mask's elements; a loop over tensors has those in it."""
    result, others = list[LaunchGroup](), picks
    for each in groups:
        own = [one for one in others if each.kind is Kind.TENSORS and _has(each, one)]
        others = [one for one in others if not any(one is of_loop for of_loop in own)]
        waits = [one.waits for one in own if one.waits is not None]
        result.append(replace(each, waits=np.logical_or.reduce(waits)) if waits else each)
    return [*result, *others]


def _has(loop: LaunchGroup, picks: LaunchGroup) -> bool:
    """Tell whether most rounds of a loop pick, and nothing else does."""
    return 2 * picks.count > loop.count and bool(np.isin(picks.launches, loop.launches).all())


def _joined(facts: Facts, loop: LaunchGroup, others: list[LaunchGroup]) -> LaunchGroup:
    rows = np.unique(np.concatenate([loop.launches, *(each.launches for each in others)]))
    cpu, busy = np.ones(len(facts.launches)), np.ones(len(facts.launches))
    for each in (loop, *others):
        cpu[each.launches], busy[each.launches] = each.cpu_kept, each.busy_kept
    waits = waits_after(facts, rows, loop.count)
    return replace(loop, launches=rows, cpu_kept=cpu[rows], busy_kept=busy[rows], waits=waits)


def _one_for_each_line(
    facts: Facts, loops: Iterable[LaunchGroup], copying: Ints
) -> Iterator[LaunchGroup]:
    """Yield loops, those of one line as one, with what copies gradients that it writes parts of."""
    lines: dict[tuple[str | None, int | None], list[LaunchGroup]] = {}
    for each in loops:
        lines.setdefault((each.location.file, each.location.line), []).append(each)
    for own in lines.values():
        rows = np.concatenate([each.launches for each in own])
        calls = facts.called_ops(rows[facts.launches.phase.where(*OUTSIDE_BACKWARD)[rows]])
        behind = backward_of(facts, np.unique(calls[calls >= 0]), copying)
        if len(own) == 1 and not len(behind):
            yield own[0]
            continue
        kept = max(float(np.max(each.cpu_kept)) for each in own)
        busy = np.ones(len(facts.launches))
        busy[behind] = kept
        for each in own:
            busy[each.launches] = np.minimum(busy[each.launches], each.busy_kept)
        waits = [each.waits for each in own if each.waits is not None]
        rows = np.union1d(rows, behind)
        yield replace(
            max(own, key=lambda each: (each.kind is Kind.ROWS, len(each.launches))),
            launches=rows,
            cpu_kept=kept,
            busy_kept=busy[rows],
            waits=np.logical_or.reduce(waits) if waits else None,
        )


def _calls(
    facts: Facts, where: Location, own: Ints, counts: tuple[int, int], busy_kept: Floats
) -> LaunchGroup:
    """Return the launches of a loop; ``counts`` are of its rounds, and of modules that run it."""
    rounds, count = counts[0], counts[0] * counts[1]
    waits = waits_after(facts, own, count)
    return LaunchGroup(Kind.CALLS, where, own, count, 1 / rounds, busy_kept, waits)


def _merged_rounds(facts: Facts, launches: Ints, rounds: int) -> Floats:
    """Return the part of the device's time of a loop on the same tensors that one round needs."""
    # Each round writes a gradient of the whole tensor that it takes a part of, and adds it to that
    # of the round before.
    columns = facts.launches
    is_added = columns.phase.where(Phase.GRADIENT_ACCUMULATION)[launches]
    is_whole = columns.phase.where(Phase.BACKWARD)[launches] & placed(
        facts, launches, lambda place: place.aten_op in _WHOLE_GRADIENTS
    )
    merged = busy_merged(facts, launches, in_turn=_is_in_turn(facts, launches))
    # Each round reads the same tensors as all others
    is_pass = in_turn(facts).is_mask[facts.main_place[launches]]
    return np.where(is_added | is_whole | is_pass, 1 / rounds, merged)


def _is_in_turn(facts: Facts, launches: Ints) -> bool:
    """Tell whether the text of a loop's lines, and of what calls them, may carry a result on."""
    functions: dict[tuple[str | None, str | None], dict[int, str]] = {}
    of_launch = facts.main_place[launches]
    for at in np.unique(of_launch[~in_turn(facts).is_free[of_launch] & (of_launch >= 0)]).tolist():
        place = facts.analysis.places[at]
        for each in (*place.stack, place):
            codes = functions.setdefault((each.file, each.function), {})
            codes[each.line or 0] = each.code or ""
    return any(map(carries_on, functions.values()))


def _module_loops(facts: Facts, launches: Ints) -> Iterator[LaunchGroup]:
    """Yield the launches of lists of modules that one line calls, each without the others."""
    of_launch = facts.main_place[launches]
    places = facts.analysis.places
    used = [at for at in np.unique(of_launch).tolist() if at >= 0 and places[at].module is not None]
    callers = callers_of([places[at] for at in used])
    items: dict[CallLine, dict[int, Item]] = {}
    is_joined: dict[CallLine, bool] = {}
    for at in used:
        for call, parts in calls_of_lists(places[at], callers):
            items.setdefault(call, {})[at] = (".".join(parts[:-1]), parts[-1])
            joins = callers[".".join(parts[:-2])][call.caller]
            is_joined[call] = is_joined.get(call, False) or joins
    for call, own in items.items():
        if not is_independent(call.code, is_joined=is_joined[call]):
            continue
        rounds = rounds_of(call, own, *_forward(facts, launches))
        if rounds >= MIN_CALLS:
            rows = launches[np.isin(of_launch, list(own))]
            where = Location(call.caller.file, call.line, call.code)
            lists = len({container for container, _ in own.values()})
            yield _calls(facts, where, rows, (rounds, lists), busy_merged(facts, rows))


def _forward(facts: Facts, launches: Ints) -> tuple[Sequence[Place], list[int]]:
    """Return all places, and those of the launches of a forward in their order."""
    forward = launches[facts.launches.phase.where(Phase.FORWARD)[launches]]
    forward = forward[np.argsort(facts.pace.enqueued_ns[forward], kind="stable")]
    return facts.analysis.places, facts.main_place[forward].tolist()


def _is_at(lines: Container[Line], place: Place) -> bool:
    return line_of(place) in lines


def _by_function(facts: Facts, launches: Ints) -> Iterator[Ints]:
    """Yield the launches of each function, of those with a line outside of a model."""
    functions: dict[tuple[str | None, str | None], list[int]] = {}
    for at, place in enumerate(facts.analysis.places):
        if place.line is not None and place.phase is Phase.OTHER:
            functions.setdefault((place.file, place.function), []).append(at)
    for places in functions.values():
        yield launches[np.isin(facts.main_place[launches], places)]
