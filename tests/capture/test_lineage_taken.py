"""What a node's lineage takes from another's, field by field."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, replace

import pytest

from profiler_ext.records.evidence import LineEvidence, Mechanism
from profiler_ext.records.lineage import Frame, Lineage, ModuleFrame
from tests.capture.lineages import line

OTHER = Lineage(
    original_aten="other",
    seq_nr=2,
    stack=(Frame("/src/other.py", 2, "other"),),
    modules=(ModuleFrame("other", "Other"),),
    source_fns=("other",),
    partitioner_tag="other",
    autograd_backward=True,
    is_gradient_acc=True,
    recompute="other",
    annotation=(("other", "1"),),
    joint_name="other",
    forward_node="other",
    forward_evidence="other",
    copied_from="other",
    joint="other",
    copied_call="other",
    mechanism=Mechanism.BODY,
    evidence=LineEvidence.STALE,
)
ALL = {field.name for field in fields(Lineage)}
PLACE = {"stack", "modules", "source_fns", "annotation"}
TRACE = {"original_aten", "seq_nr", "stack", "modules", "source_fns", "partitioner_tag"}
LINKS = {"joint_name", "forward_node", "forward_evidence", "joint", "copied_call"}
TAKEN: Mapping[str, tuple[Callable[[Lineage], Lineage], set[str]]] = {
    "filled_by": (lambda own: own.filled_by(OTHER), ALL - LINKS - {"mechanism", "evidence"}),
    "with_place_of": (lambda own: own.with_place_of(OTHER), PLACE),
    "traced_from": (lambda own: own.traced_from(OTHER), TRACE | {"is_gradient_acc"}),
    "copied": (lambda own: own.copied(OTHER), ALL - {"copied_from", "evidence"}),
    "refreshed": (lambda own: own.refreshed(OTHER, is_made=False), ALL),
    "refreshed, made by a pass": (
        lambda own: own.refreshed(OTHER, is_made=True),
        ALL - {"original_aten", "mechanism"},
    ),
}


@pytest.mark.parametrize("way", TAKEN)
def test_what_a_node_takes_from_another(way: str) -> None:
    take, taken = TAKEN[way]
    found = take(Lineage())
    assert {name for name in ALL if getattr(found, name) == getattr(OTHER, name)} == taken
    assert {name for name in ALL if getattr(found, name) == getattr(Lineage(), name)} == ALL - taken


def test_what_lost_nothing_is_not_filled_and_what_did_keeps_what_it_says() -> None:
    whole = line("own", seq_nr=1)
    assert whole.filled_by(OTHER) is whole
    part = line("own", partitioner_tag="own")
    filled = part.filled_by(OTHER)
    assert (filled.stack, filled.partitioner_tag, filled.seq_nr) == (part.stack, "own", 2)


def test_a_place_without_line_and_labels_leaves_a_nodes_own() -> None:
    own = line("own", annotation=(("own", "1"),), modules=(ModuleFrame("own", "Own"),))
    assert own.with_place_of(Lineage()) == replace(own, modules=())


def test_without_a_stack_no_mechanism_gave_one() -> None:
    assert Lineage(seq_nr=1).by(Mechanism.MUTATED) == Lineage(seq_nr=1)
    assert line("own").by(Mechanism.MUTATED).mechanism is Mechanism.MUTATED
