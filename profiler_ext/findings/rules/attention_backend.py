"""The rule for attention by a slower kernel than the one that its neighbour would get."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

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
from profiler_ext.kineto.launch_shapes import launch_shapes
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
# Sizes in names: the head dim or the next that a kernel is made for, and the rows of a block
_FLASH_SIZES = re.compile(r"flash_fwd_kernel<Flash_fwd_kernel_traits<(\d+), (\d+)")
_EFFICIENT_SIZES = re.compile(r"fmha_cutlassF_\w+_(\d+)x(\d+)_(rf|gmem)_")
_CUDNN_SIZES = re.compile(r"compute_dot_do_o_specialized<\w+, (\d+)>")
_CUDNN_ROWS = {64: 16}  # rows of a block of that kernel, by head dim, as measured
_OVER_128 = 192  # a head dim that stays in memory
_MAX_HEAD_DIM = 256  # of flash and cuDNN
_FLASH, _EFFICIENT = "flash", "efficient"
_GIVES_MASK = re.compile(r"attn_mask\s*=\s*(?!None\b)")
_CAUSAL_OPS = frozenset({"aten::tril", "aten::triu", "aten::tril_", "aten::triu_"})
_EXPANDS = "aten::expand"  # what cuDNN's op and torch's call do with a mask
_REPEATS = "aten::repeat_interleave"  # of keys and values for more queries, which expands, too
_UNKNOWN_ODD = 1  # a head dim that torch pads, where neither shapes nor the kernel tell it
# A part of a line's attention that is worth a word without an estimate
_MIN_PART = 0.02

_MASK = "a mask"
_SHARED_MASK = "a mask that is the same for all heads and sequences"
_OPEN_MASK = "a mask, perhaps a causal one"
_FLOAT32 = "float32"
_HEAD_DIM = "a head dim that is no multiple of 8"
_WIDE = "heads wider than 256"
_WIDE_OR_SETTING = "heads wider than 256, or a setting"
_SETTING = "a setting or a backend that the program chose"
_OWN_CHOICE = (
    "leave the backend to torch: no sdpa_kernel() around the call, and no "
    "torch.backends.cuda.enable_*_sdp(False)"
)
_NARROW = "heads of 64 or 128, as flash and cuDNN take none wider than 256"
_REMEDY = {
    _MASK: (
        "FlexAttention for a mask or a bias (torch.nn.attention.flex_attention), sequences packed "
        "without padding, or is_causal=True where the mask is causal"
    ),
    _SHARED_MASK: "is_causal=True in place of a causal mask; FlexAttention for another one",
    _OPEN_MASK: "is_causal=True where the mask is causal, sequences packed without padding where "
    "it hides padding, FlexAttention (torch.nn.attention.flex_attention) for others",
    _FLOAT32: "query, key and value in bfloat16 (autocast): flash and cuDNN take no float32",
    _HEAD_DIM: "heads whose size is a multiple of 8, better 64 or 128",
    _WIDE: _NARROW,
    _WIDE_OR_SETTING: f"{_NARROW}; where they are not, {_OWN_CHOICE}",
    _SETTING: _OWN_CHOICE,
}


# By whether it is the same for all: the cause, and what may be in its place
_MASKS: dict[bool | None, tuple[str, tuple[str, ...]]] = {
    True: (_SHARED_MASK, ("causal",)),
    False: (_MASK, ()),
    None: (_OPEN_MASK, ("causal", "none")),
}


@dataclass(frozen=True, slots=True)
class _Call:
    """What is known of the calls at a line."""

    backend: str
    now: Attention
    # The same for all heads and sequences, and square; ``None`` where unknown
    mask_is_shared: bool | None = False
    has_shapes: bool = False  # its sizes were recorded, and do not come from kernels


def in_float32(facts: Facts) -> list[Candidate]:
    """Return what attention in float32 costs, for the rule of a model that computes so."""
    return [each for each in _all(facts) if _FLOAT32 in each.summary]


def _judge(facts: Facts) -> Iterable[Candidate] | CannotJudge:
    return _all(facts) if facts.on_device else CannotJudge("the launches ran on the CPU")


def _all(facts: Facts) -> list[Candidate]:
    attends = facts.of_op(lambda op: _OP.search(op) is not None)
    rows = np.flatnonzero(facts.in_steps(attends))
    return facts.analysis.derived.once("attention", lambda: list(_of_lines(facts, rows)))


def _of_lines(facts: Facts, attending: Ints) -> Iterator[Candidate]:
    device = " ".join(facts.analysis.device_names)
    for launches in launches_by_line(facts, attending):
        call = _call_of(facts, launches)
        if call is None:
            continue
        causes, thens = _remedied(call, device)
        if not causes:
            continue
        counted = _with_padding(facts, launches) if _HEAD_DIM in causes else launches
        now = (call.backend, call.now)
        parts = [table().attention_fraction(now, then, device=device) for then in thens]
        candidate = _candidate(facts, counted, call, causes, [each for each in parts if each])
        if candidate is not None:
            yield candidate


def _remedied(call: _Call, device: str) -> tuple[list[str], list[Attention]]:
    """Return why a call gets its kernel, and the calls, one of which it is without that."""
    causes, then = [], call.now
    masks: Sequence[str] = (call.now.mask,)
    if call.now.mask in ("bool", "float"):
        cause, masks = _MASKS[call.mask_is_shared]
        causes.append(cause)
    if call.now.dtype == "float32":
        causes.append(_FLOAT32)
        then = replace(then, dtype="bfloat16")
    if call.now.head_dim is not None and call.now.head_dim % HEAD_DIM_MULTIPLE:
        causes.append(_HEAD_DIM)
    best = "cudnn" if is_newer(device) else _FLASH
    is_best = call.backend in (best, "cudnn") or call.now.mask == "dropout"
    if not causes and not is_best:
        causes.append(_choice(call))
    return causes, [replace(then, mask=mask) for mask in masks]


def _choice(call: _Call) -> str:
    """Return why a call gets a backend that torch does not prefer, by its heads."""
    is_wide = call.backend == _EFFICIENT and (call.now.head_dim or 0) >= _OVER_128
    if not is_wide:
        return _SETTING
    if not call.has_shapes:
        return _WIDE_OR_SETTING
    return _WIDE if (call.now.head_dim or 0) > _MAX_HEAD_DIM else _SETTING


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
    call = _of_site(facts, longest, call) or _of_op(facts, longest, call)
    return call if call.has_shapes else _with_sizes_of_kernels(facts, launches, call)


def _with_sizes_of_kernels(facts: Facts, launches: Ints, call: _Call) -> _Call:
    """Return the call with the sizes that its kernels' names and grids tell."""
    shapes = launch_shapes(facts.analysis.recording.trace, facts.launches.event[launches])
    for at, launch in enumerate(launches.tolist()):
        head_dim, rows = _sizes_in_name(facts.launches.name[launch])
        if head_dim:
            length = rows * int(shapes.grid[at].partition("x")[0] or 0)
            now = replace(call.now, length=length or None)
            if call.now.head_dim == _UNKNOWN_ODD:
                head_dim -= 1
            return replace(call, now=replace(now, head_dim=head_dim))
    return call


def _sizes_in_name(kernel: str) -> tuple[int, int]:
    """Return the head dim that a kernel is made for, and the rows of a block; 0 if unknown."""
    if match := _FLASH_SIZES.search(kernel):
        return int(match[1]), int(match[2])
    if match := _EFFICIENT_SIZES.search(kernel):
        return (_OVER_128 if match[3] == "gmem" else int(match[2])), int(match[1])
    if match := _CUDNN_SIZES.search(kernel):
        return int(match[1]), _CUDNN_ROWS.get(int(match[1]), 0)
    return 0, 0


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
    around = enclosing(trace.events, np.array([int(row)]), _CALL.__eq__)
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
        call = replace(call, has_shapes=True)
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
    is_shared = None if _CAUSAL_OPS.isdisjoint(events.name.strings) else True
    if "aten::where" in names:
        return replace(call, now=replace(call.now, mask="bool"), mask_is_shared=is_shared)
    gives_mask = _EXPANDS in names and _REPEATS not in names
    if call.backend == _FLASH or not (gives_mask or _is_given(facts, launch, is_shared)):
        return call
    # On newer GPUs cuDNN takes masks, but none whose gradient is wanted: a bias
    is_bias = call.backend == _EFFICIENT and call.now.dtype != "float32" and not is_shared
    if is_bias and is_newer(" ".join(facts.analysis.device_names)):
        is_shared = False
    return replace(call, now=replace(call.now, mask="float"), mask_is_shared=is_shared)


def _is_given(facts: Facts, launch: int, is_shared: bool | None) -> bool:
    """Tell whether the line of a call gives it a mask, in a program that makes causal ones."""
    return bool(is_shared and _GIVES_MASK.search(facts.place(launch).code or ""))


def _with_padding(facts: Facts, launches: Ints) -> Ints:
    """Return the launches with those at their line that pad and cut the heads."""
    place = facts.place(int(launches[0]))
    is_there = facts.mainly(lambda own: (own.file, own.line) == (place.file, place.line))
    is_projection = facts.of_op(lambda op: _PROJECTION.search(op) is not None)
    return np.flatnonzero(facts.in_steps(is_there & ~is_projection))


def _candidate(
    facts: Facts, launches: Ints, call: _Call, causes: list[str], parts: Sequence[float]
) -> Candidate | None:
    paced_ns = facts.median_per_step(launches, facts.critical_ns(launches))
    if not parts and paced_ns < _MIN_PART * facts.step_ns:
        return None
    savings_ns = [
        facts.median_per_step(launches, facts.critical_ns(launches, max(1 - part, 0.0)))
        for part in parts
    ]
    longest = facts.longest(launches)
    return Candidate(
        summary=f"slow attention, by the {call.backend} kernel: {' and '.join(causes)}",
        est_saving_ns=int(fmean(savings_ns or [0])),
        saving_per=SavingPer.STEP if parts else SavingPer.UNKNOWN,
        confidence=Confidence.ESTIMATED,
        remedy="; ".join(_REMEDY[cause] for cause in causes),
        location=location_of(facts.place(longest), facts.launches.name[longest]),
        evidence=(*count_and_time(facts, launches), *_sizes(call), *_faster(parts, savings_ns)),
        launches=launches,
    )


def _faster(parts: Sequence[float], savings_ns: Sequence[int]) -> tuple[Figure, ...]:
    if not parts:
        return ()
    bounds = zip(("saved at least", "saved at most"), sorted(savings_ns), strict=False)
    return (
        Figure("without that it is faster by", 1 / max(fmean(parts), 1e-3), FigureUnit.TIMES),
        *(Figure(name, saved_ns, FigureUnit.NS) for name, saved_ns in bounds if len(parts) > 1),
        Figure("measured on", table().device, FigureUnit.TEXT),
    )


def _sizes(call: _Call) -> tuple[Figure, ...]:
    if not call.has_shapes or call.now.length is None or call.now.head_dim is None:
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
    "dim, which are those of the kernel's name and grid where a recording has no shapes. A mask is "
    "taken to be causal if it is one square for all heads and sequences, or if the recording calls "
    "`tril` or `triu`. Of a mask of which neither is known, the saving is the mean of that of a "
    "causal one and of none, and both are in the evidence. Masks that differ between heads or "
    "sequences, and biases, are reported without an estimate.",
    judge=_judge,
)
