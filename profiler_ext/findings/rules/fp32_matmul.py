"""The rule for matrix products in fp32 without tensor cores."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

import numpy as np

from profiler_ext.findings.facts import CannotJudge, Facts, location_of
from profiler_ext.findings.finding import Confidence, Figure, FigureUnit
from profiler_ext.findings.rule import Candidate, Rule
from profiler_ext.records.events import Ints
from profiler_ext.rooflines import compute_units, rooflines

_OF_MATRICES = re.compile(r"gemm(?!k1|SN|Small)", re.IGNORECASE)
# cuSOLVER and MAGMA multiply in fp32, whatever is allowed
_FACTORIZES = re.compile(r"linalg_(lu|ldl|cholesky|qr|eig|svd)|geqrf|orgqr|ormqr|cholesky|\blu_")
_CONVOLUTION = re.compile(r"implicit_gemm|conv|fprop|dgrad|wgrad", re.IGNORECASE)
# Torch's own kernels multiply in fp32 whatever cuDNN is allowed
_OWN = re.compile(r"conv_depthwise\dd_")
# TF32's speedup in practice; the data sheets of A100, H100 and H200 have 7 to 8
TF32_SPEEDUP: Final = 4
_MANY = 10
_PRODUCTS = (
    "fp32 matmuls without tensor cores",
    "torch.set_float32_matmul_precision('high') for TF32, or autocast to bfloat16",
    "products a step",
)
_CONVOLUTIONS = (
    "fp32 convolutions without tensor cores",
    "torch.backends.cudnn.allow_tf32 = True, which is the default, or autocast to bfloat16",
    "convolutions a step",
)


def _judge(facts: Facts) -> Iterable[Candidate] | CannotJudge:
    is_named = facts.rooflines.unit_evidence.where(compute_units.UnitEvidence.KERNEL_NAME)
    is_fp32 = facts.rooflines.unit.where(compute_units.Unit.FP32) & is_named
    is_product = is_fp32 & facts.named(_multiplies_matrices)
    is_product &= ~facts.of_op(lambda op: _FACTORIZES.search(op) is not None)
    products = np.flatnonzero(facts.in_steps(is_product))
    result = [_candidate(facts, products, _PRODUCTS)] if len(products) else []
    is_convolution = facts.named(_convolves)
    convolutions = np.flatnonzero(facts.in_steps(is_fp32 & is_convolution))
    # With TF32 allowed, cuDNN still runs some convolutions without it, but not all of many
    is_tf32 = facts.rooflines.unit.where(compute_units.Unit.TF32_TENSOR) & is_convolution
    is_ruled_out = not facts.in_steps(is_tf32).any()
    if is_ruled_out and facts.launches_per_step(convolutions) >= _MANY:
        result.append(_candidate(facts, convolutions, _CONVOLUTIONS))
    return result


def _multiplies_matrices(name: str) -> bool:
    return _OF_MATRICES.search(name) is not None and not _CONVOLUTION.search(name)


def _convolves(name: str) -> bool:
    return _CONVOLUTION.search(name) is not None and not _OWN.search(name)


def _candidate(facts: Facts, launches: Ints, words: tuple[str, str, str]) -> Candidate:
    summary, remedy, counted = words
    longest, duration = facts.longest(launches), facts.launches.duration_ns[launches]
    # What TF32 would save of each launch: not more than its bytes leave.
    moving = facts.rooflines.bandwidth_fraction.filled(0)[launches] / rooflines.REACHABLE_FRACTION
    return Candidate(
        summary=summary,
        est_saving_ns=facts.median_per_step(
            launches, facts.critical_ns(launches, 1 - np.clip(moving, 1 / TF32_SPEEDUP, 1))
        ),
        confidence=Confidence.ESTIMATED,
        remedy=remedy,
        location=location_of(facts.place(longest), facts.launches.name[longest]),
        evidence=(
            Figure("they take", facts.median_per_step(launches, duration), FigureUnit.NS),
            Figure(counted, facts.launches_per_step(launches)),
            Figure("TF32 is taken to be quicker by", TF32_SPEEDUP, FigureUnit.TIMES),
        ),
        launches=launches,
    )


RULE = Rule(
    name="fp32_matmul",
    title="Matrix products in fp32 without tensor cores",
    means="Library kernels whose names say that they multiply matrices in fp32 without tensor "
    "cores (`simt_sgemm`, `f32f32_f32f32_f32 ... ffma`, `sgemm_largek`) are on the critical path "
    "of a step. Convolutions count if ten or more do so and none runs in TF32, but for those of "
    "torch's own depthwise kernels, which have no TF32.",
    because="PyTorch multiplies fp32 tensors in full fp32 by default. Tensor cores multiply them "
    "in TF32, with 10 bits of mantissa, several times as fast. Convolutions use TF32 by default.",
    remedy="`torch.set_float32_matmul_precision('high')` at the top of the script, or autocast to "
    "bfloat16, which also halves memory traffic.",
    saving="Three quarters of the time of those kernels on the critical path, assuming that TF32 "
    "is four times as fast; less if memory traffic takes longer than that.",
    not_on_cpu="the launches ran on the CPU, whose kernels do not tell their unit",
    judge=_judge,
)
