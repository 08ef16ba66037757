"""The rule for copies that make a view contiguous, where what reads it could do without."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import numpy as np

from profiler_ext.findings.facts import CannotJudge, Facts, Rows, launches_by_line, location_of
from profiler_ext.findings.finding import Confidence, Figure, FigureUnit
from profiler_ext.findings.groups import blocks_of
from profiler_ext.findings.rule import NO_ROWS, ON_CPU, Candidate, Rule, count_and_time, launching
from profiler_ext.findings.rules.dtype_conversion import is_conversion
from profiler_ext.findings.rules.large_intermediate import elements_of_calls
from profiler_ext.records.analysis import Place
from profiler_ext.records.events import Ints
from profiler_ext.records.vocabulary import Phase, Scope

_COPIES = "aten::copy_"
_CONTIGUOUS = re.compile(r"aten::(contiguous|clone)")
_GRADIENT = re.compile(r"aten::(reshape|contiguous|clone)")
_CODE = re.compile(r"\.(contiguous|clone)\(")
# A view with other sizes needs the copy, which `reshape` would make as well
_NEEDED = re.compile(r"(contiguous|clone)\([^()]*\)\s*\.(view|reshape|flatten|unflatten|data_ptr)")
_TRANSPOSED = re.compile(
    r"(\.t\(\)|\.m?T\b|\.adjoint\(\)|weight\.transpose\([^()]*\))\.contiguous\("
)
# Attention takes four dimensions; heads that are merged with the batch have to be copied for it
_MERGES = re.compile(
    r"\(\s*(?:b\w*\s+(?:h|heads)|(?:h|heads)\s+b\w*)\s*\)|"
    r"reshape\(\s*-?\w[\w.]*\s*\*\s*(?:self\.)?(?:\w*heads|n_?heads?|nh|h)\b",
    re.IGNORECASE,
)
_ATTENDS = re.compile(r"attention")
_MULTIPLIES = re.compile(r"\b(add|b|badd)?b?mm\b")
_NORMALISES = re.compile(r"aten::(native_)?(layer|group)_norm(_backward)?$")
_BROADCASTS = re.compile(r"aten::(repeat|tile)$")
_EXPANDS = re.compile(r"\.(expand|expand_as|broadcast_to)\(")
_POINTWISE = re.compile(
    r"aten::(add|r?sub|mul|div|pow|where|eq|ne|lt|le|gt|ge|maximum|minimum|__\w+__|logical_\w+)_?$"
)
_ATTENTION, _PRODUCT, _POINT = "attention", "a matrix product", "a pointwise op"
_REMEDY = {
    _ATTENTION: "leave .contiguous() out, and heads in a dimension of their own: "
    "scaled_dot_product_attention reads queries, keys and values by their strides",
    _PRODUCT: "leave .contiguous() out: products read a transposed operand by its strides, as "
    "F.linear does",
    _POINT: "leave the copy out: shapes with ones (unsqueeze, expand) broadcast in pointwise ops",
}
_SUMMARY = {_POINT: "a tensor is repeated that a pointwise op would broadcast"}
_PUTS_BACK = "aten::slice_backward"
_SOFTMAX = re.compile(r"aten::_?(log_)?softmax$")
_SOFTMAX_BACKWARD = re.compile(r"aten::_(log_)?softmax_backward_data$")
_BLOCK_FOR_EACH_ROW = "cunn_SoftMax"
# ``x[..., :-1, :]`` cuts a few rows off; of ``x[:, :-1]`` the number of values has to tell
_CUTS_ROWS = re.compile(r"\[[^\[\]]*(?:\b\d\s*:|:\s*-\d)\s*,\s*:\s*\]")
_CUTS_ONE = re.compile(r"\[\s*:\s*,\s*(?::\s*-1|1\s*:)\s*\]")
_MOST_CUT = 1.25  # where more is cut off, a softmax of all rows takes longer than the copies
_MAX_LINES = 3  # from a copy to the views whose gradient it makes a copy, too


def _judge(facts: Facts) -> Iterable[Candidate] | CannotJudge:
    launches = facts.launches
    is_copy = facts.of_op(_COPIES.__eq__) & launches.scope.where(Scope.EAGER)
    copies = np.flatnonzero(facts.in_steps(is_copy & facts.mainly(_is_asked)))
    readers = [_reader(facts, own) for own in launches_by_line(facts, copies)]
    asked = [
        _candidate(facts, own, reader)
        for own, reader in zip(launches_by_line(facts, copies), readers, strict=True)
        if reader is not None
    ]
    return [*asked, *_of_norms(facts), *_of_softmaxes(facts)]


def _of_softmaxes(facts: Facts) -> Iterator[Candidate]:
    """Yield the copies of nearly all rows of a tensor for a softmax, and those of their gradient.

    A softmax of rows does not depend on other rows: what is cut off before can be cut off behind.
    """
    puts_back = facts.mainly(lambda place: place.aten_op == _PUTS_BACK)
    puts_back &= facts.launches.scope.where(Scope.EAGER) & facts.launches.phase.where(
        Phase.BACKWARD
    )
    others = ~puts_back & ~facts.named(is_conversion)
    for gradients in launches_by_line(facts, np.flatnonzero(facts.in_steps(puts_back))):
        before = _next_to(facts, gradients, others, is_before=True)
        own = _cut_rows(facts, gradients, before)
        if len(own):
            launches = np.union1d(own, _copied_alike(facts, own))
            saved_ns = facts.removed_per_step_ns(launches)
            yield Candidate(
                summary="nearly all rows are copied for a softmax, and their gradient back",
                est_saving_ns=saved_ns,
                confidence=Confidence.ESTIMATED,
                remedy="slice what the softmax returns; for a cross entropy leave the slice out, "
                "and give the other rows targets of ignore_index: "
                "F.pad(targets[:, 1:], (0, 1), value=-100)",
                location=location_of(facts.place(int(own[0]))),
                evidence=(*count_and_time(facts, launches), *launching(facts, launches, saved_ns)),
                launches=launches,
            )


def _cut_rows(facts: Facts, gradients: Ints, before: Ints) -> Ints:
    """Return the launches that put the gradient of a softmax between zeros, of a line's slices."""
    code = facts.place(int(gradients[0])).code or ""
    counts, called = elements_of_calls(facts), facts.called_ops(gradients)
    is_copy = facts.of_op(_COPIES.__eq__)
    found = [NO_ROWS]
    for call in np.unique(called).tolist():
        own = gradients[called == call]
        softmax = int(before[called == call][0])
        parts = [own[is_copy[own]], own[~is_copy[own]]]
        if softmax < 0 or not all(map(len, parts)):
            continue
        if _SOFTMAX_BACKWARD.match(facts.innermost_op(softmax)) is None:
            continue
        kept, zeros = (int(counts[each].max()) for each in parts)
        while 0 < zeros < kept:  # of a fill it is known but for a power of two
            zeros *= 2
        is_of_rows = _CUTS_ROWS.search(code) or (
            _CUTS_ONE.search(code) and _is_no_value_of_each(facts, softmax, zeros - kept)
        )
        if is_of_rows and 0 < kept <= zeros <= _MOST_CUT * kept:
            found.append(own)
    return np.concatenate(found)


def _is_no_value_of_each(facts: Facts, softmax: int, cut: int) -> bool:
    """Tell whether more values are cut off than one of each row of a softmax."""
    rows = int(blocks_of(facts, np.array([softmax]))[0])
    return _BLOCK_FOR_EACH_ROW in facts.launches.name[softmax] and cut >= 2 * rows > 0


def _copied_alike(facts: Facts, gradients: Ints) -> Ints:
    """Return the copies that a softmax reads and that have as many values as gradients of them."""
    launches, counts = facts.launches, elements_of_calls(facts)
    is_copy = facts.of_op(_COPIES.__eq__)
    is_alike = is_copy & np.isin(counts, counts[gradients[is_copy[gradients]]])
    is_alike &= launches.scope.where(Scope.EAGER) & ~launches.phase.where(Phase.BACKWARD)
    rows = np.flatnonzero(facts.in_steps(is_alike & ~facts.named(is_conversion)))
    readers = _next_to(facts, rows, ~is_copy, is_before=False).tolist()
    is_read = [row >= 0 and _is_softmax(facts.innermost_op(row)) for row in readers]
    return rows[np.array(is_read, np.bool_)]


def _is_softmax(op: str) -> bool:
    return _SOFTMAX.match(op) is not None


def _next_to(facts: Facts, launches: Ints, others: Rows, *, is_before: bool) -> Ints:
    """Return which of others a stream runs right before or after each launch; -1 for none."""
    table = facts.launches
    order = np.lexsort((table.start_ns, table.stream.filled(-1), table.device))
    rank: Ints = np.empty_like(order)
    rank[order] = np.arange(len(order))
    chosen = order[others[order]]
    at = np.searchsorted(rank[chosen], rank[launches])
    found: Ints = np.concatenate([[-1], chosen, [-1]])[at if is_before else at + 1]
    return found


def _of_norms(facts: Facts) -> Iterator[Candidate]:
    """Yield the copies that norms make of a strided tensor, each its own."""
    is_copy = facts.of_op(_COPIES.__eq__) & facts.launches.scope.where(Scope.EAGER)
    is_copy &= facts.mainly(lambda place: _NORMALISES.match(place.aten_op or "") is not None)
    rows = np.flatnonzero(facts.in_steps(is_copy & ~facts.named(is_conversion)))
    forward = rows[facts.launches.phase.where(Phase.FORWARD)[rows]]
    count = facts.launches_per_step(forward)
    if count < 2:  # one is needed
        return
    saved_ns = facts.median_per_step(rows, facts.critical_ns(rows))
    saved_ns = max(saved_ns, facts.median_per_step(rows, facts.removal_saving_ns(rows)))
    yield Candidate(
        summary="norms copy a strided tensor again and again to make it contiguous",
        est_saving_ns=int((1 - 1 / count) * saved_ns),
        confidence=Confidence.ESTIMATED,
        remedy="one .contiguous() where the tensor is transposed, before the first layer",
        location=location_of(facts.place(facts.longest(forward))),
        evidence=(*count_and_time(facts, rows), *launching(facts, rows, saved_ns)),
        launches=rows,
    )


def _is_asked(place: Place) -> bool:
    """Tell whether the code of a line asks for the copy, and no view of it needs it."""
    code = place.code or ""
    if place.phase is not Phase.FORWARD:
        return False
    is_copy = _CONTIGUOUS.match(place.aten_op or "") is not None
    is_asked = is_copy and bool(_CODE.search(code)) and not _NEEDED.search(code)
    is_asked |= _GRADIENT.match(place.aten_op or "") is not None and _is_merging(place)
    return is_asked or _BROADCASTS.match(place.aten_op or "") is not None


def _is_merging(place: Place) -> bool:
    """Tell whether a line merges the heads of attention with the batch, by its text."""
    return _MERGES.search(place.code or "") is not None


def _reader(facts: Facts, copies: Ints) -> str | None:
    """Return what reads each copy of a line next; none where not all are read so."""
    launches = facts.launches
    is_copy = facts.of_op(_COPIES.__eq__)
    rows = np.flatnonzero(facts.in_steps(~is_copy & launches.scope.where(Scope.EAGER)))
    rows = rows[np.argsort(launches.start_ns[rows], kind="stable")]
    at = np.searchsorted(launches.start_ns[rows], launches.start_ns[copies])
    ops = {facts.innermost_op(row) for row in np.append(rows, -1)[at].tolist() if row >= 0}
    if ops and all(map(_ATTENDS.search, ops)):
        return _ATTENTION
    place = facts.place(int(copies[0]))
    if _is_merging(place):
        return None
    is_broadcast = bool(_BROADCASTS.match(place.aten_op or "") or _EXPANDS.search(place.code or ""))
    if ops and is_broadcast and all(map(_POINTWISE.match, ops)):
        return _POINT
    is_transposed = _TRANSPOSED.search(place.code or "")
    return _PRODUCT if ops and is_transposed and all(map(_MULTIPLIES.search, ops)) else None


def _gradients(facts: Facts, copies: Ints) -> Ints:
    """Return the copies of gradients, which get the layout that was copied forward."""
    place = facts.place(int(copies[0]))
    is_near = facts.mainly(
        lambda other: (
            other.phase is Phase.BACKWARD
            and (other.file, other.function) == (place.file, place.function)
            and _GRADIENT.match(other.aten_op or "") is not None
            and abs((other.line or 0) - (place.line or 0)) <= _MAX_LINES
        )
    )
    rows = np.flatnonzero(facts.in_steps(is_near & facts.of_op(_COPIES.__eq__)))
    return rows if len(rows) <= len(copies) else rows[:0]


def _candidate(facts: Facts, copies: Ints, reader: str) -> Candidate:
    gradients = _gradients(facts, copies)
    launches = np.union1d(copies, gradients)
    removal_saving_ns = facts.removed_per_step_ns(launches)
    times = (("they take", copies), ("copies of their gradients take", gradients))
    return Candidate(
        summary=_SUMMARY.get(
            reader, f"copies to make contiguous what {reader} reads by its strides"
        ),
        est_saving_ns=removal_saving_ns,
        confidence=Confidence.ESTIMATED,
        remedy=_REMEDY[reader],
        location=location_of(facts.place(facts.longest(copies))),
        evidence=(
            Figure("copies a step", facts.launches_per_step(copies)),
            *(
                Figure(
                    name,
                    facts.median_per_step(own, facts.launches.duration_ns[own]),
                    FigureUnit.NS,
                )
                for name, own in times
                if len(own)
            ),
            *launching(facts, launches, removal_saving_ns),
        ),
        launches=launches,
    )


RULE = Rule(
    name="strided_copy",
    title="Copies of what is read by its strides",
    means="A line calls `.contiguous()` or `.clone()` on a view, which copies it, or merges heads "
    "with the batch (`(b h) n d`), and what reads the copies next is "
    "`scaled_dot_product_attention`. Or what reads a contiguous copy is a matrix product whose "
    "operand the line transposes. Or a line repeats a tensor (`repeat`, `expand().contiguous()`), "
    "and a pointwise op reads it next. Or two or more layer or group norms copy what they "
    "normalise, because it is strided. Or a softmax reads all rows but a few, which a line cuts "
    "off (`logits[:, :-1]`), and its gradient is put between zeros.",
    because="Kernels of attention and of matrix products read their operands by strides: a "
    "transposed view costs them nothing. The copy reads and writes the tensor once more, and in "
    "training so does that of its gradient, which gets the copy's layout. Pointwise ops broadcast. "
    "Norms read contiguous tensors: where a transposed view goes through all layers (an image's "
    "patches, by `flatten(2).transpose(1, 2)`), each norm copies it. A softmax, too, and it does "
    "not depend on other rows: what is cut off before it can be cut off behind.",
    remedy="Leave `.contiguous()` or `repeat` out; for norms add one where the view is made. It is "
    "needed before a `.view()` with other sizes, and before kernels of your own that take no "
    "strides; such lines are not reported. Slice what a softmax returns; for a cross entropy leave "
    "the slice out, and give the other rows targets of `ignore_index`.",
    saving="Time of the copies, and of as many copies of gradients in the same function, or of "
    "launching them if the CPU is behind; of norms less one for a copy that is kept, of rows "
    "before a softmax with the zeros around their gradient. Compiled code makes "
    "no such copies and is not judged.",
    not_on_cpu=ON_CPU,
    judge=_judge,
)
