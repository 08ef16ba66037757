"""``profiler-ext open``: shows a session in the browser, as a page or in the Perfetto UI."""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path

from profiler_ext.cli.common import Parser, add_roots, add_session, print_line, print_message

HELP = "open the report in the browser, or the trace in the Perfetto UI"


def add_options(parser: Parser) -> None:
    """Add the command's options."""
    add_session(parser)
    parser.add_argument(
        "--perfetto",
        action="store_true",
        help="open the trace at https://ui.perfetto.dev: it is served on 127.0.0.1:9001 until that "
        "page has fetched it, and does not leave this machine",
    )
    parser.add_argument(
        "--print", dest="prints", action="store_true", help="print the address, open no browser"
    )
    add_roots(parser)
    parser.show_examples(
        ("the report of the last run", "profiler-ext open"),
        ("its trace, on a timeline", "profiler-ext open --perfetto"),
        ("over SSH: forward port 9001, open the address", "profiler-ext open --perfetto --print"),
    )
    parser.set_defaults(command=_open)


def _open(options: argparse.Namespace) -> int:
    path = _fresh("perfetto" if options.perfetto else "html", options)
    if options.perfetto:
        _serve_once(path, options.prints)
    else:
        _show(path.absolute().as_uri(), options.prints)
    return 0


def _show(address: str, prints: bool) -> None:
    """Print an address, and open it in the browser."""
    print_line(address)
    if prints:
        return
    import webbrowser

    if not webbrowser.open(address):
        print_message("no browser can be started here: open this address in yours")


def _fresh(format_name: str, options: argparse.Namespace) -> Path:
    """Return the session's file of a format, written again where it is missing or older.

    It is written beside the session, or into a temporary folder where that cannot be written.
    """
    from profiler_ext.exporters.formats import FILE_NAME, format_named
    from profiler_ext.sessions.merging import load
    from profiler_ext.sessions.session import file_in, rank_files

    format, place = format_named(format_name), options.session
    recordings = rank_files(place) or [place]
    files = [file_in(each) if each.is_dir() else each for each in recordings]
    is_folder_of_one = place.is_dir() or place.name == FILE_NAME
    folder = place if place.is_dir() else place.parent
    existing = format.place_in(folder)
    if is_folder_of_one and not options.roots and _is_current(existing, files):
        return existing
    session = load(place, options.roots, jobs=options.jobs)
    if not is_folder_of_one or not os.access(folder, os.W_OK):
        folder = Path(tempfile.mkdtemp(prefix="profiler_ext-"))
        print_message(f"written to {folder}")
    return session.export_as(format, format.place_in(folder))


def _is_current(written: Path, recordings: list[Path]) -> bool:
    """Tell whether a file is as new as all recordings that it is made of."""
    if not written.is_file():
        return False
    newest_ns = max((each.stat().st_mtime_ns for each in recordings if each.is_file()), default=0)
    return written.stat().st_mtime_ns >= newest_ns


def _serve_once(trace: Path, prints: bool) -> None:
    """Serve a trace to the Perfetto UI until it was fetched, or until Ctrl-C."""
    from profiler_ext.exporters.perfetto.local_server import TraceServer

    with TraceServer(trace) as server:
        _show(server.ui_address, prints)
        print_message("serving the trace until it is fetched once (Ctrl-C to stop)")
        try:
            while not server.was_fetched:
                server.handle_request()
        except KeyboardInterrupt:
            print_message("stopped before the trace was fetched")
