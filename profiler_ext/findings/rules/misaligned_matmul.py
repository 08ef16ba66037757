"""The rule for matrix products whose sizes rule out the fast kernels of the library."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from profiler_ext.findings.facts import (
    CannotJudge,
    Facts,
    launches_by_line,
    location_of,
)
from profiler_ext.findings.finding import Confidence, Figure, FigureUnit
from profiler_ext.findings.library_kernels import ALIGNMENT_BYTES, BYTES, Layer, table
from profiler_ext.findings.rule import Candidate, Rule, count_and_time
from profiler_ext.kineto import op_inputs
from profiler_ext.records.events import Ints
from profiler_ext.rooflines.work import nodes_of, product_of

# cuBLAS names an older kernel by what it computes, and by how many elements it may load at once
_NAME = re.compile(r"cutlass_(?:75|80)_(?:wmma_)?tensorop_(\w*?)_(nn|nt|tn)_align(\d+)")
_CONVOLUTION = re.compile(r"fprop|dgrad|wgrad|conv", re.IGNORECASE)
_PRODUCT = re.compile(r"\b(?:add)?mm\b")  # of two matrices: the table has no batches
_DTYPES = {"bf16": "bfloat16", "tf32": "tf32", "f16": "float16"}
_KINDS = {"tn": "output", "nn": "input_gradient", "nt": "weight_gradient"}
_NEWER_KERNEL = re.compile(r"nvjet|sm90_|sm100_")
# A sibling's rate is used if it does this much of the work, or this many times as much
_LEAST_SIMILAR, _MOST_SIMILAR = 0.5, 2.0
_MIN_GAIN = 1.25  # an older kernel for aligned rows counts if a sibling is so much faster


@dataclass(frozen=True, slots=True)
class _Kernel:
    """What a kernel's name says of its product."""

    dtype: str
    product: str  # as in the table
    alignment: int  # in elements

    @property
    def is_misaligned(self) -> bool:
        return self.alignment * BYTES[self.dtype] < ALIGNMENT_BYTES


@dataclass(frozen=True, slots=True)
class _Expected:
    """What a product would take."""

    fraction: float  # of the time that it takes now
    sizes: tuple[tuple[int, int], ...] = ()  # what is odd, and what to take, where known
    by_sibling: bool = False  # by the rate of another product of the recording


def _kernel_of(name: str) -> _Kernel | None:
    match = _NAME.search(name)
    if match is None or _CONVOLUTION.search(name):
        return None
    dtype = next((text for key, text in _DTYPES.items() if key in match[1]), None)
    return None if dtype is None else _Kernel(dtype, _KINDS[match[2]], int(match[3]))


def claimed(facts: Facts) -> Ints:
    """Return the launches whose time this rule counts, so that no other rule does."""
    return np.array(list(_judged(facts)), np.int64)


def _judge(facts: Facts) -> Iterable[Candidate] | CannotJudge:
    judged = _judged(facts)
    return [_candidate(facts, own, judged) for own in launches_by_line(facts, claimed(facts))]


def _judged(facts: Facts) -> dict[int, _Expected]:
    return facts.analysis.derived.once("misaligned", lambda: _all_expected(facts))


def _all_expected(facts: Facts) -> dict[int, _Expected]:
    named = facts.named(lambda name: _kernel_of(name) is not None)
    launches = np.flatnonzero(facts.in_steps(named & facts.of_op(_is_product)))
    siblings, result = _Siblings(facts), {}
    for launch, layer in zip(launches.tolist(), _layers(facts, launches), strict=True):
        then = _expected(facts, launch, layer, siblings)
        if then is not None and then.fraction < 1:
            result[launch] = then
    return result


class _Siblings:
    """Rates of this recording's products by the kernels that aligned sizes get."""

    def __init__(self, facts: Facts) -> None:
        flops = facts.rooflines.flops
        is_fast = facts.in_steps(facts.named(lambda name: _NEWER_KERNEL.search(name) is not None))
        is_fast &= ~np.ma.getmaskarray(flops) & facts.of_op(_is_product)
        self._rows = np.flatnonzero(is_fast)
        self._flops = flops.filled(0)[self._rows].astype(np.float64)
        self._ns = facts.launches.duration_ns[self._rows]
        self._unit = facts.rooflines.unit.codes

    def rate(self, launch: int, flops: int) -> float | None:
        """Return operations per ns of products of that unit with about as many operations."""
        near = (self._flops >= _LEAST_SIMILAR * flops) & (self._flops <= _MOST_SIMILAR * flops)
        near &= self._unit[self._rows] == self._unit[launch]
        if not near.any():
            return None
        return float(np.median(self._flops[near] / np.maximum(self._ns[near], 1)))


def _expected(
    facts: Facts, launch: int, layer: Layer | None, siblings: _Siblings
) -> _Expected | None:
    kernel = _kernel_of(facts.launches.name[launch])
    if kernel is None:
        return None
    if layer is None:
        if not kernel.is_misaligned:
            return None
        part = table().typical_fraction(kernel.dtype, kernel.product, kernel.alignment)
        return None if part is None else _Expected(part)
    if not _is_odd(layer, kernel.dtype):
        return None
    padded = table().padded(kernel.dtype, kernel.product, layer)
    rate = siblings.rate(launch, 2 * layer.volume)
    if rate is not None:
        target = layer if padded is None else padded[0]
        part = 2 * target.volume / rate / max(int(facts.launches.duration_ns[launch]), 1)
        is_slow = kernel.is_misaligned or part * _MIN_GAIN < 1
        return _Expected(part, _changes(layer, target), by_sibling=True) if is_slow else None
    if padded is None or not kernel.is_misaligned:
        return None
    return _Expected(padded[1], _changes(layer, padded[0]))


def _is_odd(layer: Layer, dtype: str) -> bool:
    """Tell whether the rows of an operand are not aligned, by the sizes of its layer."""
    multiple = ALIGNMENT_BYTES // BYTES[dtype]
    return any(size % multiple for size in (layer.inputs, layer.outputs))


def _changes(layer: Layer, padded: Layer) -> tuple[tuple[int, int], ...]:
    pairs = ((layer.inputs, padded.inputs), (layer.outputs, padded.outputs))
    return tuple(pair for pair in pairs if pair[0] != pair[1])


def _layers(facts: Facts, launches: Ints) -> Iterator[Layer | None]:
    """Yield the sizes of each product, as a linear layer's; none where they are not known."""
    analysis = facts.analysis
    ops = facts.launches.op_event.filled(0)[launches]
    inputs = op_inputs.inputs_of(
        analysis.recording.trace.raw, analysis.recording.trace.events.position[ops]
    )
    for launch, code in zip(launches.tolist(), inputs.codes.tolist(), strict=True):
        kernel = _kernel_of(facts.launches.name[launch])
        known = _of_site(facts, launch) or _of_op(facts, launch, inputs.distinct[code])
        yield _layer(kernel.product, *known) if kernel and known else None


def _of_op(
    facts: Facts, launch: int, inputs: tuple[op_inputs.OpInput, ...] | None
) -> tuple[int, int, int] | None:
    op = facts.innermost_op(launch).partition("::")[2]
    product = None if inputs is None else product_of(op, inputs)
    return _sizes(product.outputs[0], product.flops) if product else None


def _of_site(facts: Facts, launch: int) -> tuple[int, int, int] | None:
    graph, site = facts.launches.graph[launch], facts.launches.call_site[launch]
    if graph is np.ma.masked or site is np.ma.masked:
        return None
    instance = facts.analysis.recording.graphs[int(graph)]
    called, known = instance.call_sites[int(site)], nodes_of(instance)
    products = [name for name in called.nodes if name in known and _is_product(known[name].target)]
    if len(products) != 1 or called.flops is None or not called.flops.isdecimal():
        return None
    size = [size for spec in known[products[0]].outputs for size in spec.size]
    return _sizes([s for s in size if isinstance(s, int)], int(called.flops))


def _is_product(target: str) -> bool:
    return _PRODUCT.search(target) is not None


def _sizes(result: Sequence[int], flops: int) -> tuple[int, int, int] | None:
    """Return rows, columns and the inner size of a product, by its result and operations."""
    if len(result) != 2 or not all(result):
        return None
    rows, columns = result
    return rows, columns, flops // (2 * rows * columns)


def _layer(product: str, rows: int, columns: int, inner: int) -> Layer:
    """Return the layer whose output or gradient a product is."""
    if product == "output":
        return Layer(rows, inner, columns)
    if product == "input_gradient":
        return Layer(rows, columns, inner)
    return Layer(inner, columns, rows)


def _candidate(facts: Facts, launches: Ints, judged: Mapping[int, _Expected]) -> Candidate:
    longest = facts.longest(launches)
    expected = [judged[launch] for launch in launches.tolist()]
    parts = np.array([each.fraction for each in expected])
    saved_ns = facts.critical_ns(launches, 1 - parts)
    sizes = tuple(dict.fromkeys(pair for each in expected for pair in each.sizes))
    by_siblings = all(each.by_sibling for each in expected)
    source = "aligned products of this recording" if by_siblings else table().device
    return Candidate(
        summary="matmuls whose sizes rule out the fast kernels",
        est_saving_ns=facts.median_per_step(launches, saved_ns),
        confidence=Confidence.ESTIMATED,
        remedy=_remedy(sizes),
        location=location_of(
            facts.place(longest), facts.launches.name[longest], facts.compile_id(longest)
        ),
        evidence=(
            *count_and_time(facts, launches),
            Figure("padded, faster by", 1 / max(float(parts.mean()), 0.01), FigureUnit.TIMES),
            Figure("measured on", source, FigureUnit.TEXT),
        ),
        launches=launches,
    )


def _remedy(sizes: Sequence[tuple[int, int]]) -> str:
    if not sizes:
        return (
            "pad the size of this layer (vocabulary, hidden size, features) to a multiple of 64; "
            "record with --shapes to see which"
        )
    named = ", ".join(f"{own:,} to {new:,}" for own, new in sizes)
    return f"pad the size of this layer: {named}"


RULE = Rule(
    name="misaligned_matmul",
    title="Matrix products whose sizes rule out the fast kernels",
    means="cuBLAS runs a kernel that loads fewer than 16 bytes at once (its name ends with "
    "`align1`, `align2` or `align4`), or a kernel of an older GPU generation because a size of "
    "the layer is no multiple of 8.",
    because="Fast kernels copy blocks of the operands with instructions that need rows which "
    "begin at multiples of 16 bytes: 8 elements of bfloat16, 4 of float32. A row is as long as a "
    "size of the layer (vocabulary, hidden size, features), so an odd one costs 2 to 9 times the "
    "time, forward and backward. The number of tokens does not matter.",
    remedy="Pad the size to a multiple of 64, or of 8 if that is much larger: 50,304 words in "
    "place of 50,257, 2,752 hidden features in place of 2,731. The logits of words that do not "
    "exist are never a target. `torch.compile` pads products itself where that pays, but copies "
    "the operands for it.",
    saving="The launches' time on the critical path beyond what the padded product takes. That "
    "comes from aligned products of the recording with half to twice the operations, if their "
    "operations are known (compiled, or recorded with `--shapes`); else from a table measured on "
    "an H100 (`benchmarks/library_kernels.py`), of the nearest sizes, or of common ones where "
    "sizes are not known. Batched products are not judged.",
    not_on_cpu="the launches ran on the CPU, whose kernels do not tell their alignment",
    judge=_judge,
)
