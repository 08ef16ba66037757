"""The nodes of autograd that a backward runs, as the engine's events name and number them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from statistics import median_low

import numpy as np

from profiler_ext.findings.facts import Facts, Rows, enclosing
from profiler_ext.records.events import Events, Ints, flag_rows
from profiler_ext.records.vocabulary import Phase

_ENGINE = "autograd::engine::evaluate_function: "
_ACCUMULATES = _ENGINE + "torch::autograd::AccumulateGrad"
_WRITES_PART = _ENGINE + "torch::autograd::CopySlices"
_ONES = "aten::ones_like"
# Each call may begin at another of their results; functions of programs have no number at the end
_OF_ONE_VALUE = re.compile(
    r".*: (?!.*(?:Unbind|Split|Chunk|Rnn|RNN|Native|Max|Min|Sort|Topk|Kthvalue|Mode|Median|VarMean|"
    r"StdMean|Linalg|Frexp|Foreach|Attention|Unique))\w+Backward\d+$"
)
_UNNUMBERED = -1
_MIN_ROWS = 8  # of a Jacobian; fewer are losses


@dataclass(frozen=True, slots=True)
class Nodes:
    """The nodes that ran within the steps, by thread and time; a node may run several times."""

    event: Ints  # row of the engine's event
    number: Ints  # equal for the runs of one node; -1 for those that accumulate gradients
    sequence: Ints  # the number of its forward op, -1 where it has none

    def __len__(self) -> int:
        return len(self.event)


def nodes_of(facts: Facts) -> Nodes:
    """Return the nodes that ran within the steps of a session."""
    return facts.analysis.derived.once("autograd nodes", lambda: _nodes(facts))


def _nodes(facts: Facts) -> Nodes:
    events, steps = facts.analysis.recording.trace.events, facts.analysis.steps
    is_node = flag_rows(events.name, lambda name: name.startswith(_ENGINE))
    if steps:
        is_node &= (events.start_ns >= steps[0].cpu_start_ns) & (
            events.start_ns < steps[-1].cpu_end_ns
        )
    rows = np.flatnonzero(is_node)
    rows = rows[np.lexsort((events.start_ns[rows], events.thread[rows]))]
    sequence = events.sequence_number[rows].filled(_UNNUMBERED).astype(np.int64)
    sequence[flag_rows(events.name, _ACCUMULATES.__eq__)[rows]] = _UNNUMBERED
    thread = events.fwd_thread_id[rows].filled(_UNNUMBERED).astype(np.int64)
    keys = np.stack([events.name.codes[rows].astype(np.int64), sequence, thread])
    number = np.unique(keys, axis=1, return_inverse=True)[1].ravel() if len(rows) else rows
    return Nodes(rows, np.where(sequence == _UNNUMBERED, _UNNUMBERED, number), sequence)


@dataclass(frozen=True, slots=True)
class Calls:
    """The calls of autograd that ran the nodes, where each began with a gradient of ones."""

    ones: Ints  # by call, in their order: the event of the op that made the ones
    of_node: Ints  # the call of each node; -1 before the first
    root: Ints  # the number of the node at which each node's call began; -1 where unknown


def calls_of(facts: Facts) -> Calls:
    """Return the calls of autograd within the steps of a session."""
    # torch/autograd/__init__.py, _make_grads: a value that comes without a gradient gets ones
    events, nodes = facts.analysis.recording.trace.events, nodes_of(facts)
    begins_ns = events.start_ns[nodes.event]
    ones = np.flatnonzero(flag_rows(events.name, _ONES.__eq__))
    ones = ones[enclosing(events, ones, lambda name: name.startswith(_ENGINE)) == ones]
    ones = ones[np.argsort(events.start_ns[ones], kind="stable")]
    of_node = np.searchsorted(events.start_ns[ones], begins_ns, side="right") - 1
    order = np.argsort(begins_ns, kind="stable")
    known, first = np.unique(of_node[order], return_index=True)
    begins = order[first[known >= 0]]
    called = of_node[begins]
    # Where other ops follow the ones, the gradient may be another
    is_next = begins_ns[begins] <= _next_op_ns(events, ones[called])
    is_next &= flag_rows(events.name, _is_of_one_value)[nodes.event[begins]]
    root = np.full(len(ones) + 1, _UNNUMBERED, np.int64)  # the last one is that of no call
    root[called[is_next]] = nodes.number[begins[is_next]]
    return Calls(ones, of_node, root[of_node])


def _is_of_one_value(name: str) -> bool:
    return _OF_ONE_VALUE.match(name) is not None


def _next_op_ns(events: Events, ops: Ints) -> Ints:
    """Return when the next op begins on the thread of each op, after its end."""
    is_op = flag_rows(events.name, lambda name: name.startswith("aten::"))
    result = np.full(len(ops), np.iinfo(np.int64).max)
    for thread in np.unique(events.thread[ops]).tolist():
        starts_ns = np.sort(events.start_ns[is_op & (events.thread == thread)])
        own = events.thread[ops] == thread
        at = np.searchsorted(starts_ns, events.end_of(ops[own]))
        result[own] = np.append(starts_ns, np.iinfo(np.int64).max)[at]
    return result


def begins_again(nodes: Nodes, calls: Calls) -> Rows:
    """Flag the runs of a node after its first by calls that begin at the same value."""
    is_again = np.zeros(len(nodes), np.bool_)
    rows = np.flatnonzero((calls.root >= 0) & (nodes.number >= 0))
    rows = rows[np.argsort(calls.of_node[rows], kind="stable")]
    runs = np.stack([calls.root[rows], nodes.number[rows]])
    is_again[rows] = True
    is_again[rows[np.unique(runs, axis=1, return_index=True)[1]]] = False
    return is_again


@dataclass(frozen=True, slots=True)
class RowRuns:
    """The runs of nodes for one row after the other, each by a call of its own."""

    is_run: Rows  # by node: it runs for a row
    is_own: Rows  # or was made in such a run, or one of those
    count: int  # of the runs of a node, 0 without any


def runs_in_rows(facts: Facts) -> RowRuns:
    """Return the runs of nodes that a step runs again and again, their gradients kept apart."""
    return facts.analysis.derived.once("rows of autograd", lambda: _runs_in_rows(facts))


def _runs_in_rows(facts: Facts) -> RowRuns:
    nodes = nodes_of(facts)
    is_known = nodes.number >= 0
    known = np.where(is_known, nodes.number, 0)
    counts = np.bincount(known[is_known], minlength=1)[known]
    is_run = is_known & (counts >= _MIN_ROWS)
    if is_run.any():
        # Calls that begin at one value are one call for several others, with that value's gradient
        at_one = nodes.number[begins_again(nodes, calls_of(facts))]
        is_run &= ~np.isin(nodes.number, at_one)
    before = np.maximum.accumulate(np.where(is_known, np.arange(len(nodes)), 0))
    is_summed = accumulates(facts, nodes) & is_run[before]
    # Where most runs add to the gradients of parameters, one backward of the sum does the same
    followed = np.unique(before[is_summed])
    at_sums = is_run & np.isin(nodes.number, nodes.number[followed])
    if not is_run.any() or 2 * len(followed) > at_sums.sum() > 0:
        none = np.zeros(len(nodes), np.bool_)
        return RowRuns(none, none, 0)
    count = median_low(counts[is_run].tolist())
    is_own, maker = is_run | is_summed, makers_of(facts)
    while (is_made := ~is_own & (maker >= 0) & is_own[maker]).any():
        is_own |= is_made
    return RowRuns(is_run, is_own, count)


def makers_of(facts: Facts) -> Ints:
    """Return the node in whose run each node was made (``create_graph``), or -1."""
    events, nodes = facts.analysis.recording.trace.events, nodes_of(facts)
    begins_ns = events.start_ns[nodes.event]
    is_forward = (events.sequence_number.filled(-1) >= 0) & (events.fwd_thread_id.filled(0) == 0)
    maker = np.full(len(nodes), -1, np.int64)
    for thread in np.unique(events.thread[nodes.event]).tolist():
        own = np.flatnonzero(is_forward & (events.thread == thread))
        own = own[np.argsort(events.start_ns[own], kind="stable")]
        runs = np.flatnonzero(events.thread[nodes.event] == thread)
        bounds = np.stack([begins_ns[runs], events.end_of(nodes.event[runs])])
        # An op has the number of the node that is made next, by itself or by what follows
        numbers = events.sequence_number.data[own]
        numbers = np.append(numbers, numbers.max(initial=-1) + 1)
        first, last = numbers[np.searchsorted(events.start_ns[own], bounds)]
        at = np.searchsorted(first, nodes.sequence, side="right") - 1
        # Numbers are those of a thread, and may be equal to those of another
        is_made = (nodes.sequence < last[at]) & (at >= 0) & (begins_ns > bounds[1, at])
        maker[is_made] = runs[at[is_made]]
    return maker


def node_around(facts: Facts, launches: Ints) -> Ints:
    """Return the row in ``Nodes`` of the node that each launch is of, or -1."""
    events, nodes = facts.analysis.recording.trace.events, nodes_of(facts)
    op = facts.launches.op_event[launches]
    around = enclosing(events, op.filled(0).astype(np.int64), lambda name: name.startswith(_ENGINE))
    around[np.ma.getmaskarray(op)] = -1
    order = np.argsort(nodes.event, kind="stable")
    at = np.searchsorted(nodes.event[order], around)
    is_node = np.append(nodes.event[order], -2)[at] == around
    result: Ints = np.where(is_node, np.append(order, -1)[at], -1)
    return result


def accumulates(facts: Facts, nodes: Nodes) -> Rows:
    """Flag the nodes that add a gradient to its parameter."""
    name = facts.analysis.recording.trace.events.name
    flags: Rows = flag_rows(name, _ACCUMULATES.__eq__)[nodes.event]
    return flags


def copies_whole(facts: Facts, launches: Ints) -> Ints:
    """Return the launches behind writes into parts of tensors: each copies a whole gradient."""
    nodes, at = nodes_of(facts), node_around(facts, launches)
    name = facts.analysis.recording.trace.events.name
    is_of_part = flag_rows(name, _WRITES_PART.__eq__)[nodes.event]
    of_part: Ints = launches[np.append(is_of_part, False)[at]]
    return of_part


def names_of(facts: Facts, nodes: Nodes) -> list[str]:
    """Return the kinds of nodes that ran, ``MulBackward0`` for example."""
    events: Events = facts.analysis.recording.trace.events
    codes = np.unique(events.name.codes[nodes.event]).tolist()
    return [events.name.strings[code].removeprefix(_ENGINE) for code in codes]


def with_backward(facts: Facts, launches: Ints) -> Ints:
    """Return launches with those of the backward of the ops that Python called for them."""
    calls = facts.called_ops(launches)
    behind = np.flatnonzero(facts.in_steps(facts.launches.phase.where(Phase.BACKWARD)))
    return np.union1d(launches, backward_of(facts, np.unique(calls[calls >= 0]), behind))


def backward_of(facts: Facts, ops: Ints, launches: Ints) -> Ints:
    """Return those of some launches that are of the backward of these calls of ops."""
    events, nodes = facts.analysis.recording.trace.events, nodes_of(facts)
    numbered = np.flatnonzero(~np.ma.getmaskarray(events.sequence_number))
    numbered = numbered[events.sequence_number.data[numbered] >= 0]
    numbered = numbered[np.argsort(events.start_ns[numbered], kind="stable")]
    is_made = np.zeros(len(nodes), np.bool_)
    for thread in np.unique(events.thread[ops]).tolist():
        own = numbered[events.thread[numbered] == thread]
        calls = ops[events.thread[ops] == thread]
        bounds = np.searchsorted(
            events.start_ns[own], [events.start_ns[calls], events.end_of(calls)]
        )
        # An op has the number of the node that is made next, by itself or by what follows
        numbers = np.append(events.sequence_number.data[own], np.iinfo(np.int64).max)
        for first, last in numbers[bounds].T.tolist():
            is_made |= (nodes.sequence >= first) & (nodes.sequence < last)
    behind: Ints = launches[np.append(is_made, False)[node_around(facts, launches)]]
    return behind
