"""The hooks on what Inductor makes: call sites, artifacts, AOTInductor's packages, C++ kernels."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

from profiler_ext.capture.graphs import call_sites, failed_graphs, library_calls, sealing
from profiler_ext.capture.graphs.call_sites import PendingSite
from profiler_ext.capture.graphs.compiles import Compiles, InnerCompile
from profiler_ext.capture.graphs.registry import Registry
from profiler_ext.isolation.guard import Guard, Observation, Observed
from profiler_ext.isolation.hook_protocols import Ends, Ranges, Sorting
from profiler_ext.kineto.names import package_marker
from profiler_ext.recall import provenance_lookup, wrapper_calls
from profiler_ext.records.provenance import Gap, GraphInstance, LibraryKernels
from profiler_ext.records.vocabulary import SiteKind
from profiler_ext.store import packages, to_bytes
from profiler_ext.torch_compat import inductor, inputs, patches, points, process

_PREFIX = "cpp_"
_Kernel = Callable[..., Any]


class CpuKernels:
    """The C++ kernels rebound so that each call has an event, without which it is not aligned.

    They are rebound after the generated module is loaded, cold or warm, so neither config nor
    generated code changes. It costs one Python frame a call.
    """

    def __init__(self, guard: Guard) -> None:
        self.is_on = self.is_persistent = True
        self._guard = guard
        self._originals: list[tuple[dict[str, Any], str, _Kernel, _Kernel]] = []

    def rebind(self, module: ModuleType) -> None:
        """Give each C++ kernel of a generated module an event."""
        if not process.can_record():
            return
        names = [
            n for n, value in vars(module).items() if n.startswith(_PREFIX) and callable(value)
        ]
        for name in names:
            original = vars(module)[name]
            if not hasattr(original, "_profiler_ext_original"):
                wrapped = self._guard.wrap_ranges(original, "C++ kernel", _events(name), self)
                vars(wrapped)["_profiler_ext_original"] = original
                setattr(module, name, wrapped)
                self._originals.append((vars(module), name, original, wrapped))

    def restore(self) -> None:
        """Restore the original kernels."""
        self.is_on = False
        for namespace, name, original, wrapped in self._originals:
            if namespace.get(name) is wrapped:
                namespace[name] = original
        self._originals.clear()


def _events(name: str) -> Ranges:
    def opened(*_: Any) -> Ends | None:
        if not process.profiler_is_on():
            return None
        event = process.recording(name)
        event.__enter__()
        ends: Ends = event.__exit__
        return ends

    return Ranges(opened)


_COMPUTED = "which nodes a kernel computes"
_PASSED = "the buffers that pass between kernels"
_CHOSEN = "what autotuning chose among"


class SiteHooks:
    """Collects the call sites of what is compiled."""

    def __init__(self, compiles: Compiles) -> None:
        self._compiles = compiles

    def observations(self) -> list[patches.Hook]:
        """Return the hooks."""
        return [
            *((point, self._call_site) for point in points.CALL_SITES),
            (points.EXTERN_CALL, self._extern_call),
            (points.KERNEL_COMMENT, self._kernel_comment),
            (points.KERNEL_CALL, self._kernel_call),
            (points.COMBO_KERNELS, self._combo_kernels),
            (points.NOT_FUSED, Ranges(self._not_fused)),
            (points.SCHEDULED, self._scheduled),
            (points.CHOICE, self._choice),
            (points.CHOICES_TIMED, self._choices_timed),
            (points.CHOICES_MEASURED, self._choices_measured),
            (points.DEFERRED_TIMES, self._deferred_times),
            (points.DEFERRED_CHOICE, self._deferred_choice),
        ]

    def _not_fused(self, why: Any, reason: str, *details: Any) -> None:
        self._compiles.refusals().note(why, reason, *details)

    def _scheduled(self, call: Observed) -> Observation:
        self._compiles.try_run(_PASSED, self._compiles.keep_operations, call["self"])
        yield

    def _choice(self, call: Observed) -> Observation:
        selections = self._compiles.selections()
        with selections.opened() as selection:
            yield
        self._compiles.try_run(_CHOSEN, selections.keep_made, selection, call.result)

    def _choices_timed(self, call: Observed) -> Observation:
        yield
        if call.result and call.arguments.get("hint_override") is None:
            selections = self._compiles.selections()
            self._compiles.try_run(_CHOSEN, selections.add_times, call.result)

    def _choices_measured(self, call: Observed) -> Observation:
        self._compiles.selections().note_measured()
        yield

    def _deferred_times(self, call: Observed) -> Observation:
        if call.arguments.get("hint_override") is not None:
            yield
            return
        selections = self._compiles.selections()
        with selections.opened() as selection:
            yield
        keep = selections.keep_deferred
        self._compiles.try_run(_CHOSEN, keep, selection, call["self"], call.result)

    def _deferred_choice(self, call: Observed) -> Observation:
        yield
        note = self._compiles.selections().note_chosen
        self._compiles.try_run(_CHOSEN, note, call["self"], call["caller"])

    def _call_site(self, call: Observed) -> Observation:
        is_extern = bool(call.arguments.get("is_extern", False))
        self._add_site(call["node_schedule"], call["kernel_name"], is_extern)
        yield

    def _add_site(self, schedule: Any, kernel: str, is_extern: bool = False) -> None:
        try_run = self._compiles.try_run
        if is_extern:
            site = try_run(_COMPUTED, call_sites.extern_site, schedule, kernel)
        else:
            own = self._compiles.take_combo(schedule)
            site = try_run(_COMPUTED, call_sites.generated_site, own, kernel, try_run)
        self._compiles.add_site(site or _unknown_site(kernel, is_extern))

    def _extern_call(self, call: Observed) -> Observation:
        """Add what torch reports no call site for: some library calls, and nested graphs."""
        kernel = inductor.kernel_of(call["scheduler_node"])
        if (nested := call_sites.nested_call(kernel)) is not None:
            if len(nested.graphs) > 1 and nested.node is not None:
                self._compiles.add_site(call_sites.predicate_site(nested.node))
            self._compiles.add_site(nested)
        elif inductor.launches_without_comment(kernel):
            self._add_site(kernel, inductor.extern_name(kernel), is_extern=True)
        yield

    def _kernel_comment(self, call: Observed) -> Observation:
        yield
        if call.arguments.get("kernel_name", "") is None:
            self._compiles.keep_schedule(call["node_schedule"])

    def _kernel_call(self, call: Observed) -> Observation:
        if (schedule := self._compiles.take_schedule()) is not None:
            self._add_site(schedule, call["kernel_name"])
        yield

    def _combo_kernels(self, call: Observed) -> Observation:
        yield
        self._compiles.keep_combo(call["subkernel_nodes"], [nodes for _, _, nodes in call.result])


def _unknown_site(kernel: str, is_extern: bool) -> PendingSite:
    """Describe a launch whose nodes could not be determined."""
    kind = SiteKind.EXTERN if is_extern else wrapper_calls.generated_kind(kernel)
    graph, op = inductor.current_fx_graph(), wrapper_calls.spelled_op(kernel) if is_extern else None
    return PendingSite(kind, kernel, op, (), graph=graph, is_commented=False, is_work_known=False)


class Warmup(Protocol):
    """Profiles one call."""

    recording: AbstractContextManager[Any]
    """Records while it is entered; torch's own, so that it ends whatever fails."""

    @staticmethod
    def is_wanted() -> bool:
        """Tell whether a call may be profiled now."""

    def __init__(self) -> None: ...

    def learn(self, graph: GraphInstance) -> LibraryKernels:
        """Return the device events of each library call that was recorded."""


class _Calls(threading.local):
    """The artifact calls in progress, each with the inputs that the CUDA graphs it records copy."""

    def __init__(self) -> None:
        self.copied: list[list[tuple[str, ...]]] = []


class ArtifactHooks:
    """Seals provenance on artifacts and registers the graph instances."""

    def __init__(
        self,
        guard: Guard,
        compiles: Compiles,
        registry: Registry,
        warmup: type[Warmup] | None,
        ready: Callable[[int], None],
    ) -> None:
        self.on_optimizer_graph: Callable[[GraphInstance], None] | None = None
        self.learns = False  # whether the first calls of CUDA graphs are profiled
        self._guard = guard
        self._compiles = compiles
        self._registry = registry
        self._warmup = warmup
        self._ready = ready
        self._calls = _Calls()

    def observations(self) -> list[patches.Hook]:
        """Return the hooks."""
        return [
            (points.ARTIFACT_INIT, self._artifact_init),
            (points.ARTIFACT_READY, self._artifact_ready),
            (points.ARTIFACT_CALL, self._artifact_call),
            (points.CUDA_GRAPH, self._cuda_graph),
        ]

    def _artifact_init(self, call: Observed) -> Observation:
        yield
        if (inner := self._compiles.inner) is not None:
            inner.is_compiled = True
        if not self._guard.has_failed(process.current_compile_id()):
            self._seal(inner, call["self"], call["graph"], call["gm"])

    def _seal(self, inner: InnerCompile | None, artifact: Any, graph: Any, gm: Any) -> None:
        source = inductor.wrapper_source(artifact) or ""
        copied = partial(inputs.non_static_inputs, artifact, gm)
        provenance = sealing.seal(self._compiles, graph, gm, source, self._failed, copied)
        data = to_bytes(provenance)
        if inner is not None:
            inner.sealed = provenance_lookup.Sealed(data, provenance.dynamo_digest)
        self._registry.attach_provenance(artifact, data)

    def _failed(self) -> tuple[Gap, ...]:
        return failed_graphs.gaps_of_compile(self._guard)

    def _artifact_ready(self, call: Observed) -> Observation:
        started_ns = time.perf_counter_ns()
        yield
        graph_kwargs: dict[str, Any] = call["graph_kwargs"]
        is_backward = inductor.is_backward(graph_kwargs)
        is_replayed = inductor.is_replayed(graph_kwargs)
        self._ready(self._registry.register(call["self"], is_backward, is_replayed, started_ns))

    def _artifact_call(self, call: Observed) -> Observation:
        artifact = call["self"]
        is_recording = process.profiler_is_on()
        graph = self._registry.keep_taken(artifact, call["inputs"]) if is_recording else None
        if (instance := self._instance_to_profile(artifact)) is None:
            yield from self._collect_copied_inputs(artifact)
        else:
            yield from self._profile_call(artifact, instance)
        if graph is not None:
            self._registry.keep_returned(graph, call.result)
        if self.on_optimizer_graph is not None:
            instance = self._registry.optimizer_run_by(artifact)
            if instance is not None:
                self.on_optimizer_graph(instance)

    def _collect_copied_inputs(self, artifact: Any) -> Observation:
        copied: list[tuple[str, ...]] = []
        self._calls.copied.append(copied)
        try:
            yield
        finally:
            self._calls.copied.pop()
            if copied:
                self._registry.keep_copies(artifact, tuple(copied))

    def _cuda_graph(self, call: Observed) -> Observation:
        yield
        if self._calls.copied:
            self._calls.copied[-1].append(inputs.copied_inputs(call["self"]))

    def _instance_to_profile(self, artifact: Any) -> GraphInstance | None:
        """Return the instance of a call whose library calls should be profiled now."""
        instance = self._registry.take_unprofiled(artifact) if self.learns else None
        is_wanted = instance is not None and self._warmup is not None and self._warmup.is_wanted()
        return instance if is_wanted else None

    def _profile_call(self, artifact: Any, instance: GraphInstance) -> Observation:
        assert self._warmup is not None
        warmup = self._warmup()
        with warmup.recording:
            yield from self._collect_copied_inputs(artifact)
        self._registry.learn(instance.index, warmup.learn(instance))


class CacheHooks:
    """Orders the candidates of a cache lookup: those without a record last."""

    def __init__(self, registry: Registry) -> None:
        self.recompile = False  # entries without a record are no candidates
        self._registry = registry

    def observations(self) -> list[patches.Hook]:
        """Return the hooks."""
        sorting = Sorting(lambda offered: self._is_unknown(offered[0]), self._is_left_out)
        return [(points.CACHE_CANDIDATES, sorting)]

    def _is_left_out(self) -> bool:
        return self.recompile and not inductor.misses_are_errors()

    def _is_unknown(self, entry: Any) -> bool:
        artifacts = inductor.cached_artifacts(entry)
        return any(not self._registry.is_known(artifact) for artifact in artifacts)


_CODE = (".so", ".cpp", ".dll")
"""The suffixes of what AOTInductor makes of a graph; a package of sources has no library."""


class PackageHooks:
    """Adds a graph's record to the files of its package, and reads it when one is loaded."""

    def __init__(self, guard: Guard, compiles: Compiles, registry: Registry) -> None:
        self._guard, self._compiles, self._registry = guard, compiles, registry

    def observations(self) -> list[patches.Hook]:
        """Return the hooks."""
        return [
            (points.PACKAGE_COMPILE, self._compile),
            (points.AHEAD_OF_TIME, self._compile),
            (points.PACKAGE_CODE, self._code),
            (points.PACKAGE_LOADED, self._loaded),
            (points.PACKAGE_CALL, Ranges(self._opened)),
        ]

    def _compile(self, call: Observed) -> Observation:
        with self._compiles.ahead_of_time():
            yield

    def _code(self, call: Observed) -> Observation:
        yield
        inner = self._compiles.inner
        if inner is None or self._guard.has_failed(process.current_compile_id()):
            return
        provenance = sealing.seal(
            self._compiles,
            call["graph"],
            inner.gm,
            call["wrapper_code"],
            lambda: failed_graphs.gaps_of_compile(self._guard),
        )
        record = to_bytes(provenance)
        provenance_lookup.keep_record(
            library_calls.process_store(), packages.package_key(record), None, lambda: record
        )
        self._add_record(call.result, record)

    def _add_record(self, made: Any, record: bytes) -> None:
        """Write a record next to the code, and have it packaged with that."""
        # A list is packaged as it is; a path is that of a library.
        files = made if isinstance(made, list) else [made]
        names = [file for file in files if isinstance(file, str) and file.endswith(_CODE)]
        if names:
            code = min(names, key=lambda name: _CODE.index(Path(name).suffix))
            path = packages.write_record(Path(code), record)
            if isinstance(made, list):
                made.append(str(path))

    def _loaded(self, call: Observed) -> Observation:
        yield
        record = packages.package_records(Path(call["file"])).get(call["model_name"])
        if record is not None:
            self._registry.register_package(call.result, packages.package_key(record), record)

    def _opened(self, model: Any, *_: Any) -> Ends | None:
        if not process.profiler_is_on():
            return None
        instance = self._registry.instance_of(model)
        if instance is None or instance.key is None:
            return None
        event = process.recording(package_marker(instance.key))
        event.__enter__()
        ends: Ends = event.__exit__
        return ends
