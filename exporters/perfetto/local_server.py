"""Serves a trace to the Perfetto UI from this machine, as Perfetto's ``tools/open_trace_in_ui``."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import ThreadingTCPServer

from profiler_ext.errors import OutputError
from profiler_ext.exporters.perfetto import VIEWER

UI = "https://ui.perfetto.dev"
# The content security policy of the UI lets its page fetch from no other local port.
HOST, PORT = "127.0.0.1", 9001
_PATH = "/trace.pftrace"


class TraceServer(ThreadingTCPServer):
    """Serves one file, to the Perfetto UI alone; the caller handles requests until it was fetched.

    Raises:
        OutputError: The port is in use.
    """

    allow_reuse_address = True
    daemon_threads = True  # browsers open connections that they never use
    timeout = 0.2  # of waiting for a request: how soon the end is noticed

    def __init__(self, trace: Path) -> None:
        """Listen."""
        self.trace = trace
        self.was_fetched = False
        try:
            super().__init__((HOST, PORT), _Handler)
        except OSError as error:
            raise OutputError(
                f"cannot serve on {HOST}:{PORT} ({error.strerror}), the only address that {UI} "
                f"reads from; end what uses it, or open {trace} there by hand"
            ) from error

    @property
    def ui_address(self) -> str:
        """The address at which the UI opens the trace."""
        return VIEWER.replace("?", f"?url=http://{HOST}:{PORT}{_PATH}&", 1)


class _Handler(BaseHTTPRequestHandler):
    server: TraceServer

    def do_GET(self) -> None:
        """Send the trace; refuse other paths, and host names that only resolve to this machine."""
        if self.path != _PATH or self.headers.get("Host") != f"{HOST}:{PORT}":
            self.send_error(404)
            return
        with self.server.trace.open("rb") as trace:
            self.send_response(200)
            self.send_header("Access-Control-Allow-Origin", UI)
            self.send_header("Cache-Control", "no-cache")
            self.send_header("Content-Type", "application/octet-stream")
            self.send_header("Content-Length", str(os.fstat(trace.fileno()).st_size))
            self.end_headers()
            with suppress(ConnectionError):  # the page was left: it may ask again
                shutil.copyfileobj(trace, self.wfile)
                self.server.was_fetched = True

    def log_message(self, format: str, *arguments: object) -> None:
        """Log nothing."""
