"""The rule for sparse matrices whose entries are sorted in each product."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from profiler_ext.findings.facts import Facts, enclosing, launches_by_line, location_of
from profiler_ext.findings.finding import Confidence, Figure
from profiler_ext.findings.rule import ON_CPU, Candidate, Rule, count_and_time
from profiler_ext.findings.rules.dtype_conversion import is_conversion
from profiler_ext.records.analysis import Place
from profiler_ext.records.events import Ints
from profiler_ext.records.vocabulary import Phase, Scope

_COALESCES = "aten::_coalesce"
_COMPRESSES = "CooToCsr"  # of the indices, converted to 32 bits
_IN_MODEL = (Phase.FORWARD, Phase.BACKWARD, Phase.RECOMPUTE, Phase.OTHER)


def _candidates(facts: Facts) -> Iterator[Candidate]:
    rows, calls = _coalescing(facts)
    for own in launches_by_line(facts, rows):
        times = len(np.unique(calls[np.isin(rows, own)])) // len(facts.analysis.steps)
        if times < 1:
            continue
        own = np.union1d(own, _compressing(facts, own))
        yield Candidate(
            summary="the entries of a sparse matrix are sorted again before each product",
            est_saving_ns=_saved_ns(facts, own),
            confidence=Confidence.ESTIMATED,
            remedy="make the matrix once: .to_sparse_csr(), or .coalesce() and keep it",
            location=location_of(facts.place(facts.longest(own))),
            evidence=(*count_and_time(facts, own), Figure("sorts a step", times)),
            launches=own,
        )


def _coalescing(facts: Facts) -> tuple[Ints, Ints]:
    """Return what products launch to coalesce an operand, with the event that each is in."""
    # An optimizer's sparse gradients change in each step, and ``.coalesce()`` is asked for
    launches, events = facts.launches, facts.analysis.recording.trace.events
    is_own = launches.scope.where(Scope.EAGER) & launches.phase.where(*_IN_MODEL)
    is_own &= facts.mainly(_is_product)
    is_own &= ~np.ma.getmaskarray(launches.op_event)
    rows = np.flatnonzero(facts.in_steps(is_own))
    op = launches.op_event[rows].filled(0).astype(np.int64)
    around = enclosing(events, op, _COALESCES.__eq__)
    codes = [code for code, name in enumerate(events.name.strings) if name == _COALESCES]
    is_within = np.isin(events.name.codes[around], codes)
    return rows[is_within], around[is_within]


def _compressing(facts: Facts, coalescing: Ints) -> Ints:
    """Return what the same products launch to compress the rows of what they coalesced."""
    is_compressing = facts.named(lambda name: is_conversion(name) or _COMPRESSES in name)
    lines = {(place.file, place.line) for place in map(facts.place, coalescing.tolist())}
    is_compressing &= facts.mainly(
        lambda place: (place.file, place.line) in lines and _is_product(place)
    )
    compressing: Ints = np.flatnonzero(facts.in_steps(is_compressing))
    return compressing


def _is_product(place: Place) -> bool:
    words = f"{place.aten_op} {place.code}"
    return place.line is not None and "coalesce" not in words


def _saved_ns(facts: Facts, launches: Ints) -> int:
    """Return how much shorter the step is without launches, and the waits after them."""
    if facts.replay is None:
        return facts.removed_per_step_ns(launches)
    replay, slowdown = facts.replay, facts.training.slowdown
    left = replay.unchanged
    left.cpu[launches] = left.busy[launches] = 0
    waits = ~(np.isin(replay.waits.last_launch, launches) & replay.waits.is_for_value)
    without_ns = replay.step_ns(slowdown, replace(left, waits=waits))
    return max(replay.step_ns(slowdown) - without_ns, 0)


RULE = Rule(
    name="coalescing",
    title="Sparse matrices that are sorted in each product",
    means="A product with a sparse matrix in coordinates (`torch.sparse_coo_tensor`) runs "
    "`aten::_coalesce` on it: it sorts the entries and adds up those of one place.",
    because="A matrix in coordinates is not known to be in order unless `coalesce()` said so. One "
    "that is made from its indices in each call is sorted before each product, and its transpose "
    "once more in the backward; the CPU waits for the number of entries that are left.",
    remedy="Make the matrix once and keep it, by rows: `.to_sparse_csr()`. A product with a "
    "constant matrix whose transpose is kept as well sorts nothing in the backward either.",
    saving="How much shorter the step would be in a replay without these launches, without those "
    "that compress the rows of what is in order, and without the waits for values after them.",
    not_on_cpu=ON_CPU,
    judge=_candidates,
)
