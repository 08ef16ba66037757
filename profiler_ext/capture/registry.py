"""Owns the graph instances of this process, in order of registration."""

from __future__ import annotations

import dataclasses
import os
import threading
import time
import weakref
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from profiler_ext.capture import instances
from profiler_ext.capture.compiles import Compiles, InnerCompile
from profiler_ext.capture.fx_nodes import describe_nodes
from profiler_ext.capture.instances import Sourced
from profiler_ext.capture.sealing import surroundings
from profiler_ext.records import CacheState, FxNode, Gap, GapReason, GraphInstance, Provenance
from profiler_ext.store import Store, from_bytes, to_bytes, with_digest
from profiler_ext.torch_compat import inductor, process

_NOT_CAPTURED = Gap(
    GapReason.GRAPH_NOT_CAPTURED,
    "the cached artifact was compiled without capture; compile once with profiler_ext enabled "
    "(`profiler-ext run`, `profiler_ext.enable()` at the top, or PROFILER_EXT=1) and a fresh cache",
)
_OTHER_SOURCE = Gap(
    GapReason.STALE_SOURCE_LINE,
    "the cached artifact was compiled from other source that gives the same graph",
)


@dataclass(frozen=True, slots=True)
class _Found:
    provenance: Provenance | None
    nodes: tuple[Sourced, ...] = ()
    gaps: tuple[Gap, ...] = ()


class Registry:
    """Makes a graph instance of each artifact that becomes ready in this process."""

    def __init__(self, compiles: Compiles) -> None:
        """Use what ``compiles`` saw."""
        self._compiles = compiles
        self._lock = threading.Lock()
        self._graphs: list[GraphInstance] = []
        self._by_artifact: dict[int, tuple[weakref.ref[Any], GraphInstance]] = {}

    @property
    def graphs(self) -> tuple[GraphInstance, ...]:
        """The graph instances so far."""
        return tuple(self._graphs)

    def ride(self, artifact: Any, provenance: Provenance) -> None:
        """Put the record on its artifact, so that it goes where the artifact goes."""
        if os.environ.get("PROFILER_EXT_RIDE", "1") != "0":
            setattr(artifact, inductor.RIDING, to_bytes(provenance))

    def instance_of(self, artifact: Any) -> GraphInstance | None:
        """Return the instance of an artifact that is ready."""
        found = self._by_artifact.get(id(artifact))
        return found[1] if found is not None and found[0]() is artifact else None

    def register(self, artifact: Any, is_backward: bool, started_ns: int) -> GraphInstance:
        """Make the instance of an artifact that has become ready."""
        inner = self._compiles.inner
        key = inductor.cache_key(artifact)
        state, detail = _cache_state(inner, key)
        found = self._find(artifact, key, state, inner)
        with self._lock:
            instance = GraphInstance(
                index=len(self._graphs),
                key=key,
                compile_id=process.current_compile_id(),
                is_backward=is_backward,
                cache_state=state,
                cache_detail=detail,
                compile_ns=time.perf_counter_ns() - (inner.started_ns if inner else started_ns),
                output_module=inductor.output_module(artifact),
                provenance=found.provenance,
                nodes=tuple(instances.expanded(node) for node, _ in found.nodes),
                line_evidence=tuple(evidence for _, evidence in found.nodes),
                runs_optimizer=any(_is_optimizer(node) for node, _ in found.nodes),
                gaps=found.gaps,
            )
            self._graphs.append(instance)
            self._by_artifact[id(artifact)] = (weakref.ref(artifact), instance)
        return instance

    def _find(
        self, artifact: Any, key: str | None, state: CacheState, inner: InnerCompile | None
    ) -> _Found:
        if inner is not None and inner.sealed is not None:
            self._keep(key, inner.sealed)
            return _Found(inner.sealed, instances.compiled_here(inner.sealed.nodes))
        riding = getattr(artifact, inductor.RIDING, None)
        stored = () if key is None else self._store().find(key)
        known = stored if riding is None else (from_bytes(riding), *stored)
        if not known:
            return _Found(None, gaps=(_NOT_CAPTURED,))
        if state is CacheState.FX_HIT and inner is not None:
            return self._refreshed(key, known[0], inner)
        return self._from_source(known)

    def _refreshed(self, key: str | None, recorded: Provenance, inner: InnerCompile) -> _Found:
        """An FX hit: this process traced the graph anew, so its metadata is the truth."""
        around = surroundings(self._compiles, inner.gm)
        fresh = describe_nodes(inner.gm.graph.nodes, around)
        nodes = instances.from_fresh_graph(recorded.nodes, fresh)
        here = with_digest(
            dataclasses.replace(
                recorded,
                nodes=tuple(node for node, _ in nodes),
                joint=around.joint.id if around.joint else None,
                dynamo_digest=around.dynamo.digest if around.dynamo else None,
            )
        )
        self._keep(key, here)
        return _Found(here, nodes)

    def _from_source(self, known: tuple[Provenance, ...]) -> _Found:
        """An AOTAutograd hit: only the Dynamo graph is fresh, if even that."""
        dynamo = self._compiles.dynamo
        if dynamo is None:
            return _Found(known[0], instances.from_record(known[0].nodes))
        same = next((p for p in known if p.dynamo_digest == dynamo.digest), None)
        if same is not None:
            return _Found(same, instances.from_dynamo(same.nodes, dynamo))
        return _Found(known[0], instances.stale(known[0].nodes), (_OTHER_SOURCE,))

    def _keep(self, key: str | None, provenance: Provenance) -> None:
        if key is not None:
            self._store().put(key, provenance)

    def _store(self) -> Store:
        return Store(Path(inductor.cache_dir()) / "profiler_ext")


def _cache_state(inner: InnerCompile | None, key: str | None) -> tuple[CacheState, str | None]:
    if inner is None:
        return CacheState.AOT_HIT, None
    if inner.sealed is None:
        return CacheState.FX_HIT, None
    if key is not None:
        return CacheState.MISS, None
    on = inductor.caches_enabled()
    return CacheState.BYPASS, "torch bypassed the cache" if on else "the FX graph cache is off"


def _is_optimizer(node: FxNode) -> bool:
    return any("/torch/optim/" in frame.file for frame in node.stack)
