"""Owns the rule of compiled graphs that torch's caches do not keep."""

from __future__ import annotations

from collections.abc import Iterable

from profiler_ext.findings.facts import Facts, Lacking
from profiler_ext.findings.finding import NOWHERE, Figure, FigureUnit, Stake, Sureness, Where
from profiler_ext.findings.rule import Candidate, Rule
from profiler_ext.records import CacheState, GraphInstance

_IS_OFF = "FX graph cache: off"
_TURNED_OFF = (
    "leave torch's cache on: something sets TORCHINDUCTOR_FORCE_DISABLE_CACHES=1, "
    "TORCHINDUCTOR_FX_GRAPH_CACHE=0 or the config of that name"
)
_BYPASSED = "change what torch's reason names, so that the cache keeps the graph"


def _judge(facts: Facts) -> Iterable[Candidate] | Lacking:
    graphs = facts.analysis.recording.graphs
    if not graphs:
        return Lacking("nothing was compiled")
    reasons: dict[str, list[GraphInstance]] = {}
    for graph in graphs:
        if graph.cache_state is CacheState.BYPASS:
            reasons.setdefault(graph.cache_detail or "torch gave no reason", []).append(graph)
    total = sum(graph.compile_ns for graph in graphs)
    return tuple(_candidate(why, of_reason, total) for why, of_reason in reasons.items())


def _candidate(why: str, graphs: list[GraphInstance], total_ns: int) -> Candidate:
    longest = max(graphs, key=lambda graph: graph.compile_ns)
    compile_ns = sum(graph.compile_ns for graph in graphs)
    where = NOWHERE if longest.compile_id is None else Where(graph=longest.compile_id)
    return Candidate(
        what="every process compiles these graphs anew",
        at_stake_ns=compile_ns,
        of_ns=total_ns,
        stake=Stake.PROCESS,
        sureness=Sureness.UPPER_BOUND,
        remedy=_TURNED_OFF if _IS_OFF in why else _BYPASSED,
        where=where,
        why=(
            Figure("graphs", len(graphs)),
            Figure("compiled in", compile_ns, FigureUnit.NS),
            Figure("torch's reason", why, FigureUnit.TEXT),
        ),
    )


RULE = Rule(
    name="uncached",
    title="Compiled graphs that no cache keeps",
    means="Inductor's cache was off or bypassed for a graph, so that each process, each rank and "
    "each restart compiles it.",
    because="torch caches a graph only where it can tell that another process would compile the "
    "same. The finding has its reason: a custom pass without `uuid`, an op without a cache key, "
    "a tensor that is constant in the graph.",
    remedy="What the reason names can often be changed.",
    stake="The time that those graphs took to compile in this process. It is for each process and "
    "not for each step, and an upper bound: what comes from a cache is still traced and loaded.",
    judge=_judge,
)
