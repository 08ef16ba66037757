"""The rule for activations that one operand in float32 promotes, until they are cast back."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from profiler_ext.findings.autograd_nodes import with_backward
from profiler_ext.findings.facts import Facts, Rows, location_of
from profiler_ext.findings.finding import Confidence, Figure
from profiler_ext.findings.rule import ON_CPU, Candidate, Rule, count_and_time
from profiler_ext.findings.rules.dtype_conversion import is_conversion
from profiler_ext.findings.rules.large_intermediate import elements_of
from profiler_ext.records.events import Ints
from profiler_ext.records.vocabulary import Phase, Scope

# torch's kernels of operands with unlike dtypes, contiguous or not
_MIXED = re.compile(r"LoadWithCast<2>|gpu_kernel_impl<")
_COMPUTES = re.compile(r"aten::(mul|add|sub|rsub|div|where|addcmul|lerp)_?$")
_POINTWISE = re.compile(r"elementwise_kernel|CatArray")
# Results and operands of a functor, or the values of a lambda
_OF_FLOAT32 = re.compile(r"Functor<float[,>]|\{lambda\(float")
_OF_16_BITS = re.compile(r"BFloat16|c10::Half")  # they may compute in float32 within
_COUNTED_AS_HALF = 2  # those of some kernels
_MAX_CHAIN = 24  # launches from the promotion to the cast: of queries and keys, say
_HALF = 0.5


def _candidates(facts: Facts) -> Iterator[Candidate]:
    is_cast = facts.named(is_conversion)
    is_training = facts.in_steps(facts.launches.phase.where(Phase.BACKWARD)).any()
    lines: dict[tuple[str | None, int | None], list[Ints]] = {}
    for chain in _chains(facts, is_cast):
        place = facts.place(int(chain[0]))
        lines.setdefault((place.file, place.line), []).append(chain)
    for chains in lines.values():
        forward = np.unique(np.concatenate(chains))
        rows = with_backward(facts, forward)
        # The gradient of what was promoted is cast back to its dtype
        if is_training and not is_cast[np.setdiff1d(rows, forward)].any():
            continue
        part = np.where(is_cast[rows], 1.0, _HALF)
        first = np.array([chain[0] for chain in chains], np.int64)
        yield Candidate(
            summary="an operand in float32 promotes activations, which are cast back",
            est_saving_ns=facts.median_per_step(rows, facts.critical_ns(rows, part)),
            confidence=Confidence.ESTIMATED,
            remedy="the table, scale or mask in the dtype of the activations: .to(x.dtype)",
            location=location_of(facts.place(facts.longest(first))),
            evidence=(
                *count_and_time(facts, rows),
                Figure("promotions a step", facts.launches_per_step(first)),
                Figure("casts back", facts.launches_per_step(forward[is_cast[forward]])),
            ),
            launches=rows,
        )


def _chains(facts: Facts, is_cast: Rows) -> Iterator[Ints]:
    """Yield the launches from each promotion to the casts behind it, one function's in a row."""
    table = facts.launches
    is_own = table.scope.where(Scope.EAGER) & table.phase.where(Phase.FORWARD)
    is_own = facts.in_steps(is_own & (facts.main_place >= 0))
    is_pointwise = facts.named(lambda name: _POINTWISE.search(name) is not None)
    is_mixed = facts.named(lambda name: _MIXED.search(name) is not None) & ~is_cast
    is_mixed &= facts.of_op(lambda op: _COMPUTES.match(op) is not None)
    order = np.lexsort((table.start_ns, table.stream.filled(-1), table.device))
    chain: list[int] = []
    casts = 0
    before = -1
    for row in order.tolist():
        is_next = is_own[row] and is_pointwise[row] and len(chain) < _MAX_CHAIN
        if chain and not (is_next and (is_cast[row] or not casts)):
            if casts:
                yield np.array(chain, np.int64)
            chain, casts = [], 0
        if chain:
            chain.append(row)
            casts += bool(is_cast[row])
        # What a norm returned, or a cast made, is in float32 already
        elif (
            is_next and is_mixed[row] and not _is_wide(facts, (before, row), is_cast, is_pointwise)
        ):
            chain.append(row)
        before = row
    if casts:
        yield np.array(chain, np.int64)


def _is_wide(facts: Facts, pair: tuple[int, int], is_cast: Rows, is_pointwise: Rows) -> bool:
    """Tell whether the launch before a promotion made an operand in float32, as large as that."""
    row, promotion = pair
    if row < 0:
        return False
    is_library = "at::native" not in facts.launches.name[row]
    if is_cast[row] or not (is_pointwise[row] or is_library):
        return True
    counts = elements_of(facts)
    name = facts.launches.name[row]
    is_float32 = _OF_FLOAT32.search(name) is not None and _OF_16_BITS.search(name) is None
    return is_float32 and 0 < counts[promotion] <= _COUNTED_AS_HALF * counts[row]


RULE = Rule(
    name="promoted_dtype",
    title="Activations that float32 promotes",
    means="An eager product, sum or `where` has operands of unlike dtypes, by the name of its "
    "kernel, and after other pointwise ops of the forward casts follow. In training the gradient "
    "is cast back, too. The op does not follow a norm or a cast, whose results are in float32 "
    "under autocast, nor an op that computed as many values in float32.",
    because="One operand in float32, a table of positions, a scale or a mask, makes the result "
    "float32: what follows moves twice the bytes, until autocast or `.to()` casts for the next "
    "product or attention.",
    remedy="Keep the table in the dtype of the activations, or convert it before it is used: "
    "`cos.to(x.dtype)`. Scales that are learned stay in float32 and are converted where they are "
    "used.",
    saving="All of the casts, forward and backward, and half of the pointwise kernels between, on "
    "the critical path.",
    not_on_cpu=ON_CPU,
    judge=_candidates,
)
