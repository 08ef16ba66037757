"""The rule for attention by a slower kernel than the one that its neighbour would get."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from profiler_ext.findings.facts import (
    CannotJudge,
    Facts,
    enclosing,
    launches_by_line,
    location_of,
)
from profiler_ext.findings.finding import Confidence, Figure, FigureUnit, SavingPer
from profiler_ext.findings.library_kernels import HEAD_DIM_MULTIPLE, Attention, is_newer, table
from profiler_ext.findings.rule import Candidate, Rule, count_and_time
from profiler_ext.kineto import op_inputs
from profiler_ext.records.events import Ints
from profiler_ext.records.provenance import TensorSpec
from profiler_ext.rooflines.work import nodes_of

_OP = re.compile(
    r"\b_(?:scaled_dot_product_)?(flash|efficient|cudnn)_attention(?:_forward)?(_backward)?\b"
)
_CALL = "aten::scaled_dot_product_attention"
_PROJECTION = re.compile(r"\b(?:add)?mm\b")
_FLOAT32_KERNEL = re.compile(r"fmha_cutlass[FB]_f32_")
# The second value after the traits of torch's flash kernel
_FLASH_DROPOUT = re.compile(r"flash_fwd_kernel<Flash_fwd_kernel_traits<.*?>\s*,\s*true\b")
_FLASH = "flash"
_GIVES_MASK = re.compile(r"attn_mask\s*=\s*(?!None\b)")
_CAUSAL_OPS = frozenset({"aten::tril", "aten::triu", "aten::tril_", "aten::triu_"})
_UNKNOWN_ODD = 1  # a head dim that torch pads, where the recording has no shapes
# A part of a line's attention that is worth a word without an estimate
_MIN_PART = 0.02

_MASK = "a mask"
_SHARED_MASK = "a mask that is the same for all heads and sequences"
_FLOAT32 = "float32"
_HEAD_DIM = "a head dim that is no multiple of 8"
_SETTING = "a setting or a backend that the program chose"
_REMEDY = {
    _MASK: (
        "FlexAttention (torch.nn.attention.flex_attention) for a mask or a bias, sequences packed "
        "without padding, or is_causal=True where the mask is causal"
    ),
    _SHARED_MASK: "is_causal=True in place of a causal mask; FlexAttention for another one",
    _FLOAT32: "query, key and value in bfloat16 (autocast): flash and cuDNN take no float32",
    _HEAD_DIM: "heads whose size is a multiple of 8, better 64 or 128",
    _SETTING: "torch's own choice of backend: no sdpa_kernel() around the call, and no "
    "torch.backends.cuda.enable_*_sdp(False)",
}


@dataclass(frozen=True, slots=True)
class _Call:
    """What is known of the calls at a line."""

    backend: str
    now: Attention
    mask_is_shared: bool = False  # the same for all heads and sequences, and square


def _judge(facts: Facts) -> Iterable[Candidate] | CannotJudge:
    if not facts.on_device:
        return CannotJudge("the launches ran on the CPU")
    attends = facts.of_op(lambda op: _OP.search(op) is not None)
    return _of_lines(facts, np.flatnonzero(facts.in_steps(attends)))


def _of_lines(facts: Facts, attending: Ints) -> Iterator[Candidate]:
    device = " ".join(facts.analysis.device_names)
    for launches in launches_by_line(facts, attending):
        call = _call_of(facts, launches)
        if call is None:
            continue
        causes, then = _remedied(call, device)
        if not causes:
            continue
        counted = _with_padding(facts, launches) if _HEAD_DIM in causes else launches
        part = None
        if _MASK not in causes:
            part = table().attention_fraction((call.backend, call.now), then, device=device)
        candidate = _candidate(facts, counted, call, causes, part)
        if candidate is not None:
            yield candidate


def _remedied(call: _Call, device: str) -> tuple[list[str], Attention]:
    """Return why a call gets its kernel, and the call that gets the fastest one."""
    causes, then = [], call.now
    if call.now.mask in ("bool", "float"):
        causes.append(_SHARED_MASK if call.mask_is_shared else _MASK)
        then = replace(then, mask="causal")
    if call.now.dtype == "float32":
        causes.append(_FLOAT32)
        then = replace(then, dtype="bfloat16")
    if call.now.head_dim is not None and call.now.head_dim % HEAD_DIM_MULTIPLE:
        causes.append(_HEAD_DIM)
    best = "cudnn" if is_newer(device) else _FLASH
    is_best = call.backend in (best, "cudnn") or call.now.mask == "dropout"
    if not causes and not is_best:
        causes.append(_SETTING)
    return causes, then


def _call_of(facts: Facts, launches: Ints) -> _Call | None:
    """Return what the recording says of the calls at a line, by the longest one forward."""
    ops = [_OP.search(facts.innermost_op(at)) for at in launches.tolist()]
    backward = np.array([bool(each and each[2]) for each in ops], np.bool_)
    forward = launches[~backward]
    if not len(forward):
        return None
    longest = int(forward[int(facts.launches.duration_ns[forward].argmax())])
    op = _OP.search(facts.innermost_op(longest))
    if op is None:
        return None
    name = facts.launches.name[longest]
    now = Attention(
        dtype="float32" if _FLOAT32_KERNEL.search(name) else "bfloat16",
        mask="dropout" if _FLASH_DROPOUT.search(name) else "causal",
        head_dim=None,
        length=None,
        has_backward=bool(backward.any()),
    )
    call = _Call(op[1], now)
    return _of_site(facts, longest, call) or _of_op(facts, longest, call)


def _of_site(facts: Facts, launch: int, call: _Call) -> _Call | None:
    """Return the call with the sizes of a compiled graph's nodes; none for an eager one."""
    graph, site = facts.launches.graph[launch], facts.launches.call_site[launch]
    if graph is np.ma.masked or site is np.ma.masked:
        return None
    instance = facts.analysis.recording.graphs[int(graph)]
    known = nodes_of(instance)
    for name in instance.call_sites[int(site)].nodes:
        if name in known and _OP.search(known[name].target):
            read = [known[each].outputs if each in known else () for each in known[name].inputs]
            specs = [each[0] if each else None for each in read]
            result = known[name].outputs[0] if known[name].outputs else None
            return _with_sizes(call, _ints(result), _given_mask(specs, call.backend))
    return None


def _given_mask(specs: list[TensorSpec | None], backend: str) -> op_inputs.OpInput | None:
    """Return the mask of a compiled call: what it reads beyond query, key and value."""
    if backend == _FLASH or len(specs) < 4:
        return None
    spec = specs[3]
    if spec is None or not all(isinstance(each, int) for each in (*spec.size, *spec.stride)):
        return op_inputs.OpInput("bfloat16")
    size, stride = (tuple(map(int, each)) for each in (spec.size, spec.stride))
    return op_inputs.OpInput(spec.dtype, size, stride)


def _ints(spec: TensorSpec | None) -> tuple[int, ...]:
    sizes = () if spec is None else spec.size
    return tuple(each for each in sizes if isinstance(each, int))


def _of_op(facts: Facts, launch: int, call: _Call) -> _Call:
    """Return the call with what an eager op's inputs or the ops within it say."""
    row = facts.launches.op_event[launch]
    if row is np.ma.masked:
        return call
    trace = facts.analysis.recording.trace
    around = enclosing(trace.events, np.array([int(row)]), _CALL)
    if int(around[0]) == int(row):
        return call
    inputs = op_inputs.inputs_of(trace.raw, trace.events.position[around])
    given = inputs.distinct[int(inputs.codes[0])]
    if given is None or len(given) < 4:
        return _by_ops_within(facts, launch, int(around[0]), call)
    return _with_sizes(call, given[0].sizes, None if given[3].dtype is None else given[3])


def _with_sizes(call: _Call, sizes: tuple[int, ...], mask: op_inputs.OpInput | None) -> _Call:
    now = call.now
    if len(sizes) == 4:
        now = replace(now, head_dim=sizes[3], length=sizes[2])
    if mask is None:
        return replace(call, now=now)
    kind = "bool" if mask.dtype == "bool" else "float"
    return replace(call, now=replace(now, mask=kind), mask_is_shared=_is_shared(mask))


def _is_shared(mask: op_inputs.OpInput) -> bool:
    """Tell whether a mask is one square for all heads and sequences, as a causal one is."""
    if len(mask.sizes) < 2 or len(mask.strides) != len(mask.sizes):
        return False
    outer = zip(mask.sizes[:-2], mask.strides[:-2], strict=True)
    is_one = all(size == 1 or stride == 0 for size, stride in outer)
    rows, columns = mask.sizes[-2:]
    return is_one and rows == columns and all(mask.strides[-2:])


def _by_ops_within(facts: Facts, launch: int, around: int, call: _Call) -> _Call:
    """Return the call with what torch does within it: it pads heads, and converts a mask."""
    events = facts.analysis.recording.trace.events
    within = (events.start_ns >= events.start_ns[around]) & (events.end_ns <= events.end_ns[around])
    within &= events.thread == events.thread[around]
    names = {events.name.strings[code] for code in np.unique(events.name.codes[within]).tolist()}
    if "aten::pad" in names and call.backend == _FLASH:
        return replace(call, now=replace(call.now, head_dim=_UNKNOWN_ODD))
    code = facts.place(launch).code or ""
    makes_causal = not _CAUSAL_OPS.isdisjoint(events.name.strings)
    if "aten::where" in names:
        return replace(call, now=replace(call.now, mask="bool"), mask_is_shared=makes_causal)
    if call.backend != _FLASH and makes_causal and _GIVES_MASK.search(code):
        return replace(call, now=replace(call.now, mask="float"), mask_is_shared=True)
    return call


def _with_padding(facts: Facts, launches: Ints) -> Ints:
    """Return the launches with those at their line that pad and cut the heads."""
    place = facts.place(int(launches[0]))
    is_there = facts.mainly(lambda own: (own.file, own.line) == (place.file, place.line))
    is_projection = facts.of_op(lambda op: _PROJECTION.search(op) is not None)
    return np.flatnonzero(facts.in_steps(is_there & ~is_projection))


def _candidate(
    facts: Facts, launches: Ints, call: _Call, causes: list[str], part: float | None
) -> Candidate | None:
    paced_ns = facts.median_per_step(launches, facts.critical_ns(launches))
    if part is None and paced_ns < _MIN_PART * facts.step_ns:
        return None
    saved_ns = 0 if part is None else int(max(1 - part, 0.0) * paced_ns)
    longest = facts.longest(launches)
    faster = () if part is None else _faster(part)
    return Candidate(
        summary=f"slow attention, by the {call.backend} kernel: {' and '.join(causes)}",
        est_saving_ns=saved_ns,
        saving_per=SavingPer.STEP if part is not None else SavingPer.UNKNOWN,
        confidence=Confidence.ESTIMATED,
        remedy="; ".join(_REMEDY[cause] for cause in causes),
        location=location_of(facts.place(longest), facts.launches.name[longest]),
        evidence=(*count_and_time(facts, launches), *_sizes(call), *faster),
        launches=launches,
    )


def _faster(part: float) -> tuple[Figure, ...]:
    return (
        Figure("without that it is faster by", 1 / max(part, 1e-3), FigureUnit.TIMES),
        Figure("measured on", table().device, FigureUnit.TEXT),
    )


def _sizes(call: _Call) -> tuple[Figure, ...]:
    if call.now.length is None or call.now.head_dim is None:
        return ()
    return (Figure("rows", call.now.length), Figure("head dim", call.now.head_dim))


RULE = Rule(
    name="attention_backend",
    title="Attention by a slower kernel",
    means="A call of `scaled_dot_product_attention` runs a kernel that is slower than the one "
    "which torch would take for the call next to it: with `is_causal` in place of a mask, in "
    "bfloat16 in place of float32, with heads of a multiple of 8, or without a setting that rules "
    "a backend out.",
    because="FlashAttention takes no mask, and no backend skips what a mask hides. Flash and cuDNN "
    "take float16 and bfloat16 only. Heads of other sizes are padded by copies. Torch takes what "
    "is left and does not warn.",
    remedy="`is_causal=True` in place of a causal mask, FlexAttention for others; autocast around "
    "the call; a head dim of 64 or 128; torch's own choice of backend.",
    saving="Time of the kernels on the critical path beyond what the table has for the call next "
    "to it (`benchmarks/library_kernels.py`, measured on an H100), at the nearest length and head "
    "dim, or for common ones where a recording has no shapes. A mask is taken to be causal if it "
    "is one square for all heads and sequences, or if the recording calls `tril` or `triu`. Other "
    "masks, and biases, are reported without an estimate; a mask that is added needs `--shapes` "
    "to be seen in eager code that does not make it with `tril` or `triu`.",
    judge=_judge,
)
