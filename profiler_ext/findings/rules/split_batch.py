"""The rule for a model that is called for each part of what could be one batch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from operator import and_, or_

import numpy as np

from profiler_ext.findings.code_of_lines import (
    equal_calls,
    independent_calls,
    is_independent,
    is_mapped,
)
from profiler_ext.findings.critical_path import Floats
from profiler_ext.findings.facts import CannotJudge, Facts
from profiler_ext.findings.finding import Confidence, Figure, Location
from profiler_ext.findings.groups import (
    OUTSIDE_BACKWARD,
    blocks_of,
    multiprocessors,
    threads_of,
)
from profiler_ext.findings.lines_of_functions import (
    calls_per_step,
    functions_of,
    is_of_module,
    launches_under,
)
from profiler_ext.findings.rule import Candidate, Rule, count_and_time
from profiler_ext.kineto.launch_shapes import launch_shapes
from profiler_ext.records.events import Ints
from profiler_ext.records.vocabulary import Phase

_MIN_LAUNCHES = 16  # of a call; fewer are a layer
_ALIKE = 0.8
_THREADS = 2048  # that a multiprocessor runs at once
_SHORT_NS = 10_000  # longer kernels fill the device, and take as long for both parts


@dataclass(frozen=True, slots=True)
class _Calls:
    """Calls of one model."""

    where: Location
    launches: Ints
    count: int


def _judge(facts: Facts) -> Iterable[Candidate] | CannotJudge:
    if facts.replay is None:
        return ()
    return tuple(_candidate(facts, each) for each in (*_calls(facts), *_loops(facts)))


def _loops(facts: Facts) -> Iterator[_Calls]:
    """Yield the lines that call a model again and again in a loop, once for each part."""
    found: list[_Calls] = []
    for function, codes in functions_of(facts).items():
        every = {line: launches_under(facts, function, line) for line in codes}
        rounds = {line: calls_per_step(facts, own) for line, own in every.items() if len(own)}
        for line, count in rounds.items():
            # Where all of a function's lines run as often, the loop is around the function
            is_loop = count > 1 and any(2 * each <= count for each in rounds.values())
            own, code = _of_modules(facts, every[line]), codes[line]
            if not is_loop or not (is_mapped(code) or is_independent(code, is_joined=True)):
                continue
            is_long = facts.launches_per_step(own) >= _MIN_LAUNCHES * count
            if is_long and _are_of_one_size(facts, own) and _is_before_backward(facts, own):
                found.append(_Calls(Location(function[0], line, codes[line]), own, count))
    for each in found:
        others = (other.launches for other in found if other is not each)
        if not any(np.isin(each.launches, own).all() for own in others):
            yield each


def _of_modules(facts: Facts, launches: Ints) -> Ints:
    """Return those launches that are of modules; what a loop joins is not."""
    is_of_module = [place.module is not None for place in facts.analysis.places]
    own: Ints = launches[np.array([*is_of_module, False], np.bool_)[facts.main_place[launches]]]
    return own


def _are_of_one_size(facts: Facts, launches: Ints) -> bool:
    """Tell whether most kernels of each place have as many blocks in each round."""
    table = facts.launches
    forward = launches[table.phase.where(*OUTSIDE_BACKWARD)[launches]]
    grid = launch_shapes(facts.analysis.recording.trace, table.event[forward]).grid
    columns: Ints = np.stack([facts.main_place[forward], table.name.codes[forward], grid.codes])
    kernels, sizes = (np.unique(each, axis=1).shape[1] for each in (columns[:2], columns))
    return bool(kernels >= _ALIKE * sizes)


def _is_before_backward(facts: Facts, launches: Ints) -> bool:
    """Tell whether the backward begins after all calls; else a step accumulates gradients."""
    table = facts.launches
    is_behind = table.phase.where(Phase.BACKWARD, Phase.RECOMPUTE)[launches]
    for step in np.unique(table.step[launches].filled(-1)).tolist():
        is_own = table.step[launches].filled(-1) == step
        forward, backward = launches[is_own & ~is_behind], launches[is_own & is_behind]
        ends_ns = table.start_ns[forward].max(initial=0)
        if len(backward) and int(table.start_ns[backward].min()) < int(ends_ns):
            return False
    return True


def _calls(facts: Facts) -> Iterator[_Calls]:
    for function, codes in functions_of(facts).items():
        equal = [(text, set(own)) for text, own in equal_calls(codes)]
        for callee, lines in independent_calls(codes).items():
            if any(text.startswith(f"{callee}(") and own >= set(lines) for text, own in equal):
                continue  # the same again, and no other part of a batch
            every = {line: launches_under(facts, function, line) for line in lines}
            own = np.unique(np.concatenate([*every.values()]))
            count = sum(lines.values())
            is_nested = sum(map(len, every.values())) > len(own)  # one line calls another
            is_of_model = len(own) and is_of_module(facts, (function, lines), callee, own)
            if is_nested or not is_of_model or not _is_alike(facts, every, lines):
                continue
            models = _instances(facts, callee, own)
            if facts.launches_per_step(own) >= _MIN_LAUNCHES * count * models:
                first = min(lines)
                yield _Calls(Location(function[0], first, codes[first]), own, count)


def _instances(facts: Facts, callee: str, launches: Ints) -> int:
    """Return how many modules have the name that is called: one in each layer, say."""
    name = callee.rpartition(".")[2]
    places = (facts.analysis.places[at] for at in np.unique(facts.main_place[launches]).tolist())
    paths = {(place.module or "").partition(name)[0] for place in places if place.module}
    return max(len(paths), 1) if "." in callee else 1


def _is_alike(facts: Facts, every: Mapping[int, Ints], lines: Mapping[int, int]) -> bool:
    """Tell whether all calls run the same kernels forward."""
    forward = facts.launches.phase.where(Phase.FORWARD)
    alike: list[Counter[int]] = []
    for line, own in every.items():
        names = Counter(facts.launches.name.codes[own[forward[own]]].tolist())
        alike.append(Counter({name: times // lines[line] for name, times in names.items()}))
        alike.append(Counter({name: -(-times // lines[line]) for name, times in names.items()}))
    least, most = reduce(and_, alike), reduce(or_, alike)
    return least.total() >= _ALIKE * most.total() > 0


def _candidate(facts: Facts, calls: _Calls) -> Candidate:
    replay, slowdown, own = facts.replay, facts.training.slowdown, calls.launches
    short, saved_ns = own[facts.launches.duration_ns[own] < _SHORT_NS], 0
    left = np.maximum(_part_of_device(facts, short), 1 / calls.count)
    gone_ns = ((1 - left) * facts.launches.duration_ns[short]).astype(np.int64)
    if replay is not None:
        one = replay.unchanged
        one.cpu[own], one.busy[short] = 1 / calls.count, left
        saved_ns = max(replay.step_ns(slowdown) - replay.step_ns(slowdown, one), 0)
    return Candidate(
        summary=f"the same model is called {calls.count} times, for parts of one batch",
        est_saving_ns=saved_ns,
        confidence=Confidence.ESTIMATED,
        remedy="one call of torch.cat((a, b)), then chunk(2) of its result"
        if calls.count == 2
        else "one call of torch.stack or torch.cat of all parts, padded to one size",
        location=calls.where,
        evidence=(*count_and_time(facts, own), Figure("calls", calls.count)),
        # The long kernels stay: what they lose other rules say
        launches=short,
        busy_ns=facts.median_per_step(short, gone_ns),
        idle=facts.idle_before(own),
    )


def _part_of_device(facts: Facts, launches: Ints) -> Floats:
    """Return for what part of the threads that the device runs at once each launch has some."""
    most = multiprocessors(facts) * _THREADS
    threads: Floats = blocks_of(facts, launches) * threads_of(facts, launches) / max(most, 1)
    return np.minimum(threads, 1.0) if most else np.zeros(len(launches))


RULE = Rule(
    name="split_batch",
    title="A model that is called for each part of a batch",
    means="Lines of a function call the same model, by their text none with what another "
    "returned, and the calls run the same kernels: with and without a condition (classifier-free "
    "guidance), for two views or for real and generated samples. Or one line calls a model in a "
    "loop whose rounds do not need each other, by its text: a comprehension, or results that are "
    "appended, added up or written at an index, and whose kernels have one size.",
    because="Each call launches all kernels again. Where the step waits for the CPU, two calls on "
    "half a batch cost twice one call on the whole, and so do kernels too short to fill the "
    "device.",
    remedy="Join the inputs (`torch.cat`), call once, and split the result (`chunk`). Batch norms "
    "in training then see one batch in place of two, which changes their statistics.",
    saving="How much shorter the step would be in a replay in which all calls cost the CPU what "
    "one does, and kernels below 10 us take what they take once. Of those with threads for more of "
    "the device than that, as large a part is left as they have threads for.",
    not_on_cpu="the launches ran on the CPU, which waits for no launch",
    judge=_judge,
)
