"""The phase of eager launches, and the forward op that a backward op differentiates.

Forward is what runs in a module's forward or in a compiled function, or what a backward
differentiates. What is in none of torch's ranges is other work.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from typing import NamedTuple

import numpy as np

from profiler_ext.attribution.enclosing import EnclosingRanges
from profiler_ext.attribution.trace.forward_links import ForwardLinks
from profiler_ext.attribution.trace.lookups import NO_ROW, Flags, Rows, take
from profiler_ext.attribution.trace.nesting import nest
from profiler_ext.kineto import classify, communication, flow_events, names
from profiler_ext.records.events import Events, Ints, Trace, flag_rows
from profiler_ext.records.evidence import SiteEvidence
from profiler_ext.records.vocabulary import Phase


class PythonCalls:
    """The module calls and recomputations around each CPU event.

    Attributes:
        module: the innermost call of a module around each event, or ``NO_ROW``.
        recomputation: the recomputation within the engine around each event; ``NO_ROW`` where there
            is none, or where that has called the engine again, for a backward.
    """

    def __init__(self, events: Events, is_engine: Flags) -> None:
        is_python = flag_rows(events.category, classify.is_python)
        is_module = is_python & flag_rows(events.name, classify.is_call_of_module)
        is_recomputation_row = is_python & flag_rows(events.name, classify.is_recomputation)
        self.module = self.recomputation = np.broadcast_to(np.int32(NO_ROW), len(events))
        if is_module.any() or is_recomputation_row.any():
            nesting = nest(events, is_module | is_recomputation_row)
            self.module = nesting.nearest(is_module)
            # Leave out where the nearest of two kinds is not of the wanted one.
            nearest = nesting.nearest(is_recomputation_row | is_engine)
            rows: Rows = np.where(
                (nearest != NO_ROW) & is_recomputation_row[nearest], nearest, np.int32(NO_ROW)
            )
            self.recomputation = rows


def scaling_ops(enclosing: EnclosingRanges) -> Rows:
    """Return for each event the scaler's op that it is or is in, or ``NO_ROW``."""
    names = enclosing.events.name
    is_scaling = flag_rows(names, classify.is_scaling_op) & enclosing.is_op
    rows, place = _neighbours(enclosing, is_scaling)
    for at in np.flatnonzero(is_scaling[rows]).tolist():
        before = rows[max(at - classify.MAX_OPS_BEFORE, 0) : at]
        before = before[place[before] == place[rows[at]]]
        own = classify.own_ops_before(names[rows[at]], [names[row] for row in before])
        is_scaling[before[len(before) - own :]] = True
        after = rows[at + 1 : at + 3]
        after = after[place[after] == place[rows[at]]]
        has_step_check = classify.is_step_check(names[rows[at]], [names[row] for row in after])
        is_scaling[after[: int(has_step_check)]] = True
    return enclosing.nesting.nearest(is_scaling)


def _neighbours(enclosing: EnclosingRanges, is_scaling: Flags) -> tuple[Ints, Ints]:
    """Return ops and optimizers' steps around the scaler's in order, and events' positions."""
    parent, events = enclosing.nesting.parent, enclosing.events
    place = np.where(parent == NO_ROW, -1 - events.thread, parent)
    is_candidate = enclosing.is_op | flag_rows(events.name, classify.is_optimizer)
    rows = np.flatnonzero(is_candidate & np.isin(place, place[is_scaling]))
    return rows[np.lexsort((events.start_ns[rows], place[rows]))], place


class ForwardOps:
    """The forward op of each event of the engine.

    Attributes:
        links: the forward events by autograd's numbers.
    """

    def __init__(self, enclosing: EnclosingRanges, trace: Trace, op: Rows) -> None:
        self._enclosing, self._trace, self._op = enclosing, trace, op
        self.links = self._forward_links()
        self._known: dict[int, str | None] = {}

    def of_engine(self, engine: int) -> str | None:
        """Return the forward op that a backward differentiates."""
        # What runs eagerly in the backward of a compiled forward is of many ops. A function of the
        # program's own is an op of its class's name.
        if engine not in self._known:
            self._known[engine] = self._forward_op(self.links.forward_of(engine))
        return self._known[engine]

    def _forward_op(self, row: int | None) -> str | None:
        name = self._enclosing.events.name
        if row is None or classify.is_compiled_forward(name[row]):
            return None
        return name[row] if self._op[row] == NO_ROW else name[int(self._op[row])]

    def _forward_links(self) -> ForwardLinks:
        """Index what made an autograd node: ops, compiled forwards, the program's functions."""
        # The engine's own events have the number of the node that they evaluate, unless a hook runs
        # before it. Source: ``torch/csrc/profiler/collection.cpp``, ``set_autograd_evaluate``.
        enclosing, events = self._enclosing, self._enclosing.events
        rows, nodes = np.arange(len(events), dtype=np.int32), self._nodes()
        is_engine: Flags = enclosing.engine == rows
        is_engine[nodes] = True
        backward = np.unique(enclosing.engine)
        return ForwardLinks(
            events,
            np.flatnonzero(enclosing.is_op & ~is_engine),
            backward[backward != NO_ROW],
            dict(zip(enclosing.nesting.parent[nodes].tolist(), nodes.tolist(), strict=True)),
            partial(flow_events.forward_flows, self._trace),
        )

    def _nodes(self) -> Ints:
        """Return the nodes' own events, each directly within the engine's."""
        enclosing, names_ = self._enclosing, self._enclosing.events.name
        code_of = {text: code for code, text in enumerate(names_.strings)}
        evaluated = map(names.evaluated_function, names_.strings)
        codes = np.array(
            [NO_ROW if text is None else code_of.get(text, NO_ROW) for text in evaluated], np.int64
        )
        around = take(enclosing.engine, enclosing.nesting.parent, NO_ROW)
        is_direct = (around == enclosing.nesting.parent) & (around != NO_ROW)
        rows = np.flatnonzero(is_direct)
        own: Ints = rows[codes[names_.codes[around[rows]]] == names_.codes[rows]]
        return own


class EagerPhase(NamedTuple):
    """A phase, the forward op that a backward op differentiates, and the evidence."""

    phase: Phase
    forward_op: str | None
    evidence: SiteEvidence


class EagerPhases:
    """The phase of each eager launch."""

    def __init__(
        self,
        enclosing: EnclosingRanges,
        forward_ops: ForwardOps,
        op: Rows,
        updating: Collection[str],
        by_op: SiteEvidence,
    ) -> None:
        self._by_op = by_op
        events, nesting = enclosing.events, enclosing.nesting
        self._enclosing, self._forward_ops, self._op = enclosing, forward_ops, op
        self._accumulation = nesting.nearest(
            flag_rows(events.name, classify.is_gradient_accumulation) & (nesting.depth != NO_ROW)
        )
        self._scaling = scaling_ops(enclosing)
        self._sharding_pass = nesting.nearest(flag_rows(events.name, classify.is_sharding_pass))
        self._function = nesting.nearest(_functions_of_model(enclosing, frozenset(updating)))
        rows = np.arange(len(events), dtype=np.int32)
        self._python = PythonCalls(events, enclosing.engine == rows)
        self._differentiated = nesting.nearest(_differentiated(enclosing, forward_ops, op))

    def equivalence_columns(self, cpu: Ints, call: Ints) -> list[Ints]:
        """Return columns that are equal for launches of equal phase."""
        # cpu: the CPU event around each launch, or ``NO_ROW``
        own = np.where(call == NO_ROW, cpu, call)
        at_cpu = (
            *(self._enclosing.optimizer, self._enclosing.engine, self._accumulation),
            *(self._scaling, self._function, self._differentiated),
        )
        codes = self._enclosing.events.name.codes
        return [
            take(codes, take(self._sharding_pass, cpu, NO_ROW), NO_ROW),
            *(take(column, cpu, NO_ROW) == NO_ROW for column in at_cpu),
            *(
                take(column, own, NO_ROW) == NO_ROW
                for column in (self._python.module, self._python.recomputation)
            ),
        ]

    def of(self, cpu: int, call: int, in_module: bool) -> EagerPhase:
        """Return the phase of a launch."""
        # in_module: a module's forward was active, by the recorded lines
        if cpu == NO_ROW:
            return self._outside(cpu, call, in_module)
        if self._enclosing.optimizer[cpu] != NO_ROW:
            return EagerPhase(Phase.OPTIMIZER, None, SiteEvidence.OPTIMIZER_RANGE)
        row = int(self._op[cpu])
        name = "" if row == NO_ROW else self._enclosing.events.name[row]
        if classify.is_optimizer_op(name) or self._scaling[cpu] != NO_ROW:
            return EagerPhase(Phase.OPTIMIZER, None, self._by_op)
        if self._accumulation[cpu] != NO_ROW:
            # DDP's hook begins there to reduce gradients over ranks, which adds none up here.
            reduces = communication.is_communication(name)
            phase = Phase.BACKWARD if reduces else Phase.GRADIENT_ACCUMULATION
            return EagerPhase(phase, None, self._by_op)
        if self._sharding_pass[cpu] != NO_ROW:
            return EagerPhase(self._of_sharding(cpu), None, SiteEvidence.SHARDING_RANGE)
        engine = int(self._enclosing.engine[cpu])
        if engine == NO_ROW:
            return self._outside(cpu, call, in_module)
        if self._python.recomputation[_own(cpu, call)] != NO_ROW:
            return EagerPhase(Phase.RECOMPUTE, None, SiteEvidence.PYTHON_CALL)
        forward_op = self._forward_ops.of_engine(engine)
        is_linked = forward_op is not None
        rule = SiteEvidence.AUTOGRAD_SEQUENCE if is_linked else self._by_op
        return EagerPhase(Phase.BACKWARD, forward_op, rule)

    def _of_sharding(self, cpu: int) -> Phase:
        """Return the pass that FSDP works for; a forward within the engine is recomputed."""
        name = self._enclosing.events.name[int(self._sharding_pass[cpu])]
        if names.sharding_pass(name) == "backward":
            return Phase.BACKWARD
        in_engine = self._enclosing.engine[cpu] != NO_ROW
        return Phase.RECOMPUTE if in_engine else Phase.FORWARD

    def _outside(self, cpu: int, call: int, in_module: bool) -> EagerPhase:
        """Return the phase of what neither autograd's engine nor an optimizer runs."""
        own = _own(cpu, call)
        if in_module or (own != NO_ROW and self._python.module[own] != NO_ROW):
            return EagerPhase(Phase.FORWARD, None, SiteEvidence.MODULE_CALL)
        if cpu != NO_ROW and self._function[cpu] != NO_ROW:
            return EagerPhase(Phase.FORWARD, None, SiteEvidence.COMPILED_FUNCTION)
        if cpu != NO_ROW and self._differentiated[cpu] != NO_ROW:
            return EagerPhase(Phase.FORWARD, None, SiteEvidence.DIFFERENTIATED)
        return EagerPhase(Phase.OTHER, None, self._by_op)


def _own(cpu: int, call: int) -> int:
    return cpu if call == NO_ROW else call


def _functions_of_model(enclosing: EnclosingRanges, updating: Collection[str]) -> Flags:
    """Flag the runs of compiled functions in which no optimizer's step runs."""
    # What those run eagerly is the model's, or the optimizer's: nothing shows which.
    events, nesting = enclosing.events, enclosing.nesting
    is_frame = flag_rows(events.name, classify.is_compiled_frame) & (nesting.depth != NO_ROW)
    updates = flag_rows(events.name, lambda name: names.compile_id(name) in updating)
    updates |= flag_rows(events.name, classify.is_optimizer_op) & enclosing.is_op
    updates |= flag_rows(events.name, classify.is_optimizer) & (nesting.depth != NO_ROW)
    if is_frame.any() and updates.any():
        is_frame &= ~(updates | nesting.holds(updates))
    flags: Flags = is_frame
    return flags


def _differentiated(enclosing: EnclosingRanges, forward_ops: ForwardOps, op: Rows) -> Flags:
    """Flag what a backward of the recording differentiates, and the op that it is a part of."""
    flags = np.zeros(len(op), np.bool_)
    engines = np.unique(enclosing.engine)
    for engine in engines[engines != NO_ROW].tolist():
        row = forward_ops.links.forward_of(engine)
        if row is not None:
            flags[row] = True
            if op[row] != NO_ROW:
                flags[op[row]] = True
    return flags
