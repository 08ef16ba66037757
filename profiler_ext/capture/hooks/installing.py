"""Owns the installing and removing of the hooks, and what they have seen in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from profiler_ext.capture import lacking
from profiler_ext.capture.cpu_kernels import CpuKernels
from profiler_ext.capture.graphs.backwards import Backwards
from profiler_ext.capture.graphs.compiles import Compiles
from profiler_ext.capture.graphs.failed import TOO_MANY_FAILURES, failure_gap, without_failed_records
from profiler_ext.capture.graphs.registry import Registry
from profiler_ext.capture.graphs.unlearnt import graphs_with_unmatched_launches
from profiler_ext.capture.hooks.artifacts import ArtifactHooks, Warmup
from profiler_ext.capture.hooks.autograd import AutogradHooks
from profiler_ext.capture.hooks.caches import CacheHooks
from profiler_ext.capture.hooks.graphs import GraphHooks
from profiler_ext.capture.hooks.parts import DeferredHooks, is_dynamo_hook
from profiler_ext.capture.hooks.regions import RegionHooks
from profiler_ext.capture.hooks.sites import SiteHooks
from profiler_ext.capture.timing.hooks import CompileHooks
from profiler_ext.capture.timing.log import CompileLog
from profiler_ext.errors import TorchCapabilityError
from profiler_ext.isolation.guard import Guard, Observation, Observed
from profiler_ext.records import Compilation, Gap, GraphInstance
from profiler_ext.torch_compat import inductor, points, process, skipping
from profiler_ext.torch_compat.arrivals import IMPORT_HOOK, DYNAMO, INDUCTOR
from profiler_ext.torch_compat.calling import forget_known_calls
from profiler_ext.torch_compat.patches import Hook, installed

if TYPE_CHECKING:
    from profiler_ext.records import Analysis


class Capture:
    """The hooks of this process and what they have seen.

    Attributes:
        guard: what keeps their failures from the user's program.
        misfit: why this torch does not fit, where that was found when its compiler was imported.
        graph_of: tells the index of an artifact's graph instance, where it has but one.
        call_target: tells what tells the modules of its calls, if that is not the method that calls.
    """

    def __init__(
        self, *, cpu_events: bool, strict: bool, warmup: type[Warmup] | None = None
    ) -> None:
        """Prepare; nothing is installed yet.

        Args:
            cpu_events: give Inductor's C++ kernels events.
            strict: raise what goes wrong in a hook instead of keeping it as a gap.
            warmup: profiles the first call of a graph that CUDA graphs will replay.
        """
        self.guard = Guard(strict, process.current_compile_id)
        self._compiles = Compiles(self.guard.alone)
        self._registry = Registry(self._compiles, self.guard)
        self.graph_of = self._registry.index_of  # itself: each call that is recorded asks
        self.call_target = self._registry.call_target.get
        self._cpu_kernels = CpuKernels(self.guard)
        self._cpu_events = cpu_events
        self._log = CompileLog(lambda: self._compiles.dynamo_number)
        self._timing = CompileHooks(Guard(strict, process.current_compile_id), self._log)
        self._artifacts = ArtifactHooks(
            self.guard, self._compiles, self._registry, warmup, self._timing.ready
        )
        self._caches = CacheHooks(self._registry)
        self._hooks = ExitStack()
        self._missing_names: tuple[Gap, ...] | None = None
        self.capability_error: TorchCapabilityError | None = None
        self._parts = DeferredHooks((), self.guard, self._on_incompatible)
        self._observed: tuple[Hook, ...] = ()

    def _observations(self) -> Iterator[Hook]:
        backwards = Backwards(self._compiles, self._registry, self.guard)
        graphs = GraphHooks(
            self.guard, self._compiles, backwards, lambda: self._parts.install_before_trace()
        )
        regions = RegionHooks(self._compiles, graphs.creations)
        hooks = (SiteHooks(self._compiles), graphs, regions, AutogradHooks(backwards))
        for each in (*hooks, self._artifacts, self._caches):
            yield from each.observations()
        if self._cpu_events:
            yield points.MODULE_LOAD, self._module_load

    @property
    def strict(self) -> bool:
        """Whether what goes wrong in a hook is raised."""
        return self.guard.strict

    @strict.setter
    def strict(self, strict: bool) -> None:
        self.guard.strict = self._timing.guard.strict = strict

    @property
    def recompile(self) -> bool:
        """Whether graphs whose cached artifact has no record are compiled once more."""
        return self._caches.recompile

    @recompile.setter
    def recompile(self, recompile: bool) -> None:
        self._caches.recompile = recompile

    @property
    def learns(self) -> bool:
        """Whether the first calls of CUDA graphs are profiled, of which the store knows nothing."""
        return self._artifacts.learns

    @learns.setter
    def learns(self, learns: bool) -> None:
        self._artifacts.learns = learns

    @property
    def has_calls_to_profile(self) -> bool:
        """Whether first calls of CUDA graphs are still to be profiled."""
        return self._artifacts.learns and self._registry.has_calls_to_profile

    @property
    def on_optimizer_graph(self) -> Callable[[GraphInstance], None] | None:
        """What is called when a graph that runs an optimizer's step has run."""
        return self._artifacts.on_optimizer_graph

    @on_optimizer_graph.setter
    def on_optimizer_graph(self, called: Callable[[GraphInstance], None] | None) -> None:
        self._artifacts.on_optimizer_graph = called

    @property
    def graphs(self) -> tuple[GraphInstance, ...]:
        """The graph instances of this process; of those where a hook failed nothing is told."""
        return without_failed_records(self._registry.graphs, self.guard.failures, self._registry)

    @property
    def all_gaps(self) -> tuple[Gap, ...]:
        """What the hooks could not see of graphs, and of compiles."""
        of_compiles = self._timing.guard.run("gaps of compiles", self._timing.gaps)
        return (*self.gaps, *(of_compiles or ()))

    def compiles_since(self, base_ns: int) -> tuple[Compilation, ...]:
        """Return what compiling took in this process, on the clock of a trace."""
        guard, since = self._timing.guard, self._log.compiles_since
        return guard.run("compiles", since, base_ns) or ()

    @property
    def is_late(self) -> bool:
        """Whether anything was compiled before it was installed."""
        return self._log.is_late

    def hold(self, recording: object) -> None:
        """Let go of nothing that can run from here on until a recording is over.

        Args:
            recording: who records, while it lives.
        """
        self._registry.hold(recording)

    def release(self, recording: object) -> None:
        """Have a recording be over: what ran in it is told.

        Args:
            recording: who recorded.
        """
        self._registry.release(recording)

    def knows(self, artifact: Any) -> bool:
        """Tell whether an artifact became ready while capture was on."""
        return self._registry.instance_of(artifact) is not None

    @property
    def gaps(self) -> tuple[Gap, ...]:
        """What the hooks could not see of graphs."""
        failed = map(failure_gap, self.guard.failures)
        gaps = (*self._missing(), *failed)
        return (*gaps, TOO_MANY_FAILURES) if self.guard.is_disabled else gaps

    def _missing(self) -> tuple[Gap, ...]:
        """What this torch lacks; looked for when it is asked for, for that takes a while."""
        is_compiling = not self._parts.is_pending
        if not is_compiling:
            return lacking.gaps(is_compiling=False)
        if self._missing_names is None:
            self._missing_names = lacking.gaps()
        return self._missing_names

    def learn(self, analysis: Analysis) -> None:
        """Keep what replays showed of library calls, for later processes, and drop what fails."""
        for graph, kernels in analysis.library_kernels:
            self.guard.run("learn", self._registry.learn, graph, kernels)
        for graph in self.guard.run("learn", graphs_with_unmatched_launches, analysis) or ():
            self.guard.run("learn", self._registry.discard_stored_kernels, graph)

    def install(self) -> None:
        """Put all hooks in place, or none; those of what torch has not imported yet, when it has.

        Raises:
            TorchCapabilityError: This torch lacks a place that capture stands on.
        """
        self._log.is_late = process.anything_compiled()
        self._observed = tuple(self._observations())
        parts = ((DYNAMO, self._install_dynamo), (INDUCTOR, self._install_inductor))
        self._parts = DeferredHooks(parts, self.guard, self._on_incompatible)
        self._hooks.callback(self._parts.stop_waiting)
        self._hooks.callback(self._cpu_kernels.restore)
        try:
            self._parts.install()
        except BaseException:
            self.remove()
            raise

    def install_all(self) -> None:
        """Put in place what still waits for torch's compiler, which is imported for it.

        Raises:
            TorchCapabilityError: This torch lacks a place that capture stands on.
        """
        self._parts.install_all()
        if self.capability_error is not None:
            raise self.capability_error

    def remove(self) -> None:
        """Leave torch as it was found."""
        self._hooks.close()
        forget_known_calls()

    def _on_incompatible(self, error: TorchCapabilityError) -> None:
        """Take all away again: the program goes on with its import."""
        self.capability_error = error
        self.guard.note(IMPORT_HOOK, error)
        self.remove()

    def _install_dynamo(self) -> None:
        with ExitStack() as hooks:
            skipping.skip_own_code()
            hooks.callback(skipping.forget_own_code)
            timing = self._timing
            hooks.enter_context(installed(filter(is_dynamo_hook, self._observed), self.guard))
            hooks.enter_context(installed(timing.observations(), timing.guard))
            self._hooks.push(hooks.pop_all())

    def _install_inductor(self) -> None:
        if problems := lacking.problems():
            raise TorchCapabilityError(
                f"torch {process.version()} does not fit capture: {'; '.join(problems)}"
            )
        with ExitStack() as hooks:
            rest = (each for each in self._observed if not is_dynamo_hook(each))
            hooks.enter_context(installed(rest, self.guard))
            self._hooks.push(hooks.pop_all())
        if self._cpu_events:
            for module in inductor.loaded_modules():
                self.guard.run("loaded kernels", self._cpu_kernels.rebind, module)

    def _module_load(self, call: Observed) -> Observation:
        yield
        self._cpu_kernels.rebind(call.result)


def torch_version() -> str:
    """Return the version of the torch that is observed."""
    return process.version()
