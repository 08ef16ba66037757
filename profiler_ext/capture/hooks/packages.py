"""The hooks on AOTInductor: packages carry the records of their graphs, and calls are marked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from profiler_ext.capture.graphs import failed_graphs, library_calls, sealing
from profiler_ext.capture.graphs.compiles import Compiles
from profiler_ext.capture.graphs.registry import Registry
from profiler_ext.isolation.guard import Guard, Observation, Observed
from profiler_ext.isolation.hook_protocols import Ends, Ranges
from profiler_ext.kineto.names import package_marker
from profiler_ext.recall.provenance_lookup import keep_record
from profiler_ext.store import packages, to_bytes
from profiler_ext.torch_compat import patches, points, process

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
        keep_record(
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
