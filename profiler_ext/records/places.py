"""Owns what shares and idle time point at: a place in the model, or why there is none."""

from __future__ import annotations

from dataclasses import dataclass

from profiler_ext.records.lineage import Frame
from profiler_ext.records.vocabulary import Level, Phase


@dataclass(frozen=True, slots=True)
class Place:
    """Where a share of a launch belongs: an FX node (or an eager ATen op), or a gap.

    Attributes:
        graph: index into ``Recording.graphs``, ``None`` outside compiled graphs.
        node: FX node name; ``None`` for eager ops and gaps.
        aten_op: ``aten.addmm.default``, or ``aten::add_`` for an eager op.
        seq_nr: torch's trace-time number.
        phase: phase of the node.
        autograd_backward: torch's tag as it gave it.
        forward_node: name in the joint graph of the forward node.
        forward_evidence: the rule that found it, or why there is none: a ``ForwardEvidence``;
            ``None`` for work that differentiates nothing.
        file, line, function, code: innermost frame of the model.
        user_file, user_line: innermost frame under the user's roots.
        caller_file, caller_line: of a graph that runs inside an op of another graph's call, the
            model's frame of that op.
        stack: the whole stack, outermost first.
        module: path from the user's model, ``layers.7.mlp``; ``""`` is the model itself.
        module_class: class of that module.
        annotation: the user's own labels.
        level: how far it was led.
        evidence: the truth that the line came from.
        mechanism: by which way a compiled node's line was found: a ``Mechanism``; ``None`` where it
            has none, of eager work, and in recordings of before there was such a column.
        gap: why there is no line, or no place at all.
        is_phase_corrected: torch's backward tag leaked onto this forward node.
    """

    graph: int | None = None
    node: str | None = None
    aten_op: str | None = None
    seq_nr: int | None = None
    phase: Phase = Phase.OTHER
    autograd_backward: bool | None = None
    forward_node: str | None = None
    forward_evidence: str | None = None
    file: str | None = None
    line: int | None = None
    function: str | None = None
    code: str | None = None
    user_file: str | None = None
    user_line: int | None = None
    caller_file: str | None = None
    caller_line: int | None = None
    stack: tuple[Frame, ...] = ()
    module: str | None = None
    module_class: str | None = None
    annotation: str | None = None
    level: Level = Level.NONE
    evidence: str | None = None
    mechanism: str | None = None
    gap: str | None = None
    is_phase_corrected: bool = False
