"""The rule for texts that are padded on the device to a length that none of them has."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import numpy as np

from profiler_ext.findings.facts import CannotJudge, Facts, location_of
from profiler_ext.findings.finding import Confidence, Figure, FigureUnit
from profiler_ext.findings.rule import ON_CPU, Candidate, Rule
from profiler_ext.kineto.launch_shapes import launch_shapes
from profiler_ext.records.events import Ints
from profiler_ext.records.vocabulary import Phase, Scope

_PADS = re.compile(r"aten::(constant_pad_nd|pad)$")
_COPIES = "aten::copy_"
_LOOKS_UP = "aten::embedding"
# Of torch's kernels: how many threads a block has, and how many elements each of them copies
_ELEMENTS = re.compile(r"\belementwise_kernel<(\d+), (\d+),")
_ROWS = re.compile(r"vectorized_gather_kernel")  # a block for each index
_SCALES = (Phase.FORWARD, Phase.BACKWARD, Phase.RECOMPUTE)
_MAX_REAL = 0.9  # less padding is rounding


def _judge(facts: Facts) -> Iterable[Candidate] | CannotJudge:
    is_pad = facts.mainly(lambda place: _PADS.match(place.aten_op or "") is not None)
    is_pad &= facts.of_op(_COPIES.__eq__) & facts.launches.scope.where(Scope.EAGER)
    pads = np.flatnonzero(facts.in_steps(is_pad & facts.named(_tells_elements)))
    is_lookup = facts.mainly(lambda place: place.aten_op == _LOOKS_UP)
    lookups = np.flatnonzero(facts.in_steps(is_lookup & facts.named(_tells_rows)))
    real = dict(_real_parts(facts, pads, lookups))
    if not real or max(real.values()) > _MAX_REAL:
        return ()
    return (_candidate(facts, next(iter(real)), max(real.values())),)


def _tells_elements(name: str) -> bool:
    return _ELEMENTS.search(name) is not None


def _tells_rows(name: str) -> bool:
    return _ROWS.search(name) is not None


def _real_parts(facts: Facts, pads: Ints, lookups: Ints) -> Iterator[tuple[int, float]]:
    """Yield each pad before a lookup, with the part of the looked-up rows that it copied."""
    launches = facts.launches
    rows = np.concatenate([pads, lookups])
    rows = rows[np.argsort(launches.start_ns[rows], kind="stable")]
    grids = launch_shapes(facts.analysis.recording.trace, launches.event[rows]).grid
    first: tuple[int, int] | None = None
    for number, row in enumerate(rows.tolist()):
        blocks = int(grids[number].partition("x")[0] or 0)
        block = _ELEMENTS.search(launches.name[row])
        if block is not None and first is None:
            first = row, blocks * int(block[1]) * int(block[2])
        elif block is None and first is not None:
            # More elements than rows are no numbers of words
            if 0 < first[1] < blocks:
                yield first[0], first[1] / blocks
            first = None


def _candidate(facts: Facts, pad: int, real: float) -> Candidate:
    scaling = np.flatnonzero(facts.in_steps(facts.launches.phase.where(*_SCALES)))
    paced_ns = facts.median_per_step(scaling, facts.critical_ns(scaling))
    return Candidate(
        summary="texts are padded to a length that none of them has",
        est_saving_ns=int((1 - real) * paced_ns),
        confidence=Confidence.UPPER_BOUND,
        remedy=(
            "pad each batch to its own longest text (a multiple of 8), or pack texts into full "
            "rows; batches of texts of like length waste less"
        ),
        location=location_of(facts.place(pad)),
        evidence=(
            Figure("of the rows are texts", real, FigureUnit.FRACTION),
            Figure("forward and backward take", paced_ns, FigureUnit.NS),
        ),
    )


RULE = Rule(
    name="padded_batch",
    title="Texts padded to a maximum",
    means="A tensor is padded on the device, and the embedding that is looked up next has more "
    "rows than the tensor had elements.",
    because="All layers compute what is padded as well, and the loss throws it away.",
    remedy="Pad each batch to its own longest text, rounded up to a multiple of 8. Put texts of "
    "like length into one batch, or pack several into a row.",
    saving="The padded part of the rows, of the time of forward and backward on the critical path. "
    "An upper bound: a batch may hold texts that are as long, and a smaller step may wait for the "
    "CPU. Where batches are padded on the CPU, a recording does not tell which part is padding, "
    "and nothing is reported.",
    not_on_cpu=ON_CPU,
    judge=_judge,
)
