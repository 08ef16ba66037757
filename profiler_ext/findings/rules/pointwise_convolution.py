"""The rule for convolutions of kernel size 1, which are products with copies around them."""

from __future__ import annotations

import re
from collections.abc import Iterable

import numpy as np

from profiler_ext.findings.facts import CannotJudge, Facts, location_of
from profiler_ext.findings.finding import Confidence
from profiler_ext.findings.rule import ON_CPU, Candidate, Rule, count_and_time, launching
from profiler_ext.findings.rules.dtype_conversion import is_conversion
from profiler_ext.records.events import Ints
from profiler_ext.records.vocabulary import Phase, Scope

_CONVOLVES = re.compile(r"aten::(conv[123]d|_?convolution)$")
_BACKWARD = "aten::convolution_backward"
# cuDNN runs a convolution that covers one place as a product, by cuBLAS's kernels
_PRODUCT = re.compile(r"nvjet|gemm", re.IGNORECASE)
_NO_PRODUCT = re.compile(r"implicit|indexed|fprop|dgrad|wgrad|conv", re.IGNORECASE)
_OF_IMAGES = re.compile(r"aten::conv[23]d$")
_COPIES = "aten::copy_"
_ADDS = frozenset({"aten::add_", "aten::add"})
_REDUCES = re.compile(r"reduce_wgrad_nchw_helper")
_MIN_PART = 0.05  # of the convolutions' own time


def _judge(facts: Facts) -> Iterable[Candidate] | CannotJudge:
    eager = facts.launches.scope.where(Scope.EAGER) & (facts.main_place >= 0)
    forward = facts.mainly(lambda place: _CONVOLVES.match(place.aten_op or "") is not None)
    backward = facts.mainly(lambda place: place.aten_op == _BACKWARD)
    rows = np.flatnonzero(facts.in_steps(eager & (forward | backward)))
    own = rows[np.isin(_keys(facts, rows), _pointwise(facts, rows))]
    # Of images the layout is at fault, for which there is a rule
    is_image = facts.mainly(lambda place: _OF_IMAGES.match(place.aten_op or "") is not None)
    is_around = facts.of_op(_ADDS.__contains__) | (facts.of_op(_COPIES.__eq__) & ~is_image)
    is_around &= ~facts.named(is_conversion)
    is_around |= facts.named(lambda name: _REDUCES.search(name) is not None)
    around = own[is_around[own]]
    duration_ns = facts.launches.duration_ns
    if duration_ns[around].sum() <= _MIN_PART * duration_ns[own].sum():
        return ()
    summary = "convolutions of kernel size 1 copy what a product would read as it is"
    remedy = "nn.Linear on (batch, length, channels), without the transposes around it"
    saved_ns = max(
        facts.median_per_step(around, facts.critical_ns(around)), facts.removed_per_step_ns(around)
    )
    return (
        Candidate(
            summary=summary,
            est_saving_ns=saved_ns,
            confidence=Confidence.ESTIMATED,
            remedy=remedy,
            location=location_of(facts.place(facts.longest(around))),
            evidence=(*count_and_time(facts, around), *launching(facts, around, saved_ns)),
            launches=around,
        ),
    )


def _keys(facts: Facts, rows: Ints) -> Ints:
    """Return a number for the module and line of each launch."""
    table: dict[tuple[str | None, int | None, str | None], int] = {}
    places = (facts.place(row) for row in rows.tolist())
    keys = ((each.file, each.line, each.module) for each in places)
    return np.array([table.setdefault(each, len(table)) for each in keys], np.int64)


def _pointwise(facts: Facts, rows: Ints) -> Ints:
    """Return the modules and lines whose forward runs by products alone."""
    ops = facts.of_op(lambda name: name.startswith("aten::cudnn_convolution"))
    is_forward = facts.launches.phase.where(Phase.FORWARD)
    is_main = ops[rows] & is_forward[rows] & ~facts.named(_is_small)[rows]
    keys = _keys(facts, rows)
    is_product = facts.named(_is_product)[rows]
    return np.setdiff1d(keys[is_main & is_product], keys[is_main & ~is_product])


def _is_small(name: str) -> bool:
    return "Memset" in name or "Memcpy" in name


def _is_product(name: str) -> bool:
    return _PRODUCT.search(name) is not None and _NO_PRODUCT.search(name) is None


RULE = Rule(
    name="pointwise_convolution",
    title="Convolutions of kernel size 1",
    means="cuDNN runs a convolution as a matrix product, because its kernel covers one place, and "
    "torch copies its operands or adds its bias in kernels of their own.",
    because="Such a convolution is a linear layer of each place. With the channels second, what "
    "comes from attention or a norm has to be copied into that layout and back, and the bias is "
    "added by a kernel that reads and writes the whole result once more; a product adds it on its "
    "way.",
    remedy="`nn.Linear` with the same weights (`conv.weight.squeeze(-1)`), and no `transpose` "
    "around it. Of images `channels_last` does the same.",
    saving="Time of these copies, additions of the bias and sums of the weights' gradients on the "
    "critical path; if the CPU is behind, how much shorter the step is in a replay without them.",
    not_on_cpu=ON_CPU,
    judge=_judge,
)
