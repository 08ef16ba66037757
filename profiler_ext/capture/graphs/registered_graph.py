"""One graph instance of this process, whose record is decoded on demand."""

from __future__ import annotations

import dataclasses
from typing import Any

from profiler_ext.capture.lineage.compiled_autograd import all_with_copied_lineage
from profiler_ext.isolation.guard import Guard
from profiler_ext.isolation.locks import Lock
from profiler_ext.recall.provenance_lookup import (
    Gaps,
    GraphLookup,
    ReadyArtifact,
    can_defer_lookup,
    find_kernels,
    recall,
    store_sealed,
)
from profiler_ext.records.gaps import GapReason
from profiler_ext.records.provenance import Gap, GraphInstance, LibraryKernels
from profiler_ext.source_paths import place, seen_from
from profiler_ext.store import Store
from profiler_ext.torch_compat import accelerator, process

RECALL = "recall"
"""The name under which its record is read."""
_RECALL_LOCK = Lock()
_FREED = Gap(
    GapReason.GRAPH_GONE, "nothing could run it any more when the recording began; it is let go"
)
_FAILED = Gap(GapReason.CAPTURE_FAILED, f"{RECALL}: what was kept of the graph cannot be read")


@dataclasses.dataclass(frozen=True, slots=True)
class CallTarget:
    """What identifies the modules that a graph is called on."""

    variables: tuple[str, ...] = ()
    """The caller's variables that hold its models, ``L['net']``; none for a part of a graph."""
    is_own: bool = False
    """The first holds the module whose own method was compiled."""

    def path(self, at: int) -> str:
        """Return the recorded path of the model in a variable."""
        is_alone = len(self.variables) == 1 or (self.is_own and at == 0)
        return "" if is_alone else self.variables[at]


class RegisteredGraph:
    """A graph instance of this process.

    Most processes never profile, so nothing is decoded when a graph becomes ready. Only what that
    moment knows is kept: the Dynamo graph, the retraced graph, the working directory; no module,
    tensor or artifact.
    """

    def __init__(
        self,
        about: GraphInstance,
        artifact: ReadyArtifact,
        store: Store,
        guard: Guard,
        *,
        is_replayed: bool,
    ) -> None:
        self.about = about
        self._artifact: ReadyArtifact | None = artifact
        self._store, self._guard, self._is_replayed = store, guard, is_replayed
        self._place = place()
        self._may_run_optimizer: bool | None = None  # not asked yet
        self._kept: Gaps = store_sealed(artifact, store)
        if artifact.key is not None and artifact.sealed is None:
            store.note_use(artifact.key)
        if not can_defer_lookup(artifact, store):
            self._read()

    @property
    def instance(self) -> GraphInstance:
        """The instance with its graph's record."""
        if self._artifact is not None:
            with _RECALL_LOCK.held():
                self._guard.run(RECALL, self._read)
                if self._artifact is not None:
                    self.change(gaps=(*self.about.gaps, _FAILED))
                    self._artifact = None
        return self.about

    @property
    def runs_optimizer(self) -> bool:
        """Whether one of its nodes comes from ``torch.optim``."""
        artifact = self._artifact
        if artifact is not None:
            # Each call of the graph asks, and the record is compressed.
            if self._may_run_optimizer is None:
                self._may_run_optimizer = artifact.may_name_optimizer
            if not self._may_run_optimizer:
                return False
        return self.instance.runs_optimizer

    @property
    def call_target(self) -> CallTarget | None:
        """What identifies the modules of a call; ``None`` if the calling method does."""
        if self.about.record.is_part or (self._artifact and self._artifact.is_part):
            return CallTarget()
        dynamo = self._artifact.dynamo if self._artifact else None
        if dynamo is None or self.about.is_backward or dynamo.copy_sources:
            return None
        is_own = dynamo.own is not None
        return CallTarget(dynamo.roots, is_own) if dynamo.roots[is_own:] else None

    def change(self, **changes: Any) -> None:
        """Replace fields of its instance."""
        self.about = dataclasses.replace(self.about, **changes)

    def release_graph(self) -> None:
        """Drop its graph: nothing can run it any more."""
        with _RECALL_LOCK.held():
            self._artifact = None
            self.change(
                provenance=None,
                nodes=(),
                library_kernels=(),
                stored_kernels=(),
                copied_inputs=(),
                other_copied_inputs=(),
                passed_inputs=(),
                output_module=None,
                gaps=(_FREED,),
            )

    def _read(self) -> None:
        if (artifact := self._artifact) is None:  # another thread has read it meanwhile
            return
        with seen_from(self._place):
            known = _recalled(artifact, self._store)
            stored, gaps = self._guard.run("learn", self._stored_kernels, known) or ((), ())
            about = dataclasses.replace(
                self.about, stored_kernels=stored, gaps=(*self._kept, *self.about.gaps, *gaps)
            )
            self.about, self._artifact = known.into(about), None

    def _stored_kernels(self, known: GraphLookup) -> tuple[LibraryKernels, Gaps]:
        if not self._is_replayed or known.provenance is None:
            return (), ()
        devices, chosen_by = [process.device_name()], accelerator.choice_digest()
        return find_kernels(self._store, self.about.key, known.provenance, devices, chosen_by)


def _recalled(artifact: ReadyArtifact, store: Store) -> GraphLookup:
    known, dynamo = recall(artifact, store), artifact.dynamo
    if dynamo is None or not dynamo.copy_sources:
        return known
    nodes = all_with_copied_lineage(known.nodes, dynamo.copy_sources)
    return dataclasses.replace(known, nodes=nodes)
