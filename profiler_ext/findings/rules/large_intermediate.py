"""The rule for tensors made by broadcasting, far larger than what they are made of and become."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Final

import numpy as np

from profiler_ext.findings.autograd_nodes import with_backward
from profiler_ext.findings.code_of_lines import assigned
from profiler_ext.findings.facts import CannotJudge, Facts, Rows, location_of
from profiler_ext.findings.finding import Confidence, Figure, FigureUnit
from profiler_ext.findings.groups import blocks_of, threads_of
from profiler_ext.findings.rule import ON_CPU, Candidate, Rule, Turn, count_and_time
from profiler_ext.findings.unchanged_lines import ASSIGNS_TO_SELF
from profiler_ext.records.analysis import Place
from profiler_ext.records.events import Ints, flag_rows
from profiler_ext.records.lineage import Frame
from profiler_ext.records.vocabulary import Phase, Scope

# Of torch's kernels: threads of a block, and elements of each; ATen/native/cuda/CUDALoops.cuh
_STRIDED = re.compile(r"\belementwise_kernel<(\d+), (\d+),")
_FOUR_EACH = re.compile(r"\b(?:vectorized|unrolled)_elementwise_kernel<")  # or eight
_BROADCASTS = re.compile(r"aten::(unsqueeze|expand|expand_as|broadcast_to)$")
_REPEATS = re.compile(r"aten::(repeat|tile|repeat_interleave|expand)$")
_REDUCES = re.compile(r"aten::(sum|mean|amax|amin|max|min|any|all|prod|argmax|argmin|\w*norm)$")
# A product of tensors of pairs sums them up, in whatever order it is multiplied out
_CONTRACTS = re.compile(r"aten::b?mm$")
_MULTIPLIES = re.compile(r"aten::(mul|copy_)$")
_OF_PRODUCTS: Final = frozenset({"aten::einsum", "aten::matmul"})
# Kernels whose elements are unknown; between others that take as long they pass over the same
_PASSES = re.compile(r"aten::(copy_|_fft_[rc]2[rc])$")
# Ops that copy, choose from or join whole tensors, and what such ops launch
_COPIES = re.compile(r"aten::(to|_to_copy|type_as|clone|contiguous|cat|stack|index(_select)?)$")
_MOVES = re.compile(r"aten::(copy_|cat|index(_select)?)$")
_READS_SOME = re.compile(r"aten::(grid_sampler_[23]d|gather|index(_select)?|take)$")
_LEARNS = (Phase.BACKWARD, Phase.GRADIENT_ACCUMULATION, Phase.OPTIMIZER)
_SUMS: Final = "aten::sum"
_MUCH_LARGER: Final = 8
_MIN_ELEMENTS: Final = 1 << 20
_MIN_FRACTION: Final = 0.03
# A kernel that takes so much less writes no eighth of the elements: it may move twice as fast
_SHORTER: Final = 16
_MODULES: Final = frozenset({"torch", "F"})
_BEFORE: Final = 8  # launches before a function's that are looked at for large operands

_Function = tuple[str | None, str | None]  # file and name
_Part = tuple[int, int]

_REMEDY: Final = (
    "a product, cdist, sort or scatter_add in its place; or torch.compile of the function, which "
    "keeps it in registers"
)


def _judge(facts: Facts) -> Iterable[Candidate] | CannotJudge:
    found: dict[tuple[str | None, str | None], list[Ints]] = {}
    for run in _runs(facts):
        place = facts.place(int(run[0]))
        found.setdefault((place.file, place.function), []).append(run)
    least_ns = _MIN_FRACTION * facts.training.step_ns
    candidates = [_candidate(facts, np.unique(np.concatenate(runs))) for runs in found.values()]
    candidates += _few_read(facts)
    return [each for each in candidates if each is not None and each.est_saving_ns >= least_ns]


def elements_of(facts: Facts) -> Ints:
    """Return how many elements each launch of torch's elementwise kernels computes, at least.

    It is 0 of other kernels. The last block may be partly full.
    """
    return facts.analysis.derived.once("elements", lambda: _elements(facts))


def _elements(facts: Facts) -> Ints:
    launches = facts.launches
    counts: Ints = np.zeros(len(launches), np.int64)
    is_own = facts.named(lambda name: "elementwise_kernel<" in name)
    rows = np.flatnonzero(is_own & launches.scope.where(Scope.EAGER))
    blocks, threads = blocks_of(facts, rows), threads_of(facts, rows)
    for at, row in enumerate(rows.tolist()):
        strided = _STRIDED.search(launches.name[row])
        if strided is not None:
            counts[row] = blocks[at] * int(strided[1]) * int(strided[2])
        elif _FOUR_EACH.search(launches.name[row]) is not None:
            counts[row] = blocks[at] * threads[at] * 4
    return counts


def elements_of_calls(facts: Facts) -> Ints:
    """Return how many elements each launch computes, with the other parts of its op."""
    return _of_calls(facts)[0]


def _of_calls(facts: Facts) -> tuple[Ints, Ints]:
    """Return the elements and the time of each launch, with those of its op's other parts.

    Torch runs an op of more elements than 32 bits count in parts.
    """
    return facts.analysis.derived.once("elements of calls", lambda: _joined(facts))


def _joined(facts: Facts) -> tuple[Ints, Ints]:
    launches = facts.launches
    op, counts, duration_ns = launches.op_event, elements_of(facts), launches.duration_ns
    alone = -1 - np.arange(len(launches))
    key = np.stack([np.where(np.ma.getmaskarray(op), alone, op.filled(0)), launches.name.codes])
    each, at = np.unique(key, axis=1, return_inverse=True)
    sums = [np.zeros(each.shape[1], np.int64) for _ in range(2)]
    for total, own in zip(sums, (counts, duration_ns), strict=True):
        np.add.at(total, at.ravel(), own)
    return sums[0][at.ravel()], sums[1][at.ravel()]


def _runs(facts: Facts) -> Iterator[Ints]:
    """Yield the launches from where a large tensor is made by broadcasting to its reduction."""
    launches = facts.launches
    is_own = launches.scope.where(Scope.EAGER)
    is_own &= launches.phase.where(Phase.FORWARD, Phase.RECOMPUTE, Phase.OTHER)
    rows = np.flatnonzero(facts.in_steps(is_own & (facts.main_place >= 0)))
    rows = rows[np.lexsort((launches.start_ns[rows], launches.stream.filled(-1)[rows]))]
    parts = _parts([_called(facts, row)[1] for row in rows.tolist()])
    found = {part: list(_within(facts, rows, part)) for part in parts}
    for runs in found.values():
        yield from runs
    # What a function makes may be chosen from and reduced by one that it calls
    for joined in _with_called(facts, rows, parts):
        if not any(found[part] for part in joined):
            yield from _within(facts, rows, (joined[0][0], joined[-1][1]))


def _called(facts: Facts, launch: int) -> tuple[tuple[Frame, ...], _Function]:
    """Return where the function of a launch was called, and its file and name."""
    place = facts.place(launch)
    return place.stack[:-1], (place.file, place.function)


def _parts(functions: list[_Function]) -> list[_Part]:
    bounds = [at for at in range(1, len(functions)) if functions[at] != functions[at - 1]]
    return list(pairwise([0, *bounds, len(functions)])) if functions else []


def _with_called(facts: Facts, rows: Ints, parts: list[_Part]) -> Iterator[list[_Part]]:
    """Yield the parts of one call of a function, with those of what it calls between or next."""
    joined: list[_Part] = []
    outer: tuple[tuple[Frame, ...], _Function] | None = None
    for part in parts:
        own = _called(facts, int(rows[part[0]]))
        if outer is not None and (own == outer or _calls(outer, own)):
            joined.append(part)
        elif outer is not None and len(joined) == 1 and _calls(own, outer):
            joined, outer = [*joined, part], own
        else:
            if len(joined) > 1:
                yield joined
            joined, outer = [part], own
    if len(joined) > 1:
        yield joined


def _calls(
    outer: tuple[tuple[Frame, ...], _Function], own: tuple[tuple[Frame, ...], _Function]
) -> bool:
    """Tell whether a function is called by another one, in one call of that."""
    if not own[0] or own[0][:-1] != outer[0]:
        return False
    return (own[0][-1].file, own[0][-1].function) == outer[1]


def _within(facts: Facts, rows: Ints, part: _Part) -> Iterator[Ints]:
    """Yield the runs of a part, from its largest tensor to smaller ones of later calls."""
    start, end = part
    counts, own = _of_calls(facts)[0], rows[start:end]
    most = int(counts[own].max(initial=0))
    first = max(start - _BEFORE, 0)
    while most >= _MIN_ELEMENTS:
        large = np.flatnonzero(2 * counts[own] >= most)  # some are counted as half
        begin, after = end - len(own), rows[end - len(own) + int(large[-1]) + 1 :]
        before = rows[max(begin - _BEFORE, first) : begin + int(large[0])]
        found = list(_run(facts, own, large, (before, after)))
        yield from found
        # What is reduced already is no operand of what follows
        own = own[int(large[-1]) + 1 :]
        first, most = end - len(own), int(counts[own].max(initial=0)) if found else 0


def _run(facts: Facts, own: Ints, large: Ints, around: tuple[Ints, Ints]) -> Iterator[Ints]:
    """Yield those of a function's launches that make and read its largest tensor, if it is one."""
    counts, duration_ns = _of_calls(facts)
    first, most = int(own[large[0]]), int(counts[own].max())
    before, after = around
    ops = [facts.innermost_op(row) for row in own[large[0] :].tolist()]
    reductions = [at for at, op in enumerate(ops) if _reduces(op)]
    if all(_MULTIPLIES.match(facts.innermost_op(row)) for row in own[large].tolist()):
        reductions += _contractions(facts, own[large[0] :])
    if int(large[-1] - large[0]) + 1 not in reductions:
        return
    if not _broadcasts(facts, first, before) and not _is_of_small(facts, first, own[: large[0]]):
        return
    # What runs before it is no larger, or took too little to write as much
    is_known = (counts[before] > 0) | facts.of_op(_reduces)[before]
    is_short = duration_ns[before] * _SHORTER <= duration_ns[first]
    if not np.where(is_known, counts[before] * _MUCH_LARGER <= most, is_short).all():
        return
    following = counts[after][counts[after] > 0]
    if len(following) and int(following[0]) * _MUCH_LARGER <= most:
        typical_ns = int(np.median(duration_ns[own[large]]))
        reads = own[large[0] :][reductions]
        reads = reads[duration_ns[reads] * _MUCH_LARGER >= typical_ns]
        between = own[large[0] : large[-1]]
        is_pass = (counts[between] == 0) & (2 * duration_ns[between] >= typical_ns)
        passes = between[is_pass & facts.of_op(lambda op: bool(_PASSES.match(op)))[between]]
        yield np.unique(np.concatenate([own[large], passes, reads]))


def _contractions(facts: Facts, launches: Ints) -> list[int]:
    """Return which of these launches are products that ``einsum`` or ``matmul`` makes."""
    is_own = facts.of_op(lambda op: _CONTRACTS.match(op) is not None)
    is_own &= facts.mainly(lambda place: place.aten_op in _OF_PRODUCTS)
    at: list[int] = np.flatnonzero(is_own[launches]).tolist()
    return at


def _reduces(op: str) -> bool:
    return _REDUCES.match(op) is not None


def _broadcasts(facts: Facts, launch: int, before: Ints) -> bool:
    """Tell whether an operand gets another dimension, or is repeated, for a launch."""
    if _REPEATS.match(facts.place(launch).aten_op or "") is not None:
        return True
    events = facts.analysis.recording.trace.events
    own, *others = facts.called_ops(np.append(launch, before)).tolist()
    if own < 0:
        return False
    # An op may copy an operand first: views are made before it is called, or by it (einsum)
    until_ns = int(events.start_ns[facts.launches.op_event.filled(own)[launch]])
    previous = [each for each in others if each not in (own, -1)]
    since_ns = int(events.start_ns[previous[-1]]) if previous else 0
    views = flag_rows(events.name, lambda name: _BROADCASTS.match(name) is not None)
    views &= (events.thread == events.thread[own]) & (events.start_ns < until_ns)
    return bool((views & (events.start_ns > since_ns)).any())


def _is_of_small(facts: Facts, launch: int, before: Ints) -> bool:
    """Tell whether a line reads nothing but what its function computed just before, by its text.

    What is elementwise and larger than all of that broadcasts it.
    """
    made = {name for row in before.tolist() for name in assigned(facts.place(row).code or "")}
    try:
        nodes = list(ast.walk(ast.parse((facts.place(launch).code or "").strip())))
    except SyntaxError:
        return False
    names = (each for each in nodes if isinstance(each, ast.Name))
    read = {each.id for each in names if isinstance(each.ctx, ast.Load)} - _MODULES
    in_place = any(isinstance(each, ast.AugAssign) for each in nodes)
    return bool(read) and read <= made and not in_place


def _candidate(facts: Facts, forward: Ints) -> Candidate | None:
    counts, duration_ns = _of_calls(facts)
    most, times_ns = int(counts[forward].max()), duration_ns[forward]
    every = with_backward(facts, forward)
    behind = np.setdiff1d(every, forward)
    # Gradients of the small operands are as short as those
    behind = behind[duration_ns[behind] * _MUCH_LARGER >= np.median(times_ns)]
    if len(behind) and not facts.of_op(_SUMS.__eq__)[behind].any():
        return None  # the gradient of what is broadcast is a sum
    launches = np.union1d(forward, behind)
    spent_ns = facts.median_per_step(launches, facts.critical_ns(launches))
    # Fused, one loop forward and one backward compute all elements, and write none
    kept_ns = _shortest_ns(facts, forward[counts[forward] > 0]) * (2 if len(behind) else 1) // 2
    return Candidate(
        summary="a tensor far larger than its operands is made by broadcasting, to be reduced",
        est_saving_ns=max(spent_ns - kept_ns, 0),
        confidence=Confidence.ESTIMATED,
        remedy=_REMEDY,
        location=location_of(facts.place(facts.longest(forward))),
        evidence=(
            Figure("elements, about", most),
            *count_and_time(facts, launches),
            Figure("of them forward", facts.launches_per_step(forward)),
            Figure("one pass over it takes", int(np.median(times_ns)), FigureUnit.NS),
        ),
        launches=launches,
    )


def _shortest_ns(facts: Facts, launches: Ints) -> int:
    """Return what the op that takes least takes in a step: each op of a line in all its calls."""
    lines = [str((place.file, place.line)) for place in map(facts.place, launches.tolist())]
    key = np.stack([np.unique(lines, return_inverse=True)[1], facts.launches.name.codes[launches]])
    each, at = np.unique(key, axis=1, return_inverse=True)
    own = (launches[at.ravel() == number] for number in range(each.shape[1]))
    return min(facts.median_per_step(rows, facts.launches.duration_ns[rows]) for rows in own)


def _few_read(facts: Facts) -> Iterator[Candidate]:
    """Yield the copies of whole tensors of which an op then reads few values."""
    launches, found = facts.launches, dict[tuple[str | None, str | None], list[tuple[Ints, int]]]()
    rows = np.flatnonzero(facts.in_steps(~launches.phase.where(*_LEARNS)))
    rows = rows[np.lexsort((launches.start_ns[rows], launches.step.filled(-1)[rows]))]
    is_reader = facts.of_op(lambda op: _READS_SOME.match(op) is not None)
    is_copy = _copies(facts)
    for at in np.flatnonzero(is_reader[rows]).tolist():
        before = rows[max(at - _BEFORE, 0) : at]
        copied = np.flatnonzero(is_copy[before] & (elements_of(facts)[before] >= _MIN_ELEMENTS))
        if not len(copied):
            continue
        first = last = at - len(before) + int(copied[-1])
        place = facts.place(int(rows[last]))
        while first and is_copy[rows[first - 1]] and _is_of(facts, int(rows[first - 1]), place):
            first -= 1
        own = rows[first : last + 1]
        if _is_read_by(facts, own, rows[last + 1 :], int(rows[at])):
            found.setdefault((place.file, place.function), []).append((own, int(rows[at])))
    for each in found.values():
        yield _of_copies(facts, np.concatenate([own for own, _ in each]), [row for _, row in each])


def _copies(facts: Facts) -> Rows:
    """Tell which launches copy a whole tensor to a new one that no object keeps."""
    is_copy = facts.launches.scope.where(Scope.EAGER) & facts.of_op(
        lambda op: _MOVES.match(op) is not None
    )
    return is_copy & facts.mainly(
        lambda place: (
            _COPIES.match(place.aten_op or "") is not None
            and ASSIGNS_TO_SELF.match(place.code or "") is None
        )
    )


def _is_of(facts: Facts, launch: int, place: Place) -> bool:
    own = facts.place(launch)
    return (own.file, own.function) == (place.file, place.function)


def _is_read_by(facts: Facts, copies: Ints, after: Ints, reader: int) -> bool:
    """Tell whether what runs after copies, in their step, took too little to read all of them."""
    # Other copies at these lines are of another round, unless one is the reader
    step, duration_ns = facts.launches.step.filled(-1), facts.launches.duration_ns
    lines = {(place.file, place.line) for place in map(facts.place, copies.tolist())}
    here = facts.mainly(lambda place: (place.file, place.line) in lines) & _copies(facts)
    here[reader] = False
    after = after[(step[after] == step[reader]) & ~here[after]]
    return bool((duration_ns[after] * _SHORTER <= duration_ns[copies[-1]]).all())


def _of_copies(facts: Facts, copies: Ints, readers: list[int]) -> Candidate:
    reads = np.unique(np.array(readers, np.int64))
    copied_ns = facts.median_per_step(copies, facts.critical_ns(copies))
    read_ns = facts.median_per_step(reads, facts.launches.duration_ns[reads])
    return Candidate(
        summary="whole tensors are copied, of which few values are then read",
        est_saving_ns=max(copied_ns - read_ns, 0),  # what chooses the values reads as many
        confidence=Confidence.ESTIMATED,
        remedy="read the values first, by an index into what is there, and convert or join these",
        location=location_of(facts.place(facts.longest(copies))),
        evidence=(
            Figure("elements, about", int(elements_of(facts)[copies].max())),
            *count_and_time(facts, copies),
            Figure("reading them takes", read_ns, FigureUnit.NS),
        ),
        launches=copies,
    )


RULE = Rule(
    name="large_intermediate",
    title="Tensors far larger than their operands and their results",
    means="Eager lines of a function, or of one that it calls, make a tensor by broadcasting "
    "(`x[:, None] - y[None]`, `repeat`), work on all of it, and reduce it: eight times as many "
    "elements as what runs before could have written, and as what is computed next. The numbers "
    "of elements are those of torch's elementwise kernels, from their blocks; copies and FFTs "
    "between them that take half as long or more are of the same tensor. A product or a "
    "convolution before it is small if it took a sixteenth of the first of these kernels. It is "
    "broadcast where an operand just got another dimension, or where the line, by its text, reads "
    "nothing but what the function computed before it. A product by `einsum` or `matmul` reduces "
    "what was only multiplied before. In training the gradient is summed, because an operand was "
    "broadcast. Calls in a row may each make one, the largest first. Or lines of a function copy, "
    "convert or join whole tensors (`masks.float()`), of "
    "which an op then reads some values (`grid_sample`, `gather`, `x[index]`) in a sixteenth of "
    "the time, and nothing else until the backward takes longer than that. Together they take 3% "
    "of a step or more.",
    because="All differences of pairs, a comparison with each class, or a cube of all triplets is "
    "written to memory and read again by each op, and so is its gradient, although operands and "
    "result are small.",
    remedy="An algorithm without it: `torch.cdist` or a matrix product for distances, a product "
    "with a mask for masked sums, one `einsum` for outer products that are summed, `sort` and "
    "`searchsorted` for the nearest of many, `scatter_add` or `bincount` for a one-hot that is "
    "summed, an index into what is there before a conversion. Or `torch.compile` of the function, "
    "whose kernel keeps the tensor in registers; or parts of it in a loop, where memory is short.",
    saving="Time on the critical path of the kernels that write or read it, with their backward, "
    "less half of one pass over it forward and half of one backward: a fused loop still computes "
    "all elements, but writes none. Of copies of which few values are read, their time less what "
    "reading them takes. A recording does not tell when an operand was made longer ago than eight "
    "launches before the function: an input of the step that is as large is not seen.",
    not_on_cpu=ON_CPU,
    judge=_judge,
    turn=Turn.BROAD,
)
