"""Findings stand by what is at stake, say what they share, and are silent below the floor."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pytest

from profiler_ext.findings import (
    RULES,
    Confidence,
    Figure,
    FigureUnit,
    Rule,
    SavingPer,
    find,
)
from profiler_ext.findings.facts import CannotJudge, Facts
from profiler_ext.findings.ranking import GENERAL, judge, merge_ranks
from profiler_ext.findings.rule import Candidate, Turn
from profiler_ext.records.recording import Recording
from tests.analyses import gpu_step
from tests.findings.stepping import ELEMENTWISE, US, Script, steps, trained
from tests.handmade import trace


def rule(name: str, *says: Candidate | CannotJudge) -> Rule:
    def judging(facts: Facts) -> Iterable[Candidate] | CannotJudge:
        (first, *_) = says
        return (
            first
            if isinstance(first, CannotJudge)
            else [s for s in says if not isinstance(s, CannotJudge)]
        )

    return Rule(name, "", "", "", "", "", judging)


def candidate(est_saving_ns: int, **words: object) -> Candidate:
    return Candidate("it is so", est_saving_ns, Confidence.MEASURED, "do so", **words)


LARGE = candidate(300_000)


def test_what_has_most_at_stake_stands_first_and_what_is_of_no_step_last():
    rules = (
        rule(
            "once", candidate(9_000_000_000, saving_per=SavingPer.PROCESS, total_ns=9_000_000_000)
        ),
        rule("small", candidate(30_000)),
        rule("large", candidate(300_000)),
    )
    assert [each.rule for each in judge(gpu_step(), rules).ranked] == ["large", "small", "once"]


def test_what_general_rules_find_beside_their_largest_stands_behind_what_special_ones_do():
    once = candidate(9_000_000_000, saving_per=SavingPer.PROCESS, total_ns=9_000_000_000)
    unknown, general = candidate(0, saving_per=SavingPer.UNKNOWN), (90_000, 300_000, 60_000)
    rules = (
        rule("uncompiled", *(replace(candidate(ns), summary=f"{ns}") for ns in general)),
        rule("special", candidate(40_000)),
        rule("once", once),
        rule("unknown", unknown),
    )
    findings = judge(gpu_step(), rules)
    names = ["uncompiled", "special", "once", "unknown", "uncompiled", "uncompiled"]
    assert [each.rule for each in findings.ranked] == names
    assert [each.est_saving_ns for each in findings.ranked[-2:]] == [90_000, 60_000]
    assert [each.rule for each in merge_ranks([findings]).ranked] == names


def test_the_general_rules_are_those_that_take_the_rest():
    assert {each.name for each in RULES if each.turn is Turn.REST} == GENERAL


def test_below_the_floor_nothing_is_reported():
    few = rule("few", candidate(19_999), candidate(9_999))
    findings = judge(gpu_step(), (few,))
    assert (findings.ranked, findings.rules_evaluated) == ((), 1)


def test_no_more_idle_time_is_reported_than_a_step_has_in_training_and_what_launches_run_next_to():
    before = trained(steps(2 * US).analysis(), 180 * US, 180 * US, 180 * US)
    idle, launches = np.array([0]), np.arange(150)
    rules = (
        rule("idle", candidate(300_000, idle=idle)),
        rule("both", candidate(300_000, idle=idle, launches=launches, busy_ns=30_000)),
    )
    alone = [judge(before, (each,)).ranked[0].est_saving_ns for each in rules]
    assert alone == [80 * US, 110 * US]


def with_a_long_launch():
    """Three steps that wait for the device, with a launch of 900 us among 50 short ones."""
    script = Script()
    for _ in range(3):
        for duration_us in (2, 900, *[2] * 49):
            script.launch(ELEMENTWISE, duration_us * US, cost_ns=10 * US)
        script.wait()
        script.end_step()
    return trained(script.analysis(), 1000 * US, 1000 * US, 1000 * US)


def test_a_step_gets_no_shorter_than_the_cpu_needs_for_its_other_launches():
    before = with_a_long_launch()
    longest = candidate(900 * US, launches=np.array([1, 52, 103]))
    (found,) = judge(before, (rule("longest", longest),)).ranked
    # Recording slows the CPU, which needs 500 us for the 50 others, 2.25 times as a rule
    assert found.est_saving_ns == pytest.approx((1000 - 500 / 2.25) * US, rel=0.02)
    assert found.evidence[-1].name == "at most, as the step then waits for the CPU"


def test_of_two_that_a_limit_makes_equal_the_one_that_would_save_more_is_reported():
    before = with_a_long_launch()
    longest = np.array([1, 52, 103])
    rules = [rule(str(us), candidate(us * US, launches=longest)) for us in (850, 900)]
    found = [judge(before, order).ranked for order in (rules, rules[::-1])]
    assert [[each.rule for each in ranked] for ranked in found] == [["900"], ["900"]]


def test_launches_and_idle_time_are_counted_once_and_the_rest_last():
    before = trained(steps(2 * US).analysis(), 180 * US, 180 * US, 180 * US)
    idle, launches = np.array([0]), np.arange(150)
    rules = (
        replace(rule("rest", candidate(90_000, idle=idle)), turn=Turn.REST),
        rule("some", candidate(60_000, idle=idle, launches=launches, busy_ns=60_000)),
        rule("more", candidate(80_000, idle=idle, launches=launches, busy_ns=80_000)),
        rule("idle", candidate(50_000, idle=idle)),
    )
    stakes = {each.rule: each.est_saving_ns for each in judge(before, rules).ranked}
    # 50 launches of 2 us, and 80 us without one
    assert stakes == {"more": 80 * US, "idle": 50 * US, "rest": 30 * US, "some": 20 * US}


def test_a_rule_that_lacks_something_says_what():
    findings = judge(gpu_step(), (rule("lacking", CannotJudge("there is no moon")),))
    assert [(each.rule, each.reason) for each in findings.rules_skipped] == [
        ("lacking", "there is no moon")
    ]
    assert findings.rules_evaluated == 0


def test_a_rule_that_fails_costs_what_it_would_have_reported_alone():
    def failing(facts: Facts) -> Iterable[Candidate]:
        yield candidate(300_000)
        raise RuntimeError("there is no moon")

    findings = judge(
        gpu_step(), (Rule("failing", "", "", "", "", "", failing), rule("sound", LARGE))
    )
    why = "it failed (RuntimeError: there is no moon); please report it"
    assert [(each.rule, each.reason) for each in findings.rules_skipped] == [("failing", why)]
    assert [each.rule for each in findings.ranked] == ["sound"]


class Late(Exception):
    """A time limit of the program's."""


THROWING = """
def judging(facts):
    throw(ctypes.c_ulong(threading.get_ident()), ctypes.py_object(kind))
    return sorted(facts.analysis.steps, key=id)
"""


@pytest.mark.parametrize("kind", [Late, TimeoutError])
def test_what_is_thrown_in_while_a_rule_judges_is_the_program_s_and_no_failure(kind):
    throw = ctypes.pythonapi.PyThreadState_SetAsyncExc
    names = {"ctypes": ctypes, "threading": threading, "throw": throw, "kind": kind}
    exec(THROWING, names | {"__name__": "profiler_ext.findings.rules.slow"}, found := {})
    with pytest.raises(kind):
        judge(gpu_step(), (Rule("slow", "", "", "", "", "", found["judging"]),))


def test_a_general_rule_leaves_out_what_a_special_one_counts():
    special = rule("special", candidate(100_000, launches=np.array([1])))
    general = rule("general", candidate(200_000, launches=np.array([1, 2])))
    analysis = gpu_step()
    first, second = (int(analysis.launches.duration_ns[at]) for at in (1, 2))
    findings = judge(analysis, (special, replace(general, turn=Turn.REST))).ranked
    rest = int(second / (first + second) * 200_000)
    said = {each.rule: each.est_saving_ns for each in findings}
    assert said == {"special": 100_000, "general": rest}
    assert all(not each.overlaps_with for each in findings)


def test_the_smaller_of_two_that_count_the_same_idle_time_says_so():
    rules = (
        rule("one", candidate(200_000, idle=np.array([0]))),
        rule("part", candidate(50_000, idle=np.array([0]))),
        rule("other", candidate(40_000, launches=np.array([3]), idle=np.array([1]))),
    )
    findings = judge(gpu_step(), rules).ranked
    assert [(each.rule, each.overlaps_with) for each in findings] == [
        ("one", ()),
        ("part", ("one",)),
        ("other", ()),
    ]


def test_a_launch_that_a_larger_one_counts_is_not_counted_again():
    rules = (
        rule("one", candidate(200_000, launches=np.array([1, 2]))),
        rule("part", candidate(50_000, launches=np.array([1]))),
    )
    assert [each.rule for each in judge(gpu_step(), rules).ranked] == ["one"]


def test_a_launch_is_counted_for_the_larger_of_two_findings():
    made = gpu_step()
    both, one = np.array([1, 2]), np.array([1])
    rules = (
        rule("part", candidate(50_000, launches=one)),
        rule("large", candidate(200_000, launches=both)),
    )
    assert [each.rule for each in judge(made, rules).ranked] == ["large"]
    rules = (
        rule("large", candidate(200_000, launches=one)),
        rule("whole", candidate(150_000, launches=both)),
    )
    large, whole = judge(made, rules).ranked
    duration_ns = made.launches.duration_ns
    left = duration_ns[2] / (duration_ns[1] + duration_ns[2])
    assert (large.est_saving_ns, whole.est_saving_ns) == (200_000, int(left * 150_000))
    assert whole.evidence[-1].name == "counted by other findings"


def test_what_leaves_out_a_launch_counts_it_before_what_makes_it_faster():
    made = gpu_step()
    both, one = np.array([1, 2]), np.array([1])
    rules = (
        rule("faster", candidate(200_000, launches=both)),
        replace(rule("gone", candidate(150_000, launches=one)), turn=Turn.REMOVES),
    )
    duration_ns = made.launches.duration_ns
    left = duration_ns[2] / (duration_ns[1] + duration_ns[2])
    saved_ns = {each.rule: each.est_saving_ns for each in judge(made, rules).ranked}
    assert saved_ns == {"gone": 150_000, "faster": int(left * 200_000)}


def test_launches_that_go_take_the_idle_time_before_them_with_them():
    made = gpu_step()
    idle = np.arange(len(made.idle))
    slow = candidate(80_000, launches=np.array([1, 2, 3, 4]), idle=idle, busy_ns=20_000)
    gone = replace(rule("gone", candidate(60_000, launches=np.array([1, 2, 3]))), turn=Turn.REMOVES)
    said = {each.rule: each for each in judge(made, (rule("slow", slow), gone)).ranked}
    assert (said["gone"].est_saving_ns, said["slow"].est_saving_ns) == (60_000, 20_000)


def test_all_findings_together_save_no_more_than_a_step():
    made = gpu_step()
    step_ns = judge(made, ()).step_ns
    rules = (
        rule("smaller", candidate(step_ns // 2)),
        rule("larger", candidate(step_ns * 3 // 4)),
    )
    saved = [(each.rule, each.est_saving_ns) for each in judge(made, rules).ranked]
    assert saved == [("larger", step_ns * 3 // 4), ("smaller", step_ns - step_ns * 3 // 4)]


def test_ranks_that_have_the_same_say_it_once():
    one = judge(gpu_step(), (rule("one", candidate(200_000)),))
    other = replace(one, ranked=(replace(one.ranked[0], rank=1, est_saving_ns=300_000),))
    (found,) = merge_ranks([one, other]).ranked
    assert (found.rank, found.est_saving_ns) == (1, 300_000)
    (slower,) = merge_ranks([one, replace(other, step_ns=4_000_000)]).ranked
    assert (slower.total_ns, slower.fraction) == (4_000_000, 0.075)
    assert found.evidence == (Figure("on ranks", "0, 1", FigureUnit.TEXT),)


def test_without_a_step_no_rule_is_judged():
    nothing = replace(gpu_step(), recording=Recording(trace(())), steps=())
    assert find(nothing) == judge(nothing, ())


def test_rules_have_names_and_words_of_their_own():
    assert len({each.name for each in RULES}) == len(RULES)
    for each in RULES:
        assert each.name.isidentifier() and not each.title.endswith(".")
        assert all(
            text.endswith(".") for text in (each.means, each.because, each.remedy, each.saving)
        )


def test_idle_time_beside_launches_that_others_count_stays_with_a_finding():
    made = gpu_step()
    both = np.array([1, 2])
    special = rule("special", candidate(100_000, launches=np.array([1])))
    idle = np.arange(len(made.idle))
    own = candidate(200_000, launches=both, idle=idle, busy_ns=70_000)
    general = replace(rule("general", own), turn=Turn.REST)
    first, second = (int(made.launches.duration_ns[at]) for at in (1, 2))
    said = {each.rule: each for each in judge(made, (special, general)).ranked}
    counted = said["general"].evidence[0].value
    assert counted == 70_000 - int(second / (first + second) * 70_000)


def test_a_rule_after_special_ones_is_left_what_they_count_if_that_is_most():
    made = gpu_step()
    rows = np.argsort(made.launches.duration_ns)[-4:]
    wide = rule("special", candidate(100_000, launches=rows[1:]))
    after = replace(rule("after", candidate(400_000, launches=rows)), turn=Turn.BROAD)
    rest = replace(rule("rest", candidate(300_000, launches=rows)), turn=Turn.REST)
    assert [each.rule for each in judge(made, (rest, after)).ranked] == ["after"]
    assert "after" not in {each.rule for each in judge(made, (after, wide)).ranked}
    narrow = rule("special", candidate(100_000, launches=rows[:1]))
    assert {each.rule for each in judge(made, (after, narrow)).ranked} == {"special", "after"}


def test_a_rule_after_special_ones_is_silent_where_one_counts_its_launches_with_idle_time():
    made = gpu_step()
    row = int(made.launches.duration_ns.argmax())
    own, whole_ns = np.array([row]), int(made.launches.duration_ns[row])
    idle = np.arange(len(made.idle))
    waits = candidate(whole_ns, launches=own, idle=idle, busy_ns=whole_ns * 4 // 5)
    after = replace(rule("after", candidate(whole_ns * 9 // 10, launches=own)), turn=Turn.BROAD)
    assert [each.rule for each in judge(made, (after, rule("waits", waits))).ranked] == ["waits"]


def test_what_others_count_of_launches_that_set_the_pace_is_not_saved_of_idle_time():
    made = gpu_step()
    row = int(made.launches.duration_ns.argmax())
    own, whole_ns = np.array([row]), int(made.launches.duration_ns[row])
    idle = np.arange(len(made.idle))
    waits = rule("waits", candidate(whole_ns, launches=own, idle=idle, busy_ns=whole_ns // 3))
    faster = rule("faster", candidate(whole_ns * 9 // 10, launches=own))
    saved_ns = {each.rule: each.est_saving_ns for each in judge(made, (waits, faster)).ranked}
    assert saved_ns == {"waits": whole_ns, "faster": whole_ns - whole_ns // 3}
