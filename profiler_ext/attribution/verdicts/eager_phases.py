"""Owns the phase of eager work, and by which rule it is known.

Forward is what runs in a module's forward or in a compiled function, or what a backward
differentiates. What lies in none of torch's ranges, and of which nothing says so, is other work.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

import numpy as np

from profiler_ext.attribution.calls.enclosing import EnclosingRanges
from profiler_ext.attribution.calls.python_calls import PythonCalls
from profiler_ext.attribution.trace.lookups import NO_ROW, Flags, Rows, flag_rows, take
from profiler_ext.attribution.verdicts.forward_ops import ForwardOps
from profiler_ext.attribution.verdicts.loss_scaling import scaling_ops
from profiler_ext.kineto import classify, names
from profiler_ext.kineto.communication import is_communication
from profiler_ext.records import Ints, Phase, SiteEvidence


class EagerPhase(NamedTuple):
    """A phase, the forward op that a backward op differentiates, and the rule that told."""

    phase: Phase
    forward_op: str | None
    evidence: SiteEvidence


class EagerPhases:
    """Tells the phase of each eager launch."""

    def __init__(
        self,
        enclosing: EnclosingRanges,
        forward_ops: ForwardOps,
        op: Rows,
        updating: Collection[str],
        by_op: SiteEvidence,
    ) -> None:
        """Take what is known of the trace.

        Args:
            enclosing: what stands around each event on its thread.
            forward_ops: the forward op of each event of the engine.
            op: for each event the outermost op around it, or ``NO_ROW``.
            updating: the compiles whose graphs run an optimizer's step.
            by_op: the rule by which the op of a launch is known.
        """
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
        """Return columns that are the same for launches whose phase is.

        Args:
            cpu: of each launch the CPU event that it was launched in, or ``NO_ROW``.
            call: of each launch the call that launched it, or ``NO_ROW``.
        """
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
        """Return the phase of what was launched.

        Args:
            cpu: the CPU event that it was launched in, or ``NO_ROW``.
            call: the call that launched it, or ``NO_ROW``.
            in_module: the lines that were watched say that a module's forward was under way.
        """
        if cpu == NO_ROW:
            return self._outside(cpu, call, in_module)
        if self._enclosing.optimizer[cpu] != NO_ROW:
            return EagerPhase(Phase.OPTIMIZER, None, SiteEvidence.OPTIMIZER_RANGE)
        name = self._op_name(cpu)
        if classify.is_optimizer_op(name) or self._scaling[cpu] != NO_ROW:
            return EagerPhase(Phase.OPTIMIZER, None, self._by_op)
        if self._accumulation[cpu] != NO_ROW:
            # DDP's hook begins there to reduce gradients over ranks, which adds none up here.
            reduces = is_communication(name)
            phase = Phase.BACKWARD if reduces else Phase.GRADIENT_ACCUMULATION
            return EagerPhase(phase, None, self._by_op)
        if self._sharding_pass[cpu] != NO_ROW:
            return EagerPhase(self._of_sharding(cpu), None, SiteEvidence.SHARDING_RANGE)
        engine = int(self._enclosing.engine[cpu])
        if engine == NO_ROW:
            return self._outside(cpu, call, in_module)
        return self._in_engine(cpu, call, engine)

    def _op_name(self, cpu: int) -> str:
        row = int(self._op[cpu])
        return "" if row == NO_ROW else self._enclosing.events.name[row]

    def _of_sharding(self, cpu: int) -> Phase:
        """Return the pass that FSDP works for; a forward within the engine is run again."""
        name = self._enclosing.events.name[int(self._sharding_pass[cpu])]
        if names.sharding_pass(name) == "backward":
            return Phase.BACKWARD
        in_engine = self._enclosing.engine[cpu] != NO_ROW
        return Phase.RECOMPUTE if in_engine else Phase.FORWARD

    def _in_engine(self, cpu: int, call: int, engine: int) -> EagerPhase:
        if self._python.recomputation[_own(cpu, call)] != NO_ROW:
            return EagerPhase(Phase.RECOMPUTE, None, SiteEvidence.PYTHON_CALL)
        forward_op = self._forward_ops.of_engine(engine)
        is_linked = forward_op is not None
        rule = SiteEvidence.AUTOGRAD_SEQUENCE if is_linked else self._by_op
        return EagerPhase(Phase.BACKWARD, forward_op, rule)

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
    """Flag the runs of compiled functions in which no optimizer's step runs, in a graph or beside.

    What those run eagerly is the model's, or the optimizer's: nothing tells.
    """
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
    """Flag what a backward of the recording differentiates, and the op that this is a part of."""
    flags = np.zeros(len(op), np.bool_)
    engines = np.unique(enclosing.engine)
    for engine in engines[engines != NO_ROW].tolist():
        row = forward_ops.links.forward_of(engine)
        if row is not None:
            flags[row] = True
            if op[row] != NO_ROW:
                flags[op[row]] = True
    return flags
