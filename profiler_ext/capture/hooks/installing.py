"""The installing and removing of the hooks.

Dynamo's with it, all others with Inductor, if this torch has their names.

A hook may run while Dynamo watches the thread's frames: under compiled autograd's flag the
engine builds its graph inside the region that is compiled. Torch's own files are skipped
there; without this, Dynamo would compile the hooks.

Source: ``torch/_dynamo/trace_rules.py``, ``add`` and ``SKIP_DIRS``.

A function that one module binds from another is bound before it is wrapped, since what is waited
for imports all the others of its part. When Dynamo hands over its first graph, to whichever
backend, the others are put in place at the latest: AOTAutograd traces then.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

from profiler_ext.capture.graphs.backwards import Backwards
from profiler_ext.capture.graphs.compiles import Compiles
from profiler_ext.capture.graphs.failed_graphs import (
    TOO_MANY_FAILURES,
    failure_gap,
    without_failed_records,
)
from profiler_ext.capture.graphs.library_calls import graphs_with_unmatched_launches
from profiler_ext.capture.graphs.registry import Registry
from profiler_ext.capture.hooks.artifacts import (
    ArtifactHooks,
    CacheHooks,
    CpuKernels,
    SiteHooks,
    Warmup,
)
from profiler_ext.capture.hooks.compile_log import CompileHooks, CompileLog
from profiler_ext.capture.hooks.graphs import AutogradHooks, GraphHooks, RegionHooks
from profiler_ext.errors import TorchCapabilityError
from profiler_ext.isolation.guard import Guard, Observation, Observed
from profiler_ext.isolation.locks import Lock
from profiler_ext.records.compiles import Compilation
from profiler_ext.records.gaps import GapReason
from profiler_ext.records.provenance import Gap, GraphInstance
from profiler_ext.torch_compat import behaviour, inductor, names, points, process
from profiler_ext.torch_compat.calling import forget_known_calls
from profiler_ext.torch_compat.import_hooks import (
    DYNAMO,
    IMPORT_HOOK,
    INDUCTOR,
    ImportWatcher,
    is_importing,
)
from profiler_ext.torch_compat.names import running_names
from profiler_ext.torch_compat.patches import Hook, installed

if TYPE_CHECKING:
    from profiler_ext.records.analysis import Analysis


_F = TypeVar("_F", bound=Callable[..., object])
_PACKAGE = __name__.partition(".")[0]


def skip_own_code() -> None:
    """Tell Dynamo not to compile this package's frames."""
    running_names.ADD_RULE.get()(_PACKAGE)


def forget_own_code() -> None:
    """Leave Dynamo's rules as they were found."""
    from importlib.util import find_spec

    spec, skipped = find_spec(_PACKAGE), running_names.SKIP_DIRS.get()
    folder = running_names.STRIP_INIT.get()(spec.origin) if spec and spec.origin else None
    if folder in skipped:
        skipped.remove(folder)
        running_names.RECOMPILE_RULES.get()()


def not_traced(reason: str) -> Callable[[_F], _F]:
    """Have Dynamo break its graph at a function of ours, whether capture is on yet or not.

    It is what ``torch.compiler.disable`` puts on a function, which would import Dynamo for it.

    Source: ``torch/_dynamo/symbolic_convert.py``, ``check_inlineable``.
    """

    def marked(function: _F) -> _F:
        vars(function).update(_torchdynamo_disable=True, _torchdynamo_disable_msg=reason)
        return function

    return marked


def problems() -> tuple[str, ...]:
    """Return what this torch lacks that nothing can be captured without; empty when it has all.

    Looking imports every module that holds a place, so a name that one module binds from
    another is bound before any of them is wrapped.
    """
    wrapped = [(point, point.problem()) for point in points.ALL]
    read = (name.problem() for name in names.ALL if name.is_vital)
    vital = (problem for point, problem in wrapped if point.is_vital)
    return tuple(problem for problem in (*vital, *read) if problem is not None)


def gaps(*, is_compiling: bool = True) -> tuple[Gap, ...]:
    """Return a gap for each other name that this torch lacks, with what is lost without it.

    And one for each behaviour in which it is not what its version says, and where it was not tried.

    Args:
        is_compiling: the program has imported torch's compiler, and what is in it counts.
    """
    if not is_compiling:
        missing_names = names.missing_names(is_loaded=True)
        return (
            *(Gap(GapReason.PRIVATE_NAME, missing_reason) for missing_reason in missing_names),
            *_of_version(),
        )
    lost = (*names.missing_names(), *_unseen())
    lacking = (Gap(GapReason.PRIVATE_NAME, missing_names) for missing_names in lost)
    differs = (Gap(GapReason.TORCH_BEHAVIOUR, text) for text in behaviour.contradictions())
    return (*lacking, *differs, *_of_version())


def _of_version() -> Iterator[Gap]:
    """Say that this torch was not tried, if it was not."""
    if (said := behaviour.untested_version()) is not None:
        yield Gap(GapReason.TORCH_BEHAVIOUR, said)


def _unseen() -> Iterator[str]:
    """Each place that capture does without, and what is lost by it."""
    for point in points.ALL:
        if not point.is_vital and (problem := point.problem()) is not None:
            yield f"{problem}; lost is {point.purpose}"


_HOOKED_MODULES = tuple(dict.fromkeys((DYNAMO, INDUCTOR, *(point.module for point in points.ALL))))

Install = Callable[[], object]


def is_dynamo_hook(hook: Hook) -> bool:
    """Tell whether a hook is in a module that Dynamo imports with itself."""
    return hook[0].module.startswith(DYNAMO + ".")


class DeferredHooks:
    """The parts that are not in place yet."""

    def __init__(
        self,
        parts: Sequence[tuple[str, Install]],
        guard: Guard,
        on_incompatible: Callable[[TorchCapabilityError], None],
    ) -> None:
        """Put none in place yet.

        Args:
            parts: for each, in order, the module that is waited for, and what puts it in place.
            on_incompatible: is told why this torch does not fit, where an import shows that.
        """
        self._parts = list(parts)
        self._guard, self._on_incompatible = guard, on_incompatible
        self._imported: set[str] = set()
        self._watcher: ImportWatcher | None = None
        self._lock = Lock()

    @property
    def is_pending(self) -> bool:
        """Whether any is not in place."""
        return bool(self._parts)

    def install(self) -> None:
        """Put in place what can be now, and the rest when its module has been imported.

        Raises:
            TorchCapabilityError: This torch lacks a place that capture stands on.
        """
        self._install_imported()
        if self._parts:
            self._watcher = ImportWatcher(_HOOKED_MODULES, self._on_import, self._guard)

    def install_all(self) -> None:
        """Import what is waited for, so that all are in place.

        Of several threads that ask for it one imports: torch's compiler is in circles, and two that
        begin at once find it half there.

        Raises:
            TorchCapabilityError: This torch lacks a place that capture stands on.
        """
        self.stop_waiting()
        with self._lock.held():
            while self._parts:
                module, install = self._parts[0]
                import_module(module)
                del self._parts[:1]  # not before: Ctrl-C may end the import
                install()

    def install_before_trace(self) -> None:
        """Do the same amid a compile."""
        if self._parts:
            self._attempt(self.install_all)

    def stop_waiting(self) -> None:
        """Wait for nothing any more."""
        if self._watcher is not None:
            self._watcher.leave()
            self._watcher = None

    def _on_import(self, module: str) -> None:
        self._imported.add(module)
        self._attempt(self._install_imported)

    def _attempt(self, install: Install) -> None:
        try:
            install()
        except TorchCapabilityError as error:
            self._parts.clear()
            self._on_incompatible(error)

    def _install_imported(self) -> None:
        while self._parts and self._is_imported(self._parts[0][0]):
            _, install = self._parts.pop(0)
            install()
        if not self._parts:
            self.stop_waiting()

    def _is_imported(self, module: str) -> bool:
        """Tell whether a module is imported, and no place of a hook is being so."""
        others = (each for each in _HOOKED_MODULES if each not in self._imported)
        return module in sys.modules and not any(map(is_importing, others))


class Capture:
    """The hooks of this process and what they have seen.

    Attributes:
        guard: what keeps their failures from the user's program.
        misfit: why this torch does not fit, where that was found when its compiler was imported.
        graph_of: tells the index of an artifact's graph instance, where it has but one.
        call_target: gives the modules of its calls, if that is not the method that calls.
    """

    def __init__(
        self, *, cpu_events: bool, strict: bool, warmup: type[Warmup] | None = None
    ) -> None:
        """Prepare; nothing is installed yet.

        Args:
            strict: raise what goes wrong in a hook instead of keeping it as a gap.
            warmup: profiles the first call of a graph that CUDA graphs will replay.
        """
        self.guard = Guard(strict, process.current_compile_id)
        self._compiles = Compiles(self.guard.try_run)
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
        """Let go of nothing that can run from here on until a recording is over."""
        self._registry.hold(recording)

    def release(self, recording: object) -> None:
        """Have a recording be over: what ran in it is told."""
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
            return gaps(is_compiling=False)
        if self._missing_names is None:
            self._missing_names = gaps()
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
            skip_own_code()
            hooks.callback(forget_own_code)
            timing = self._timing
            hooks.enter_context(installed(filter(is_dynamo_hook, self._observed), self.guard))
            hooks.enter_context(installed(timing.observations(), timing.guard))
            self._hooks.push(hooks.pop_all())

    def _install_inductor(self) -> None:
        if lacks := problems():
            raise TorchCapabilityError(
                f"torch {process.version()} does not fit capture: {'; '.join(lacks)}"
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
