"""Owns the rule of kernels that autotuning chose for other sizes than those they run with."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from profiler_ext.findings.facts import Facts, CannotJudge, location_of
from profiler_ext.findings.figures import count_and_time
from profiler_ext.findings.finding import Figure, FigureUnit, Stake, Confidence
from profiler_ext.findings.rule import Candidate, Rule
from profiler_ext.findings.tiles import TunedTemplate, tuned_templates
from profiler_ext.records import Ints

_OTHER = 4
"""So many times as large, or as small, a size is another one: a choice serves its neighbours."""
_MIN_FRACTION = 0.03


def _judge(facts: Facts) -> Iterable[Candidate] | CannotJudge:
    if not facts.on_device:
        return CannotJudge("the launches ran on the CPU, where products have no templates")
    result = [(each, own) for each in tuned_templates(facts) if len(own := _mistuned(each))]
    if not result:
        return ()
    launches = np.concatenate([own for _, own in result])
    if facts.median_per_step(launches, facts.critical_ns(launches)) < _MIN_FRACTION * facts.step_ns:
        return ()
    longest = facts.longest(launches)
    return (_candidate(facts, launches, next(each for each, own in result if longest in own)),)


def _mistuned(of_template: TunedTemplate) -> Ints:
    """Return the launches that ran with a size far from the one that was tuned for."""
    run_size, tuned_size = of_template.run_size, of_template.tuned_size
    is_larger = run_size >= _OTHER * max(tuned_size, of_template.tile[0])
    is_smaller = (run_size > 0) & (run_size * _OTHER <= tuned_size)
    return of_template.launches[is_larger | is_smaller]


def _candidate(facts: Facts, launches: Ints, of_longest: TunedTemplate) -> Candidate:
    longest = facts.longest(launches)
    run_size = int(of_longest.run_size[of_longest.launches == longest][0])
    own, other = of_longest.tile
    return Candidate(
        what="products run with kernels that autotuning chose for another size",
        at_stake_ns=0,
        stake=Stake.UNKNOWN,
        sureness=Confidence.ESTIMATED,
        remedy="make the first call with the size that most calls have, as autotuning times what "
        "is compiled; caches keep its choice, so once with TORCHINDUCTOR_FORCE_DISABLE_CACHES=1; "
        "or dynamic=False for few sizes",
        where=location_of(
            facts.place(longest), facts.launches.kernel[longest], facts.compile_id(longest)
        ),
        why=(
            *count_and_time(facts, launches),
            Figure("the longest was chosen for a size of", of_longest.tuned_size),
            Figure("and runs with", run_size),
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
    return facts.median_per_step(rows, facts.launches.duration_ns[rows])


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
