"""The rule for attention that runs as products and a softmax instead of one kernel."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np

from profiler_ext.findings.facts import CannotJudge, Facts, Rows, launches_by_line, location_of
from profiler_ext.findings.finding import Confidence, Figure, FigureUnit
from profiler_ext.findings.library_kernels import ALL_BACKENDS, Attention, table
from profiler_ext.findings.rule import NO_ROWS, ON_CPU, Candidate, Rule, count_and_time
from profiler_ext.records import analysis, events, vocabulary

_CALL = "scaled_dot_product_attention"
_KERNEL = "attention"
_PRODUCT = re.compile(r"\b(?:badd)?bmm\b")
_PROJECTION = re.compile(r"\b(?:add)?mm\b")  # products with a weight may be at the same line
_ANY_PRODUCT = re.compile(r"\b(?:(?:badd)?bmm|(?:add)?mm|\w*convolution\w*)\b")
_OF_ROWS = re.compile(r"gemv|\bdot_kernel")
_SOFTMAX = re.compile(r"\b_(?:safe_)?softmax(?:_backward_data)?\b")
# What code that writes attention out does between its products, but no addition: it is also that of
# a residual
_BETWEEN = re.compile(
    r"\b(?:mul|div|where|masked_fill_?|dropout|native_dropout(?:_backward)?|mean)\b"
)
_COPIES = re.compile(r"\b(?:copy_|clone|_to_copy|contiguous)\b")
_NUMBER = re.compile(r"\d+")
_MAX_LINES = 15  # from the softmax to its products
_MAX_BETWEEN = 40  # launches between two products of one call of attention
_MASKS = re.compile(r"\b(?:where|masked_fill_?|tril)\b")
_DROPS = re.compile(r"dropout")
_ADDS = re.compile(r"\badd_?\b|_add_")  # a mask, or a bias, to the scores
_SAFE = re.compile(
    r"\bisneginf\b"
)  # torch's own softmax of rows that are masked whole has a `where`
_OF_BIAS = re.compile(r"aten(::|\.)sum\b")
_HALF = re.compile(r"bf16|BFloat16|bfloat16|Half|f16|nvjet_\w*?_[th]s[st]_")
_FLOAT32 = re.compile(r"f32f32|sgemm|tf32")
_SOFTMAX_IN_FLOAT32 = re.compile(r"[sS]oft_?[mM]ax\w*<(?:\d+, )?float, float")
_SOFTMAX_SIZE = re.compile(r"softmax_warp_\w+<[^,]+, [^,]+, [^,]+, (\d+)")  # its binary logarithm
_ADDED = ("float", "bias")  # to the scores
_WITH_MASK = ("efficient",)  # of torch's backends the one that takes dropout with a mask
_FORWARD = vocabulary.Phase.FORWARD
_BOTH = {_FORWARD, vocabulary.Phase.BACKWARD}
_LEARNS = (vocabulary.Phase.BACKWARD, vocabulary.Phase.OPTIMIZER)
_LONG_NS = 20_000  # of a product or a softmax in inference: with one token at a time it is shorter
_KERNELS = (
    "sdpa_kernel([...]) without MATH around the call, from torch.nn.attention: torch then says "
    "what rules out each fused backend (mask, dtype, dropout, strides)"
)
_WITH_BIAS = (
    "F.scaled_dot_product_attention in place of these ops; what is added to the scores as a mask, "
    "in the dtype of the query and .contiguous(): no fused kernel takes another last stride than 1"
)
_WRITTEN = (
    "F.scaled_dot_product_attention in place of these ops (products and softmax); "
    "need_weights=False for nn.MultiheadAttention; attn_implementation='sdpa' in transformers"
)


def _judge(facts: Facts) -> Iterable[Candidate] | CannotJudge:
    return [*_of_calls(facts), *_written_out(facts)]


def _of_calls(facts: Facts) -> Iterator[Candidate]:
    """Yield what calls of torch's attention run as products."""
    is_there = facts.mainly(lambda place: _CALL in (place.code or ""))
    is_product, is_projection = (_rows(facts, each) for each in (_PRODUCT, _PROJECTION))
    is_kernel = facts.of_op(lambda op: _KERNEL in op)
    for launches in launches_by_line(facts, np.flatnonzero(facts.in_steps(is_there))):
        if not is_kernel[launches].any() and _is_whole(facts, launches[is_product[launches]]):
            yield _candidate(facts, launches[~is_projection[launches]], _KERNELS)


def _written_out(facts: Facts) -> Iterator[Candidate]:
    """Yield attention that the model writes out: a softmax between two batched products."""
    elsewhere = facts.mainly(lambda place: _CALL not in (place.code or ""))
    is_product, is_softmax = (_rows(facts, each) & elsewhere for each in (_PRODUCT, _SOFTMAX))
    softmaxes = launches_by_line(facts, np.flatnonzero(facts.in_steps(is_softmax)))
    counted: set[int] = set()
    for launches in softmaxes:
        place = facts.place(int(launches[0]))
        near = np.flatnonzero(facts.in_steps(is_product & _is_near(facts, place)))
        if place.line is None or counted.intersection(near.tolist()):
            continue
        if not _takes_scores(facts, launches, near):
            continue
        near = _at_lines_next_to(facts, launches, near)
        if _is_whole(facts, launches) and _is_whole(facts, near) and not _is_of_rows(facts, near):
            own = _attention(facts, launches, near)
            counted.update(own.tolist())
            yield _candidate(facts, own, _WRITTEN)


def _is_whole(facts: Facts, launches: events.Ints) -> bool:
    """Tell whether launches are of forward and backward; in inference, whether they are long."""
    if _learns(facts):
        return _phases(facts, launches) >= _BOTH
    durations_ns = facts.launches.duration_ns[launches]
    is_forward = _phases(facts, launches) == {_FORWARD}
    return is_forward and bool(np.median(durations_ns) >= _LONG_NS)


def _learns(facts: Facts) -> bool:
    return any(place.phase in _LEARNS for place in facts.analysis.places)


def _takes_scores(facts: Facts, softmaxes: events.Ints, products: events.Ints) -> bool:
    """Tell whether most of these softmaxes come after a batched product, not after a layer.

    A router takes the softmax of what a linear layer returns, before batched products of experts.
    """
    before, _ = _neighbours(facts, softmaxes)
    return 2 * int(np.isin(before, products).sum()) > len(before)


def _at_lines_next_to(facts: Facts, softmaxes: events.Ints, near: events.Ints) -> events.Ints:
    """Return the products at lines that run one right before or after a softmax.

    Others near it make what is added to the scores, which a fused kernel takes as it is.
    """
    own = np.intersect1d(np.concatenate(_neighbours(facts, softmaxes)), near)
    lines = {facts.place(row).line for row in own.tolist()}
    return near[[facts.place(row).line in lines for row in near.tolist()]]


def _neighbours(facts: Facts, softmaxes: events.Ints) -> tuple[events.Ints, events.Ints]:
    """Return the products of any kind before and after each softmax of a forward; -1 for none."""
    is_forward = facts.mainly(lambda place: place.phase == _FORWARD)
    forward = softmaxes[is_forward[softmaxes]]
    is_memset = facts.named(lambda name: name.startswith("Memset"))  # of what a product sums into
    every = np.flatnonzero(facts.in_steps(_rows(facts, _ANY_PRODUCT) & ~is_memset))
    rank = _ranks(facts)
    every = every[np.argsort(rank[every])]
    after = np.searchsorted(rank[every], rank[forward])
    ended = np.concatenate([[-1], every, [-1]])
    return ended[after], ended[after + 1]


def _is_of_rows(facts: Facts, products: events.Ints) -> bool:
    """Tell whether training multiplies a row by each matrix: each query has keys of its own.

    Kernels of attention read keys that many queries share.
    """
    is_forward = facts.mainly(lambda place: place.phase == _FORWARD)
    is_of_row = facts.named(lambda name: _OF_ROWS.search(name) is not None)
    forward = products[is_forward[products]]
    took_ns = facts.launches.duration_ns[forward]
    return _learns(facts) and 2 * int(took_ns[is_of_row[forward]].sum()) > int(took_ns.sum())


def _ranks(facts: Facts) -> events.Ints:
    """Return the position of each launch among those of its stream, one stream after the other."""
    launches = facts.launches
    order = np.lexsort((launches.start_ns, launches.stream.filled(-1), launches.device))
    rank: events.Ints = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return rank


def _is_near(facts: Facts, place: analysis.Place) -> Rows:
    """Tell which launches are a few lines from a place, in the same part of any layer."""
    return facts.mainly(
        lambda other: (
            other.file == place.file
            and _is_sibling(other.module, place.module)
            and other.line is not None
            and place.line is not None
            and abs(other.line - place.line) <= _MAX_LINES
        )
    )


def _is_sibling(one: str | None, other: str | None) -> bool:
    """Tell whether two modules are the same part of two layers."""
    return _NUMBER.sub("", one or "") == _NUMBER.sub("", other or "")


def _attention(facts: Facts, softmaxes: events.Ints, products: events.Ints) -> events.Ints:
    """Return all launches of attention: what runs between its products, or is at its lines."""
    lines = [facts.place(row).line or 0 for row in (*softmaxes.tolist(), *products.tolist())]
    file = facts.place(int(softmaxes[0])).file
    within = facts.mainly(
        lambda place: place.file == file and min(lines) <= (place.line or 0) <= max(lines)
    )
    own = within & _rows(facts, _BETWEEN)
    if not (within & _rows(facts, _PROJECTION)).any():
        own |= within & _rows(facts, _COPIES)
    own[softmaxes] = own[products] = own[_between(facts, softmaxes, products)] = True
    return np.flatnonzero(facts.in_steps(own))


def _making_mask(facts: Facts, launches: events.Ints) -> events.Ints:
    """Return the additions to the scores of a forward that remain: a fused kernel takes one mask.

    What several lines add has to be added up before; only the addition to the scores goes.
    """
    is_add = _rows(facts, _ADDS) & facts.launches.phase.where(_FORWARD)
    lines = sorted(
        launches_by_line(facts, launches[is_add[launches]]),
        key=lambda own: int(facts.launches.duration_ns[own].sum()),
    )
    return np.concatenate([NO_ROWS, *lines[:-1]])


def _between(facts: Facts, softmaxes: events.Ints, products: events.Ints) -> events.Ints:
    """Return what a stream runs from the product before each softmax to the one after it."""
    rank = _ranks(facts)
    order = np.argsort(rank)
    ends = np.sort(rank[products])
    after = np.searchsorted(ends, rank[softmaxes])
    parts = [np.empty(0, np.int64)]
    for at in after[(after > 0) & (after < len(ends))].tolist():
        first, last = ends[at - 1], ends[at]
        is_pass = len(_phases(facts, order[[first, last]])) == 1
        if is_pass and last - first <= _MAX_BETWEEN:
            parts.append(order[first:last])
    rows = np.unique(np.concatenate(parts))
    phase = {facts.place(row).phase for row in softmaxes.tolist()}
    return rows[[facts.place(row).phase in phase for row in rows.tolist()]]


def _rows(facts: Facts, pattern: re.Pattern[str]) -> Rows:
    return facts.of_op(lambda op: pattern.search(op) is not None)


def _phases(facts: Facts, launches: events.Ints) -> set[str]:
    return {facts.place(launch).phase for launch in launches.tolist()}


def _candidate(facts: Facts, launches: events.Ints, remedy: str) -> Candidate:
    call, backends = _call_of(facts, launches)
    now = "math" if remedy is _KERNELS else _written_as(facts, launches, call)
    remedy = _WITH_BIAS if remedy is _WRITTEN and call.mask in _ADDED else remedy
    then = replace(call, mask="causal") if call.mask == "bool" else call
    device = " ".join(facts.analysis.device_names)
    part = table().attention_fraction((now, call), then, device=device, backends=backends)
    mask = _making_mask(facts, launches) if remedy in (_WRITTEN, _WITH_BIAS) else NO_ROWS
    own = np.setdiff1d(launches, mask)
    own_ns = facts.median_per_step(own, facts.removal_saving_ns(own))
    fused_ns = int(min(part or 0.0, 1.0) * own_ns)
    return Candidate(
        summary="attention is not fused: matmuls and a softmax",
        est_saving_ns=own_ns - fused_ns,
        confidence=Confidence.ESTIMATED if part is not None else Confidence.UPPER_BOUND,
        remedy=remedy,
        location=location_of(facts.place(facts.longest(launches))),
        evidence=(
            *count_and_time(facts, launches),
            Figure("a fused kernel takes", fused_ns, FigureUnit.NS),
            *_making(facts, mask),
            Figure("measured on", table().device, FigureUnit.TEXT),
        ),
        launches=launches,
    )


def _making(facts: Facts, mask: events.Ints) -> tuple[Figure, ...]:
    taken_ns = facts.median_per_step(mask, facts.launches.duration_ns[mask])
    return (Figure("making its mask takes", taken_ns, FigureUnit.NS),) if len(mask) else ()


def _written_as(facts: Facts, launches: events.Ints, call: Attention) -> str:
    """Return the row of the table that attention is like where a model writes it out.

    Torch's own products of unfused attention are of float32, those of a model of its own dtype.
    """
    if call.dtype == "float32":
        return "math"
    names = {facts.launches.name[row] for row in launches.tolist()}
    return "autocast" if any(map(_SOFTMAX_IN_FLOAT32.search, names)) else "written"


def _call_of(facts: Facts, launches: events.Ints) -> tuple[Attention, tuple[str, ...]]:
    """Return what ops and kernels tell of the call, and the backends that would take it."""
    names = {facts.launches.name[row] for row in launches.tolist()}
    ops = {facts.innermost_op(row) for row in launches.tolist()}
    # Of the whole program: torch computes bfloat16 in float32 where no kernel is fused
    is_half = any(map(_HALF.search, facts.launches.name.strings))
    is_half |= not any(map(_FLOAT32.search, names))
    mask = _mask(facts, launches, ops | names)
    drops = any(map(_DROPS.search, ops | names))
    sizes = [int(match[1]) for match in map(_SOFTMAX_SIZE.search, names) if match]
    call = Attention(
        dtype="bfloat16" if is_half else "float32",
        mask="dropout" if drops else mask,
        head_dim=None,
        # From more than half of that power of two up to it
        length=3 * 2 ** max(sizes) // 4 if sizes else None,
        has_backward=_learns(facts),
    )
    return call, _WITH_MASK if drops and mask != "none" else ALL_BACKENDS


def _mask(facts: Facts, launches: events.Ints, names: set[str]) -> str:
    """Return the kind of mask that is added to the scores, or put into them."""
    backward = launches[facts.launches.phase.where(vocabulary.Phase.BACKWARD)[launches]]
    adds = any(map(_ADDS.search, names))
    if adds and any(_OF_BIAS.match(facts.innermost_op(row)) for row in backward.tolist()):
        return "bias"  # its gradient is summed
    masks = {name for name in names if _MASKS.search(name)}
    if any(map(_SAFE.search, names)):
        masks = {name for name in masks if "where" not in name}
    if masks:
        return "bool"
    return "float" if adds else "none"


RULE = Rule(
    name="unfused_attention",
    title="Attention in several kernels",
    means="A call of `scaled_dot_product_attention`, or a softmax between batched products of the "
    "same module, runs in forward and backward as products and a softmax, whose results go "
    "through memory, and which are on the critical path. A softmax of what a layer returns, as "
    "that of a router, is none, nor is training with products of single rows, where each query "
    "has keys of its own.",
    because="Torch has kernels that compute all of it at once, but uses none of them if the mask, "
    "the dtype, the strides or a setting forbid it; bfloat16 is then computed in float32. Torch "
    "does not warn, also if only the compiled model gets a mask. `nn.MultiheadAttention` returns "
    "its weights by default, for which they have to be in memory.",
    remedy="`torch.nn.attention.sdpa_kernel` around the call, with all backends but `MATH`: torch "
    "then raises, and warns why each backend cannot be used. "
    "`F.scaled_dot_product_attention` in place of products and a softmax, "
    "`need_weights=False` for `nn.MultiheadAttention`, `attn_implementation='sdpa'` in "
    "transformers. A mask or a bias needs 1 as its last stride (`.contiguous()`): with a permuted "
    "bias torch takes none of its kernels, and is slower than these ops.",
    saving="Time of those launches on the critical path, or of launching them if the CPU is "
    "behind, without what a fused kernel takes: the part that it takes of unfused attention of "
    "that length in the table (`benchmarks/library_kernels.py`, measured on an H100). What a model "
    "writes out is held against the same ops in the table, with a softmax of the same dtype: "
    "torch's own computes bfloat16 in float32. What is added to the scores is a mask, or a bias if "
    "its gradient is summed, and is judged by a kernel that takes it as it is; with dropout, that "
    "is the memory-efficient one. Of attention that is written out, the softmax, the products at "
    "lines that run one right before or after it, what runs between them, and what scales, masks "
    "or drops at their lines; where several lines add to the scores of a forward, those that take "
    "longest, as the others make the mask. In inference only products and softmaxes of 20 us or "
    "more are judged: with one token at a time, products are as fast.",
    not_on_cpu=ON_CPU,
    judge=_judge,
)
