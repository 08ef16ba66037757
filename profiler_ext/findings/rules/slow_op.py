"""The rule for library ops that take far longer than passing once over what is next to them.

Without recorded shapes a trace does not tell what an op reads and writes. What it reads was written
just before, and what it writes is read just after, mostly by kernels that pass over it once.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from profiler_ext.findings.critical_path import Floats
from profiler_ext.findings.facts import CannotJudge, Facts, Rows, launches_by_line, location_of
from profiler_ext.findings.finding import Confidence, Figure, FigureUnit
from profiler_ext.findings.groups import blocks_of, multiprocessors, ops_of, threads_of
from profiler_ext.findings.rule import NO_ROWS, ON_CPU, Candidate, Rule, Turn, count_and_time
from profiler_ext.kineto import op_inputs
from profiler_ext.records.events import Ints
from profiler_ext.records.vocabulary import LaunchKind, Phase, Scope
from profiler_ext.rooflines.peaks import peak_of
from profiler_ext.rooflines.rooflines import LATENCY_NS, REACHABLE_FRACTION
from profiler_ext.rooflines.work import bytes_of

# Kernels that pass over their values once or twice: pointwise, copies, changes of layout, reads by
# an index, softmax, those of norms that are given their statistics, and generated code
_PASSES: Final = re.compile(
    r"elementwise_kernel|gather_kernel|CatArray|Memcpy DtoD|Memset|indexSelect|triton_(?!tem)|"
    r"nchwToNhwc|nhwcToNchw|convertTensor_kernel|tensorTransformGeneric|"
    r"[sS]oft_?[mM]ax|vectorized_layer_norm|layer_norm_grad_input|batch_norm_(transform|elementwise)|"
    r"batch_norm_backward_elemt"
)
# It gives each row a block, of a warp for rows of up to 512 bytes. The device starts blocks at
# a rate of its own: on an H200 rows of 32 and of 512 bytes took 0.60 ns each
_READS_ROWS: Final = re.compile(r"\bvectorized_gather_kernel<")
_MAX_ROW_THREADS: Final = 32
_ADDS: Final = re.compile(r"Reduce(Add|Multiply|Minimum|Maximum|Mean)|atomic", re.IGNORECASE)
# Matrix products and what is made of them are bound by arithmetic
_PRODUCTS: Final = re.compile(
    r"gemm|gemv|cutlass|nvjet|xmma|sdpa|flash|fmha|cudnn|conv(olution|_depthwise|\dd)|cusparse|"
    r"_rnn|RNN|LSTM|multi_tensor|im2col|col2im"
)
# These convolutions run without tensor cores
_CONVOLVES: Final = re.compile(r"conv_depthwise\dd|_alg\d_engine")
_CONVOLUTION: Final = re.compile(r"aten::(cudnn_convolution|convolution_backward)")
_FACTORIZES: Final = re.compile(
    r"linalg_(?!vector_norm|norm\b|multi_dot|matrix_power|vecdot|cross|diagonal)|cholesky|\bsvd|"
    r"\bqr\b|geqrf|orgqr|ormqr|\binverse\b|lstsq|logdet|triangular_solve|matrix_exp|pinv|"
    r"\blu_(factor|solve|unpack)"
)
# No way to compute these is known to be faster for most shapes. On an H200 rows of all channels
# from a table (pixels, channels), weighted and summed in compiled code, took 0.40 to 0.75 of
# grid_sample's time forward and backward with 256 channels, 1.5 to 4 times as long with 32 and 64,
# uncompiled 1.5 to 6 times
_AS_FAST_AS_CAN_BE: Final = re.compile(r"grid_sampler")
# What else launches many kernels for good reason
_IN_ORDER: Final = re.compile(rf"{_PRODUCTS.pattern}|lstm|gru|rnn|foreach|attention|transformer")
# Launches before and after a call that may write or read its values: of passes, and of any kind
_NEXT: Final = 6
_BESIDE: Final = 2
# No thread moves less than a number of 16 bits
_MIN_BYTES_PER_THREAD: Final = 2
_MIN_RATIO: Final = 6
# In 16 bits, sums by index that no other wait for take nine to twelve passes even in well-tuned
# steps, and no remedy of those is proven
_OF_SUMS_BY_INDEX: Final = 16
# Of many channels convolutions compute much with each value: in recorded steps up to 40 passes, and
# from 90 on where the filter is large, and the channels are few
_OF_CONVOLUTIONS: Final = 60
_MIN_FRACTION: Final = 0.03
_MANY: Final = 16
_MAX_SHOWN: Final = 4
_SAMPLE: Final = 64  # ops that tell whether shapes were recorded
_MAX_NAME: Final = 80


class _Family(NamedTuple):
    """Ops that are slow for one reason."""

    names: str  # pattern of the names of op and kernel
    passes: int  # over what is next to it that the remedied op is taken to need
    why: str
    remedy: str
    least: int = _MIN_RATIO  # passes that it takes at least, to be slow


_SCANS: Final = _Family(
    r"cum(sum|prod|max|min)|logcumsumexp|scan",
    3,
    "a scan goes in order: along any but the last dimension with a thread for each row",
    "scan the last dimension of a contiguous tensor (movedim, then contiguous), or add by index "
    "(index_add) where differences of sums are read; where it is short, a product with a "
    "triangular matrix",
)
_FAMILIES: Final = (
    _Family(
        _FACTORIZES.pattern,
        4,
        "a factorization eliminates one column or block after the other",
        "one call for many small matrices, one each for few large ones; solve_triangular in "
        "place of a triangle's inverse, cholesky of x.mT @ x in place of QR or SVD, an iteration "
        "of products (Newton-Schulz), or less often",
    ),
    _Family(
        r"topk|TopK|kthvalue|median|mode\b",
        3,
        "a selection reads each slice several times, short ones by a block each",
        "of short slices count what is larger, (x > x.gather(dim, i)).sum(dim), or sort; max where "
        "k is 1; of few long ones select from parts, then from their results",
    ),
    _Family(
        r"multinomial",
        3,
        "the probabilities of each row are scanned and searched",
        "(logits + Gumbel noise).argmax(-1), or searchsorted in a cumsum",
    ),
    _Family(
        r"unique|bincount|histc|histogram|searchsorted|bucketize|isin",
        4,
        "it sorts, searches, or adds by atomic operations",
        "one_hot(x).sum(0) or scatter into a table of known size; sort once and keep the order",
    ),
    _Family(
        r"sort|randperm|quantile",
        4,
        "a sort passes over values and indices several times",
        "topk or kthvalue where few are read; 16-bit or int32 keys; or keep the order",
    ),
    _SCANS,
    _Family(
        r"upsample\w*_aa",
        3,
        "each value computes its weights and reads several others, and its gradient adds to them",
        "a product with fixed weights along each dimension, or avg_pool2d for whole factors; "
        "torch.compile calls the same kernels",
    ),
    _Family(
        r"upsample|interpol|affine_grid",
        3,
        "each value reads several others, and its gradient adds to them",
        "expand or repeat_interleave for whole factors (their gradient is a sum); pixel_shuffle; "
        "another memory format; torch.compile, which generates the forward, and of nearest "
        "neighbours the gradient",
    ),
    _Family(
        r"pool",
        3,
        "each value reads its window from memory, and its gradient adds to it",
        "unflatten, then amax or mean, where window and stride are equal; smaller windows in a "
        "row; another memory format",
    ),
    _Family(
        r"index_put|scatter|index_add|index_reduce|indexing_backward|embedding|_put|segment",
        3,
        "sums for one place wait for each other",
        "a product with one-hot rows where places are few; padding_idx; a product with a sparse "
        "matrix where the index stays; else sort by it, then segment_reduce(..., unsafe=True): "
        "its check of lengths waits for the device",
        _OF_SUMS_BY_INDEX,
    ),
    _Family(
        r"_trilinear|aten::bilinear",
        3,
        "all products of two inputs are written to memory for one output after the other",
        "torch.einsum('bi,oij,bj->bo', x, weight, y), or a product with the weight, then one with "
        "the other input",
    ),
    _Family(
        r"cdist|pdist",
        3,
        "a block computes each distance, without tensor cores",
        "of p=2 by products (compute_mode='use_mm_for_euclid_dist'); else torch.compile of "
        "(a[:, None] - b[None]).abs().sum(-1)",
    ),
    _Family(
        r"fft",
        3,
        "lengths with large prime factors, or strided dimensions, need further passes",
        "pad to products of 2, 3, 5 and 7; rfft of real numbers; the last dimension",
    ),
    _Family(
        _READS_ROWS.pattern,
        3,
        "each row is read by a block of its own, which is short of work where rows are short",
        "torch.compile of the function, whose kernels read many rows in a block; or tables that "
        "one index reads, joined along the last dimension and read once",
    ),
    _Family(
        _CONVOLVES.pattern,
        4,
        "the convolution runs without tensor cores",
        "channels_last in half precision, or fewer groups; a long filter as two short ones, or by "
        "rfft",
    ),
    _Family(
        r"norm|softmax|var|std|mean|sum|amax|amin|argm|logsumexp|reduce",
        3,
        "a block reduces each row or group",
        "reduce parts by many blocks (reshape), then their results; or torch.compile, which "
        "generates it",
    ),
)
_FEW_CHANNELS: Final = _Family(
    _CONVOLUTION.pattern,
    4,
    "tiles of many channels are computed for few, once for each place of a large filter",
    "a separable filter as one for each dimension; a long filter by rfft; pixels of a patch as "
    "channels (pixel_unshuffle)",
    _OF_CONVOLUTIONS,
)
_ELSE: Final = _Family(
    "", 3, "not known", "another op for the same; or torch.compile of the function"
)


@dataclass(frozen=True, slots=True)
class _Call:
    """One call of an op, with all that it launched."""

    launches: Ints
    longest: int  # of its kernels that are no passes
    took_ns: int
    pass_ns: int  # time of one pass over what is next to it


def _judge(facts: Facts) -> Iterable[Candidate] | CannotJudge:
    return _candidates(facts, _slow_lines(facts))


def slow_convolutions(facts: Facts) -> Ints:
    """Return the launches of convolutions that are slow, though they run on tensor cores."""
    return _slow_of(facts, _FEW_CHANNELS)


def slow_scans(facts: Facts) -> Ints:
    """Return the launches of slow scans: their order, and not their size, keeps a device idle."""
    return _slow_of(facts, _SCANS)


def _slow_of(facts: Facts, family: _Family) -> Ints:
    calls = (call for line in _slow_lines(facts) for call in line)
    own = [each.launches for each in calls if _family(facts, each.longest) is family]
    return np.concatenate([NO_ROWS, *own])


def _slow_lines(facts: Facts) -> list[list[_Call]]:
    """Return the slow calls of each line that has any."""
    return facts.analysis.derived.once("slow calls", lambda: _find_slow(facts))


def _find_slow(facts: Facts) -> list[list[_Call]]:
    kernels = np.union1d(_kernels(facts), _looping(facts))
    at_lines = [own for own in launches_by_line(facts, kernels) if _matters(facts, own)]
    if not at_lines:
        return []
    calls = _Calls(facts, np.concatenate(at_lines))
    return [slow for slow in map(list, map(calls.slow_of_line, at_lines)) if slow]


def _kernels(facts: Facts) -> Ints:
    """Return the library kernels that pass more than once, and multiply no matrices."""
    table = facts.launches
    is_own = table.kind.where(LaunchKind.EAGER, LaunchKind.EXTERN) & (facts.main_place >= 0)
    is_own &= ~table.phase.where(Phase.OPTIMIZER) & ~_is_pass(facts)
    is_own &= ~facts.of_op(lambda op: _AS_FAST_AS_CAN_BE.search(op) is not None)
    factorizes = facts.mainly(lambda place: _FACTORIZES.search(place.aten_op or "") is not None)
    is_product = facts.named(lambda name: _PRODUCTS.search(name) is not None)
    is_product |= facts.of_op(lambda op: _PRODUCTS.search(op) is not None)
    is_product |= facts.rooflines.is_product
    is_product &= ~facts.named(lambda name: _CONVOLVES.search(name) is not None)
    is_product &= ~facts.of_op(lambda op: _CONVOLUTION.match(op) is not None)
    return np.flatnonzero(facts.in_steps(is_own & (factorizes | ~is_product)))


def _looping(facts: Facts) -> Ints:
    """Return the launches of calls that launch a kernel for one part after the other."""
    table, calls = facts.launches, [NO_ROWS]
    is_own = table.scope.where(Scope.EAGER) & (facts.main_place >= 0)
    is_own &= ~table.phase.where(Phase.OPTIMIZER)
    is_own &= ~facts.mainly(lambda place: _IN_ORDER.search(place.aten_op or "") is not None)
    for own in launches_by_line(facts, np.flatnonzero(facts.in_steps(is_own))):
        if len(own) < _MANY or not _matters(facts, own):
            continue
        called, op = facts.called_ops(own), ops_of(facts, own).codes
        _, at, count = np.unique(
            np.stack([called, op]), axis=1, return_inverse=True, return_counts=True
        )
        is_many = (called != table.op_event[own].filled(-1)) & (count[at.ravel()] >= _MANY)
        calls.append(own[np.isin(called, called[is_many])])
    return np.concatenate(calls)


def _is_pass(facts: Facts) -> Rows:
    is_pass = facts.named(lambda name: bool(_PASSES.search(name)) and not _ADDS.search(name))
    rows = np.flatnonzero(facts.named(lambda name: bool(_READS_ROWS.search(name))))
    threads = threads_of(facts, rows)
    is_pass[rows[(threads > 0) & (threads <= _MAX_ROW_THREADS)]] = False
    return is_pass


def _matters(facts: Facts, launches: Ints) -> bool:
    # Half of a call may be passes
    spent_ns = facts.median_per_step(launches, facts.paced_ns(launches))
    return spent_ns >= _MIN_FRACTION * facts.training.step_ns / 2


class _Calls:
    """The calls of a line, each with the time of a pass over what is next to it."""

    def __init__(self, facts: Facts, kernels: Ints) -> None:
        self._facts, table = facts, facts.launches
        self._order = np.lexsort((table.start_ns, table.stream.filled(-1), table.device))
        self._at = np.empty(len(table), np.int64)
        self._at[self._order] = np.arange(len(table))
        self._is_pass = _is_pass(facts)
        self._op = ops_of(facts, np.arange(len(table))).codes
        peaks = (peak_of(each.name) for each in facts.analysis.recording.trace.devices)
        self._gb_per_s = max((each.gb_per_s for each in peaks if each), default=0.0)
        self._has_shapes = _has_shapes(facts)
        self._threads = np.zeros(len(table), np.int64)
        self._threads[kernels] = blocks_of(facts, kernels) * threads_of(facts, kernels)

    def slow_of_line(self, kernels: Ints) -> Iterator[_Call]:
        """Yield the slow calls of a line: most of each is some of its kernels."""
        facts = self._facts
        duration_ns, first = facts.launches.duration_ns, facts.place(int(kernels[0]))
        here = (first.file, first.line)
        is_here = facts.mainly(lambda place: (place.file, place.line) == here)
        every = np.flatnonzero(facts.in_steps(is_here))
        # The gradient of a read by an index adds as many values as that read
        here_ns = int(duration_ns[every[self._is_pass[every]]].max(initial=LATENCY_NS))
        called = facts.called_ops(every)
        # What no op is known of is a call by itself
        key = np.where(called < 0, -2 - every, called)
        order = np.argsort(key, kind="stable")
        firsts = np.flatnonzero(np.diff(key[order], prepend=key[order][:1] - 1))
        is_core = np.isin(every, kernels)[order]
        took_ns = np.add.reduceat(duration_ns[every[order]], firsts)
        core_ns = np.add.reduceat(np.where(is_core, duration_ns[every[order]], 0), firsts)
        calls = np.split(every[order], firsts[1:])
        may_be = (2 * core_ns > took_ns) & (took_ns >= _MIN_RATIO * here_ns)
        for at in np.flatnonzero(may_be).tolist():
            core = calls[at][np.isin(calls[at], kernels)]
            longest = int(core[duration_ns[core].argmax()])
            pass_ns = max(here_ns, self._near_ns(calls[at], longest))
            if took_ns[at] >= _family(facts, longest).least * pass_ns:
                yield _Call(calls[at], longest, int(took_ns[at]), pass_ns)

    def _near_ns(self, launches: Ints, longest: int) -> int:
        """Return the longest pass next to a call, or within it, and no less than it must take."""
        first, last = (int(each) for each in (self._at[launches].min(), self._at[launches].max()))
        near = self._order[max(first - _NEXT, 0) : last + _NEXT + 1]
        # A product next to it took as long as writing or reading the same values, or longer
        beside = self._order[max(first - _BESIDE, 0) : last + _BESIDE + 1]
        beside = beside[~np.isin(beside, launches) & (self._op[beside] != self._op[longest])]
        near = np.concatenate([near[self._is_pass[near]], beside])
        near_ns = int(self._facts.launches.duration_ns[near].max(initial=0))
        return max(near_ns, self._moved_ns(longest))

    def _moved_ns(self, launch: int) -> int:
        """Return the time of what threads and inputs move at the device's bandwidth."""
        given = bytes_of(_inputs(self._facts, launch)) if self._has_shapes else 0
        moved = max(_MIN_BYTES_PER_THREAD * int(self._threads[launch]), given)
        return int(moved / (REACHABLE_FRACTION * self._gb_per_s)) if self._gb_per_s else 0


def _has_shapes(facts: Facts) -> bool:
    trace, ops = facts.analysis.recording.trace, facts.launches.op_event.compressed()[:_SAMPLE]
    return any(op_inputs.inputs_of(trace.raw, trace.events.position[ops]).distinct)


def _inputs(facts: Facts, launch: int) -> tuple[op_inputs.OpInput, ...]:
    """Return the inputs of a launch's op; none where no shapes were recorded."""
    trace, op = facts.analysis.recording.trace, facts.launches.op_event[launch]
    if op is np.ma.masked:
        return ()
    found = op_inputs.inputs_of(trace.raw, trace.events.position[np.array([int(op)])])
    return found.distinct[int(found.codes[0])] or ()


def _candidates(facts: Facts, lines: Iterable[list[_Call]]) -> Iterator[Candidate]:
    for slow in lines:
        own = np.concatenate([each.launches for each in slow])
        spent_ns = _paced_ns(facts, own)
        if spent_ns >= max(_MIN_FRACTION * facts.training.step_ns, 1):
            yield _candidate(facts, slow, own, spent_ns)


def _paced_ns(facts: Facts, launches: Ints, gone: Floats | float = 1.0) -> int:
    """Return what a part of launches' time is of a step: of those that run at once, once."""
    busy_ns, duration_ns = facts.pace.busy_ns[launches], facts.launches.duration_ns[launches]
    alone = np.minimum(busy_ns / np.maximum(duration_ns, 1), 1)
    saved_ns = (facts.critical_ns(launches, gone) * alone).astype(np.int64)
    return facts.median_per_step(launches, saved_ns)


def _candidate(facts: Facts, calls: list[_Call], own: Ints, spent_ns: int) -> Candidate:
    most = max(calls, key=lambda each: each.took_ns)
    place, op = facts.place(most.longest), facts.innermost_op(most.longest)
    if len(most.launches) >= _MANY:
        op = place.aten_op or op
    family = _family(facts, most.longest)
    gone = np.concatenate(
        [
            np.full(len(each.launches), max(1 - family.passes * each.pass_ns / each.took_ns, 0))
            for each in calls
        ]
    )
    ratio = sum(each.took_ns for each in calls) / sum(each.pass_ns for each in calls)
    return Candidate(
        summary=f"{op or 'an op'} takes {ratio:,.0f} times as long as one pass over what is next "
        "to it",
        est_saving_ns=_paced_ns(facts, own, gone),
        confidence=Confidence.UPPER_BOUND,
        remedy=family.remedy,
        location=location_of(place, None, facts.compile_id(most.longest)),
        evidence=(
            *count_and_time(facts, own),
            Figure("that sets the pace", spent_ns, FigureUnit.NS),
            Figure("the longest call takes", most.took_ns, FigureUnit.NS),
            Figure("a pass next to it takes", most.pass_ns, FigureUnit.NS),
            Figure("passes that are left", family.passes),
            *_reasons(facts, most, family),
        ),
        launches=own,
    )


def _family(facts: Facts, launch: int) -> _Family:
    """Return the family by the op, else by the kernel: sums by index sort, too."""
    op, name = facts.innermost_op(launch), facts.launches.name[launch]
    if _CONVOLUTION.match(op) and not _CONVOLVES.search(name):
        return _FEW_CHANNELS
    texts = (f"{op} {facts.place(launch).aten_op}", name)
    found = (each for text in texts for each in _FAMILIES if re.search(each.names, text))
    return next(found, _ELSE)


def _reasons(facts: Facts, call: _Call, family: _Family) -> Iterator[Figure]:
    """Yield what the recording tells of why a call is slow."""
    name, row = facts.launches.name[call.longest], np.array([call.longest])
    yield Figure("why", family.why, FigureUnit.TEXT)
    shown = name.removeprefix("void ").replace("(anonymous namespace)::", "").partition("(")[0]
    yield Figure("its longest kernel", shown[:_MAX_NAME], FigureUnit.TEXT)
    blocks, count = int(blocks_of(facts, row)[0]), multiprocessors(facts)
    if 0 < blocks < count:
        yield Figure("blocks of it", blocks)
        yield Figure("multiprocessors of the device", count)
    if len(call.launches) >= _MANY:
        yield Figure("launches of the call", len(call.launches))
    if "double" in name:
        yield Figure("it computes in", "float64", FigureUnit.TEXT)
    tensors = [each for each in _inputs(facts, call.longest) if each.dtype is not None]
    if tensors:
        sizes = ", ".join(
            f"{each.dtype}[{', '.join(map(str, each.sizes))}]" for each in tensors[:_MAX_SHOWN]
        )
        yield Figure("its inputs", sizes, FigureUnit.TEXT)


RULE = Rule(
    name="slow_op",
    title="An op far slower than its memory traffic",
    means="A call of a library's op takes six times as long or more as one pass over the values "
    "next to it, and such calls take 3% of a step or more at a line. A pass is the longest "
    "pointwise kernel, copy, softmax or read by an index within the call, at its line, and among "
    "the six launches before and after it: what an op reads was just written, what it writes is "
    "read next. No pass is a read of rows of up to 512 bytes, each by a block: it takes what "
    "starting the blocks takes. It is taken to last no less than the two launches before and "
    "after it, whatever they are, than 5 us, than 16 bits for each thread of the op's longest "
    "kernel at four fifths of the device's bandwidth, and than the op's inputs, where their "
    "shapes were recorded (`--shapes`). Products, attention and RNNs, whose operations are not "
    "known without shapes, are not judged; nor are optimizers and generated kernels. `grid_sample` "
    "is not judged either: no faster way is known for most shapes. Sums by "
    "index count from sixteen passes on, convolutions on tensor cores from sixty: with many "
    "channels they compute that much with each value. Of a call that launches one kernel sixteen "
    "times or more, passes count, too.",
    because="Kernels of libraries are written for common sizes: selections and norms have a block "
    "for each slice or row, scans a thread for each row, sums by index wait for each other, "
    "factorizations go column by column, convolutions compute whole tiles of channels. The "
    "evidence has what the recording tells.",
    remedy="What is said of the op's kind. `torch.compile` generates pools, interpolations, norms "
    "and reductions, and calls the others, and gradients of most interpolations, as they are.",
    saving="Time of these calls on the critical path beyond three or four passes, as the evidence "
    "says. An upper bound: what the remedied op takes is not known, and sorts and factorizations "
    "need more than that. Launches that findings of more special rules count are left to them, and "
    "with them the finding, if those are most of it.",
    not_on_cpu=ON_CPU,
    judge=_judge,
    turn=Turn.BROAD,
)
