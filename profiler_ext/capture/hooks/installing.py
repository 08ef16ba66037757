"""The installing and removing of the hooks, each with the part of torch's compiler that it is in.

Source: ``torch/_dynamo/trace_rules.py``, ``add`` and ``SKIP_DIRS``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

from profiler_ext.capture.graphs import compiles, failed_graphs, library_calls, registry
from profiler_ext.capture.graphs.backwards import Backwards
from profiler_ext.capture.hooks import artifacts
from profiler_ext.capture.hooks.compile_log import CompileHooks, CompileLog
from profiler_ext.capture.hooks.graphs import AutogradHooks, GraphHooks, RegionHooks
from profiler_ext.errors import TorchCapabilityError
from profiler_ext.isolation.guard import Guard, Observation, Observed
from profiler_ext.isolation.locks import Lock
from profiler_ext.records.compiles import Compilation
from profiler_ext.records.gaps import GapReason
from profiler_ext.records.provenance import Gap, GraphInstance
from profiler_ext.torch_compat import behaviour, calling, inductor, names, points, process
from profiler_ext.torch_compat.import_hooks import (
    ARTIFACTS,
    DYNAMO,
    IMPORT_HOOK,
    INDUCTOR,
    PACKAGES,
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
    """Tell Dynamo not to compile this package's frames.

    A hook may run while Dynamo watches the thread's frames: under compiled autograd the engine
    builds its graph inside the compiled region. Torch's own files are skipped there.

    Source: ``torch/_dynamo/trace_rules.py``, ``add`` and ``SKIP_DIRS``.
    """
    running_names.ADD_RULE.get()(_PACKAGE)


def forget_own_code() -> None:
    """Undo :func:`skip_own_code`."""
    from importlib.util import find_spec

    spec, skipped = find_spec(_PACKAGE), running_names.SKIP_DIRS.get()
    folder = running_names.STRIP_INIT.get()(spec.origin) if spec and spec.origin else None
    if folder in skipped:
        skipped.remove(folder)
        running_names.RECOMPILE_RULES.get()()


def not_traced(reason: str) -> Callable[[_F], _F]:
    """Have Dynamo break its graph at a function, without importing Dynamo.

    It sets what ``torch.compiler.disable`` sets.

    Source: ``torch/_dynamo/symbolic_convert.py``, ``check_inlineable``.
    """

    def marked(function: _F) -> _F:
        vars(function).update(_torchdynamo_disable=True, _torchdynamo_disable_msg=reason)
        return function

    return marked


def problems() -> tuple[str, ...]:
    """Return the vital names that this torch lacks, without which nothing can be captured."""
    # Looking imports every module with a hook's place, so a name that one module binds from another
    # is bound before it is wrapped.
    wrapped = [(point, point.problem()) for point in points.ALL]
    read = (name.problem() for name in names.ALL if name.is_vital)
    vital = (problem for point, problem in wrapped if point.is_vital)
    return tuple(problem for problem in (*vital, *read) if problem is not None)


def gaps(*, is_compiling: bool = True) -> tuple[Gap, ...]:
    """Return a gap for each other missing name, each differing behaviour, an untested version."""
    if not is_compiling:  # names in the compiler, which was not imported, do not count
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
    if (reported := behaviour.untested_version()) is not None:
        yield Gap(GapReason.TORCH_BEHAVIOUR, reported)


def _unseen() -> Iterator[str]:
    for point in points.ALL:
        if not point.is_vital and (problem := point.problem()) is not None:
            yield f"{problem}; lost is {point.purpose}"


_HOOKED_MODULES = tuple(dict.fromkeys((DYNAMO, INDUCTOR, *(point.module for point in points.ALL))))

Install = Callable[[], object]


def is_dynamo_hook(hook: Hook) -> bool:
    """Tell whether Dynamo imports the hook's module with itself."""
    return hook[0].module.startswith(DYNAMO + ".")


def _is_artifact_hook(hook: Hook) -> bool:
    return hook[0].module == ARTIFACTS


def _is_package_hook(hook: Hook) -> bool:
    return hook[0].module == PACKAGES


class DeferredHooks:
    """The parts that are not installed yet."""

    def __init__(
        self,
        parts: Sequence[tuple[str, Install]],
        guard: Guard,
        on_incompatible: Callable[[TorchCapabilityError], None],
    ) -> None:
        self._parts = list(parts)  # the module that is waited for, and what installs the part
        self._guard, self._on_incompatible = guard, on_incompatible
        self._imported: set[str] = set()
        self._watcher: ImportWatcher | None = None
        self._lock = Lock()

    @property
    def is_pending(self) -> bool:
        """Whether any is not installed."""
        return bool(self._parts)

    def install(self) -> None:
        """Install what can be now, and the rest when its module is imported.

        Raises:
            TorchCapabilityError: This torch lacks a place that capture needs.
        """
        self._install_imported()
        if self._parts:
            self._watcher = ImportWatcher(_HOOKED_MODULES, self._on_import, self._guard)

    def add(self, module: str, install: Install) -> None:
        """Install another part with those that wait for a module; now, if none does."""
        waiting = [at for at, (name, _) in enumerate(self._parts, 1) if name == module]
        if waiting:
            self._parts.insert(waiting[-1], (module, install))
        else:
            install()

    def install_all(self) -> None:
        """Import what is waited for, and install all.

        Raises:
            TorchCapabilityError: This torch lacks a place that capture needs.
        """
        self.stop_waiting()
        # One thread imports: torch's compiler has import circles, and two that begin at once see
        # half of it.
        with self._lock.held():
            while self._parts:
                module, install = self._parts[0]
                import_module(module)
                del self._parts[:1]  # only now: Ctrl-C may end the import
                install()

    def install_before_trace(self) -> None:
        """Install all in the middle of a compile: AOTAutograd traces next."""
        if self._parts:
            self._attempt(self.install_all)

    def stop_waiting(self) -> None:
        """Stop waiting for imports."""
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
        """Tell whether a module is imported, and no hooked module is being imported."""
        others = (each for each in _HOOKED_MODULES if each not in self._imported)
        return module in sys.modules and not any(map(is_importing, others))


class Capture:
    """The hooks of this process and what they recorded."""

    def __init__(
        self, *, cpu_events: bool, strict: bool, warmup: type[artifacts.Warmup] | None = None
    ) -> None:
        self.guard = Guard(strict, process.current_compile_id)
        self._compiles = compiles.Compiles(self.guard.try_run)
        self._registry = registry.Registry(self._compiles, self.guard)
        self.graph_of = self._registry.index_of  # direct: it runs at each recorded call
        self.call_target = self._registry.call_target.get
        self._cpu_kernels = artifacts.CpuKernels(self.guard)
        self._cpu_events = cpu_events
        self._log = CompileLog(lambda: self._compiles.dynamo_number)
        self._timing = CompileHooks(Guard(strict, process.current_compile_id), self._log)
        self._artifacts = artifacts.ArtifactHooks(
            self.guard, self._compiles, self._registry, warmup, self._timing.ready
        )
        self._caches = artifacts.CacheHooks(self._registry)
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
        hooks = (artifacts.SiteHooks(self._compiles), graphs, regions, AutogradHooks(backwards))
        packages = artifacts.PackageHooks(self.guard, self._compiles, self._registry)
        for each in (*hooks, self._artifacts, self._caches, packages):
            yield from each.observations()
        if self._cpu_events:
            yield points.MODULE_LOAD, self._module_load

    @property
    def strict(self) -> bool:
        """Whether failures in hooks are raised, instead of kept as gaps."""
        return self.guard.strict

    @strict.setter
    def strict(self, strict: bool) -> None:
        self.guard.strict = self._timing.guard.strict = strict

    @property
    def recompile(self) -> bool:
        """Whether graphs without a record in the cache are recompiled."""
        return self._caches.recompile

    @recompile.setter
    def recompile(self, recompile: bool) -> None:
        self._caches.recompile = recompile

    @property
    def learns(self) -> bool:
        """Whether the first calls of CUDA graphs without stored kernels are profiled."""
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
        """The graph instances of this process; without their record if a hook failed."""
        return failed_graphs.without_failed_records(
            self._registry.graphs, self.guard.failures, self._registry
        )

    @property
    def all_gaps(self) -> tuple[Gap, ...]:
        """The gaps of graphs and of compiles."""
        of_compiles = self._timing.guard.run("gaps of compiles", self._timing.gaps)
        return (*self.gaps, *(of_compiles or ()))

    def compiles_since(self, base_ns: int) -> tuple[Compilation, ...]:
        """Return the compiles of this process, on a trace's clock."""
        guard, since = self._timing.guard, self._log.compiles_since
        return guard.run("compiles", since, base_ns) or ()

    @property
    def is_late(self) -> bool:
        """Whether anything was compiled before installing."""
        return self._log.is_late

    def hold(self, recording: object) -> None:
        """Keep everything that can run until a recording is over."""
        self._registry.hold(recording)

    def release(self, recording: object) -> None:
        """End a recording."""
        self._registry.release(recording)

    def knows(self, artifact: Any) -> bool:
        """Tell whether an artifact became ready while capture was on."""
        return self._registry.instance_of(artifact) is not None

    @property
    def gaps(self) -> tuple[Gap, ...]:
        """The gaps of graphs."""
        failed = map(failed_graphs.failure_gap, self.guard.failures)
        gaps = (*self._missing(), *failed)
        return (*gaps, failed_graphs.TOO_MANY_FAILURES) if self.guard.is_disabled else gaps

    def _missing(self) -> tuple[Gap, ...]:
        is_compiling = not self._parts.is_pending
        if not is_compiling:
            return gaps(is_compiling=False)
        if self._missing_names is None:
            self._missing_names = gaps()
        return self._missing_names

    def learn(self, analysis: Analysis) -> None:
        """Store the kernels of library calls for later processes, and drop mismatches."""
        for graph, kernels in analysis.library_kernels:
            self.guard.run("learn", self._registry.learn, graph, kernels)
        for graph in (
            self.guard.run("learn", library_calls.graphs_with_unmatched_launches, analysis) or ()
        ):
            self.guard.run("learn", self._registry.discard_stored_kernels, graph)

    def install(self) -> None:
        """Install all hooks or none; those of modules not imported yet, on import.

        Raises:
            TorchCapabilityError: This torch lacks a place that capture needs.
        """
        self._log.is_late = process.anything_compiled()
        self._observed = tuple(self._observations())
        parts = (
            (DYNAMO, self._install_dynamo),
            (PACKAGES, self._install_packages),
            (ARTIFACTS, self._install_artifacts),
            (INDUCTOR, self._install_inductor),
        )
        self._parts = DeferredHooks(parts, self.guard, self._on_incompatible)
        self._hooks.callback(self._parts.stop_waiting)
        self._hooks.callback(self._cpu_kernels.restore)
        try:
            self._parts.install()
        except BaseException:
            self.remove()
            raise

    def when_imported(self, module: str, install: Install) -> None:
        """Install further hooks once those of a module of torch's compiler are."""
        self._parts.add(module, install)

    def install_all(self) -> None:
        """Import torch's compiler, and install what waits for it.

        Raises:
            TorchCapabilityError: This torch lacks a place that capture needs.
        """
        self._parts.install_all()
        if self.capability_error is not None:
            raise self.capability_error

    def remove(self) -> None:
        """Remove all hooks."""
        self._hooks.close()
        calling.forget_known_calls()

    def _on_incompatible(self, error: TorchCapabilityError) -> None:
        """Remove all hooks; the program's import goes on."""
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

    def _install_artifacts(self) -> None:
        hooks = filter(_is_artifact_hook, self._observed)
        self._hooks.enter_context(installed(hooks, self.guard))

    def _install_packages(self) -> None:
        hooks = (hook for hook in self._observed if _is_package_hook(hook))
        fitting = (hook for hook in hooks if hook[0].problem() is None)
        self._hooks.enter_context(installed(fitting, self.guard))

    def _install_inductor(self) -> None:
        if lacks := problems():
            raise TorchCapabilityError(
                f"torch {process.version()} does not fit capture: {'; '.join(lacks)}"
            )
        with ExitStack() as hooks:
            placed = (is_dynamo_hook, _is_artifact_hook, _is_package_hook)
            rest = (hook for hook in self._observed if not any(is_of(hook) for is_of in placed))
            rest = (hook for hook in rest if hook[0].is_vital or hook[0].problem() is None)
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
