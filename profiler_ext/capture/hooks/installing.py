"""Owns the installing and removing of the hooks, and what they have seen in this process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from profiler_ext.capture.cpu_kernels import CpuKernels
from profiler_ext.capture.graphs.backwards import Backwards
from profiler_ext.capture.graphs.compiles import Compiles
from profiler_ext.capture.graphs.registry import Registry
from profiler_ext.capture.hooks.artifacts import ArtifactHooks, Warmup
from profiler_ext.capture.hooks.autograd import AutogradHooks
from profiler_ext.capture.hooks.caches import CacheHooks
from profiler_ext.capture.hooks.graphs import GraphHooks
from profiler_ext.capture.hooks.regions import RegionHooks
from profiler_ext.capture.hooks.sites import SiteHooks
from profiler_ext.capture.observing import Arguments, Hooks, Keywords, Observer
from profiler_ext.errors import TorchCapabilityError
from profiler_ext.records import Analysis, Gap, GraphInstance
from profiler_ext.torch_compat import inductor, points, process, skipping
from profiler_ext.torch_compat.patches import Call, Patch


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
        compiles = Compiles()
        self._observe = Observer(strict, compiles.add_gap)
        self._registry = Registry(compiles)
        self._cpu_kernels = CpuKernels()
        self._cpu_events = cpu_events
        self._artifacts = ArtifactHooks(self._observe, compiles, self._registry, warmup)
        self._caches = CacheHooks(self._observe, self._registry)
        backwards = Backwards(compiles, lambda: self._registry.graphs)
        graphs = GraphHooks(self._observe, compiles, backwards)
        hooks: tuple[Hooks, ...] = (
            SiteHooks(self._observe, compiles),
            graphs,
            RegionHooks(self._observe, compiles, graphs.births),
            AutogradHooks(self._observe, backwards),
            self._artifacts,
            self._caches,
        )
        self._patches = [Patch(*around) for each in hooks for around in each.arounds()]
        self._patches.append(Patch(points.MODULE_LOAD, self._module_load))

    @property
    def strict(self) -> bool:
        """Whether what goes wrong in a hook is raised."""
        return self._observe.strict

    @strict.setter
    def strict(self, strict: bool) -> None:
        self._observe.strict = strict

    @property
    def recompile(self) -> bool:
        """Whether graphs whose cached artifact has no record are compiled once more."""
        return self._caches.recompile

    @recompile.setter
    def recompile(self, recompile: bool) -> None:
        self._caches.recompile = recompile

    @property
    def on_optimizer_graph(self) -> Callable[[GraphInstance], None] | None:
        """What is called when a graph that runs an optimizer's step has run."""
        return self._artifacts.on_optimizer_graph

    @on_optimizer_graph.setter
    def on_optimizer_graph(self, called: Callable[[GraphInstance], None] | None) -> None:
        self._artifacts.on_optimizer_graph = called

    @property
    def graphs(self) -> tuple[GraphInstance, ...]:
        """The graph instances of this process."""
        return self._registry.graphs

    def graph_of(self, artifact: Any) -> int | None:
        """Return the index of an artifact's graph instance, where it has but one."""
        return self._registry.index_of(artifact)

    @property
    def gaps(self) -> tuple[Gap, ...]:
        """What the hooks could not see."""
        return tuple(self._observe.gaps)

    def learn(self, analysis: Analysis) -> None:
        """Keep what replays showed of library calls, for a process that comes late."""
        for graph, counts in analysis.library_counts:
            self._observe(self._registry.learn, graph, counts)

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
        skipping.skip_own_code()
        try:
            for patch in self._patches:
                patch.install()
                installed.append(patch)
        except BaseException:
            _remove(installed)
            skipping.forget_own_code()
            raise
        if self._cpu_events:
            for module in inductor.loaded_modules():
                self._cpu_kernels.rebind(module)

    def remove(self) -> None:
        """Leave torch as it was found."""
        _remove(self._patches)
        skipping.forget_own_code()
        self._cpu_kernels.restore()

    def _module_load(self, original: Call, args: Arguments, kwargs: Keywords) -> Any:
        module = original(*args, **kwargs)
        if self._cpu_events:
            self._observe(self._cpu_kernels.rebind, module)
        return module


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
