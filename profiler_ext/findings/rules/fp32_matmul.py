"""Owns the rule of matrix products in fp32 that leave the tensor cores unused."""

from __future__ import annotations

import re
from collections.abc import Iterable

import numpy as np

from profiler_ext.findings.facts import Facts, where_of
from profiler_ext.findings.finding import Figure, FigureUnit, Sureness
from profiler_ext.findings.rule import Candidate, Lacking, Rule
from profiler_ext.records import Ints

_FP32_PRODUCT = re.compile(
    r"simt_sgemm|(?:ampere|volta|maxwell|turing)_sgemm_(?!.*tf32)|\bsgemm_largek"
    r"|xmma_gemm_f32f32_f32f32_f32_\w*_ffma_"
)
_QUICKER = 4
"""How many times quicker TF32 is in practice; the data sheets of A100, H100 and H200 say 7 to 8."""


def _judge(facts: Facts) -> Iterable[Candidate] | Lacking:
    if not facts.on_device:
        return Lacking("the launches ran on the CPU, whose kernels do not tell their unit")
    launches = np.flatnonzero(facts.in_steps(facts.named(_is_fp32_product)))
    if not len(launches):
        return ()
    duration = facts.launches.duration_ns[launches]
    spent_ns = facts.of_usual_step(launches, duration)
    paced = facts.paced_ns(launches)
    saved = paced - paced // _QUICKER
    return (_candidate(facts, launches, spent_ns, facts.of_usual_step(launches, saved)),)


def _is_fp32_product(name: str) -> bool:
    return _FP32_PRODUCT.search(name) is not None


def _candidate(facts: Facts, launches: Ints, spent_ns: int, saved_ns: int) -> Candidate:
    longest = facts.longest(launches)
    return Candidate(
        what="matrix products run in fp32 without tensor cores",
        at_stake_ns=saved_ns,
        sureness=Sureness.ESTIMATED,
        remedy="torch.set_float32_matmul_precision('high') for TF32, or autocast to bfloat16",
        where=where_of(facts.place(longest), facts.launches.name[longest]),
        why=(
            Figure("in fp32 products a step", spent_ns, FigureUnit.NS),
            Figure("products a step", facts.count_in_usual_step(launches)),
            Figure("TF32 is taken to be quicker by", _QUICKER, FigureUnit.TIMES),
        ),
        launches=launches,
    )


RULE = Rule(
    name="fp32_matmul",
    title="Matrix products in fp32 without tensor cores",
    means="Library kernels whose names say that they multiply in fp32 on the ordinary cores "
    "(`simt_sgemm`, `f32f32_f32f32_f32 ... ffma`, `sgemm_largek`) set the pace of a step.",
    because="PyTorch computes products of fp32 tensors in full fp32 unless it is told otherwise. "
    "Tensor cores multiply such tensors in TF32, with 10 bits of mantissa, several times as fast.",
    remedy="`torch.set_float32_matmul_precision('high')` at the top of the script, or autocast to "
    "bfloat16, which also halves what is moved.",
    stake="Three quarters of the time of those kernels that set the pace: TF32 is taken to be four "
    "times as fast.",
    judge=_judge,
)
