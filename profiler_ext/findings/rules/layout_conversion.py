"""The rule for layouts that cuDNN changes before and after each convolution."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import numpy as np

from profiler_ext.findings.autograd_nodes import with_backward
from profiler_ext.findings.facts import CannotJudge, Facts, Rows, location_of
from profiler_ext.findings.finding import Confidence, Figure, FigureUnit
from profiler_ext.findings.rule import Candidate, Rule, count_and_time, launching
from profiler_ext.findings.rules.dtype_conversion import is_conversion
from profiler_ext.findings.rules.large_intermediate import elements_of
from profiler_ext.kineto import classify
from profiler_ext.records.analysis import Place
from profiler_ext.records.events import Ints
from profiler_ext.records.vocabulary import Phase, Scope
from profiler_ext.rooflines.peaks import peak_of
from profiler_ext.rooflines.rooflines import REACHABLE_FRACTION

_CHANGES_LAYOUT = re.compile(r"nchwToNhwc|nhwcToNchw", re.IGNORECASE)
# Their kernels take the channels first, of a batch norm over instances, too
_NEEDS_ORDER = re.compile(r"aten::(instance|group)_norm$")
_MOST_BYTES = 4  # of a number
# Of one dimension they are products with copies around them, for which there is a rule
_CONVOLVES = re.compile(r"aten::(conv[23]d|_?convolution)$")
_BACKWARD = "aten::convolution_backward"
_CONTIGUOUS = re.compile(r"aten::(contiguous|clone)$")
_ASKS = re.compile(r"\.(contiguous|clone)\(")
_COPIES = "aten::copy_"
# torch joins tensors by a copy of each where their layouts differ
_JOINS = re.compile(r"aten::(cat|concat|concatenate|stack|constant_pad_nd|pad)$")
_COPYING = "elementwise_kernel<"
_DIRECT = "direct_copy_kernel"
_CASTS = "gpu_kernel_impl<"  # without a cast it is gpu_kernel_impl_nocast
_NORMALISES = re.compile(
    r"at::native::batch_norm_(collect_statistics|transform_input|backward)_kernel\b"
)
# The part of their time that torch's batch norms do without where the channels are last. Of a
# ResNet-18 in bfloat16 on an H200 it was 73%.
_BATCH_NORM_SAVING = 2 / 3

_OF_ROWS = "aten::conv1d"
_LAST = "model.to(memory_format=torch.channels_last), and images likewise (channels_last_3d)"
_LAST_OF_ROWS = (
    "nn.Conv2d of height 1, with weight and input in torch.channels_last: conv1d takes no layout"
)
_KEEP = "keep channels_last up to the convolution: no view or .contiguous() across channels"
_ONE_LAYOUT = (
    "one layout for both: no channels_last where norms need the channels first (cuDNN's own "
    "conversions take a pass each), or norms that take the channels last, as batch_norm does, or "
    "compiled"
)


def _judge(facts: Facts) -> Iterable[Candidate] | CannotJudge:
    launches = np.flatnonzero(facts.in_steps(facts.named(_changes_layout)))
    is_own = len(launches) > 0 and not _are_around_norms(facts, launches)
    return (*((_candidate(facts, launches),) if is_own else ()), *_of_inputs(facts))


def _are_around_norms(facts: Facts, launches: Ints) -> bool:
    """Tell whether most of these convolutions have a norm next to them that undoes the layout."""
    phases = facts.launches.phase.where(Phase.FORWARD, Phase.RECOMPUTE, Phase.OTHER)
    needs_order = facts.mainly(lambda place: _NEEDS_ORDER.match(place.aten_op or "") is not None)
    norms = np.flatnonzero(facts.in_steps(phases & needs_order))
    convolutions = launches[phases[launches]]
    calls = [np.unique(facts.called_ops(each)) for each in (norms, convolutions)]
    return len(norms) > 0 and 2 * len(calls[0]) >= len(calls[1])


def _of_inputs(facts: Facts) -> Iterator[Candidate]:
    """Yield the copies that torch makes of what convolutions and norms between them are given."""
    launches = facts.launches
    is_copy = facts.of_op(_COPIES.__eq__) & launches.scope.where(Scope.EAGER)
    is_copy &= facts.in_steps(~facts.named(_is_other_copy) & (facts.main_place >= 0))
    is_ahead = is_copy & launches.phase.where(Phase.FORWARD, Phase.RECOMPUTE)
    is_copied = facts.mainly(lambda place: _CONVOLVES.match(place.aten_op or "") is not None)
    forward = np.flatnonzero(is_ahead & is_copied)
    if not len(forward):
        return
    needs_order = facts.mainly(lambda place: _NEEDS_ORDER.match(place.aten_op or "") is not None)
    norms = with_backward(facts, np.flatnonzero(is_ahead & needs_order))
    norms = norms[is_copy[norms]]
    has_norms = len(norms) > 0
    # Autograd keeps the input as it was given, and the backward copies it once more. Behind a norm
    # it copies the gradient, too.
    convolving = {_line(facts.place(row)) for row in forward.tolist()}
    is_behind = facts.mainly(
        lambda place: place.aten_op == _BACKWARD and (has_norms or _line(place) in convolving)
    )
    before = _before(facts, forward)
    undone = before[is_copy[before] & facts.mainly(_is_asked)[before]]
    own = (forward, undone, norms, np.flatnonzero(is_copy & is_behind))
    joins = before[_joins(facts)[before]]
    yield from _of_copies(facts, np.unique(np.concatenate(own)), forward, norms, joins)


def _joins(facts: Facts) -> Rows:
    """Flag the copies by which torch joins tensors of unlike layouts, or pads one."""
    is_copy = facts.named(lambda name: _COPYING in name and _DIRECT in name and _CASTS not in name)
    is_copy &= facts.mainly(lambda place: _JOINS.match(place.aten_op or "") is not None)
    return is_copy & facts.launches.scope.where(Scope.EAGER)


def _of_copies(
    facts: Facts, rows: Ints, forward: Ints, norms: Ints, joins: Ints
) -> Iterator[Candidate]:
    saved_ns = facts.median_per_step(rows, facts.removal_saving_ns(rows))
    by_joins: tuple[Figure, ...] = ()
    if len(joins):  # with one layout they are one pass each
        gone = 1 - _pass_ns(facts, joins) / np.maximum(facts.launches.duration_ns[joins], 1)
        joins_ns = facts.median_per_step(joins, facts.critical_ns(joins, gone))
        saved_ns, rows = saved_ns + joins_ns, np.union1d(rows, joins)
        by_joins = (Figure("joining unlike layouts takes longer by", joins_ns, FigureUnit.NS),)
    by_norms: tuple[Figure, ...] = ()
    if len(norms):  # the layout still has to change between the two, but in one pass
        saved_ns -= facts.median_per_step(rows, _pass_ns(facts, rows))
        norms_ns = facts.median_per_step(norms, facts.launches.duration_ns[norms])
        by_norms = (Figure("of norms take", norms_ns, FigureUnit.NS),)
    if saved_ns > 0:
        yield Candidate(
            summary="convolutions and norms copy their input, each to another layout"
            if len(norms)
            else "convolutions copy their input, which is strided or has another layout",
            est_saving_ns=saved_ns,
            confidence=Confidence.ESTIMATED,
            remedy=_ONE_LAYOUT if len(norms) else _KEEP,
            location=location_of(facts.place(facts.longest(forward))),
            evidence=(
                *count_and_time(facts, rows),
                *by_norms,
                *by_joins,
                *launching(facts, rows, saved_ns),
            ),
            launches=rows,
        )


def _pass_ns(facts: Facts, copies: Ints) -> Ints:
    """Return what reading and writing the values of copies takes at most, at full bandwidth."""
    peaks = (peak_of(each.name) for each in facts.analysis.recording.trace.devices)
    gb_per_s = max((each.gb_per_s for each in peaks if each), default=0.0)
    moved = 2 * _MOST_BYTES * elements_of(facts)[copies]
    pass_ns = moved / (REACHABLE_FRACTION * gb_per_s) if gb_per_s else np.inf
    return np.minimum(pass_ns, facts.launches.duration_ns[copies]).astype(np.int64)


def _before(facts: Facts, inputs: Ints) -> Ints:
    """Return the launches that run next before the copies for convolutions."""
    start_ns = facts.launches.start_ns
    eager = np.flatnonzero(facts.in_steps(facts.launches.scope.where(Scope.EAGER)))
    eager = eager[np.argsort(start_ns[eager], kind="stable")]
    return np.unique(eager[np.searchsorted(start_ns[eager], start_ns[inputs]) - 1])


def _is_asked(place: Place) -> bool:
    is_copy = _CONTIGUOUS.match(place.aten_op or "") is not None
    return is_copy and _ASKS.search(place.code or "") is not None


def _line(place: Place) -> tuple[str | None, int | None, str | None]:
    return place.file, place.line, place.module


def _changes_layout(name: str) -> bool:
    return _CHANGES_LAYOUT.search(name) is not None


def _is_other_copy(name: str) -> bool:
    """Tell whether a kernel converts a dtype, of what is strided or not, or copies as it is."""
    return is_conversion(name) or _CASTS in name or classify.is_memory_work(name)


def _normalises(name: str) -> bool:
    return _NORMALISES.search(name) is not None


def _candidate(facts: Facts, launches: Ints) -> Candidate:
    longest = facts.longest(launches)
    duration = facts.launches.duration_ns[launches]
    norms = np.flatnonzero(facts.in_steps(facts.named(_normalises)))
    norms_ns = facts.median_per_step(norms, facts.critical_ns(norms))
    removal_saving_ns = facts.median_per_step(launches, facts.removal_saving_ns(launches))
    own = Figure("batch norms in that layout take", norms_ns, FigureUnit.NS)
    return Candidate(
        summary="layout conversions around convolutions",
        est_saving_ns=removal_saving_ns + int(_BATCH_NORM_SAVING * norms_ns),
        confidence=Confidence.ESTIMATED,
        remedy=_LAST_OF_ROWS if facts.place(longest).aten_op == _OF_ROWS else _LAST,
        location=location_of(facts.place(longest), facts.launches.name[longest]),
        evidence=(
            Figure("changes of layout a step", facts.launches_per_step(launches)),
            Figure("they take", facts.median_per_step(launches, duration), FigureUnit.NS),
            *launching(facts, launches, removal_saving_ns),
            *((own,) if norms_ns else ()),
        ),
        launches=np.concatenate([launches, norms]),
    )


RULE = Rule(
    name="layout_conversion",
    title="Convolutions that convert the layout of their operands",
    means="cuDNN runs kernels called `nchwToNhwc` or `nhwcToNchw` around convolutions. Or torch "
    "copies the input of a convolution of two or three dimensions before cuDNN gets it; where it "
    "does, copies of instance and group norms count, too, and those by which `cat` or a padding "
    "made the input. Kernels of cuDNN are not reported where at least half as many instance and "
    "group norms run as convolutions that have them.",
    because="Tensor cores need the channels innermost. For tensors with the channels first, cuDNN "
    "converts the operands before a convolution and its result afterwards. torch's own batch norms "
    "have kernels for channels-last that are several times as fast; those of instance and group "
    "norms take the channels first, so that the layout changes twice around each. A weight with "
    "the channels last decides for the input, too: a line that makes it contiguous (to shuffle or "
    "split channels by views) makes the next convolution copy it back. `cat` of unlike layouts, of "
    "features and a repeated part, say, writes the channels first by strided copies.",
    remedy="`model.to(memory_format=torch.channels_last)` and "
    "`images.to(memory_format=torch.channels_last)`: then no conversion is needed. Between "
    "convolutions no `.contiguous()` or `.view()` that needs the channels first, and no `cat` with "
    "a tensor of another layout: write into one that `torch.empty` made with `memory_format`. With "
    "instance or group norms between them, the channels first for all, or `torch.compile` of the "
    "norms.",
    saving="Time of those kernels, of copies that make contiguous what the next launch copies "
    "back, and of the same copies in the backward, or of launching them if the CPU is behind; and "
    "two thirds of the time of torch's own channels-first batch norms on the critical path. With "
    "copies of norms, less one pass for each copy, of 4 bytes a number: cuDNN's own conversions "
    "take that. Of copies that join what they take beyond such a pass. Other kernels may get "
    "faster or slower with the layout, which is not counted.",
    not_on_cpu="the launches ran on the CPU, where cuDNN is not",
    judge=_judge,
)
