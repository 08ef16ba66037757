"""The rule for lines that only move data: join, reorder, repeat or copy whole tensors."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from profiler_ext.findings.autograd_nodes import with_backward
from profiler_ext.findings.facts import (
    CannotJudge,
    Facts,
    launches_by_function,
    launches_by_line,
    location_of,
)
from profiler_ext.findings.finding import Confidence, Figure, FigureUnit
from profiler_ext.findings.rule import ON_CPU, Candidate, Rule, Turn, count_and_time
from profiler_ext.findings.rules.dtype_conversion import is_conversion
from profiler_ext.findings.unchanged_lines import ASSIGNS_TO_SELF, lines_around, unchanged_move
from profiler_ext.kineto import classify
from profiler_ext.records.analysis import Place
from profiler_ext.records.events import Ints
from profiler_ext.records.vocabulary import Phase, Scope

_JOIN, _ORDER, _REPEAT, _COPY, _OPERAND = "join", "order", "repeat", "copy", "operand"
# What Python calls, by what it does; a pad fills and copies
_KINDS: Final = {
    _JOIN: "cat concat concatenate stack hstack vstack dstack column_stack pad constant_pad_nd",
    _ORDER: "index_select gather take_along_dim take index flip roll",
    _REPEAT: "repeat tile repeat_interleave expand",
    _COPY: "clone contiguous reshape flatten",
    _OPERAND: "matmul linear einsum tensordot inner bmm",
}
_KIND: Final = {f"aten::{op}": kind for kind, ops in _KINDS.items() for op in ops.split()}
_BY_NAME: Final = frozenset(f"{_KINDS[_JOIN]} {_KINDS[_ORDER]}".split())
# Their results have the values that they are given
_KEEPING: Final = (
    "clone contiguous detach to type float half bfloat16 view reshape flatten unflatten squeeze "
    "unsqueeze transpose permute movedim narrow select chunk split unbind zip enumerate reversed "
    "list tuple values items"
)
_SAME: Final = _BY_NAME | frozenset(_KEEPING.split())
_MOVING: Final = frozenset(
    f"aten::{op}"
    for op in ("copy_", "cat", "index_select", "gather", "index", "take", "flip", "roll")
)
# The sum of a repeated tensor's gradients remains, where it is broadcast
_RETURNING: Final = _MOVING | {"aten::fill_", "aten::zero_"}
_PICKS: Final = frozenset({"aten::index_select", "aten::index", "aten::gather"})
_SUMS = "aten::sum"
_OF_WINDOWS = "aten::unfold_backward"
_POINTWISE = re.compile(
    r"aten::(add|r?sub|mul|div|pow|where|eq|ne|lt|le|gt|ge|maximum|minimum|clamp\w*|masked_fill|"
    r"exp|log|sqrt|rsqrt|abs|neg|sin|cos|tanh|sigmoid|relu|gelu|silu|square|lerp|addcmul|"
    r"__\w+__|logical_\w+|bitwise_\w+|sum|mean|amax|amin|max|min|any|all|"
    r"(native_)?(layer|group)_norm|_?(log_)?softmax)_?$"
)
# Windows that overlap have each value as often as they cover it
_EXPANDS = re.compile(r"(?<!\bF)(?<!functional)\.(expand|expand_as|broadcast_to|repeat|unfold)\(")
_WHOLE: Final = frozenset({"aten::roll", "aten::flip"})  # they have as many values as they read
_RESHAPES: Final = frozenset({"aten::reshape", "aten::flatten"})
_SHIFTS: Final = frozenset({"aten::fft_fftshift", "aten::fft_ifftshift"})
_ROLLS = "aten::roll"
_TRANSFORMS = re.compile(r"aten::_fft_[rc]2[rc]$")
_PARTS: Final = frozenset({"aten::select_backward", "aten::slice_backward"})
_FILLS = "aten::fill_"
_ADDS: Final = frozenset({"aten::add", "aten::add_"})
_HALF = 0.5
_OF_A_FILL: Final = 4
_MULTIPLIES = re.compile(r"aten::(add|b|badd)?b?mm$")
# What reads skip connections and features of layers before, which are joined once each
_CONVOLVES = re.compile(r"conv|batch_norm")
_MIN_FRACTION: Final = 0.03


@dataclass(frozen=True, slots=True)
class _Reason:
    """Why a movement is not needed, and what to do about it."""

    summary: str
    remedy: str


_GROWS = _Reason(
    "a tensor is copied whole each time that it grows",
    "a buffer allocated once; each call writes its part into it. Or a list that is joined once at "
    "the end",
)
_REORDERS = _Reason(
    "tensors are copied whole to put them into another order",
    "keep them in place; reorder the indices by which they are read, or only what is small; rows "
    "that are equal need no order",
)
_JOINS = _Reason(
    "tensors are joined only to be multiplied",
    "a product of each part; each with its own columns of the weight, and the products added. Or "
    "write the parts into one tensor where they are made",
)
_REPEATS = _Reason(
    "a tensor is repeated in memory",
    "broadcast in place of repeating; expand, shapes with ones, or einsum. What is equal for all "
    "is computed once, before it is repeated",
)
_COPIES_OPERAND = _Reason(
    "a product copies an operand first, which is broadcast or not in order",
    "einsum, or bmm over the operand's own batch; or the operand made contiguous once, where it "
    "is made: weight @ x.mT writes what a linear layer returns in transposed order",
)
_AGAIN = _Reason(
    "each layer puts the same tensor into another order",
    "once before the layers, in the order that they read; its gradients are then added first",
)
_FUSES = _Reason(
    "a line only moves data, which the next op reads",
    "read the parts where they are; by views, slices, or a write in place. Or torch.compile of "
    "the function, which reads through such an op",
)


def _judge(facts: Facts) -> Iterable[Candidate] | CannotJudge:
    launches = facts.launches
    is_own = launches.scope.where(Scope.EAGER) & facts.of_op(_MOVING.__contains__)
    is_own &= launches.phase.where(Phase.FORWARD, Phase.RECOMPUTE, Phase.OTHER)
    is_own &= facts.mainly(lambda place: place.aten_op in _KIND and place.line is not None)
    is_own &= ~facts.named(lambda name: is_conversion(name) or _crosses(name))
    rows = np.flatnonzero(facts.in_steps(is_own))
    return (*_candidates(facts, rows), *_gradients_of_parts(facts), *_shifted_spectra(facts))


def _shifted_spectra(facts: Facts) -> Iterator[Candidate]:
    """Yield the shifts of what functions transform, which only say where frequency zero is."""
    is_own = facts.launches.phase.where(Phase.FORWARD, Phase.RECOMPUTE, Phase.OTHER)
    is_own &= facts.launches.scope.where(Scope.EAGER)
    is_shift = is_own & facts.mainly(lambda place: place.aten_op in _SHIFTS)
    is_transform = is_own & facts.of_op(lambda op: _TRANSFORMS.match(op) is not None)
    transforms = dict(launches_by_function(facts, np.flatnonzero(facts.in_steps(is_transform))))
    for function, shifts in launches_by_function(facts, np.flatnonzero(facts.in_steps(is_shift))):
        readers = (_reader(facts, own) for own in launches_by_line(facts, shifts))
        # One shift may be needed: the first or the last of a network
        calls = np.unique(facts.called_ops(shifts))
        is_pair = function in transforms and len(calls) >= 2 * len(facts.analysis.steps)
        if not is_pair or not all(map(_follows_shift, readers)):
            continue
        every = with_backward(facts, shifts)
        rolls = every[facts.of_op(_ROLLS.__eq__)[every]]
        saved_ns = facts.median_per_step(rolls, facts.critical_ns(rolls))
        if saved_ns >= _MIN_FRACTION * facts.training.step_ns:
            yield _of_shifts(facts, shifts, rolls, saved_ns)


def _follows_shift(op: str) -> bool:
    """Tell whether an op treats all values alike, or transforms them."""
    return _TRANSFORMS.match(op) is not None or _POINTWISE.match(op) is not None


def _of_shifts(facts: Facts, shifts: Ints, rolls: Ints, saved_ns: int) -> Candidate:
    return Candidate(
        summary="spectra are shifted there and back around what could be shifted once",
        est_saving_ns=saved_ns,
        confidence=Confidence.UPPER_BOUND,
        remedy=(
            "no fftshift: shift what they are multiplied by or compared with, once, before the "
            "steps (ifftshift of the transfer function, of the mask)"
        ),
        location=location_of(facts.place(facts.longest(shifts))),
        evidence=count_and_time(facts, rolls),
        launches=rolls,
    )


def _gradients_of_parts(facts: Facts) -> Iterator[Candidate]:
    """Yield the gradients of parts of a tensor that are each written as large as all of it."""
    launches = facts.launches
    is_part = facts.mainly(lambda place: place.aten_op in _PARTS) & facts.of_op(_FILLS.__eq__)
    is_part &= launches.phase.where(Phase.BACKWARD) & launches.scope.where(Scope.EAGER)
    is_sum = launches.phase.where(Phase.GRADIENT_ACCUMULATION) & facts.of_op(_ADDS.__contains__)
    sums = dict(launches_by_function(facts, np.flatnonzero(facts.in_steps(is_sum))))
    for function, fills in launches_by_function(facts, np.flatnonzero(facts.in_steps(is_part))):
        lines = {facts.place(row).line for row in fills.tolist()}
        every = sums.get(function, fills[:0])
        adds = every[np.array([facts.place(row).line in lines for row in every.tolist()], np.bool_)]
        # Of one size, a sum reads two and writes one; others are of other tensors
        adds = adds[launches.duration_ns[adds] <= _OF_A_FILL * launches.duration_ns[fills].max()]
        # Without sums there is one part of each tensor, whose rest has to be zero
        if not len(adds) or not len(adds) <= len(fills) <= 4 * len(adds):
            continue
        rows = np.concatenate([fills, adds])
        gone = np.where(np.arange(len(rows)) < len(fills), 1.0, _HALF)
        saved_ns = facts.median_per_step(rows, facts.critical_ns(rows, gone))
        if saved_ns >= _MIN_FRACTION * facts.training.step_ns:
            yield _of_parts(facts, fills, adds, saved_ns)


def _of_parts(facts: Facts, fills: Ints, adds: Ints, saved_ns: int) -> Candidate:
    add_ns = facts.median_per_step(adds, facts.launches.duration_ns[adds])
    return Candidate(
        summary="gradients of parts of a tensor are each written as large as all of it, and added",
        est_saving_ns=saved_ns,
        confidence=Confidence.ESTIMATED,
        remedy=(
            "x.unbind(dim), split or chunk once in place of x[..., i]; one kernel joins their "
            "gradients"
        ),
        location=location_of(facts.place(facts.longest(fills))),
        evidence=(*count_and_time(facts, fills), Figure("sums take", add_ns, FigureUnit.NS)),
        launches=np.union1d(fills, adds),
    )


def _crosses(name: str) -> bool:
    """Tell whether a copy is between the host and a device, or between devices."""
    return classify.is_memory_work(name) and "DtoD" not in name


def _candidates(facts: Facts, rows: Ints) -> Iterator[Candidate]:
    least_ns = _MIN_FRACTION * facts.training.step_ns
    for own in launches_by_line(facts, rows):
        # Most lines take little: only those of the rest are looked at
        if facts.median_per_step(own, facts.launches.duration_ns[own]) < least_ns / 2:
            continue
        reader = _reader(facts, own)
        if (rounds := _rounds(facts, own)) > 1:
            yield _of_rounds(facts, own, rounds)
            continue
        reason = _reason(facts.place(facts.longest(own)), facts.launches_per_step(own), reader)
        if reason is None:
            continue
        candidate = _candidate(facts, own, reason, reader)
        if candidate.est_saving_ns >= least_ns:
            yield candidate


def _rounds(facts: Facts, moves: Ints) -> int:
    """Return how often the rounds of a loop move what none of them changes, by the text."""
    around = lines_around(facts)
    stacks = {facts.place(row).stack for row in moves.tolist()}
    is_same = len(stacks) == 1 and all(unchanged_move(each, around) for each in stacks)
    return facts.launches_per_step(moves) if is_same else 1


def _of_rounds(facts: Facts, moves: Ints, rounds: int) -> Candidate:
    every = with_backward(facts, moves)
    launches = every[facts.of_op(_RETURNING.__contains__)[every]]
    time_ns = facts.median_per_step(launches, facts.critical_ns(launches, 1 - 1 / rounds))
    return Candidate(
        summary=_AGAIN.summary,
        est_saving_ns=time_ns,
        confidence=Confidence.ESTIMATED,
        remedy=_AGAIN.remedy,
        location=location_of(facts.place(facts.longest(moves))),
        evidence=(*count_and_time(facts, launches), Figure("times a step", rounds)),
        launches=launches,
    )


def _reason(place: Place, times: int, reader: str) -> _Reason | None:
    """Return why a line's movement is not needed; none where that is not known."""
    kind, code = _KIND[place.aten_op or ""], place.code or ""
    again = {_JOIN: _GROWS, _ORDER: _REORDERS}.get(kind)
    # What an object keeps is there in the next step
    is_kept = times > 1 or ASSIGNS_TO_SELF.match(code) is not None
    if again is not None and is_kept and _is_of_itself(code) and not _CONVOLVES.search(reader):
        return again
    if kind in (_REPEAT, _OPERAND):
        return _REPEATS if kind == _REPEAT else _COPIES_OPERAND
    if kind == _COPY and _EXPANDS.search(code) is not None:
        return _REPEATS
    if kind == _COPY and (place.aten_op in _RESHAPES or reader.endswith("_")):
        return None  # it is for other sizes, or for an op that writes in place
    if kind == _JOIN and _MULTIPLIES.match(reader) is not None:
        return _JOINS
    if kind == _ORDER and place.aten_op not in _WHOLE:
        return None  # rows of a table are needed wherever they are read
    return _FUSES if _POINTWISE.match(reader) is not None else None


def _is_of_itself(code: str) -> bool:
    """Tell whether a line assigns what it moves of the same names: ``x = cat((x, new))``."""
    try:
        statements = ast.parse(code.strip()).body
    except SyntaxError:
        return False
    return any(isinstance(each, ast.Assign) and _moves_target(each) for each in statements)


def appends(facts: Facts, joins: Ints) -> bool:
    """Tell whether a line joins to what it assigns, and a convolution does not read that."""
    try:
        statements = ast.parse((facts.place(int(joins[0])).code or "").strip()).body
    except SyntaxError:
        return False
    grows = any(isinstance(each, ast.Assign) and _joins_target(each) for each in statements)
    return grows and not _CONVOLVES.search(_reader(facts, joins))


def _joins_target(assigns: ast.Assign) -> bool:
    targets = {ast.unparse(leaf) for each in assigns.targets for leaf in _leaves(each)}
    joined = (each for each in _leaves(assigns.value) if isinstance(each, ast.Call))
    return any(_moved(each) is each and targets & _names_in(each) for each in joined)


def _moves_target(assigns: ast.Assign) -> bool:
    targets = {ast.unparse(leaf) for each in assigns.targets for leaf in _leaves(each)}
    nodes = list(ast.walk(assigns.value))
    for each in nodes:  # [k.index_select(0, order) for k in kv]
        if isinstance(each, ast.comprehension) and targets & _names_in(each.iter):
            targets |= {ast.unparse(leaf) for leaf in _leaves(each.target)}
    return any(targets & _names_in(moved) for each in nodes if (moved := _moved(each)))


def _moved(node: ast.AST) -> ast.AST | None:
    """Return what a node moves, or the call that moves it."""
    if isinstance(node, ast.Subscript):
        return node.value
    if isinstance(node, ast.Call):
        name = ast.unparse(node.func).rpartition(".")[2]
        return node if name in _BY_NAME else None
    return None


def _names_in(node: ast.AST) -> set[str]:
    """Return what an expression has as it is: what a call computes of it is another tensor."""
    if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] not in _SAME:
        return set()
    kinds = (ast.Name, ast.Attribute, ast.Subscript)
    own = {ast.unparse(node)} if isinstance(node, kinds) else set()
    return own.union(*map(_names_in, ast.iter_child_nodes(node)))


def _leaves(target: ast.expr) -> Iterator[ast.expr]:
    if isinstance(target, ast.Tuple | ast.List):
        for each in target.elts:
            yield from _leaves(each)
    else:
        yield target


def _reader(facts: Facts, moves: Ints) -> str:
    """Return the op that runs next after each movement of a line, if it is the same of all."""
    launches = facts.launches
    is_other = launches.scope.where(Scope.EAGER) & ~facts.of_op(_RETURNING.__contains__)
    rows = np.flatnonzero(facts.in_steps(is_other))
    rows = rows[np.argsort(launches.start_ns[rows], kind="stable")]
    at = np.searchsorted(launches.start_ns[rows], launches.start_ns[moves])
    ops = {facts.innermost_op(row) for row in np.append(rows, -1)[at].tolist() if row >= 0}
    return ops.pop() if len(ops) == 1 else ""


def _is_picked(facts: Facts, moves: Ints) -> bool:
    """Tell whether the next line picks of what a line makes, by index, as it could of the whole.

    The gradient of such a pick adds up what a repeated tensor's gradient sums.
    """
    launches = facts.launches
    rows = np.flatnonzero(facts.in_steps(launches.scope.where(Scope.EAGER)))
    rows = rows[np.argsort(launches.start_ns[rows], kind="stable")]
    at = np.searchsorted(launches.start_ns[rows], launches.start_ns[moves], side="right")
    after = [row for row in np.append(rows, -1)[at].tolist() if facts.main_place[row] >= 0]
    places = [facts.place(row) for row in after if row >= 0]
    made = {name for row in moves.tolist() for name in _assigned(facts.place(row).code or "")}
    return len(places) == len(moves) and all(
        each.aten_op in _PICKS and made & _read(each.code or "") for each in places
    )


def _assigned(code: str) -> set[str]:
    nodes = (each for each in _nodes(code) if isinstance(each, ast.Name))
    return {each.id for each in nodes if isinstance(each.ctx, ast.Store)}


def _read(code: str) -> set[str]:
    nodes = (each for each in _nodes(code) if isinstance(each, ast.Name))
    return {each.id for each in nodes if isinstance(each.ctx, ast.Load)}


def _nodes(code: str) -> list[ast.AST]:
    try:
        return list(ast.walk(ast.parse(code.strip())))
    except SyntaxError:
        return []


def _candidate(facts: Facts, moves: Ints, reason: _Reason, reader: str) -> Candidate:
    place = facts.place(facts.longest(moves))
    every = with_backward(facts, moves)
    launches = every[facts.of_op(_RETURNING.__contains__)[every]]
    if _KIND[place.aten_op or ""] == _ORDER:
        launches = moves  # gradients are added by index wherever rows are read
    if reason is _REPEATS and _is_picked(facts, moves):
        launches = np.union1d(launches, every[facts.of_op(_SUMS.__eq__)[every]])
    if reason is _REPEATS:  # the gradient of windows, which are views before they are copied
        here = facts.mainly(lambda each: (each.file, each.line) == (place.file, place.line))
        windows = facts.in_steps(here & facts.of_op(_OF_WINDOWS.__eq__))
        launches = np.union1d(launches, np.flatnonzero(windows))
    time_ns = facts.median_per_step(launches, facts.critical_ns(launches))
    return Candidate(
        summary=reason.summary,
        est_saving_ns=time_ns,
        confidence=Confidence.UPPER_BOUND,
        remedy=reason.remedy,
        location=location_of(place),
        evidence=(
            *count_and_time(facts, launches),
            Figure("op", place.aten_op or "", FigureUnit.TEXT),
            *((Figure("what runs next", reader, FigureUnit.TEXT),) if reader else ()),
        ),
        launches=launches,
    )


RULE = Rule(
    name="moved_data",
    title="Lines that only move data",
    means="An eager line joins tensors (`cat`, `stack`, `pad`), puts them into another order "
    "(`index_select`, `gather`, `x[index]`, `flip`, `roll`), repeats them or copies them "
    "(`clone`, `contiguous`), for 3% of a step or more, and no more special rule says it. It is "
    "reported where something tells that it need not: the line assigns what it makes of the same "
    "names, several times a step (a cache that grows or is reordered); what runs next of a join "
    "is a matrix product; a tensor is repeated, as overlapping windows of `x.unfold` are, or "
    "copied by `matmul` itself to multiply it; or what runs next of a join or copy is pointwise "
    "or a reduction, which could read the parts where they are. Or the rounds of a loop all move "
    "what none of them changes, by the text of the lines that ran. Or the backward of several "
    "`x[..., i]` of one tensor fills a tensor of its size with zeros for each, and adds these. Or "
    "a function that calls an FFT calls `fftshift` or `ifftshift` twice or more, and what runs "
    "next is the FFT or pointwise.",
    because="Such an op computes nothing. It reads all of a tensor, writes it elsewhere, and the "
    "next op reads it once more. The gradient of a part of a tensor is as large as all of it.",
    remedy="Of a cache, one buffer of the full length that is written in place; the indices "
    "reordered in place of the rows. Of a join before a linear layer, a product of each part with "
    "its columns of the weight. Broadcasting (`expand`, `einsum`) in place of `repeat`; rows of "
    "the tensor itself (`x[index // n]`) in place of an index into `x.repeat_interleave(n, 0)`. "
    "Views and slices in place of copies; or `torch.compile` of the function, which reads through "
    "these ops. What all layers read, put into their order before the first. `x.unbind(dim)`, "
    "`split` or `chunk` in place of several `x[..., i]`: their backward joins all parts at once.",
    saving="Time on the critical path of the copies and, but for reads by an index, of their "
    "backward. An upper bound: an op that reads strided parts may be slower, and a step that has "
    "lost much device time may wait for the CPU. What reads the copy is not recorded, only what "
    "runs next. Of a repeated tensor also the sums of its gradients, where the next line picks of "
    "it by index: the gradient of a pick of the tensor itself adds these up. Of what the rounds of "
    "a loop move, all but one. Of gradients of parts the "
    "zeros, and half of the sums.",
    not_on_cpu=ON_CPU,
    judge=_judge,
    turn=Turn.BROAD,
)
