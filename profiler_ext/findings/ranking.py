"""Ranks findings: which are large enough, and which count the same time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Final, TypeVar

import numpy as np

from profiler_ext.findings.facts import CannotJudge, Facts, facts_of
from profiler_ext.findings.finding import (
    ON_RANKS,
    Figure,
    FigureUnit,
    Finding,
    Findings,
    Location,
    SavingPer,
    SkippedRule,
)
from profiler_ext.findings.rule import NO_ROWS, Candidate, Rule, Turn
from profiler_ext.findings.unprofiled_step import FILLED
from profiler_ext.isolation.failures import is_raised_by_program
from profiler_ext.records.analysis import Analysis
from profiler_ext.records.events import Ints

MIN_FRACTION: Final = 0.01
# Smaller findings are dropped: steps differ by as much from each other
MIN_SAVING_NS: Final = {
    SavingPer.STEP: 20_000,
    SavingPer.WINDOW: 1_000_000,
    SavingPer.PROCESS: 100_000_000,
}
# The rules that take what more special ones leave
GENERAL: Final = frozenset({"dtype_conversion", "launch_bound", "uncompiled"})
# The median of what ``SLOWDOWN_IF_FILLED`` was measured on: where a limit is too low, causes say
# too little, where it is too high, too much
_USUAL_SLOWDOWN: Final = 2.25
_MAX_SHARED_FRACTION = 0.5
_ALL = 0.999
_Facts = TypeVar("_Facts")
_Found = TypeVar("_Found")
_Judged = tuple[Rule, Candidate]
_Counted = tuple[Ints, Ints]


def judge(analysis: Analysis, rules: Iterable[Rule]) -> Findings:
    """Judge an analysis; return the findings, most time at stake first, and unjudged rules."""
    facts, rank = facts_of(analysis), analysis.recording.settings.rank
    candidates: list[_Judged] = []
    unjudged: list[SkippedRule] = []
    judged = 0
    for rule in rules if analysis.steps else ():
        verdict = verdict_of(rule.verdict, facts)
        if isinstance(verdict, CannotJudge):
            unjudged.append(SkippedRule(rule.name, verdict.reason, rank))
        else:
            judged += 1
            candidates += [(rule, each) for each in verdict]
    # Of those that a limit makes equal the one comes first that would save more without it
    candidates.sort(key=lambda each: -each[1].est_saving_ns)
    capped = [(rule, _capped(each, facts)) for rule, each in candidates]
    candidates = [each for each in capped if _is_significant(each[1], facts)]
    known_ns = facts.training.step_ns if analysis.steps and facts.training.is_known else None
    apart = once_in_step(_counted_once(candidates, facts), facts)
    ranked = _ranked([each for each in apart if _is_significant(each[1], facts)], facts, rank)
    return Findings(ranked, tuple(unjudged), judged, facts.step_ns, known_ns)


def verdict_of(
    judge: Callable[[_Facts], Iterable[_Found] | CannotJudge], facts: _Facts
) -> list[_Found] | CannotJudge:
    """Return a rule's result; its failure leaves only this rule unjudged."""
    try:
        verdict = judge(facts)
        return verdict if isinstance(verdict, CannotJudge) else list(verdict)
    except Exception as error:
        if is_raised_by_program(error):
            raise
        return CannotJudge(f"it failed ({type(error).__name__}: {error}); please report it")


def merge_ranks(judged: Sequence[Findings]) -> Findings:
    """Merge the findings of several ranks; equal ones become one."""
    # The largest of equal ones stays, with its ranks as a figure. The step is the slowest rank's.
    equal_call_ids: dict[tuple[str, str, Location], list[Finding]] = {}
    for each in (finding for of_rank in judged for finding in of_rank.ranked):
        equal_call_ids.setdefault((each.rule, each.summary, each.location), []).append(each)
    step_ns = max((of_rank.step_ns for of_rank in judged), default=0)
    known = [each.unprofiled_step_ns for each in judged if each.unprofiled_step_ns is not None]
    unprofiled_step_ns = max(known, default=None)
    merged = (_merged(each, unprofiled_step_ns or step_ns) for each in equal_call_ids.values())
    return Findings(
        _specific_first(sorted(merged, key=_order)),
        tuple(each for of_rank in judged for each in of_rank.rules_skipped),
        max((of_rank.rules_evaluated for of_rank in judged), default=0),
        step_ns,
        unprofiled_step_ns,
    )


def _merged(equal_call_ids: list[Finding], step_ns: int) -> Finding:
    largest = min(equal_call_ids, key=_order)
    ranks = ", ".join(str(each.rank) for each in equal_call_ids)
    total_ns = step_ns if largest.saving_per is SavingPer.STEP else largest.total_ns
    evidence = (*largest.evidence, Figure(ON_RANKS, ranks, FigureUnit.TEXT))
    return replace(largest, total_ns=total_ns, evidence=evidence)


def _specific_first(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Put what a general rule finds next to its largest behind all else, in the order they have."""
    # Several of them would hide a cause whose saving is smaller, or is not known
    seen: set[str] = set()
    first: list[Finding] = []
    last: list[Finding] = []
    for each in findings:
        (last if each.rule in seen else first).append(each)
        seen |= {each.rule} & GENERAL
    return (*first, *last)


def _order(finding: Finding) -> tuple[int, int]:
    return list(SavingPer).index(finding.saving_per), -finding.est_saving_ns


def _capped(candidate: Candidate, facts: Facts) -> Candidate:
    """Limit what a candidate saves to what a step without recording can lose, where known."""
    if not facts.training.is_known or candidate.saving_per is not SavingPer.STEP:
        return candidate
    is_idle = len(candidate.idle) and (candidate.busy_ns or not len(candidate.launches))
    if is_idle:
        most_ns = facts.idle_ns + candidate.busy_ns
        most = Figure("no more than a step idles in training", facts.idle_ns, FigureUnit.NS)
    elif _is_filled(facts) and len(candidate.launches) and not len(candidate.idle):
        most_ns = _until_cpu_ns(candidate.launches, facts)
        most = Figure("at most, as the step then waits for the CPU", most_ns, FigureUnit.NS)
    else:
        return candidate
    if candidate.est_saving_ns <= most_ns:
        return candidate
    return replace(candidate, est_saving_ns=most_ns, evidence=(*candidate.evidence, most))


def _is_filled(facts: Facts) -> bool:
    return facts.busy_ns >= FILLED * facts.training.step_ns


def _until_cpu_ns(launches: Ints, facts: Facts) -> int:
    """Return what a step can lose until it takes as long as the CPU does for all other launches."""
    # Where the CPU never ran ahead, a filled step only shows that recording slows it at least so
    # much: the usual is assumed
    training = facts.training
    slowdown = training.slowdown
    if not training.is_cpu_known:
        slowdown = max(slowdown, _USUAL_SLOWDOWN)
    cpu_ns = int(training.cpu_ns * training.slowdown / slowdown)
    if facts.replay is not None:
        cpu_ns = facts.replay.worked_ns(slowdown)
    own_ns = facts.median_per_step(launches, facts.pace.since_ns[launches]) / slowdown
    return training.step_ns - max(min(cpu_ns, training.step_ns) - int(own_ns), 0)


def _counted_once(candidates: list[_Judged], facts: Facts) -> list[_Judged]:
    """Count the time of each launch for one finding."""
    # In a rule's turn; of what is left, to the rule that saves most of it; then by the saving
    by_rule: Counter[str] = Counter()
    for rule, candidate in candidates:
        by_rule[rule.name] += candidate.est_saving_ns if rule.turn is Turn.REST else 0
    order = sorted(
        candidates,
        key=lambda each: (each[0].turn, -by_rule[each[0].name], -each[1].est_saving_ns),
    )
    counted, removed, result = NO_ROWS, NO_ROWS, []
    for rule, whole in order:
        # Idle time of the rest is not that of its launches
        candidate = whole if rule.turn is Turn.REST else _without_removed(whole, removed)
        counts = _counts_launches(candidate)
        own = _without(candidate, counted, facts) if counts or rule.turn is Turn.REST else candidate
        if not _is_said(rule, candidate, own) and _is_significant(own, facts):
            result.append((rule, own))
            counted = np.union1d(counted, own.launches) if counts else counted
            removed = counted if rule.turn is Turn.REMOVES else removed
    return result


def _without_removed(candidate: Candidate, removed: Ints) -> Candidate:
    """Return a candidate without launches of calls that go, and the idle time before these."""
    every = np.unique(candidate.launches)
    own = np.setdiff1d(every, removed)
    if not len(candidate.idle) or len(own) == len(every):
        return candidate
    part = len(own) / len(every)
    other_ns = candidate.est_saving_ns - int(part * candidate.est_saving_ns)
    busy_ns = int(part * candidate.busy_ns)
    return _reduced(replace(candidate, launches=own, busy_ns=busy_ns), other_ns)


def _is_said(rule: Rule, candidate: Candidate, own: Candidate) -> bool:
    """Tell whether others count most of what a broad rule would: they say more."""
    return rule.turn is Turn.BROAD and 2 * own.est_saving_ns < candidate.est_saving_ns


def _counts_launches(candidate: Candidate) -> bool:
    # Idle time beside launches is not that of the launches
    return candidate.saving_per is SavingPer.STEP and not len(candidate.idle)


def _without(candidate: Candidate, counted: Ints, facts: Facts) -> Candidate:
    duration_ns = facts.launches.duration_ns
    own = np.setdiff1d(candidate.launches, counted)
    whole_ns = int(duration_ns[candidate.launches].sum())
    if len(own) == len(np.unique(candidate.launches)) or not whole_ns:
        return candidate
    part = int(duration_ns[own].sum()) / whole_ns
    # The idle time that a candidate saves besides is not that of its launches
    of_launches_ns = candidate.busy_ns if len(candidate.idle) else candidate.est_saving_ns
    other_ns = of_launches_ns - int(part * of_launches_ns)
    busy_ns = int(part * candidate.busy_ns)
    return _reduced(replace(candidate, launches=own, busy_ns=busy_ns), other_ns)


def _reduced(candidate: Candidate, other_ns: int) -> Candidate:
    """Return a candidate without time that other findings count."""
    if other_ns <= 0:
        return candidate
    other = Figure("counted by other findings", other_ns, FigureUnit.NS)
    return replace(
        candidate,
        est_saving_ns=candidate.est_saving_ns - other_ns,
        evidence=(*candidate.evidence, other),
    )


def once_in_step(judged: Sequence[_Judged], facts: Facts) -> list[_Judged]:
    """Leave each stake what no larger one counts, so that all together are no more than a step.

    Each launch has its time once, and so has the device's idle time. Rules of the rest come last.
    """
    per_step = [each for each in judged if each[1].saving_per is SavingPer.STEP]
    others = [each for each in judged if each[1].saving_per is not SavingPer.STEP]
    per_step.sort(key=lambda each: (each[0].turn is Turn.REST, -each[1].est_saving_ns))
    left = _TimeLeft(facts)
    taken = [(rule, each, left.taken_by(each)) for rule, each in per_step]
    return [
        *((rule, own) for rule, each, own in taken if not _is_said(rule, each, own)),
        *others,
    ]


class _TimeLeft:
    """The time of the usual step that no finding counts as yet."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._busy_ns = facts.launches.duration_ns.astype(np.float64)
        self._is_counted = np.zeros(len(facts.launches), np.bool_)
        step_ns = max(facts.training.step_ns, facts.busy_ns)
        self._idle_ns = max(facts.idle_ns, step_ns - facts.busy_ns)
        self._step_ns = step_ns

    def taken_by(self, candidate: Candidate) -> Candidate:
        """Count a candidate's time; return it with what was left of that."""
        launches, wanted_ns = np.unique(candidate.launches), candidate.est_saving_ns
        is_critical = self._facts.pace.is_critical[launches]
        late = launches[~is_critical]
        if not len(candidate.idle) and not len(launches):
            taken_ns = wanted_ns  # a part of the whole step
        elif len(candidate.idle):
            taken_ns = self._busy_of(launches, min(candidate.busy_ns, wanted_ns))
            taken_ns += self._idle_of(wanted_ns - min(candidate.busy_ns, wanted_ns))
        else:  # where a step waits for the CPU, a launch costs more than its time on the device
            own_ns = min(wanted_ns, self._whole_ns(launches[is_critical]))
            taken_ns = self._busy_of(launches[is_critical], own_ns)
            rest_ns = int((wanted_ns - own_ns) * self._part_left(late))
            idle_ns = self._idle_of(rest_ns)
            taken_ns += idle_ns + self._busy_of(late, rest_ns - idle_ns)
        self._is_counted[late] = True
        taken_ns = min(taken_ns, self._step_ns)
        self._step_ns -= taken_ns
        if taken_ns == wanted_ns:
            return candidate
        other = Figure("counted by other findings", wanted_ns - taken_ns, FigureUnit.NS)
        return replace(candidate, est_saving_ns=taken_ns, evidence=(*candidate.evidence, other))

    def _part_left(self, launches: Ints) -> float:
        """Return the part of launches whose way on the CPU no other finding counts."""
        return 1.0 - float(self._is_counted[launches].mean()) if len(launches) else 1.0

    def _idle_of(self, wanted_ns: int) -> int:
        taken_ns = min(wanted_ns, self._idle_ns)
        self._idle_ns -= taken_ns
        return taken_ns

    def _whole_ns(self, launches: Ints) -> int:
        return self._facts.median_per_step(launches, self._facts.launches.duration_ns[launches])

    def _busy_of(self, launches: Ints, wanted_ns: int) -> int:
        """Take time on the device from launches, as much of each as is left."""
        duration_ns, whole_ns = self._facts.launches.duration_ns[launches], self._whole_ns(launches)
        wanted_ns = min(wanted_ns, whole_ns)
        if not wanted_ns:
            return 0
        each_ns = duration_ns * (wanted_ns / whole_ns)
        taken_ns = np.minimum(each_ns, self._busy_ns[launches])
        self._busy_ns[launches] -= taken_ns
        part = float(taken_ns.sum()) / float(each_ns.sum())
        return wanted_ns if part > _ALL else int(part * wanted_ns)


def _is_significant(candidate: Candidate, facts: Facts) -> bool:
    if candidate.saving_per is SavingPer.UNKNOWN:
        return True
    total_ns = _total_ns(candidate, facts)
    is_large = candidate.est_saving_ns >= MIN_FRACTION * total_ns
    return is_large and candidate.est_saving_ns >= MIN_SAVING_NS[candidate.saving_per]


def _ranked(candidates: list[_Judged], facts: Facts, rank: int) -> tuple[Finding, ...]:
    order = list(SavingPer)
    candidates = sorted(
        candidates, key=lambda each: (order.index(each[1].saving_per), -each[1].est_saving_ns)
    )
    counted = [(rule.name, _counted_time(candidate, facts)) for rule, candidate in candidates]
    return _specific_first(
        _finding(
            rule, candidate, _overlapping_rules(counted[at][1], counted[:at], facts), facts, rank
        )
        for at, (rule, candidate) in enumerate(candidates)
    )


def _overlapping_rules(
    own: _Counted, larger: Sequence[tuple[str, _Counted]], facts: Facts
) -> tuple[str, ...]:
    """Return the rules of larger findings that count most of this one's time."""
    idle, launches = own
    total = _time(idle, launches, facts)
    shared = (
        name
        for name, other in larger
        if total
        and _time(np.intersect1d(idle, other[0]), np.intersect1d(launches, other[1]), facts)
        > _MAX_SHARED_FRACTION * total
    )
    return tuple(dict.fromkeys(shared))


def _counted_time(candidate: Candidate, facts: Facts) -> _Counted:
    # Where the device waited for the CPU, removing a launch saves of that wait, not of its own
    # time.
    waited = facts.idle_before(candidate.launches[~facts.pace.is_critical[candidate.launches]])
    return np.union1d(candidate.idle, waited), np.unique(candidate.launches)


def _time(idle: Ints, launches: Ints, facts: Facts) -> int:
    idle_ns, busy_ns = facts.analysis.idle.duration_ns, facts.launches.duration_ns
    return int(idle_ns[idle].sum() + busy_ns[launches].sum())


def _total_ns(candidate: Candidate, facts: Facts) -> int:
    return facts.training.step_ns if candidate.total_ns is None else candidate.total_ns


def _finding(
    rule: Rule, candidate: Candidate, shared: tuple[str, ...], facts: Facts, rank: int
) -> Finding:
    return Finding(
        rule=rule.name,
        summary=candidate.summary,
        location=candidate.location,
        est_saving_ns=candidate.est_saving_ns,
        total_ns=_total_ns(candidate, facts),
        saving_per=candidate.saving_per,
        confidence=candidate.confidence,
        evidence=candidate.evidence,
        remedy=candidate.remedy,
        overlaps_with=shared,
        rank=rank,
    )
