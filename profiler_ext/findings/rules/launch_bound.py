"""Owns the rule of steps in which the device waits for the CPU to launch."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import median_low

import numpy as np

from profiler_ext.findings.facts import Facts, Lacking
from profiler_ext.findings.finding import NOWHERE, Figure, FigureUnit, Sureness, Where
from profiler_ext.findings.idleness import by_line, of_usual_step, pieces_of
from profiler_ext.findings.rule import Candidate, Rule
from profiler_ext.records import IdleCause, Ints, Scope

_LEAST_IDLE = 0.1
_LEAST_LAUNCHES = 5
"""Fewer launches are no stream of them that the CPU could be behind with."""
_LINE_PART = 0.5
_MOST = 0.5
_LONG_NS = 1_000_000
"""From one launch to the next Python takes some tens of microseconds; so long it does else."""

_LAUNCHING = (
    IdleCause.LAUNCHING,
    IdleCause.PYTHON,
    IdleCause.AUTOGRAD,
    IdleCause.LAUNCH_LATENCY,
    IdleCause.END_OF_STEP,
)
"""What the CPU does on its way to the next launch; what follows a wait is that wait's."""

_EAGER = (
    "compile what runs eagerly: torch.compile(model, mode='reduce-overhead'); or a larger batch"
)
_COMPILED = (
    "replay the compiled graphs as CUDA graphs: torch.compile(model, mode='reduce-overhead'); or a "
    "larger batch"
)
_REPLAYED = (
    "a larger batch; or take into the CUDA graphs what is still launched one by one: the loss, "
    "the optimizer's step"
)

_ELSEWHERE = "runs Python that launches nothing"
_PYTHON = (
    "move what runs there (logging, checks, data made by hand) out of the step or into another "
    "thread, as launching faster leaves it as it is; idle_by_line() has the lines"
)

_RANKS = (
    "a larger batch on each rank, or fewer and longer kernels: compile what is eager, whole blocks "
    "at once; CUDA graphs ('reduce-overhead') do not hold the collectives between their pieces"
)


def _judge(facts: Facts) -> Iterable[Candidate] | Lacking:
    if not facts.on_device:
        return Lacking("the launches ran on the CPU, which waits for no launch")
    rows = pieces_of(facts, *_LAUNCHING)
    of_ns = facts.step_ns - facts.training.adds_ns
    slower_ns = max(facts.training.adds_ns - facts.profiler_ns, 0)
    at_stake_ns = of_usual_step(facts, rows) - slower_ns
    launches = np.flatnonzero(facts.in_steps(facts.launches.start_ns >= 0))
    count = facts.count_in_usual_step(launches)
    if count < _LEAST_LAUNCHES or at_stake_ns < _LEAST_IDLE * of_ns:
        return ()
    return (_candidate(facts, rows, (at_stake_ns, of_ns), launches, count),)


def _candidate(
    facts: Facts, idle: Ints, times_ns: tuple[int, int], launches: Ints, count: int
) -> Candidate:
    durations = facts.launches.duration_ns[launches]
    idle_ns, (python, python_ns) = of_usual_step(facts, idle), _long_python(facts)
    is_python = python_ns > _MOST * idle_ns
    compiled = facts.launches.scope.where(Scope.COMPILED)[launches]
    replayed = float(facts.pace.replayed[launches].mean())
    return Candidate(
        what=f"the device waits while the CPU {_ELSEWHERE if is_python else 'launches'}",
        at_stake_ns=times_ns[0],
        sureness=Sureness.ESTIMATED,
        remedy=_PYTHON if is_python else _remedy(facts, replayed, float(compiled.mean())),
        where=_where(facts, python if is_python else idle),
        why=(
            Figure("launches a step", count),
            Figure("idle in the recorded step", idle_ns, FigureUnit.NS),
            *([Figure("of it in such Python", python_ns, FigureUnit.NS)] if is_python else []),
            Figure(_step_name(facts), times_ns[1], FigureUnit.NS),
            Figure("median launch", float(median_low(durations.tolist())), FigureUnit.NS),
            Figure("compiled", float(compiled.mean()), FigureUnit.FRACTION),
            Figure("replayed by CUDA graphs", replayed, FigureUnit.FRACTION),
        ),
        idle=idle,
    )


def _long_python(facts: Facts) -> tuple[Ints, int]:
    """Return the pieces in which Python launched nothing for long, and their time in a step."""
    rows = pieces_of(facts, IdleCause.PYTHON, IdleCause.END_OF_STEP)
    long = rows[facts.analysis.idle.duration_ns[rows] >= _LONG_NS]
    return long, of_usual_step(facts, long)


def _step_name(facts: Facts) -> str:
    known = "the step before the recording"
    return known if facts.training.is_known else "the step without recording, estimated"


def _remedy(facts: Facts, replayed: float, compiled: float) -> str:
    if replayed > _MOST:
        return _REPLAYED
    if len(facts.analysis.communication):
        return _RANKS
    return _COMPILED if compiled > _MOST else _EAGER


def _where(facts: Facts, idle: Ints) -> Where:
    """Return the line at which the CPU was for most of that time, if there is one."""
    duration_ns = facts.analysis.idle.duration_ns
    lines = by_line(facts, idle, facts.analysis.idle.place)
    sums = {where: int(duration_ns[rows].sum()) for where, rows in lines.items()}
    first = max(sums, key=lambda where: sums[where], default=NOWHERE)
    return first if sums.get(first, 0) > _LINE_PART * sum(sums.values()) else NOWHERE


RULE = Rule(
    name="launch_bound",
    title="The device waits while the CPU launches",
    means="In more than a tenth of a step the device has run all that it was given and waits for "
    "the CPU, which neither waits for the device, nor loads data, nor compiles: it works its way "
    "to the next launch. Where most of that time is in Python that launches nothing for a "
    "millisecond and longer, the finding says so, with another remedy.",
    because="A launch costs the CPU several microseconds, an eager op with Python and the "
    "dispatcher tens of them. Kernels that are shorter than that leave the device waiting.",
    remedy="CUDA graphs launch hundreds of kernels at once: `mode='reduce-overhead'`. Compiling "
    "what is eager makes fewer and longer kernels of it. A larger batch makes kernels longer at "
    "the same number of launches. Python of another kind is moved out of the step.",
    stake="The idle time of the usual step that is launching, Python between ops, autograd's "
    "engine, launch latency or the end of the step (see the causes of idle time), less what "
    "recording adds to it. The steps before it tell how much that is, beyond the profiler's own "
    "idle time; where they do not, the CPU is taken to need 1.45 times as long for the rest of a "
    "recorded step. Measured were 1.1 to 2.0. CUDA graphs leave some of it.",
    judge=_judge,
)
