"""The rule for launches that only convert a dtype, at lines without an explicit conversion."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator

import numpy as np

from profiler_ext.findings.facts import CannotJudge, Facts, launches_by_line, location_of
from profiler_ext.findings.finding import Confidence, Figure, FigureUnit
from profiler_ext.findings.rule import NO_ROWS, Candidate, Rule, Turn, launching
from profiler_ext.findings.waiting import checks
from profiler_ext.kineto import classify
from profiler_ext.records import analysis, events
from profiler_ext.records.provenance import GraphInstance
from profiler_ext.rooflines.work import nodes_of

_CONVERTS = re.compile(
    r"aten::(_to_copy|to|_autocast_to_\w+)|(aten|prims)\.(_to_copy|convert_element_type)\..*"
)
_CONVERTING = "aten::_to_copy"
_MAX_LINES = 3
_MIN_LINE_FRACTION = 0.03
# Of torch's copying kernels those that load one dtype and store another.
_CONVERSION = re.compile(
    r"b?float16_copy_kernel|unrolled_elementwise_kernel<at::native::direct_copy_kernel"
)
_EXPLICIT_CAST = re.compile(
    r"\.(to|float|half|bfloat16|double|type|type_as|int|long|bool)\(|dtype="
)


def _judge(facts: Facts) -> Iterable[Candidate] | CannotJudge:
    converts = facts.all_places(_converts) & ~facts.named(classify.is_memory_work)
    converts |= facts.named(is_conversion)
    converts &= facts.all_places(_is_implicit)
    launches = _without_mixed_precision(facts, np.flatnonzero(facts.in_steps(converts)))
    launches = launches[checks(facts, launches) < 0]
    large = list(_large_lines(facts, launches))
    rest = np.setdiff1d(launches, np.concatenate([NO_ROWS, *large]))
    return [_candidate(facts, own) for own in (*large, rest) if len(own)]


def _large_lines(facts: Facts, launches: events.Ints) -> Iterator[events.Ints]:
    """Yield the conversions of the lines that have most of them, each with a finding."""
    lines = list(launches_by_line(facts, launches))
    taken = [facts.median_per_step(own, facts.removal_saving_ns(own)) for own in lines]
    order = sorted(range(len(lines)), key=lambda at: -taken[at])
    for at in order[1:_MAX_LINES]:  # the largest is the place of all the others
        if taken[at] >= _MIN_LINE_FRACTION * facts.training.step_ns:
            yield lines[at]


def _without_mixed_precision(facts: Facts, rows: events.Ints) -> events.Ints:
    """Leave out casts of what a compiled training graph gets or returns, once a step.

    Autocast keeps parameters in float32 for the optimizer: each is read once to cast it, and its
    gradient is written in float32.
    """
    graph, site = facts.launches.graph, facts.launches.call_site
    # By place, too: equal blocks share a graph, each with parameters of its own
    columns = (
        each[rows].tolist() for each in (graph.filled(-1), site.filled(-1), facts.main_place)
    )
    calls = list(zip(*columns, strict=True))
    steps, graphs = len(facts.analysis.steps), facts.analysis.recording.graphs
    once = {
        (graph, site, place)
        for (graph, site, place), count in Counter(calls).items()
        if min(graph, site) >= 0 and count <= steps
        if not graphs[graph].is_inference and _is_border(graphs[graph], site)
    }
    return rows[np.array([call not in once for call in calls], np.bool_)]


def _is_border(graph: GraphInstance, site: int) -> bool:
    """Tell whether a call site reads the graph's inputs alone, or only makes its outputs."""
    known = nodes_of(graph)
    own = set(graph.call_sites[site].nodes)
    read = {name for node in own & known.keys() for name in known[node].inputs} - own
    if all(name not in known or known[name].target == "placeholder" for name in read):
        return True
    return not any(own & set(node.inputs) for node in known.values() if node.name not in own)


def _converts(place: analysis.Place) -> bool:
    return place.aten_op is not None and _CONVERTS.fullmatch(place.aten_op) is not None


def is_conversion(name: str) -> bool:
    """Tell whether a kernel of torch loads one dtype and stores another."""
    return _CONVERSION.search(name) is not None


def _is_implicit(place: analysis.Place) -> bool:
    """Tell whether a place's line is known and has no conversion."""
    return place.code is not None and not _EXPLICIT_CAST.search(place.code)


def _candidate(facts: Facts, launches: events.Ints) -> Candidate:
    longest = facts.longest(launches)
    duration = facts.launches.duration_ns[launches]
    removal_saving_ns = facts.median_per_step(
        launches, facts.removal_saving_ns(launches, of_op=_CONVERTING)
    )
    return Candidate(
        summary="implicit dtype-cast kernels",
        est_saving_ns=removal_saving_ns,
        confidence=Confidence.UPPER_BOUND,
        remedy=(
            "bfloat16 parameters in place of autocast in every forward (changes "
            "numerics: verify convergence), and batches converted where they are "
            "made"
        ),
        location=location_of(facts.place(longest), facts.launches.name[longest]),
        evidence=(
            Figure("conversions a step", facts.launches_per_step(launches)),
            Figure("they take", facts.median_per_step(launches, duration), FigureUnit.NS),
            *launching(facts, launches, removal_saving_ns),
        ),
        launches=launches,
    )


RULE = Rule(
    name="dtype_conversion",
    title="Implicit dtype-cast kernels",
    means="Launches that only convert from one dtype to another, at lines without `.to()`, "
    "`.float()` or `dtype=`. The two lines next to the largest have findings of their own from 3% "
    "of the step.",
    because="Under autocast each forward casts the parameters of its matrix products again, and "
    "each backward casts their gradients back. Mixed dtypes in one expression are promoted. Casts "
    "of a compiled training step's parameters and gradients, once a step, are mixed precision "
    "itself and not reported.",
    remedy="Keep parameters in the dtype of the computation (`model.to(torch.bfloat16)`, with an "
    "optimizer that keeps the state that it needs in float32). Under autocast several "
    "micro-batches in one `autocast` block share the cast parameters.",
    saving="Time of these launches, or of launching them if the CPU is behind. An upper bound: "
    "without autocast, its precision is lost too.",
    not_on_cpu="the launches ran on the CPU, whose kernels do more than one thing",
    judge=_judge,
    turn=Turn.REST,
)
