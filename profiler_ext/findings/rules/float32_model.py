"""The rule for models that compute in float32 throughout, where autocast would not."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import numpy as np

from profiler_ext.findings.facts import CannotJudge, Facts, launches_by_line, location_of
from profiler_ext.findings.finding import Confidence, Figure, FigureUnit
from profiler_ext.findings.library_kernels import table
from profiler_ext.findings.rule import Candidate, Rule
from profiler_ext.findings.rules import attention_backend, slow_op
from profiler_ext.records.events import Ints
from profiler_ext.rooflines.compute_units import Unit, UnitEvidence

_KIND = re.compile(r"_(nn|nt|tn)_")
_PRODUCTS = {"tn": "output", "nn": "input_gradient", "nt": "weight_gradient"}
_CONVOLUTION = re.compile(r"fprop|dgrad|wgrad|conv", re.IGNORECASE)
# Bfloat16 has twice the peak of TF32 and half the bytes: of a convolution half of the time is left
_CONVOLUTION_PART = 0.5
_NARROW = (Unit.BF16_TENSOR, Unit.FP16_TENSOR, Unit.FP8_TENSOR, Unit.FP4_TENSOR, Unit.INT8_TENSOR)
_MAX_NARROW = 0.05  # of the products' time: a model in float32 has hardly any other
_MIN_FRACTION = 0.1
_WHOLE = "the model computes in float32, without autocast"
_AUTOCAST = (
    "torch.autocast to bfloat16 for the forward and the loss; it changes numerics: verify "
    "convergence"
)
_ISLAND = "products in float32, where others have 16 bits"
_LEAVE_NARROW = (
    "operands in bfloat16: no .float() before the product, and no autocast(enabled=False) around "
    "it, where its precision is enough"
)


def _judge(facts: Facts) -> Iterable[Candidate] | CannotJudge:
    products, narrow = (_of_units(facts, *each) for each in ((Unit.TF32_TENSOR,), _NARROW))
    # Of those another algorithm saves nearly all, in any dtype
    products = np.setdiff1d(products, slow_op.slow_convolutions(facts))
    paced_ns, narrow_ns = (
        facts.median_per_step(own, facts.critical_ns(own)) for own in (products, narrow)
    )
    # One slow product in float32 may take longer than all others
    if narrow_ns > _MAX_NARROW * paced_ns or len(narrow) > len(products):
        lines = launches_by_line(facts, products)
        return [_candidate(facts, own, [], _ISLAND, _LEAVE_NARROW) for own in lines]
    if paced_ns < _MIN_FRACTION * facts.training.step_ns:
        return ()
    attention = attention_backend.in_float32(facts)
    return (_candidate(facts, products, attention, _WHOLE, _AUTOCAST),)


def _of_units(facts: Facts, *units: Unit) -> Ints:
    # By their own names: what changes their layouts is not a product
    is_named = facts.rooflines.unit_evidence.where(UnitEvidence.KERNEL_NAME)
    return np.flatnonzero(facts.in_steps(facts.rooflines.unit.where(*units) & is_named))


def _candidate(
    facts: Facts, products: Ints, attention: Sequence[Candidate], summary: str, remedy: str
) -> Candidate:
    parts = np.array([_part(facts.launches.name[row]) for row in products.tolist()])
    saved_ns = facts.median_per_step(products, facts.critical_ns(products, 1 - parts))
    attended_ns = sum(each.est_saving_ns for each in attention)
    launches = np.unique(np.concatenate([products, *(each.launches for each in attention)]))
    spent = (
        ("products in TF32 take", products),
        ("attention in float32 takes", np.setdiff1d(launches, products)),
    )
    times = [
        Figure(name, facts.median_per_step(own, facts.launches.duration_ns[own]), FigureUnit.NS)
        for name, own in spent
        if len(own)
    ]
    saved = [("saved of products", saved_ns)]
    saved += [("saved of attention", attended_ns)] if attended_ns else []
    return Candidate(
        summary=summary,
        est_saving_ns=saved_ns + attended_ns,
        confidence=Confidence.ESTIMATED,
        remedy=remedy,
        location=location_of(facts.place(facts.longest(launches))),
        evidence=(
            *times,
            *(Figure(name, own_ns, FigureUnit.NS) for name, own_ns in saved),
            Figure("measured on", table().device, FigureUnit.TEXT),
        ),
        launches=launches,
    )


def _part(kernel: str) -> float:
    """Return which part of its time a product in TF32 takes in bfloat16."""
    if _CONVOLUTION.search(kernel):
        return _CONVOLUTION_PART
    kind = _KIND.search(kernel)
    return table().dtype_fraction("tf32", "bfloat16", _PRODUCTS[kind[1]] if kind else None)


RULE = Rule(
    name="float32_model",
    title="A model in float32, without autocast",
    means="Products and convolutions run in TF32 for a tenth of the step or more, and hardly any "
    "in a dtype of 16 or 8 bits. Where most products have 16 bits, each line with products in TF32 "
    "is reported.",
    because="Tensor cores have twice the peak in bfloat16 that they have in TF32, each operand has "
    "half the bytes, and the fast kernels of attention take no float32 at all.",
    remedy="`torch.autocast('cuda', dtype=torch.bfloat16)` around the forward and the loss. It "
    "keeps parameters, norms and losses in float32. Check that the model converges as before. At a "
    "single line, leave out `.float()` or `autocast(enabled=False)`.",
    saving="Time of products on the critical path, and of attention, beyond what they take in "
    "bfloat16 in a table measured on an H100 (`benchmarks/library_kernels.py`): products by "
    "whether they are a layer's output or one of its gradients. Convolutions are taken to need "
    "half of their time; those that `slow_op` reports are left out. Pointwise ops and norms are "
    "not counted: autocast keeps some in float32. Products in float32 without tensor cores are "
    "those of another rule.",
    not_on_cpu="the launches ran on the CPU, whose kernels do not tell their unit",
    judge=_judge,
)
