"""What a failure of ours takes away, on hand-made graphs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import profiler_ext
from profiler_ext.capture.graphs.failed_graphs import (
    PROFILER_HOOKS,
    failure_gap,
    without_failed_records,
)
from profiler_ext.isolation.failures import Failure
from profiler_ext.records.gaps import GapReason
from profiler_ext.records.provenance import Gap, GraphInstance
from profiler_ext.torch_compat import points
from tests.attribution.graphs import graph, node

OWN = Path(profiler_ext.__file__).parent


class Artifact:
    """Stands for a compiled artifact; ``_fx_graph_cache_key`` is what torch calls its key."""

    def __init__(self, key: str) -> None:
        self._fx_graph_cache_key = key


class Known:
    """Knows the instances of some artifacts."""

    def __init__(self, instances: dict[Any, GraphInstance] | None = None) -> None:
        self._instances = instances or {}

    def instance_of(self, artifact: Any) -> GraphInstance | None:
        return self._instances.get(artifact)


FORWARD = graph((node("exp", 8),), (), key="fkey", compile_id="0/0", index=0)
BACKWARD = graph((node("mul", 8),), (), key="bkey", compile_id="0/0", index=1, is_backward=True)
OTHER = graph((node("sin", 9),), (), key="okey", compile_id="1/0", index=2)
GRAPHS = (FORWARD, BACKWARD, OTHER)
WHY = Gap(GapReason.CAPTURE_FAILED, "hook: why")


def lost(each: GraphInstance) -> GraphInstance:
    return replace(each, provenance=None, nodes=(), gaps=(WHY,))


def test_where_nothing_failed_all_is_reported():
    assert without_failed_records(GRAPHS, (), Known()) == GRAPHS


def test_a_failure_in_a_compile_takes_the_records_of_its_graphs():
    failures = (Failure("hook", "why", "0/0"),)
    assert without_failed_records(GRAPHS, failures, Known()) == (
        lost(FORWARD),
        lost(BACKWARD),
        OTHER,
    )


def test_a_failure_in_a_call_takes_those_of_the_compile_of_its_graph():
    artifact = Artifact("okey")
    failures = (Failure("hook", "why", None, lambda: artifact),)
    known = Known({artifact: OTHER})
    assert without_failed_records(GRAPHS, failures, known) == (FORWARD, BACKWARD, lost(OTHER))


def test_a_failure_of_no_known_graph_takes_them_all():
    failures = (Failure("hook", "why", None),)
    assert without_failed_records(GRAPHS, failures, Known()) == tuple(map(lost, GRAPHS))


@pytest.mark.parametrize("hook", [points.NODE_MADE.path, "Optimizer.step", *sorted(PROFILER_HOOKS)])
def test_what_tells_nothing_of_graphs_takes_none(hook):
    assert without_failed_records(GRAPHS, (Failure(hook, "why", None),), Known()) == GRAPHS


def test_a_graph_that_could_not_be_registered_stands_there_without_a_record():
    artifact = Artifact("nkey")
    failure = Failure(points.ARTIFACT_READY.path, "why", "2/0", lambda: artifact)
    *kept, new = without_failed_records(GRAPHS, (failure,), Known())
    assert tuple(kept) == GRAPHS
    assert (new.index, new.key, new.compile_id, new.provenance) == (3, "nkey", "2/0", None)
    assert new.gaps == (failure_gap(failure),)
    assert new.is_failed


def test_each_part_of_a_profiler_is_called_so_where_it_is_guarded():
    """A hook that nobody calls so would spare graphs that its namesake may have touched."""
    text = "".join(path.read_text() for path in (OWN / "profiling").glob("*.py"))
    text += (OWN / "capture/hooks/installing.py").read_text()
    assert {name for name in PROFILER_HOOKS if f'"{name}"' not in text} == set()
