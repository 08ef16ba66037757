"""Owns the installing and removing of the hooks, and that a failure in one harms nobody.

Each hook calls what it wraps exactly once and returns what that returned. What goes wrong in
the observing part is caught, kept as a gap, and warned of once; ``strict`` raises it.
"""

from __future__ import annotations

import time
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from profiler_ext.capture import call_sites
from profiler_ext.capture.compiles import Compiles, Sealed
from profiler_ext.capture.cpu_kernels import CpuKernels
from profiler_ext.capture.dynamo_graphs import describe_dynamo_graph
from profiler_ext.capture.joint import describe_joint
from profiler_ext.capture.mutations import Mutations, mutations
from profiler_ext.capture.registry import Registry
from profiler_ext.capture.replacements import Watch
from profiler_ext.capture.sealing import seal
from profiler_ext.errors import CaptureWarning, TorchCapabilityError
from profiler_ext.records import Gap, GapReason, GraphInstance
from profiler_ext.store import to_bytes
from profiler_ext.torch_compat import fx, inductor, points, process
from profiler_ext.torch_compat.patches import Call, Patch, Point

Arguments = tuple[Any, ...]
Keywords = dict[str, Any]


class Warmup(Protocol):
    """Profiles one call; begins when it is made."""

    @staticmethod
    def is_wanted() -> bool:
        """Tell whether a call may be profiled now."""

    def __init__(self) -> None: ...

    def learn(self, graph: GraphInstance) -> tuple[tuple[int, int], ...]:
        """End, and count the device events of each library call."""


class Capture:
    """The hooks of this process and what they have seen."""

    def __init__(
        self, *, cpu_events: bool, strict: bool, warmup: type[Warmup] | None = None
    ) -> None:
        """Prepare; nothing is installed yet.

        Args:
            cpu_events: give Inductor's C++ kernels events.
            strict: raise what goes wrong in a hook instead of keeping it as a gap.
            warmup: profiles the first call of a graph that CUDA graphs will replay.
        """
        self._warmup = warmup
        self.strict = strict
        self.on_optimizer_graph: Callable[[GraphInstance], None] | None = None
        self._compiles = Compiles()
        self._registry = Registry(self._compiles)
        self._cpu_kernels = CpuKernels()
        self._cpu_events = cpu_events
        self._gaps: list[Gap] = []
        self._patches = [Patch(point, around) for point, around in self._arounds()]

    @property
    def graphs(self) -> tuple[GraphInstance, ...]:
        """The graph instances of this process."""
        return self._registry.graphs

    @property
    def gaps(self) -> tuple[Gap, ...]:
        """What the hooks could not see."""
        return tuple(self._gaps)

    def install(self) -> None:
        """Put all hooks in place, or none.

        Raises:
            TorchCapabilityError: This torch lacks a place that capture stands on.
        """
        if problems := torch_problems():
            raise TorchCapabilityError(
                f"torch {process.version()} does not fit capture: {'; '.join(problems)}"
            )
        installed: list[Patch] = []
        try:
            for patch in self._patches:
                patch.install()
                installed.append(patch)
        except BaseException:
            _remove(installed)
            raise
        if self._cpu_events:
            for module in inductor.loaded_modules():
                self._cpu_kernels.rebind(module)

    def remove(self) -> None:
        """Leave torch as it was found."""
        _remove(self._patches)
        self._cpu_kernels.restore()

    def _arounds(self) -> list[tuple[Point, Callable[[Call, Arguments, Keywords], Any]]]:
        return [
            *((point, self._call_site) for point in points.CALL_SITES),
            (points.EXTERN_CALL, self._extern_call),
            (points.KERNEL_COMMENT, self._kernel_comment),
            (points.KERNEL_CALL, self._kernel_call),
            (points.JOINT_PASSES, self._joint_passes),
            (points.POST_GRAD_PASSES, self._post_grad_passes),
            (points.INNER_COMPILE, self._inner_compile),
            (points.CACHE_KEY, self._cache_key),
            (points.AUTOGRAD_CACHE_KEY, self._autograd_cache_key),
            (points.ARTIFACT_INIT, self._artifact_init),
            (points.ARTIFACT_READY, self._artifact_ready),
            (points.ARTIFACT_CALL, self._artifact_call),
            (points.DYNAMO_GRAPH, self._dynamo_graph),
            (points.MODULE_LOAD, self._module_load),
        ]

    def _observe(self, observer: Callable[..., Any], *arguments: Any) -> Any:
        """Run the observing part of a hook; the user's compile never feels its failure."""
        try:
            return observer(*arguments)
        except Exception as error:
            if self.strict:
                raise
            gap = Gap(GapReason.HOOK_FAILED, _failure(observer, error))
            if not self._gaps:
                warnings.warn(f"a capture hook failed ({gap.detail})", CaptureWarning, stacklevel=2)
            self._gaps.append(gap)
            self._compiles.add_gap(gap)
            return None

    def _call_site(self, original: Call, args: Arguments, kwargs: Keywords) -> Any:
        self._observe(self._add_site, *args, *kwargs.values())
        return original(*args, **kwargs)

    def _add_site(self, schedule: Any, kernel: str, is_extern: bool = False) -> None:
        describe = call_sites.extern_site if is_extern else call_sites.generated_site
        self._compiles.add_site(describe(schedule, kernel))

    def _extern_call(self, original: Call, args: Arguments, kwargs: Keywords) -> Any:
        self._observe(self._add_unreported, *args[1:2], *kwargs.values())
        return original(*args, **kwargs)

    def _add_unreported(self, scheduler_node: Any) -> None:
        """Add what torch reports no call site of: some library calls, and nested graphs."""
        kernel = scheduler_node.node
        if (call := call_sites.nested_call(kernel)) is not None:
            if len(call.graphs) > 1 and call.node is not None:
                self._compiles.add_site(call_sites.predicate_site(call.node))
            self._compiles.add_site(call)
        elif inductor.launches_silently(kernel):
            site = call_sites.extern_site(kernel, inductor.extern_name(kernel))
            self._compiles.add_site(site)

    def _kernel_comment(self, original: Call, args: Arguments, kwargs: Keywords) -> Any:
        result = original(*args, **kwargs)
        if len(args) > 2 and args[2] is None:
            self._compiles.keep_schedule(args[1])
        return result

    def _kernel_call(self, original: Call, args: Arguments, kwargs: Keywords) -> Any:
        if (schedule := self._compiles.take_schedule()) is not None:
            self._observe(self._add_site, schedule, args[1])
        return original(*args, **kwargs)

    def _joint_passes(self, original: Call, args: Arguments, kwargs: Keywords) -> Any:
        gm = args[0]
        watch = self._observe(Watch, gm)
        if watch is None:
            return original(*args, **kwargs)
        mutated = self._observe(mutations, gm)
        with fx.watching_replacements(gm, watch.note):
            result = original(*args, **kwargs)
        self._observe(self._keep_joint, gm, watch, mutated)
        return result

    def _keep_joint(self, gm: Any, watch: Watch, mutated: Mutations | None) -> None:
        self._compiles.keep_joint(describe_joint(gm, watch.replaced(), mutated))

    def _post_grad_passes(self, original: Call, args: Arguments, kwargs: Keywords) -> Any:
        inner = self._compiles.inner
        watch = self._observe(Watch, args[0]) if inner else None
        if inner is None or watch is None:
            return original(*args, **kwargs)
        with fx.watching_replacements(args[0], watch.note):
            result = original(*args, **kwargs)
        inner.replaced[args[0].graph] = self._observe(watch.replaced) or {}
        return result

    def _inner_compile(self, original: Call, args: Arguments, kwargs: Keywords) -> Any:
        if self._observe(self._compiles.enter, args[0]) is None:
            return original(*args, **kwargs)
        try:
            return original(*args, **kwargs)
        finally:
            self._compiles.leave()

    def _cache_key(self, original: Call, args: Arguments, kwargs: Keywords) -> Any:
        prepared = original(*args, **kwargs)
        self._observe(self._compiles.note_bypass, prepared)
        return prepared

    def _autograd_cache_key(self, original: Call, args: Arguments, kwargs: Keywords) -> Any:
        try:
            return original(*args, **kwargs)
        except Exception as error:
            self._observe(self._compiles.keep_autograd_bypass, str(error))
            raise

    def _artifact_init(self, original: Call, args: Arguments, kwargs: Keywords) -> Any:
        original(*args, **kwargs)
        self._observe(self._seal, *args[:1], *args[2:4])

    def _seal(self, artifact: Any, graph: Any, gm: Any) -> None:
        if (inner := self._compiles.inner) is not None:
            inner.is_compiled = True
        provenance = seal(self._compiles, artifact, graph, gm)
        data = to_bytes(provenance)
        if inner is not None:
            inner.sealed = Sealed(provenance, data)
        self._registry.ride(artifact, data)

    def _artifact_ready(self, original: Call, args: Arguments, kwargs: Keywords) -> Any:
        started_ns = time.perf_counter_ns()
        result = original(*args, **kwargs)
        graph_kwargs: dict[str, Any] = args[3] if len(args) > 3 else kwargs["graph_kwargs"]
        told = (bool(graph_kwargs.get(name)) for name in ("is_backward", "cudagraphs"))
        self._observe(self._registry.register, args[0], *told, started_ns)
        return result

    def _artifact_call(self, original: Call, args: Arguments, kwargs: Keywords) -> Any:
        warmup = self._observe(self._begin_warmup, args[0])
        try:
            result = original(*args, **kwargs)
        finally:
            if warmup is not None:
                self._observe(self._end_warmup, *warmup)
        if self.on_optimizer_graph is not None:
            instance = self._registry.instance_of(args[0])
            if instance is not None and instance.runs_optimizer:
                self.on_optimizer_graph(instance)
        return result

    def _begin_warmup(self, artifact: Any) -> tuple[GraphInstance, Warmup] | None:
        instance = self._registry.take_unlearnt(artifact)
        if instance is None or self._warmup is None or not self._warmup.is_wanted():
            return None
        return instance, self._warmup()

    def _end_warmup(self, instance: GraphInstance, warmup: Warmup) -> None:
        self._registry.learn(instance, warmup.learn(instance))

    def _dynamo_graph(self, original: Call, args: Arguments, kwargs: Keywords) -> Any:
        self._observe(self._keep_dynamo, *args[:2])
        return original(*args, **kwargs)

    def _keep_dynamo(self, output_graph: Any, gm: Any) -> None:
        self._compiles.keep_dynamo(describe_dynamo_graph(output_graph, gm))

    def _module_load(self, original: Call, args: Arguments, kwargs: Keywords) -> Any:
        module = original(*args, **kwargs)
        if self._cpu_events:
            self._observe(self._cpu_kernels.rebind, module)
        return module


def _failure(observer: Callable[..., Any], error: Exception) -> str:
    """Say what failed and where, in one short line."""
    place = traceback.extract_tb(error.__traceback__)[-1]
    text = str(error).partition("\n")[0][:200]
    where = f"{Path(place.filename).name}:{place.lineno}"
    return f"{observer.__name__.strip('_')}: {type(error).__name__} at {where}: {text}"


def _remove(patches: list[Patch]) -> None:
    for patch in reversed(patches):
        patch.remove()


def torch_problems() -> tuple[str, ...]:
    """Return what this torch lacks for capture; empty when it has all.

    Looking imports every module that holds a place, so a name that one module binds from
    another is bound before any of them is wrapped.
    """
    found = (point.problem() for point in points.ALL)
    return tuple(problem for problem in found if problem is not None)


def torch_version() -> str:
    """Return the version of the torch that is observed."""
    return process.version()
