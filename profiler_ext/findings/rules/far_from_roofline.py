"""The rule for products that take much longer than their roofline."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import numpy as np

from profiler_ext.findings.collectives import overlaps_collective
from profiler_ext.findings.facts import CannotJudge, Facts, location_of
from profiler_ext.findings.finding import Confidence, Figure, FigureUnit
from profiler_ext.findings.rule import Candidate, Rule, count_and_time
from profiler_ext.findings.rules import misaligned_matmul
from profiler_ext.records.events import Ints
from profiler_ext.rooflines.compute_units import Bound

# A kernel that could not be twice as fast is near enough: the makers' peaks are not reached
_MAX_SAVED_FRACTION = 0.5
_MAX_SHOWN = 3
_MAX_CHARACTERS = 80
# Attention over short sequences and convolutions of few channels are far from it by their nature,
# and so are generated kernels that compute a softmax, or read a place several times (pooling).
_JUDGED = re.compile(r"\b(?:add|b|badd)?b?mm\b|triton_tem_\w*mm")
_REMEDY = {
    Bound.MEMORY: "check its operands' strides and small dimensions; another layout",
    Bound.COMPUTE: "sizes that are multiples of 64, a narrower dtype",
}


def _judge(facts: Facts) -> Iterable[Candidate] | CannotJudge:
    known = ~np.ma.getmaskarray(facts.rooflines.could_save_ns)
    if not known.any():
        return CannotJudge(
            "no launch has a roofline: the device's peaks or the shapes are not known"
        )
    saved_ns = np.where(facts.pace.is_critical, facts.rooflines.could_save_ns.filled(0), 0)
    known &= facts.rooflines.bound.where(*_REMEDY) & ~overlaps_collective(facts)
    known[misaligned_matmul.claimed(facts)] = False
    chosen = np.flatnonzero(facts.in_steps(known))
    result = sorted(_of_kernels(facts, chosen, saved_ns), key=lambda each: -each.est_saving_ns)
    return tuple(result[:_MAX_SHOWN])


def _of_kernels(facts: Facts, chosen: Ints, saved_ns: Ints) -> Iterator[Candidate]:
    kernel = facts.launches.kernel_or_name
    for code in np.unique(kernel.codes[chosen]).tolist():
        if not _JUDGED.search(kernel.strings[code]):
            continue
        launches = chosen[kernel.codes[chosen] == code]
        spent_ns = facts.median_per_step(launches, facts.launches.duration_ns[launches])
        saving_ns = facts.median_per_step(launches, saved_ns[launches])
        if saving_ns > _MAX_SAVED_FRACTION * spent_ns:
            yield _candidate(facts, kernel.strings[code], launches, (spent_ns, saving_ns))


def _candidate(facts: Facts, kernel: str, launches: Ints, times: tuple[int, int]) -> Candidate:
    spent_ns, saving_ns = times
    longest, result = facts.longest(launches), facts.rooflines
    bound = Bound(result.bound[longest])
    roofline_ns = facts.median_per_step(launches, result.roofline_ns.filled(0)[launches])
    return Candidate(
        summary=f"a kernel takes {spent_ns / max(roofline_ns, 1):.1f} times as long as its "
        "roofline",
        est_saving_ns=saving_ns,
        confidence=Confidence.UPPER_BOUND,
        remedy=_REMEDY[bound] + ", or max-autotune" * (not _is_tuned(facts, longest)),
        location=location_of(facts.place(longest), kernel, facts.compile_id(longest)),
        evidence=(
            *count_and_time(facts, launches),
            Figure("at the device's best", roofline_ns, FigureUnit.NS),
            Figure("bound by", bound.label, FigureUnit.TEXT),
            Figure("the longest reaches", _reached(facts, longest, bound), FigureUnit.TEXT),
            Figure("it runs", _name(facts, longest), FigureUnit.TEXT),
        ),
        launches=launches,
    )


def _is_tuned(facts: Facts, launch: int) -> bool:
    """Tell whether what computes the product was chosen by measuring, as max-autotune does."""
    graph = facts.launches.graph[launch]
    graphs = facts.analysis.recording.graphs
    return graph is not np.ma.masked and graphs[int(graph)].record.is_max_autotune


def _reached(facts: Facts, launch: int, bound: Bound) -> str:
    """Return a launch's rate in what bounds it, and the device's peak."""
    result = facts.rooflines
    if bound is Bound.COMPUTE:
        rate, best = result.tflop_per_s[launch], result.attainable_tflop_per_s[launch]
        return f"{rate:,.3g} of {best:,.3g} TFLOP/s"
    rate = result.gb_per_s[launch]
    return f"{rate:,.0f} of {rate / result.bandwidth_fraction[launch]:,.0f} GB/s"


def _name(facts: Facts, launch: int) -> str:
    """Return the device's own name of a launch: a library's shows tiles, and how it may load."""
    name = facts.launches.name
    return name.strings[int(name.codes[launch])].partition("(")[0][:_MAX_CHARACTERS]


RULE = Rule(
    name="far_from_roofline",
    title="A matrix product far from its roofline",
    means="A matrix product on the critical path takes more than twice as long as it would at "
    "four fifths of the device's bandwidth or of the peak of its unit.",
    because="Its sizes do not suit the library's kernels, it has too few blocks for the device, "
    "or it was chosen for other sizes.",
    remedy="Use larger sizes or multiples of 64, another layout, or max-autotune. `by_kernel()` "
    "and `by_line()` show bytes and operations, also for other kernels. Those are not reported: a "
    "generated softmax or a pooling is far from its memory roofline even in a well-tuned step.",
    saving="Time of its launches beyond four fifths of the device's peak, as far as they are on "
    "the critical path, for the three kernels with the most. Launches that overlap with a "
    "collective are not judged, because it slows them. An upper bound: bytes and operations are "
    "estimates, and not every kernel can reach that.",
    not_on_cpu="the launches ran on the CPU, whose peaks are not known",
    judge=_judge,
)
