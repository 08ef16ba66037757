"""The rule for a network that a step runs again on the same input, or on the same samples."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator

import numpy as np

from profiler_ext.findings.code_of_lines import KEPT, equal_calls
from profiler_ext.findings.facts import CannotJudge, Facts, Rows
from profiler_ext.findings.finding import Confidence, Figure, FigureUnit, Location
from profiler_ext.findings.groups import SHORT_NS, placed
from profiler_ext.findings.lines_of_functions import (
    Function,
    calls_per_step,
    draws,
    functions_of,
    launches_under,
)
from profiler_ext.findings.loops_of_lines import line_of
from profiler_ext.findings.repeated_samples import RepeatedSamples, calls_of_repeated
from profiler_ext.findings.rule import NO_ROWS, ON_CPU, Candidate, Rule, Turn, count_and_time
from profiler_ext.findings.unchanged_lines import (
    ASSIGNS_TO_SELF,
    calls_of_functions,
    lines_around,
    unchanged_call,
)
from profiler_ext.records.events import Ints
from profiler_ext.records.lineage import Frame
from profiler_ext.records.vocabulary import Phase

_PRODUCES = re.compile(r"\b(?:add|b|badd)?b?mm\b|convolution|attention")
_TO_DEVICE = "Memcpy HtoD"
_CASTS = "aten::to"
_BEHIND = (Phase.BACKWARD, Phase.RECOMPUTE)
_LEARNS = (Phase.BACKWARD, Phase.GRADIENT_ACCUMULATION)
_ALIKE = 0.8
_FOR_METRICS = "take the outputs of the training step (detach()), or do it every hundredth step"
_MIN_LAUNCHES = 16  # of a call; fewer are a layer
_REPEATS = re.compile(r"aten::(repeat|repeat_interleave|cat|concat|concatenate)$")
_STRIDED = re.compile(r"\belementwise_kernel<")  # what is contiguous is copied by vectors
_LEAST_TIMES = 2
_ONCE = "call it once and use its result at both lines"


def _judge(facts: Facts) -> Iterable[Candidate] | CannotJudge:
    return (*_candidates(facts), *_in_rounds(facts), *_of_samples(facts))


def _candidates(facts: Facts) -> Iterator[Candidate]:
    counted: set[int] = set()
    for function, codes in functions_of(facts).items():
        for text, lines in equal_calls(codes):
            every = {line: launches_under(facts, function, line) for line in lines}
            every = {line: own for line, own in every.items() if facts.launches_per_step(own)}
            again = _again(facts, every) if len(every) > 1 else None
            if again is None or counted & set(every[again].tolist()):
                continue
            counted |= set(every[again].tolist())
            where = Location(function[0], again, codes[again])
            other = next(line for line in every if line != again)
            yield _candidate(facts, where, _gone(facts, every, again), text, other)


def _again(facts: Facts, every: dict[int, Ints]) -> int | None:
    """Return the line whose call the step does not need, if there is one."""
    if not _is_alike(facts, [*every.values()]):
        return None
    phase, own = facts.launches.phase, np.concatenate([*every.values()])
    if sum(map(len, every.values())) > len(np.unique(own)):  # one line calls another
        return None
    is_behind = phase.where(*_BEHIND) & ~_is_cast(facts)
    learning = [line for line, rows in every.items() if is_behind[rows].any()]
    only_read = [line for line in every if line not in learning]
    if learning and only_read:  # its values are those of the other, but for what is drawn
        return only_read[0]
    is_drawn = draws(facts)[own].any()
    return None if is_drawn or _is_updated_between(facts, every) else max(every)


def _is_cast(facts: Facts) -> Rows:
    """Flag casts, which autocast keeps with a gradient, even those of a call without one."""
    return facts.mainly(lambda place: place.aten_op == _CASTS)


def _gone(facts: Facts, every: dict[int, Ints], again: int) -> Ints:
    """Return the launches that go with a line's call.

    Where the other learns, and runs later, it can have the values of this one and their graph. Then
    its forward goes. Without a graph, in ``no_grad``, this one goes.
    """
    phase, start_ns, own = facts.launches.phase, facts.launches.start_ns, every[again]
    is_behind, is_cast = phase.where(*_LEARNS, Phase.RECOMPUTE), _is_cast(facts)
    if (is_behind & ~is_cast)[own].any():
        return own
    forward = [rows[~is_behind[rows]] for rows in every.values()]
    last = max(forward, key=lambda rows: int(start_ns[rows].max(initial=0)))
    if (is_behind & ~is_cast)[np.concatenate([*every.values()])].any() and _has_graph(facts, own):
        return last
    # Autocast keeps casts of weights, which have a backward, for the call that stays
    lines = {line_of(facts.place(row)) for row in own[is_behind[own]].tolist()}
    is_needed = placed(facts, own, lambda place: line_of(place) in lines)
    return own[~(is_cast[own] & is_needed)]


def _has_graph(facts: Facts, launches: Ints) -> bool:
    """Tell whether autograd numbers the ops that launch these."""
    ops = facts.called_ops(launches)
    numbers = facts.analysis.recording.trace.events.sequence_number
    return bool((~np.ma.getmaskarray(numbers)[ops[ops >= 0]]).any())


def _is_alike(facts: Facts, every: list[Ints]) -> bool:
    """Tell whether all lines run the same products, of what is on the device."""
    is_product = facts.of_op(lambda op: _PRODUCES.search(op) is not None)
    is_product &= ~facts.launches.phase.where(*_BEHIND)
    codes, is_copy = facts.launches.name.codes, facts.named(lambda name: _TO_DEVICE in name)
    counted = [Counter(codes[own[is_product[own]]].tolist()) for own in every]
    least, most = counted[0], counted[0]
    for each in counted[1:]:
        least, most = least & each, most | each
    is_given = any(is_copy[own].any() for own in every)
    return not is_given and least.total() >= _ALIKE * most.total() > 0


def _is_updated_between(facts: Facts, every: dict[int, Ints]) -> bool:
    """Tell whether an optimizer runs between the forwards of these calls in a step."""
    launches = facts.launches
    updates = launches.start_ns[facts.in_steps(launches.phase.where(Phase.OPTIMIZER))]
    is_behind = launches.phase.where(*_BEHIND, Phase.GRADIENT_ACCUMULATION)
    begins, ends = [], []
    for step in facts.analysis.steps:
        of_step = launches.step.filled(-1) == step.number
        forward = [own[of_step[own] & ~is_behind[own]] for own in every.values()]
        starts_ns = [launches.start_ns[own].min() for own in forward if len(own)]
        begins.append(min(starts_ns, default=0))
        ends.append(max(starts_ns, default=0))
    bounds = zip(begins, ends, strict=True)
    return any(((updates > begin) & (updates < end)).any() for begin, end in bounds)


def _candidate(facts: Facts, where: Location, launches: Ints, text: str, other: int) -> Candidate:
    is_learning = facts.launches.phase.where(*_BEHIND)[launches].any()
    learns = facts.launches.phase.where(*_BEHIND).any()
    return Candidate(
        summary=f"{text} is computed again, with the same arguments as at line {other}",
        est_saving_ns=facts.removed_per_step_ns(launches),
        confidence=Confidence.ESTIMATED,
        remedy=_FOR_METRICS if learns and not is_learning else _ONCE,
        location=where,
        evidence=(*count_and_time(facts, launches), Figure("the other line", other)),
        launches=launches,
    )


def _in_rounds(facts: Facts) -> Iterator[Candidate]:
    """Yield what the rounds of a loop compute again from names that none of them assigns."""
    ran = lines_around(facts)
    groups: dict[tuple[Frame, Function], tuple[Frame, list[int]]] = {}
    stacks: dict[tuple[Frame, ...], list[int]] = {}
    for at, place in enumerate(facts.analysis.places):
        if place.module:
            stacks.setdefault(place.stack, []).append(at)
    for stack, places in stacks.items():
        if (found := unchanged_call(stack, ran)) is not None:
            loop, frame = found
            key = loop, (frame.file, frame.function)
            groups.setdefault(key, (frame, []))[1].extend(places)
    for (loop, _), (frame, places) in groups.items():
        rows = np.flatnonzero(facts.in_steps(np.isin(facts.main_place, places)))
        count = calls_per_step(facts, rows)
        lines = functions_of(facts)[loop.file, loop.function]
        every = (launches_under(facts, (loop.file, loop.function), line) for line in lines)
        around = min(calls_per_step(facts, own) for own in every if len(own))
        is_often = count > 1 and 2 * around <= count and _is_frozen(facts, rows)
        if is_often and _keeps_no_state(facts, loop, rows, count):
            is_known = frame == loop and _is_called_before(facts, loop)
            again = rows if is_known else _after_first(facts, rows, count // max(around, 1))
            if facts.launches_per_step(again) >= _MIN_LAUNCHES * (count - around):
                yield _candidate_of_rounds(facts, (loop, frame), again, count)


def _is_called_before(facts: Facts, loop: Frame) -> bool:
    """Tell whether a line before the loop's calls what that one calls, with the same arguments."""
    calls = equal_calls(functions_of(facts)[loop.file, loop.function])
    code = (loop.code or "").partition("#")[0].strip()
    return any(code.endswith(text) and min(own) < loop.line in own for text, own in calls)


def _is_frozen(facts: Facts, rows: Ints) -> bool:
    """Tell whether nothing in these is drawn, or updated or learned from one to the next."""
    phase, start_ns = facts.launches.phase, facts.launches.start_ns
    if draws(facts)[rows].any() or phase.where(Phase.RECOMPUTE)[rows].any():
        return False
    is_behind = phase.where(*_LEARNS)
    updates = start_ns[facts.in_steps(phase.where(*_LEARNS, Phase.OPTIMIZER))]
    for number in np.unique(facts.launches.step[rows].filled(-1)).tolist():
        own = rows[facts.launches.step[rows].filled(-1) == number]
        own_ns = start_ns[own[~is_behind[own]]]
        if not len(own_ns) or ((updates > own_ns.min()) & (updates < own_ns.max())).any():
            return False
    return True


def _keeps_no_state(facts: Facts, loop: Frame, rows: Ints, count: int) -> bool:
    """Tell whether rounds that learn have a reason to be: others run what differs in them.

    A loop that calls nothing else has one if its network keeps a state from round to round.
    """
    if not facts.launches.phase.where(*_LEARNS)[rows].any():
        return True
    places = [facts.analysis.places[at] for at in np.unique(facts.main_place[rows]).tolist()]
    if any(ASSIGNS_TO_SELF.match(frame.code or "") for each in places for frame in each.stack):
        return False
    function = (loop.file, loop.function)
    every = (launches_under(facts, function, line) for line in functions_of(facts)[function])
    in_module = facts.mainly(lambda place: bool(place.module))
    others = (np.setdiff1d(own[in_module[own]], rows) for own in every)
    return any(facts.launches_per_step(own) >= count for own in others)


def _after_first(facts: Facts, rows: Ints, rounds: int) -> Ints:
    """Return the launches of all rounds of a step but the first, of forward and of backward."""
    is_behind = facts.launches.phase.where(*_LEARNS)[rows]
    parts = (_without_first(facts, own, rounds) for own in (rows[~is_behind], rows[is_behind]))
    return np.concatenate([*parts])


def _without_first(facts: Facts, rows: Ints, rounds: int) -> Ints:
    rows = rows[np.argsort(facts.launches.start_ns[rows], kind="stable")]
    step = facts.launches.step[rows].filled(-1)
    own = [rows[step == number] for number in np.unique(step).tolist()]
    return np.concatenate([NO_ROWS, *(each[-(-len(each) // rounds) :] for each in own)])


def _candidate_of_rounds(
    facts: Facts, lines: tuple[Frame, Frame], again: Ints, count: int
) -> Candidate:
    loop, frame = lines
    return Candidate(
        summary=f"the same is computed {count} times: no round of the loop changes what it takes",
        est_saving_ns=facts.removed_per_step_ns(again),
        confidence=Confidence.ESTIMATED,
        remedy="call it once before the loop, and keep its result",
        location=Location(frame.file, frame.line, frame.code),
        evidence=(
            *count_and_time(facts, again),
            Figure("the loop's line", f"{loop.function}, {loop.line}", FigureUnit.TEXT),
        ),
        launches=again,
    )


def _of_samples(facts: Facts) -> Iterator[Candidate]:
    """Yield what is computed of samples that were repeated before, each several times."""
    lines = {
        (function, line): (samples, codes[line])
        for function, codes in calls_of_functions(facts)
        for line, samples in calls_of_repeated(codes).items()
    }
    for (function, line), (samples, code) in lines.items():
        own = launches_under(facts, function, line)
        own = np.setdiff1d(own, _repeating(facts, function, line))
        is_short = facts.launches_per_step(own) < _MIN_LAUNCHES
        if is_short or KEPT.search(samples.callee) or draws(facts)[own].any():
            continue
        repeats = _repeating(facts, function, samples.line)
        if samples.times is not None or _are_strided(facts, repeats):
            where = Location(function[0], line, code)
            yield _candidate_of_samples(facts, where, own, samples)


def _repeating(facts: Facts, function: Function, line: int) -> Ints:
    """Return the launches of a line that repeat a tensor."""
    rows = launches_under(facts, function, line)
    ops = [facts.place(row).aten_op or "" for row in rows.tolist()]
    return rows[np.array([_REPEATS.search(each) is not None for each in ops], np.bool_)]


def _are_strided(facts: Facts, launches: Ints) -> bool:
    """Tell whether copies read by strides; what is repeated once is contiguous as it is."""
    names = {facts.launches.name[row] for row in launches.tolist()}
    return bool(names) and all(map(_STRIDED.search, names))


def _candidate_of_samples(
    facts: Facts, where: Location, launches: Ints, samples: RepeatedSamples
) -> Candidate:
    # Short kernels take as long for fewer samples
    part = 1 - 1 / (samples.times or _LEAST_TIMES)
    gone = np.where(facts.launches.duration_ns[launches] < SHORT_NS, 0.0, part)
    often = f"{samples.times} times" if samples.times else "several times"
    return Candidate(
        summary=f"{samples.callee} computes {often} of each sample what it computes of it once",
        est_saving_ns=facts.median_per_step(launches, facts.critical_ns(launches, gone)),
        confidence=Confidence.ESTIMATED,
        remedy="call it before the samples are repeated, then repeat its result, or broadcast; "
        "so it may be where it computes each sample by itself",
        location=where,
        evidence=(
            *count_and_time(facts, launches),
            Figure("repeated at line", samples.line),
            Figure("times, at least", samples.times or _LEAST_TIMES),
        ),
        launches=launches,
    )


RULE = Rule(
    name="repeated_call",
    title="A network that a step runs again on the same input",
    means="Two lines of a function call the same with the same arguments, by their text, and both "
    "run the same products or convolutions. Nothing between them assigns the arguments or changes "
    "them in place. Either one of the calls has no backward (a forward for metrics) "
    "but that of casts, which autocast keeps for the other one, or both have "
    "one or none, nothing in them is drawn at random, and no optimizer runs between them. "
    "Or the rounds of a loop come to a line that is given nothing else than names that no line of "
    "the loop assigns or changes in place, by the text of all lines that ran, and that keep their "
    "name from call to call: a frozen encoder of the prompt in each denoising step. What the "
    "called function computes of these alone is of it, too. Names like `cache`, `state` or `env` "
    "may be changed where they are given, and are none. Such a line may have a backward if that "
    "runs after all rounds, the loop calls other modules, and no line assigns to what `self` "
    "keeps. "
    "Or a line calls something with samples that were repeated along their first dimension "
    "(`x.repeat_interleave(n, 0)`, `x.repeat(n, 1)`, `torch.cat([x, x])`), by the text of the "
    "lines that ran, and with nothing else; nothing in it is drawn at random.",
    because="Torch does not notice that it computes the same again. Metrics, logs and a second "
    "loss often call the model by themselves. A network treats each sample of a batch by itself, "
    "so that it returns for repeated ones what it returns for one, repeated.",
    remedy="Keep the outputs of the first call and use them twice; `outputs.detach()` for metrics. "
    "Those of a training step are computed before its update, with dropout and the statistics of "
    "the batch, which a metric of training can take, or be computed every hundredth step. Before "
    "a loop, call once what its rounds call with the same. Repeat what a network returns, or "
    "broadcast it, in place of what it is given.",
    saving="All launches of one of the calls, with its backward if both have one; where one has "
    "none, its forward, without casts that the other would make, or that of the other, if that is "
    "later and autograd keeps the graph of both. Of a loop those of all rounds but the first, "
    "with their backward, or of all where a line before the loop calls the same. Where the CPU "
    "is behind, how much shorter the step is in a replay without them. Of samples that are "
    "repeated n times, 1 - 1/n of the time of launches of 10 us or more on the critical path; "
    "half where the text does not tell n. Other rules count of these launches nothing.",
    not_on_cpu=ON_CPU,
    judge=_judge,
    turn=Turn.REMOVES,
)
