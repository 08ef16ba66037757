"""The plugin that TensorBoard loads: routes, and the runs of a log folder.

A run is named after its folder, as TensorBoard does, and the process: ``big/rank0``. Requests name
runs, never files; a run is looked up among those found.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

from tensorboard.backend import http_util
from tensorboard.plugins import base_plugin
from werkzeug import wrappers

from profiler_ext.errors import TraceError
from profiler_ext.exporters.tensorboard_plugin.document import SUFFIX, read_checked
from profiler_ext.exporters.views.formatting import scheme_style_sheet

Application = Callable[..., Any]
_OWN = (
    "index.js",
    "columns.js",
    "page.js",
    "runs.js",
    "rows.js",
    "table.js",
    "detail.js",
    "source.js",
    "words.js",
    "style.css",
)
_SHARED = ("shared/format.js", "shared/dom.js", "shared/table.js")
_KINDS = {".js": "text/javascript", ".css": "text/css"}
_NO_FOLDER = "TensorBoard was started without --logdir; give the folder that was exported to"


def has_runs(log_dir: Path) -> bool:
    """Return whether there is a run; stops at the first."""
    return next(_files(log_dir), None) is not None


def runs_by_name(log_dir: Path) -> dict[str, Path]:
    """Return the runs of a log folder: name to file, sorted."""
    return dict(sorted((_name(log_dir, path), path) for path in _files(log_dir)))


def _files(log_dir: Path) -> Iterator[Path]:
    for folder, _, names in os.walk(log_dir):
        for path in (Path(folder) / name for name in names):
            # Whoever reads what is no file, as a pipe, may wait for ever.
            if path.name.endswith(SUFFIX) and not path.name.startswith(".") and path.is_file():
                yield path


def _name(log_dir: Path, path: Path) -> str:
    return path.relative_to(log_dir).as_posix().removesuffix(SUFFIX)


class AttributionPlugin(base_plugin.TBPlugin):  # type: ignore[misc]
    """The view: time by line, module, kernel and phase, of the runs in the log folder."""

    plugin_name = "profiler_ext"

    def __init__(self, context: base_plugin.TBContext) -> None:
        self._log_dir = Path(context.logdir) if context.logdir else None

    def get_plugin_apps(self) -> dict[str, Application]:
        """Return the routes."""
        application = wrappers.Request.application
        data = {"/runs": application(self._runs), "/data": application(self._data)}
        own = {f"/{name}": _static("tensorboard_plugin", name) for name in _OWN}
        shared = {f"/{name}": _static("html", name) for name in _SHARED}
        phases = _content(lambda: scheme_style_sheet().encode(), "text/css")
        return {**data, **own, **shared, "/phases.css": phases}

    def is_active(self) -> bool:
        """Return whether the log folder has a run."""
        return self._log_dir is not None and has_runs(self._log_dir)

    def frontend_metadata(self) -> base_plugin.FrontendMetadata:
        """Return the view's metadata; it has a reload button of its own."""
        return base_plugin.FrontendMetadata(
            es_module_path="/index.js", tab_name="Attribution", disable_reload=True
        )

    @property
    def _files(self) -> dict[str, Path]:
        return runs_by_name(self._log_dir) if self._log_dir else {}

    def _runs(self, request: wrappers.Request) -> wrappers.Response:
        problem = None if self._log_dir else _NO_FOLDER
        return _json(request, {"runs": list(self._files), "error": problem})

    def _data(self, request: wrappers.Request) -> wrappers.Response:
        run = request.args.get("run", "")
        path = self._files.get(run)
        if path is None:
            problem = "this run is no longer in the log folder; reload the runs"
            return _json(request, {"error": problem}, 404)
        try:
            return _json(request, read_checked(path))
        except TraceError as error:
            return _json(request, {"error": str(error)}, 422)


def _static(package: str, name: str) -> Application:
    file = files(f"profiler_ext.exporters.{package}").joinpath("static", name)
    return _content(file.read_bytes, _KINDS[Path(name).suffix])


def _content(read: Callable[[], bytes], kind: str) -> Application:
    @wrappers.Request.application
    def serve(request: wrappers.Request) -> wrappers.Response:
        return _answer(request, read(), kind, 200)

    return serve


def _json(request: wrappers.Request, content: object, code: int = 200) -> wrappers.Response:
    return _answer(request, content, "application/json", code)


def _answer(request: wrappers.Request, content: object, kind: str, code: int) -> wrappers.Response:
    # It compresses for a browser that takes it, and lets nobody guess another type.
    answer: wrappers.Response = http_util.Respond(request, content, kind, code)
    return answer
