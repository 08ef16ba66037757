"""What is known of a compile stays while a backward of it may come, and of the last in any case."""

from __future__ import annotations

import weakref

import pytest

from profiler_ext.capture.graphs import compiles
from profiler_ext.capture.graphs.compiles import EarlierStages
from profiler_ext.capture.lineage.stage import JointGraph
from profiler_ext.recall.dynamo_graph import DynamoGraph


class Half:
    """What torch keeps of a backward half."""


class InForce:
    """The compile that is in force."""

    id: str | None = None


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> InForce:
    in_force = InForce()
    monkeypatch.setattr(compiles.process, "current_compile_id", lambda: in_force.id)
    monkeypatch.setattr(compiles, "_ALWAYS_KEPT", 2)
    return in_force


def compiled(stages: EarlierStages, now: InForce, number: int, compile_id: str = "") -> Half:
    """Have a frame compiled whose backward is still to come."""
    now.id = compile_id or f"{number}/0"
    stages.keep_dynamo(DynamoGraph(f"digest {number}", (), None, {}))
    fingerprint = frozenset({(f"mul_{number}", number)})
    stages.keep_joint(JointGraph(f"joint {number}", frozenset(), fingerprint))
    half = Half()
    stages.keep_half(weakref.ref(half))
    return half


def joint(stages: EarlierStages, number: int) -> str | None:
    found = stages.joint_of(frozenset({(f"mul_{number}", number)}))
    return None if found is None else found.id


def test_a_compile_is_known_while_torch_keeps_a_backward_half_of_it(now: InForce) -> None:
    stages = EarlierStages()
    first = compiled(stages, now, 0)
    for number in range(1, 20):
        compiled(stages, now, number)
    now.id = "0/0"
    assert (stages.dynamo_number, joint(stages, 0)) == (0, "joint 0")
    assert len(stages._by_compile_id) <= 1 + 2 * compiles._ALWAYS_KEPT
    del first
    for number in range(20, 25):
        compiled(stages, now, number)
    now.id = "0/0"
    assert (stages.dynamo, stages.dynamo_number, joint(stages, 0)) == (None, None, None)
    now.id = "24/0"
    assert (stages.dynamo_number, joint(stages, 24)) == (24, "joint 24")


def test_after_a_reset_ids_come_again_and_what_is_gone_is_forgotten(now: InForce) -> None:
    stages = EarlierStages()
    before = compiled(stages, now, 0, "0/0")
    for number in range(1, 20):
        compiled(stages, now, number, "0/0")
    assert (stages.dynamo_number, joint(stages, 19), joint(stages, 0)) == (
        19,
        "joint 19",
        "joint 0",
    )
    assert len(stages._by_compile_id["0/0"]) <= 1 + 2 * compiles._ALWAYS_KEPT
    del before


def test_outside_a_compile_nothing_is_kept(now: InForce) -> None:
    stages = EarlierStages()
    compiled(stages, now, 0)
    now.id = None
    stages.keep_dynamo(DynamoGraph("other", (), None, {}))
    stages.keep_autograd_bypass("why")
    assert (stages.dynamo, stages.dynamo_number, stages.autograd_bypass) == (None, None, None)
