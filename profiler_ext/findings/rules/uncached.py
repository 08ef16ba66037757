"""The rule for compiled graphs that torch's caches do not keep."""

from __future__ import annotations

from collections.abc import Iterable

from profiler_ext.findings.facts import CannotJudge, Facts
from profiler_ext.findings.finding import (
    NOWHERE,
    Confidence,
    Figure,
    FigureUnit,
    Location,
    SavingPer,
)
from profiler_ext.findings.rule import Candidate, Rule
from profiler_ext.records.provenance import GraphInstance
from profiler_ext.records.vocabulary import CacheState

_IS_OFF = "FX graph cache: off"
_IS_OP = "Can't cache HigherOrderOperator"
_TURNED_OFF = (
    "leave torch's cache on: TORCHINDUCTOR_FORCE_DISABLE_CACHES=1, "
    "TORCHINDUCTOR_FX_GRAPH_CACHE=0 or the config of that name disables it"
)
_OP = "move the op that torch cannot cache out of the function, so that the rest is cached"
_IS_REGION = "FX graph cache: not asked"
_REGION = "compile the whole function: torch does not cache regions that are compiled separately"
_BYPASSED = "change what torch's reason names, so that the graph can be cached"


def _judge(facts: Facts) -> Iterable[Candidate] | CannotJudge:
    graphs = facts.analysis.recording.graphs
    if not graphs:
        return CannotJudge("nothing was compiled")
    reasons: dict[str, list[GraphInstance]] = {}
    for graph in graphs:
        if graph.cache_state is CacheState.BYPASS:
            reasons.setdefault(graph.cache_detail or "torch gave no reason", []).append(graph)
    total = sum(graph.compile_ns for graph in graphs)
    return tuple(_candidate(facts, why, of_reason, total) for why, of_reason in reasons.items())


def _candidate(facts: Facts, why: str, graphs: list[GraphInstance], total_ns: int) -> Candidate:
    longest = max(graphs, key=lambda graph: graph.compile_ns)
    compile_ns = sum(graph.compile_ns for graph in graphs)
    return Candidate(
        summary="graphs that every process recompiles",
        est_saving_ns=compile_ns,
        total_ns=total_ns,
        saving_per=SavingPer.PROCESS,
        confidence=Confidence.UPPER_BOUND,
        remedy=_remedy(why),
        location=_where(facts, longest.compile_id),
        evidence=(
            Figure("graphs", len(graphs)),
            Figure("compiled in", compile_ns, FigureUnit.NS),
            Figure("torch's reason", why, FigureUnit.TEXT),
        ),
    )


def _where(facts: Facts, compile_id: str | None) -> Location:
    if compile_id is None:
        return NOWHERE
    compiles = () if isinstance(facts.compiles, CannotJudge) else facts.compiles
    own = (each for each in compiles if each.compile_id == compile_id and each.file is not None)
    function = next(own, None)
    if function is None:
        return Location(graph=compile_id)
    return Location(function.file, function.line, graph=compile_id)


def _remedy(why: str) -> str:
    if _IS_OFF in why:
        return _TURNED_OFF
    if _IS_OP in why:
        return _OP
    return _REGION if _IS_REGION in why else _BYPASSED


RULE = Rule(
    name="uncached",
    title="Compiled graphs that no cache keeps",
    means="Inductor's cache was off or bypassed for a graph, so each process, each rank and each "
    "restart compiles it.",
    because="torch caches a graph only if it can prove that another process would compile the "
    "same. The finding has its reason: a custom pass without `uuid`, an op without a cache key, a "
    "tensor that is constant in the graph.",
    remedy="The cause that torch names can often be changed. If torch cannot cache an op (`Can't "
    "cache HigherOrderOperator`), compile the rest of the function separately.",
    saving="Compile time of those graphs in this process: once per process, not per step. An upper "
    "bound: a cached graph is still traced and loaded.",
    judge=_judge,
)
