"""The rule for lines at which the CPU waits for the device, and so loses its lead."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from profiler_ext.findings.facts import (
    CannotJudge,
    Facts,
    idle_spans_per_step,
    location_of,
    median_per_step,
)
from profiler_ext.findings.finding import NOWHERE, Confidence, Figure, FigureUnit, Location
from profiler_ext.findings.groups import Kind, LaunchGroup, ops_of, saved_alone_ns
from profiler_ext.findings.launch_groups import (
    candidates_of,
    launch_groups,
    waits_in,
    waits_of_calls,
)
from profiler_ext.findings.rule import NO_ROWS, Candidate, Rule
from profiler_ext.findings.waiting import checks, copies_back, copies_to_host, lines_that_wait
from profiler_ext.records.events import Ints, flag_rows


def _judge(facts: Facts) -> Iterable[Candidate] | CannotJudge:
    in_loops = waits_of_calls(facts)
    lines = {
        where: own
        for where, own in lines_that_wait(facts).items()
        if (where.file, where.line) not in in_loops
    }
    every_ns = sum(int(facts.analysis.idle.duration_ns[own].sum()) for own in lines.values())
    both_ns = _step_with_and_without_waits(facts)
    picks = candidates_of(facts, Kind.PICKS, _of_picks)
    if isinstance(picks, CannotJudge):
        return picks
    reads = (
        _candidate(facts, where, own, every_ns, both_ns)
        for where, own in lines.items()
        if median_per_step(facts, own)
    )
    return (*reads, *picks)


def _of_picks(group: LaunchGroup) -> tuple[str, str]:
    """Return the summary and the remedy of a function that picks elements by masks."""
    return f"device synchronization in {group.count:,} picks of a mask's elements", _MASKS_REMEDY


def _step_with_and_without_waits(facts: Facts) -> tuple[int, int]:
    """Return the usual step without recording, and the same without the waits of reads."""
    # Where the steps cannot be replayed nothing is saved.
    if facts.replay is None:
        return 0, 0
    slowdown, waits = facts.training.slowdown, facts.replay.waits
    gone = waits.is_for_value | copies_back(facts, waits)
    without = replace(facts.replay.unchanged, waits=~gone)
    with_ns, without_ns = (facts.replay.step_ns(slowdown, each) for each in (None, without))
    return max(with_ns, facts.busy_ns), max(without_ns, facts.busy_ns)


def _candidate(
    facts: Facts, where: Location, rows: Ints, every_ns: int, both_ns: tuple[int, int]
) -> Candidate:
    idle_ns = facts.analysis.idle.duration_ns
    loop = _loop(facts, where)
    reads_ns = _saved_by_reads_ns(facts, loop)
    location_text = "at unknown lines" if where == NOWHERE else "at this line"
    if loop is not None:
        location_text = f"in a Python loop over {loop.count:,} tensors"
    loop_ns = 0 if loop is None else loop.saving_ns
    launches = NO_ROWS if loop is None else loop.launches
    return Candidate(
        summary=f"device synchronization {location_text}",
        est_saving_ns=int(reads_ns * idle_ns[rows].sum() / max(every_ns, 1)) + loop_ns,
        busy_ns=facts.median_per_step(launches, facts.launches.duration_ns[launches]),
        confidence=Confidence.ESTIMATED,
        remedy=_CHECKS_REMEDY if _is_check(facts, where) else _remedy(facts, loop),
        location=where,
        evidence=(
            Figure("idle spans a step", idle_spans_per_step(facts, rows)),
            Figure("idle because of it, as recorded", median_per_step(facts, rows), FigureUnit.NS),
            Figure("replayed, the step with all such waits", both_ns[0], FigureUnit.NS),
            Figure("and without", both_ns[1], FigureUnit.NS),
            *_of_loop(facts, loop),
        ),
        launches=launches,
        idle=rows,
    )


def _saved_by_reads_ns(facts: Facts, loop: LaunchGroup | None) -> int:
    """Return what all reads cost, but for what they cost only once other groups are gone.

    A loop over tensors that reads each is gone with its reads.
    """
    reads = [each for each in launch_groups(facts) if each.kind is Kind.READS]
    if loop is not None:
        return sum(each.saving_ns for each in reads)
    return sum(min(each.saving_ns, saved_alone_ns(facts, each)) for each in reads)


def _is_check(facts: Facts, where: Location) -> bool:
    """Tell whether a line launches a check of errors of torch.linalg."""
    launches = np.flatnonzero(facts.in_steps(facts.mainly(lambda each: location_of(each) == where)))
    return bool((checks(facts, launches) >= 0).any())


def _remedy(facts: Facts, loop: LaunchGroup | None) -> str:
    if loop is not None and loop.waits is not None:
        return _PICKS_REMEDY
    if loop is not None:
        # A read of a single value is a copy, too, by an op of its own
        ops = ops_of(facts, loop.launches[copies_to_host(facts)[loop.launches]])
        is_copy = flag_rows(ops, lambda name: "copy" in name)
        return _COPIES_REMEDY if is_copy.any() else _LOOP_REMEDY
    return _TOKENS_REMEDY if facts.is_decoding else _REMEDY


def _loop(facts: Facts, where: Location) -> LaunchGroup | None:
    """Return the loop over tensors that waits at a line."""
    loops = (
        each
        for each in launch_groups(facts)
        if (each.location.file, each.location.line) == (where.file, where.line)
    )
    return next((each for each in loops if waits_in(facts, each)), None)


def _of_loop(facts: Facts, loop: LaunchGroup | None) -> tuple[Figure, ...]:
    if loop is None:
        return ()
    return (
        Figure("tensors that it loops over", loop.count),
        Figure("launches of the loop", facts.launches_per_step(loop.launches)),
        Figure("saved if one op did it", loop.saving_ns, FigureUnit.NS),
    )


_REMEDY = (
    "remove what needs a device value at once (.item(), .cpu(), nonzero, print, an if on a "
    "tensor), or read it some steps later; log every hundredth step"
)
_TOKENS_REMEDY = (
    "keep tokens, and which sequences have ended, on the device: look at them (.item(), .all() in "
    "a while, torch.multinomial's check) every few tokens, or copy them with non_blocking=True and "
    "read those of the token before"
)
_MASKS_REMEDY = (
    "torch.where on all elements in place of x[mask]; the CPU has to know how many that picks, and "
    "again in the backward"
)
_LOOP_REMEDY = (
    "one _foreach_* op of torch on the list of tensors (torch.nn.utils.clip_grad_norm_ for "
    "gradients) in place of the loop, and no .item() in it: read one result some steps later"
)
_PICKS_REMEDY = (
    "one index of all elements, sorted by their group, in place of x[mask] and .item() for each "
    "group"
)
_CHECKS_REMEDY = (
    "torch.linalg.inv_ex, cholesky_ex, solve_ex or lu_factor_ex, which check nothing: look at the "
    "info that they return some steps later; or one call for all matrices (a batch)"
)
_COPIES_REMEDY = (
    "one copy of all tensors (torch.stack) in place of a .tolist() or .cpu() for each; or compute "
    "on the device what the loop computes"
)

RULE = Rule(
    name="synchronisation",
    title="A line at which the CPU waits for the device",
    means="At this line the CPU waited until the device had finished all its work. Afterwards the "
    "device had nothing to do until the CPU launched again. What waits in the backward of an op "
    "counts at the line of its forward.",
    because="`.item()`, `.cpu()`, `nonzero`, `print` of a tensor and an `if` on one need a value "
    "that the device has not computed yet; `x[mask]` needs to know how many elements there are, "
    "once more in its backward. Functions of `torch.linalg` such as `inv` and `cholesky` look "
    "whether they failed (`_linalg_check_errors`). The CPU loses the lead that would have hidden "
    "its launches.",
    remedy="Keep values on the device, accumulate them there and read them every hundredth step; "
    "`torch.where` on all elements instead of `nonzero` or `x[mask]`; of generated tokens, check "
    "every few for the end; `torch.linalg.inv_ex`, `cholesky_ex` or `solve_ex`, whose `info` is "
    "read later, in place of `inv`, `cholesky` or `solve`; replace a loop over tensors by one "
    "`_foreach_*` op of torch; copy with `non_blocking=True` into pinned memory.",
    saving="How much shorter the step would be without such waits. The recorded steps are "
    "replayed with and without the waits and the reads of values, short copies to the host "
    "included: the CPU is as fast as the steps before the recording show (1.45 times as fast as "
    "recorded, without them), and each "
    "launch starts once the CPU has reached it and the device has finished those before it, and "
    "the microsecond or two that it takes from one kernel to the next of a queue. Steps "
    "are measured from one to the next on the device, because the CPU's lead varies. The gain is "
    "divided among the lines by the idle time that each one causes; what a wait costs only once "
    "something else is remedied is left out. Where the line loops over "
    "tensors and reads or copies each, what `python_loop` would save is added: one op does it all, "
    "and nothing is read in between. Waits in most rounds of a loop in a forward are part of "
    "`python_loop`, and those in most calls of an op part of `looping_op`. Picks of a mask's "
    "elements (`x[mask]`, forward and backward) are one finding for each function: a replay in "
    "which each costs the CPU one launch, and one in the backward, and finds no elements and waits "
    "for nothing. Of the sums by index in their backward, which sort the elements' places, no more "
    "time stays than picking takes; the rest of their time on the device stays. Picks in the "
    "rounds of a loop over tensors are part of the loop. Waits for a "
    "copy to the device are included where nothing else was launched since the read: it copies "
    "back what the CPU made of the value. So are the copies themselves that make a tensor of it "
    "(`aten::to`). A check of `torch.linalg` goes with all that it launches, and is no part of a "
    "loop around it.",
    not_on_cpu="the launches ran on the CPU, which waits for no device",
    judge=_judge,
)
