"""Launches by what a step's values show of their lines: which part of them is for nothing, where.

The values of one step before the recording are compared op by op; a launch is matched to them by
the line and the phase of its main place, and by its op where that is known.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Final

import numpy as np

from profiler_ext.findings.critical_path import Floats
from profiler_ext.findings.facts import CannotJudge, Facts, Rows, enclosing, location_of
from profiler_ext.findings.finding import Figure, FigureUnit, Location
from profiler_ext.findings.groups import SHORT_NS
from profiler_ext.findings.ranking import verdict_of
from profiler_ext.findings.rule import Candidate, Rule
from profiler_ext.records.analysis import Place
from profiler_ext.records.events import Ints
from profiler_ext.records.lineage import Frame, is_of_optimizer
from profiler_ext.records.values import GradientValues, OpValues, ProgramLine, StepValues
from profiler_ext.records.vocabulary import Phase, Scope

_OFF: Final = CannotJudge(
    "the values of no step were compared (profile(values=True), profiler-ext run --values)"
)
_NO_STEP: Final = CannotJudge(
    "no step came before the recording whose values could be compared: the third one or later, "
    "without a profiler (schedule(wait=3, ...), --skip 5)"
)
BEHIND: Final = (Phase.BACKWARD, Phase.GRADIENT_ACCUMULATION)
AHEAD: Final = (Phase.FORWARD, Phase.OTHER)
ALL: Final = 0.95  # of a part; the rest is what was not compared, or what rounding leaves
# What launching takes of the CPU at least: steps that wait for it have many short kernels
_LAUNCH_NS = 5_000
_ALIKE = 0.9
_SIMILAR = 0.1
_ROUNDING = 0.01
_ALL_OPS = ""
# These compute nothing: what they take is for moving data
_MOVES = re.compile(
    r"aten(?:::|\.)_?(embedding|index|gather|take|repeat|tile|expand|cat(?!\w)|concat|h?v?d?stack|"
    r"clone|copy_?(?!\w)|to(?!\w)|to_copy|contiguous|scatter|masked_(?:fill|select|scatter)|slice|select|"
    r"narrow|unfold|im2col|split|chunk|pad(?!\w)|constant_pad|reflection_pad|replication_pad|roll|flip|"
    r"permute|t(?:ranspose)?(?!\w)|reshape|view|flatten|empty|new_|zeros|ones|full|fill|arange|"
    r"one_hot)"
)
# What takes elements by their place, or by what is given with them: an index, labels, a mask, a
# weight; classes along another dimension than the last (``NllLoss2D``) are rows of zeros by
# design. What selects by values (a maximum, ReLU) needs all in the forward, and a saturated softmax
# has a gradient of zero for that step alone
_TAKES = re.compile(
    r"Slice|Select|Index|Gather|Take|Narrow|Split|Unbind|Chunk|AsStrided|NllLoss(?!2)|CrossEntropy|"
    r"Mul|Masked|Where|Embedding|Pad|Unfold|Diagonal|Tri[lu]"
)
# They compute all of what they return together, so that a part of it costs as much
_MIXES = re.compile(
    r"Fft|Lstm|Gru|Rnn|Cum|Scan|Sort|Linalg|Cholesky|Solve|Inverse|Svd|Eig|Scatter|IndexAdd|"
    r"IndexPut|GridSampler|Reduce"
)
_IS_MIXING = re.compile(
    r"fft|lstm|gru|rnn|cum|scan|sort|linalg|cholesky|solve|inverse|svd|_eig|scatter|index_add|"
    r"index_put|grid_sampler|topk|kthvalue|median|unique"
)
_Line = tuple[str, int]
_Key = tuple[str, int, bool, str]  # file, line, whether of the backward, op
_Sums = Mapping[_Key, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Weighed:
    """The launches of the model's lines in the steps, and the part of each that is for nothing."""

    launches: Ints
    part: Floats
    key: Ints  # a number for each line, phase and op that values are of; -1 where there are none


@dataclass(frozen=True, slots=True)
class _Leaf:
    """The launches of one place."""

    place: Place
    frames: tuple[Frame, ...]  # outermost first
    at: Ints  # which launches, of those that are weighed
    gone_ns: float
    whole_ns: float


@dataclass(frozen=True, slots=True)
class ValueGroup:
    """Launches under one line, or under several of one function, that are for nothing in part."""

    location: Location
    frames: tuple[Frame, ...]  # to that line, outermost first
    launches: Ints  # those of which something goes
    part: Floats  # of each
    gone_ns: float
    whole_ns: float  # with the launches under the same frames of which nothing goes
    others: tuple[int, ...] = ()  # the other lines of the function

    @property
    def share(self) -> float:
        """Which part of what is under its lines is for nothing."""
        return self.gone_ns / self.whole_ns

    def figures(self) -> tuple[Figure, ...]:
        """Return the other lines as evidence."""
        text = ", ".join(map(str, self.others))
        return (Figure("other lines of the function", text, FigureUnit.TEXT),) if text else ()


def values_of(facts: Facts) -> StepValues | CannotJudge:
    """Return the values of the step that was compared, or why there are none."""
    recording = facts.analysis.recording
    asked = _NO_STEP if "values" in recording.settings.options else _OFF
    return recording.values or asked


def weighed_by_repeats(facts: Facts, values: StepValues) -> Weighed:
    """Flag the launches whose values the step computed before: all but the first part in time.

    Of the others, weigh those that compute rows which an earlier call of their op computed.
    """
    launches = _launches(facts, *AHEAD, *BEHIND)  # what checkpoints compute again is no repeat
    own = _matched(facts, launches, _summed(values.ops, lambda each: each.repeated_elements))
    rows = _matched(facts, launches, _summed(values.ops, _rows_before))
    part, order = np.zeros(len(launches)), np.argsort(facts.launches.start_ns[launches])
    step = facts.launches.step.filled(-1)[launches]
    for at in _runs(own.key, order):
        whole = own.part[at[0]]
        part[at] = max((rows.part[at[0]] - whole) / (1 - whole), 0.0) if whole < 1 else 0.0
        for of_step in _runs(step, at):
            gone = int(whole * len(of_step) + _ROUNDING)
            part[of_step[len(of_step) - gone :]] = 1.0
    return Weighed(launches, part, own.key)


def _rows_before(op: OpValues) -> int:
    return 0 if is_moving(op.op) else op.rows_computed_before_elements


def weighed_by_reads(facts: Facts, values: StepValues) -> Weighed:
    """Weigh eager launches by what nothing reads of their op's results.

    What is compiled has no such ops any more.
    """
    launches = _launches(facts, *AHEAD, *BEHIND)
    launches = launches[facts.launches.scope.where(Scope.EAGER)[launches]]
    found = _matched(facts, launches, _summed(values.ops, lambda each: each.unread_elements))
    is_left = _are_mixing(facts, launches) & (found.part < 1)
    return Weighed(launches, np.where(is_left, 0.0, found.part), found.key)


def weighed_by_rows(facts: Facts, values: StepValues) -> Weighed:
    """Weigh what computes by the equal rows that the ops of its line's forward gave."""
    computing = [each for each in values.ops if not each.is_backward and not is_moving(each.op)]
    sums = _of_lines(_summed(computing, lambda each: each.equal_row_elements))
    launches = _launches(facts, *AHEAD, *BEHIND, Phase.RECOMPUTE)
    moving = [is_moving(facts.innermost_op(row)) for row in launches.tolist()]
    return _matched(facts, launches[~np.array(moving, np.bool_)], sums)


def weighed_by_gradients(facts: Facts, values: StepValues) -> Weighed:
    """Weigh launches by the zero gradients of their line; nothing of what has no backward."""
    kept = _readers_beside(values)
    behind = _of_lines(_summed(values.gradients, needless_elements))
    ahead = _summed(
        values.gradients,
        lambda each: 0 if (each.reader, each.reader_at) in kept else needless_elements(each),
    )
    sums = {**behind, **{key: each for key, each in ahead.items() if key in behind}}
    found = _matched(facts, _launches(facts, *AHEAD, *BEHIND, Phase.RECOMPUTE), sums)
    is_left = ~_learns(facts, found.launches)
    is_left |= _are_mixing(facts, found.launches) & (found.part < 1)
    return Weighed(found.launches, np.where(is_left, 0.0, found.part), found.key)


def _readers_beside(values: StepValues) -> set[tuple[str, ProgramLine | None]]:
    """Return the readers of results that are read without a gradient, too: by a matcher, say.

    The forward has to know all that these leave.
    """
    read = {each.at for each in values.ops if each.is_read_without_gradient}
    return {(each.reader, each.reader_at) for each in values.gradients if each.at in read}


def _are_mixing(facts: Facts, launches: Ints) -> Rows:
    """Flag the launches of ops that compute all of what they return together."""
    ops = [facts.innermost_op(row) for row in launches.tolist()]
    return np.array([_IS_MIXING.search(each) is not None for each in ops], np.bool_)


def is_moving(op: str) -> bool:
    """Tell whether an op only moves data."""
    return _MOVES.match(op) is not None


def needless_elements(gradient: GradientValues) -> int:
    """Return how many of a gradient's zeros are of values that need not be computed."""
    is_part = gradient.zero_elements < gradient.elements
    if _TAKES.search(gradient.reader) is None or (is_part and _MIXES.search(gradient.node)):
        return 0
    return gradient.zero_elements


def gradients_under(facts: Facts, group: ValueGroup, values: StepValues) -> list[GradientValues]:
    """Return the gradients with zeros of the lines of a group."""
    zero = [each for each in values.gradients if needless_elements(each)]
    known = {_line(each.at) for each in zero}
    places = (
        facts.analysis.places[at] for at in np.unique(facts.main_place[group.launches]).tolist()
    )
    lines = {_line_of(place, known) for place in places}
    return [each for each in zero if _line(each.at) in lines]


def saved_of_rows_ns(facts: Facts, group: ValueGroup) -> int:
    """Return what a step saves without a part of the rows: short launches take as long."""
    is_short = facts.launches.duration_ns[group.launches] < SHORT_NS
    gone = np.where(is_short, 0.0, group.part)
    if facts.on_device:
        return facts.median_per_step(group.launches, facts.critical_ns(group.launches, gone))
    own_ns = (gone * facts.launches.duration_ns[group.launches]).astype(np.int64)
    return facts.median_per_step(group.launches, own_ns)


def saved_ns(facts: Facts, group: ValueGroup) -> int:
    """Return what a step saves without the launches that go, and without parts of others."""
    is_whole = group.part >= ALL
    others = replace(group, launches=group.launches[~is_whole], part=group.part[~is_whole])
    removed_ns = facts.removed_per_step_ns(group.launches[is_whole]) if is_whole.any() else 0
    return removed_ns + (saved_of_rows_ns(facts, others) if len(others.launches) else 0)


def _summed(values: Iterable[OpValues | GradientValues], gone: Callable[..., int]) -> _Sums:
    """Add up the elements, and those that are for nothing, of each line, phase and op."""
    sums: dict[_Key, tuple[int, int]] = {}
    for each in values:
        is_behind = isinstance(each, OpValues) and each.is_backward
        for op in {each.op if isinstance(each, OpValues) else _ALL_OPS, _ALL_OPS}:
            key = (*_line(each.at), is_behind, op)
            elements, other = sums.get(key, (0, 0))
            sums[key] = elements + each.elements, other + gone(each)
    return sums


def _of_lines(sums: _Sums) -> _Sums:
    """Return what is of all ops of a line's forward, for its backward, too."""
    own = [(key, each) for key, each in sums.items() if key[3] == _ALL_OPS]
    return {
        (file, line, is_behind, op): each
        for (file, line, _, op), each in own
        for is_behind in (False, True)
    }


def _line(at: ProgramLine) -> _Line:
    return at.file, at.line


def _line_of(place: Place, known: set[_Line]) -> _Line | None:
    """Return the line of a place that has values."""
    own = [(place.file or "", place.line or 0)]
    own += [(frame.file, frame.line) for frame in place.stack[-1:]]
    return next((each for each in own if each in known), None)


def _launches(facts: Facts, *phases: Phase) -> Ints:
    """Return the launches in the steps, at lines of the model, of some phases."""
    in_model = facts.mainly(lambda place: bool(place.line) and not is_of_optimizer(place.stack))
    return np.flatnonzero(facts.in_steps(in_model & facts.launches.phase.where(*phases)))


def _matched(
    facts: Facts, launches: Ints, sums: _Sums, backward: tuple[Phase, ...] = BEHIND
) -> Weighed:
    """Match launches to the values of their op at their line, or to those of all ops of it."""
    keys = {key: number for number, key in enumerate(sums)}
    known = {(file, line) for file, line, *_ in sums}
    place = facts.main_place[launches]
    lines = {at: _line_of(facts.analysis.places[at], known) for at in np.unique(place).tolist()}
    is_behind = facts.launches.phase.where(*backward)[launches]
    names = _names(facts, launches, {op for *_, op in sums})
    found = np.full(len(launches), -1, np.int64)
    of_all = zip(place.tolist(), is_behind.tolist(), names, strict=True)
    for row, (at, behind, name) in enumerate(of_all):
        if (line := lines[at]) is not None:
            all_ops = keys.get((*line, behind, _ALL_OPS), -1)
            found[row] = keys.get((*line, behind, name), all_ops)
    parts = np.array([gone / max(elements, 1) for elements, gone in sums.values()] + [0.0])
    return Weighed(launches, parts[found], found)


def _names(facts: Facts, launches: Ints, known: set[str]) -> list[str]:
    """Return the op of each eager launch that values are of: the innermost around it."""
    events, op = facts.analysis.recording.trace.events, facts.launches.op_event[launches]
    is_eager = facts.launches.scope.where(Scope.EAGER)[launches] & ~np.ma.getmaskarray(op)
    around = enclosing(events, op.filled(0).astype(np.int64), known.__contains__)
    return [
        events.name[row] if eager else _ALL_OPS
        for row, eager in zip(around.tolist(), is_eager.tolist(), strict=True)
    ]


def _learns(facts: Facts, launches: Ints) -> Rows:
    """Flag launches whose function, called from where it is, has a backward."""
    # A line alone may have none: that of a sum launches nothing
    chains = [_lines(frames_of(each)) for each in facts.analysis.places]
    behind = np.unique(facts.main_place[launches[facts.launches.phase.where(*BEHIND)[launches]]])
    learning = {chains[at] for at in behind.tolist()}
    callers = {each[:-1] for each in learning} - {()}
    # What is behind a checkpoint has the frames within it alone
    flags = [
        len(each) == 1
        or each[-1:] in learning
        or any(each[at:-1] in callers for at in range(len(each) - 1))
        for each in chains
    ]
    learns: Rows = np.array([*flags, False], np.bool_)[facts.main_place[launches]]
    return learns


def _lines(frames: Sequence[Frame]) -> tuple[_Line, ...]:
    return tuple((each.file, each.line) for each in frames)


def _whole_frames(facts: Facts) -> dict[int, tuple[Frame, ...]]:
    """Return the frames of each place; behind a checkpoint, those that its forward has."""
    own = {at: frames_of(each) for at, each in enumerate(facts.analysis.places) if each.line}
    ahead = {at for at in own if facts.analysis.places[at].phase in AHEAD}
    lines = {at: _lines(each) for at, each in own.items()}
    whole: dict[tuple[_Line, ...], int] = {}
    behind = {lines[at] for at in own if at not in ahead}
    for at in sorted(ahead):
        inner = (lines[at][number:] for number in range(1, len(lines[at])))
        for each in behind.intersection(inner):
            whole.setdefault(each, at)
    return {at: own[at if at in ahead else whole.get(lines[at], at)] for at in own}


def _runs(of: Ints, order: Ints) -> Iterator[Ints]:
    """Yield the parts of an order that have the same number each; negative numbers left out."""
    order = order[np.argsort(of[order], kind="stable")]
    numbers, firsts = np.unique(of[order], return_index=True)
    parts = np.split(order, firsts[1:])
    yield from (part for number, part in zip(numbers.tolist(), parts, strict=False) if number >= 0)


def frames_of(place: Place) -> tuple[Frame, ...]:
    """Return the frames of a place, outermost first; its line where no stack was recorded."""
    own = Frame(place.file or "", place.line or 0, place.function or "", place.code)
    return place.stack or (own,)


def grouped(facts: Facts, weighed: Weighed, least_share: float) -> list[ValueGroup]:
    """Group launches of which something goes by the outermost frame that does little else."""
    leaves = _leaves(facts, weighed)
    if not any(each.gone_ns for each in leaves):
        return []
    lines = [_lines(each.frames) for each in leaves]
    # Frames that all have say nothing of any
    columns = zip(*lines, strict=False)
    shared = len([*takewhile(lambda column: len(set(column)) == 1, columns)])
    pending, found = [(min(shared, min(map(len, lines)) - 1), leaves)], []
    while pending:
        depth, inner = pending.pop()
        below: dict[_Line, list[_Leaf]] = {}
        for each in inner:
            frame = each.frames[depth]
            below.setdefault((frame.file, frame.line), []).append(each)
        for own in below.values():
            ended = [each for each in own if len(each.frames) == depth + 1]
            if len(ended) == len(own) or _is_one(own):
                found.append((depth, own))
                continue
            found += [(depth, ended)] if ended else []
            pending.append((depth + 1, [each for each in own if len(each.frames) > depth + 1]))
    groups = [_group(weighed, depth, own) for depth, own in found if any(e.gone_ns for e in own)]
    return _merged(each for each in groups if each.share >= least_share)


def _leaves(facts: Facts, weighed: Weighed) -> list[_Leaf]:
    cost_ns = np.maximum(facts.launches.duration_ns[weighed.launches], _LAUNCH_NS)
    gone_ns = weighed.part * cost_ns
    place = facts.main_place[weighed.launches]
    leaves, frames = [], _whole_frames(facts)
    for at in _runs(place, np.arange(len(place))):
        number = int(place[at[0]])
        own = facts.analysis.places[number]
        sums = float(gone_ns[at].sum()), float(cost_ns[at].sum())
        leaves.append(_Leaf(own, frames[number], at, *sums))
    return leaves


def _is_one(leaves: Sequence[_Leaf]) -> bool:
    """Tell whether no lines under a frame, with half of what goes, do so more than all do."""
    gone_ns, whole_ns = _sums_of(leaves)
    if not gone_ns:
        return True
    most = sorted(leaves, key=lambda each: -each.gone_ns / each.whole_ns)
    gone, whole = 0.0, 0.0
    for each in most:
        gone, whole = gone + each.gone_ns, whole + each.whole_ns
        if 2 * gone >= gone_ns:
            break
    return gone_ns / whole_ns >= _ALIKE * gone / whole


def _sums_of(leaves: Sequence[_Leaf]) -> tuple[float, float]:
    return sum(each.gone_ns for each in leaves), sum(each.whole_ns for each in leaves)


def _group(weighed: Weighed, depth: int, leaves: Sequence[_Leaf]) -> ValueGroup:
    longest = max(leaves, key=lambda each: each.gone_ns)
    frames = longest.frames[: depth + 1]
    where = Location(frames[-1].file, frames[-1].line, frames[-1].code)
    is_line = all(len(each.frames) == depth + 1 for each in leaves)
    at = np.sort(np.concatenate([each.at for each in leaves]))
    at = at[weighed.part[at] > 0]
    gone_ns, whole_ns = _sums_of(leaves)
    return ValueGroup(
        location_of(longest.place) if is_line else where,
        frames,
        weighed.launches[at],
        weighed.part[at],
        gone_ns,
        whole_ns,
    )


def _merged(groups: Iterable[ValueGroup]) -> list[ValueGroup]:
    """Merge the groups of one line, and of a function's lines that have similar shares."""
    merged: list[list[ValueGroup]] = []
    for each in sorted(groups, key=lambda group: -group.gone_ns):
        own = next((of for of in merged if _is_alike(of, each)), None)
        if own is None:
            merged.append([each])
        else:
            own.append(each)
    return [_joined(each) for each in merged]


def _is_alike(groups: Sequence[ValueGroup], other: ValueGroup) -> bool:
    """Tell whether a group is at a line of these, or of their function with a similar share."""
    first, own = groups[0], other.frames[-1]
    frames = [each.frames[-1] for each in groups]
    if any((each.file, each.line) == (own.file, own.line) for each in frames):
        return True
    is_same = (frames[0].file, frames[0].function) == (own.file, own.function)
    return is_same and abs(first.share - other.share) <= _SIMILAR


def _joined(groups: Sequence[ValueGroup]) -> ValueGroup:
    first = groups[0]
    lines = {each.frames[-1].line for each in groups} - {first.frames[-1].line}
    return ValueGroup(
        first.location,
        first.frames,
        np.concatenate([each.launches for each in groups]),
        np.concatenate([each.part for each in groups]),
        sum(each.gone_ns for each in groups),
        sum(each.whole_ns for each in groups),
        tuple(sorted(lines)),
    )


def unsaid(
    facts: Facts, candidates: Iterable[Candidate], by_text: Sequence[Rule]
) -> Iterator[Candidate]:
    """Yield the candidates that no rule of the text has: these know what to do more exactly."""
    said = [each for rule in by_text for each in _candidates_of(facts, rule)]
    for own in candidates:
        if not any(_is_said(facts, own, other) for other in said):
            yield own


def _candidates_of(facts: Facts, rule: Rule) -> list[Candidate]:
    def judged() -> list[Candidate]:
        verdict = verdict_of(rule.verdict, facts)
        return [] if isinstance(verdict, CannotJudge) else verdict

    return facts.analysis.derived.once(f"candidates of {rule.name}", judged)


def _is_said(facts: Facts, own: Candidate, other: Candidate) -> bool:
    """Tell whether another candidate has most of the launches, and half of what goes."""
    duration_ns = facts.launches.duration_ns
    both = np.intersect1d(own.launches, other.launches)
    own_ns, both_ns = (int(duration_ns[rows].sum()) for rows in (own.launches, both))
    return 2 * both_ns > own_ns and 2 * other.est_saving_ns >= own.est_saving_ns
