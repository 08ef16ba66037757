"""The rule for convolutions that torch runs by its own kernels, without cuDNN."""

from __future__ import annotations

import re
from collections.abc import Iterable

import numpy as np

from profiler_ext.findings.facts import CannotJudge, Facts, location_of
from profiler_ext.findings.finding import Confidence, Figure, FigureUnit
from profiler_ext.findings.rule import Candidate, Rule, count_and_time

_DEPTHWISE = re.compile(r"conv_depthwise\dd_\w*kernel")
_UNFOLDED = re.compile(r"at::native::(im2col|col2im|vol2col|col2vol)_\w*kernel")
_CONVOLVES = re.compile(r"conv")
_MIN_FRACTION = 0.03
# Of the time of two such lines 0.49 (by two convolutions of 11 x 1) and 0.85 (by FFT) were gone,
# on an H100
_SAVING = 2 / 3


def _judge(facts: Facts) -> Iterable[Candidate] | CannotJudge:
    if not facts.on_device:
        return CannotJudge("the launches ran on the CPU, where cuDNN is not")
    is_unfolded = facts.named(lambda name: _UNFOLDED.search(name) is not None)
    # F.unfold launches the same kernel
    is_unfolded &= facts.mainly(lambda place: _CONVOLVES.search(place.aten_op or "") is not None)
    is_depthwise = facts.named(lambda name: _DEPTHWISE.search(name) is not None)
    own = np.flatnonzero(facts.in_steps(is_unfolded | is_depthwise))
    spent_ns = facts.median_per_step(own, facts.critical_ns(own))
    if not spent_ns or spent_ns < _MIN_FRACTION * facts.training.step_ns:
        return ()
    depthwise = own[is_depthwise[own]]
    return (
        Candidate(
            summary="convolutions run torch's own kernels, not cuDNN's",
            est_saving_ns=facts.median_per_step(own, facts.critical_ns(own, _SAVING)),
            confidence=Confidence.ESTIMATED,
            remedy=_DEPTHWISE_REMEDY if len(depthwise) else _CUDNN,
            location=location_of(facts.place(facts.longest(own))),
            evidence=(
                *count_and_time(facts, own),
                Figure("that sets the pace", spent_ns, FigureUnit.NS),
                Figure("of depthwise convolutions", facts.launches_per_step(depthwise)),
            ),
            launches=own,
        ),
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
    saving="Two thirds of the time of these kernels on the critical path: what cuDNN takes for the "
    "same sizes is not in the recording. Of two lines that were replaced, on an H100, a half and "
    "0.85 of their time were gone.",
    judge=_judge,
)
