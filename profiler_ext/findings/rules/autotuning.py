"""Owns the rule of kernels that autotuning chose for other sizes than those they run with."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from profiler_ext.findings.facts import Facts, Lacking, where_of
from profiler_ext.findings.figures import count_and_time
from profiler_ext.findings.finding import Figure, FigureUnit, Stake, Sureness
from profiler_ext.findings.rule import Candidate, Rule
from profiler_ext.findings.tiles import Tiled, tiled
from profiler_ext.records import Ints

_OTHER = 4
"""So many times as large, or as small, a size is another one: a choice serves its neighbours."""
_LEAST = 0.03


def _judge(facts: Facts) -> Iterable[Candidate] | Lacking:
    if not facts.on_device:
        return Lacking("the launches ran on the CPU, where products have no templates")
    found = [(each, own) for each in tiled(facts) if len(own := _elsewhere(each))]
    if not found:
        return ()
    launches = np.concatenate([own for _, own in found])
    if facts.of_usual_step(launches, facts.paced_ns(launches)) < _LEAST * facts.step_ns:
        return ()
    longest = facts.longest(launches)
    return (_candidate(facts, launches, next(each for each, own in found if longest in own)),)


def _elsewhere(of_template: Tiled) -> Ints:
    """Return the launches that ran with a size far from the one that was tuned for."""
    ran_with, tuned_for = of_template.ran_with, of_template.tuned_for
    is_larger = ran_with >= _OTHER * max(tuned_for, of_template.tile[0])
    is_smaller = (ran_with > 0) & (ran_with * _OTHER <= tuned_for)
    return of_template.launches[is_larger | is_smaller]


def _candidate(facts: Facts, launches: Ints, of_longest: Tiled) -> Candidate:
    longest = facts.longest(launches)
    ran_with = int(of_longest.ran_with[of_longest.launches == longest][0])
    own, other = of_longest.tile
    return Candidate(
        what="products run with kernels that autotuning chose for another size",
        at_stake_ns=0,
        stake=Stake.UNKNOWN,
        sureness=Sureness.ESTIMATED,
        remedy="make the first call with the size that most calls have, as autotuning times what "
        "is compiled; caches keep its choice, so once with TORCHINDUCTOR_FORCE_DISABLE_CACHES=1; "
        "or dynamic=False for few sizes",
        where=where_of(
            facts.place(longest), facts.launches.kernel[longest], facts.compile_id(longest)
        ),
        why=(
            *count_and_time(facts, launches),
            Figure("the longest was chosen for a size of", of_longest.tuned_for),
            Figure("and runs with", ran_with),
            Figure("in tiles of", f"{own} by {other}", FigureUnit.TEXT),
            Figure(
                "all that was compiled for it takes", _compiled_ns(facts, launches), FigureUnit.NS
            ),
        ),
        launches=launches,
    )


def _compiled_ns(facts: Facts, launches: Ints) -> int:
    """Return what the code takes that these launches are of, forward and backward."""
    ids = [graph.compile_id for graph in facts.analysis.recording.graphs]
    own = {ids[at] for at in facts.launches.graph[launches].data.tolist()}
    graphs = [at for at, each in enumerate(ids) if each in own]
    of_them = np.isin(facts.launches.graph.filled(-1), graphs)
    rows = np.flatnonzero(facts.in_steps(of_them))
    return facts.of_usual_step(rows, facts.launches.duration_ns[rows])


RULE = Rule(
    name="autotuning",
    title="A kernel that autotuning chose for another size",
    means="In code with a dynamic size, a product runs with a Triton template whose choice was "
    "timed with a size at most a quarter, or at least four times, of the one it runs with.",
    because="Autotuning times its choices with the sizes of the call that is compiled: a first "
    "batch that is small, a prompt of one token. Later calls of other sizes run the same kernel, "
    "and so does another process that finds it in a cache.",
    remedy="Let the first call have the size that counts; compile for a few sizes instead of any. "
    "Caches keep the choice: leave them out once.",
    stake="Not known: what another choice takes with that size only a run of it tells. What these "
    "launches take is a figure, from 3% of the usual step on that they set the pace of, and so is "
    "what all takes that was compiled with them: reductions are split for that size too. The size "
    "that was tuned for is what capture estimated of the call site; the size that it runs with is "
    "the grid times the tile in the generated code, rounded up to whole tiles.",
    judge=_judge,
)
