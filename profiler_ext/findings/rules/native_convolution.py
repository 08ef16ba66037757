"""The rule for convolutions that torch runs by its own kernels, without cuDNN."""

from __future__ import annotations

import re
from collections.abc import Iterable

import numpy as np

from profiler_ext.findings.critical_path import NO_ROW, Floats
from profiler_ext.findings.facts import CannotJudge, Facts, location_of
from profiler_ext.findings.finding import Confidence, Figure, FigureUnit
from profiler_ext.findings.rule import Candidate, Rule, count_and_time
from profiler_ext.findings.rules.fp32_matmul import TF32_SPEEDUP
from profiler_ext.records.events import Ints
from profiler_ext.rooflines.compute_units import Unit, UnitEvidence

_DEPTHWISE = re.compile(r"conv_depthwise\dd_\w*kernel")
_UNFOLDED = re.compile(r"at::native::(im2col|col2im|vol2col|col2vol)_\w*kernel")
_CONVOLVES = re.compile(r"conv")
_MIN_FRACTION = 0.03
# Of the time of two lines of depthwise convolutions 0.49 (by two of 11 x 1) and 0.85 (by FFT) were
# gone, on an H100
_SAVING = 2 / 3


def _judge(facts: Facts) -> Iterable[Candidate] | CannotJudge:
    is_unfolded = facts.named(lambda name: _UNFOLDED.search(name) is not None)
    # F.unfold launches the same kernel
    is_unfolded &= facts.mainly(lambda place: _CONVOLVES.search(place.aten_op or "") is not None)
    is_depthwise = facts.named(lambda name: _DEPTHWISE.search(name) is not None)
    own = np.flatnonzero(facts.in_steps(is_unfolded | is_depthwise))
    spent_ns = facts.median_per_step(own, facts.critical_ns(own))
    if not spent_ns or spent_ns < _MIN_FRACTION * facts.training.step_ns:
        return ()
    depthwise = own[is_depthwise[own]]
    # cuDNN writes no windows out, and multiplies fp32 in TF32 by default
    products = _products(facts, own[is_unfolded[own]])
    own = np.union1d(own, products)
    gone = np.where(np.isin(own, products), 1 - 1 / TF32_SPEEDUP, 1.0)
    gone[is_depthwise[own]] = _SAVING
    return (
        Candidate(
            summary="convolutions run torch's own kernels, not cuDNN's",
            est_saving_ns=_saved_ns(facts, own, gone),
            confidence=Confidence.ESTIMATED,
            remedy=_DEPTHWISE_REMEDY if len(depthwise) else _CUDNN,
            location=location_of(facts.place(facts.longest(own))),
            evidence=(
                *count_and_time(facts, own),
                Figure("that sets the pace, without products", spent_ns, FigureUnit.NS),
                *_of_products(facts, products),
                Figure("of depthwise convolutions", facts.launches_per_step(depthwise)),
            ),
            launches=own,
        ),
    )


def _saved_ns(facts: Facts, launches: Ints, gone: Floats) -> int:
    """Return how much shorter the step is without a part of each launch's time.

    Of a call's launches one keeps its way on the CPU: cuDNN does not loop over the batch.
    """
    if facts.replay is None or facts.pace.is_critical[launches].all():
        return facts.median_per_step(launches, facts.critical_ns(launches, gone))
    kept = facts.replay.unchanged
    kept.busy[launches] = 1 - gone
    op = facts.launches.op_event.filled(NO_ROW)
    of_calls = np.flatnonzero(np.isin(op, np.setdiff1d(op[launches], [NO_ROW])))
    of_calls = of_calls[np.argsort(facts.pace.enqueued_ns[of_calls], kind="stable")]
    firsts = of_calls[np.unique(op[of_calls], return_index=True)[1]]
    kept.cpu[np.setdiff1d(of_calls, firsts)] = 0
    return facts.shorter_ns(kept)


def _products(facts: Facts, unfolded: Ints) -> Ints:
    """Return the products of fp32 windows that the calls of these kernels write out."""
    op = facts.launches.op_event.filled(NO_ROW)
    calls = np.setdiff1d(op[unfolded], [NO_ROW])
    is_named = facts.rooflines.unit_evidence.where(UnitEvidence.KERNEL_NAME)
    is_fp32 = facts.rooflines.unit.where(Unit.FP32) & is_named
    return np.setdiff1d(np.flatnonzero(facts.in_steps(is_fp32 & np.isin(op, calls))), unfolded)


def _of_products(facts: Facts, products: Ints) -> tuple[Figure, ...]:
    if not len(products):
        return ()
    spent_ns = facts.median_per_step(products, facts.launches.duration_ns[products])
    return (
        Figure("products of the windows in fp32", spent_ns, FigureUnit.NS),
        Figure("TF32 is taken to be quicker by", TF32_SPEEDUP, FigureUnit.TIMES),
    )


_CUDNN = "torch.backends.cudnn.enabled = True, and a dtype that cuDNN has (no float64)"
_DEPTHWISE_REMEDY = (
    "channels_last in half precision; or torch.compile, which may generate the convolution"
)

RULE = Rule(
    name="native_convolution",
    title="Convolutions without cuDNN",
    means="Torch's own kernels for convolutions take 3% of a step or more: those of depthwise "
    "convolutions, or `im2col` within one, which writes each window out for a matrix product.",
    because="Torch calls cuDNN for convolutions that it supports, and its own kernels for others. "
    "Those of depthwise convolutions (one filter for each channel) read far from the device's "
    "bandwidth, most of all for the gradient of the weights. `im2col` appears where cuDNN is "
    "turned off, or has no kernel for the dtype.",
    remedy="`model.to(memory_format=torch.channels_last)` with bfloat16 or float16, for which "
    "cuDNN has depthwise kernels; larger groups; `torch.backends.cudnn.enabled = True`.",
    saving="The time on the critical path of the kernels that write windows out, which cuDNN does "
    "not, and three quarters of that of the products of fp32 windows: cuDNN multiplies in TF32 by "
    "default, which is taken to be four times as fast. In a replay one launch of each call keeps "
    "its way on the CPU. Of depthwise convolutions two thirds: what "
    "cuDNN takes for the same sizes is not in the recording. Of two such lines that were replaced, "
    "on an H100, a half and 0.85 of their time were gone.",
    not_on_cpu="the launches ran on the CPU, where cuDNN is not",
    judge=_judge,
)
