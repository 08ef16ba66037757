"""``profiler-ext cache``: shows what the store holds, and removes from it."""

from __future__ import annotations

import argparse
import getpass
import os
import re
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from profiler_ext.cli.common import Parser, add_format, console, print_answer, print_line
from profiler_ext.errors import UsageError
from profiler_ext.printable import printable

if TYPE_CHECKING:
    from profiler_ext.exporters.json_output.documents import CacheList, Pruned
    from profiler_ext.exporters.terminal.console import Text
    from profiler_ext.store import Store, StoredFile
    from profiler_ext.store.listing import Listed

HELP = "list or prune the stored provenance of compiled graphs"

_DAY_S = 86_400
_KEY_WIDTH = 14
_FILE_WIDTH = 160
_UNITS = (("d", _DAY_S), ("h", 3600), ("min", 60))
_STATE_STYLES = {"ok": "green", "damaged": "red", "newer": "yellow", "older": "yellow"}


def add_options(parser: Parser) -> None:
    """Add the command's options."""
    actions = parser.add_subparsers(required=True, metavar="ACTION")
    listing = actions.add_parser("list", help="list stored records")
    listing.set_defaults(command=_list)
    pruning = actions.add_parser(
        "prune", help="remove records; they are stored again at the next compile"
    )
    pruning.add_argument(
        "--older-than", type=float, metavar="DAYS", help="remove records unused for DAYS days"
    )
    pruning.add_argument(
        "--max-bytes", type=int, metavar="N", help="keep the most recently used N bytes"
    )
    pruning.add_argument("--all", action="store_true", help="remove every record")
    pruning.set_defaults(command=_prune)
    for action in (listing, pruning):
        add_format(action, ["text", "json"])
        action.add_argument(
            "--dir", type=Path, metavar="DIR", help="Inductor's cache folder (default: torch's)"
        )
    parser.show_examples(
        ("what is stored of compiled graphs", "profiler-ext cache list"),
        ("remove what was not used for a month", "profiler-ext cache prune --older-than 30"),
    )


def _list(options: argparse.Namespace) -> int:
    from profiler_ext.store.listing import describe

    store = open_store(options.dir)
    listed = [describe(file) for file in reversed(store.files()) if file.is_record]
    if options.format == "json":
        print_answer(_listed(store, listed), options)
    else:
        _print(store, listed)
    return 0


def _prune(options: argparse.Namespace) -> int:
    if not options.all and options.older_than is None and options.max_bytes is None:
        raise UsageError("choose what to remove: --older-than DAYS, --max-bytes N, or --all")
    if min(options.older_than or 0, options.max_bytes or 0) < 0:
        raise UsageError("--older-than and --max-bytes take 0 or more")
    store = open_store(options.dir)
    if store.folder.is_symlink():
        raise UsageError(
            f"{store.folder} is a symbolic link, which prune does not follow; remove the link"
        )
    removed = store.prune(
        max_bytes=0 if options.all else options.max_bytes,
        older_than_s=None if options.older_than is None else options.older_than * _DAY_S,
    )
    left = store.files()
    if options.format == "json":
        print_answer(_pruned(store, removed, left), options)
    else:
        print_line(f"removed {_amount(removed)} of {store.folder}; {_amount(left)} are left")
    return 0


def _listed(store: Store, listed: list[Listed]) -> CacheList:
    from profiler_ext.exporters.json_output.documents import CacheList, StoredRecord

    names = StoredRecord.__struct_fields__
    rows = [{name: getattr(each, name) for name in names} for each in listed]
    return CacheList(
        folder=str(store.folder),
        record_count=len(listed),
        total_bytes=sum(each.size_bytes for each in listed),
        records=[StoredRecord(**row | {"kernels": list(row["kernels"])}) for row in rows],
    )


def _pruned(store: Store, removed: tuple[StoredFile, ...], left: tuple[StoredFile, ...]) -> Pruned:
    from profiler_ext.exporters.json_output.documents import Pruned

    return Pruned(
        folder=str(store.folder),
        removed_files=len(removed),
        removed_bytes=sum(each.size_bytes for each in removed),
        left_files=len(left),
        left_bytes=sum(each.size_bytes for each in left),
    )


def open_store(cache_dir: Path | None) -> Store:
    """Return the store next to Inductor's cache, by default torch's own."""
    from profiler_ext.store import Store

    return Store((cache_dir or _cache_dir()) / "profiler_ext")


def _cache_dir() -> Path:
    """Return torch's cache folder without importing torch, which takes seconds."""
    # Source: ``torch/_inductor/runtime/cache_dir_utils.py``, ``cache_dir``.
    if configured := os.environ.get("TORCHINDUCTOR_CACHE_DIR"):
        return Path(configured)
    try:
        name = getpass.getuser()
    except (KeyError, ModuleNotFoundError, OSError):  # there is no user of this number
        name = f"uid_{os.getuid()}"
    user = re.sub(r'[\\/:*?"<>|]', "_", name)
    return Path(tempfile.gettempdir()) / f"torchinductor_{user}"


def _amount(files: tuple[StoredFile, ...]) -> str:
    count = len(files)
    total = size_text(sum(file.size_bytes for file in files))
    return f"{count} {'file' if count == 1 else 'files'} ({total})"


def _print(store: Store, listed: list[Listed]) -> None:
    from profiler_ext.exporters.terminal.console import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("key", "graph", "first line", "kernels", "used"):
        table.add_column(name, no_wrap=True, overflow="ellipsis")
    table.add_column("size", justify="right", no_wrap=True)
    table.add_column("state", no_wrap=True)
    for each in listed:
        table.add_row(*_cells(each))
    if listed:
        console(_FILE_WIDTH).print(table)
    total = size_text(sum(each.size_bytes for each in listed))
    print_line(f"{len(listed)} records, {total}, in {store.folder}")


def _cells(each: Listed) -> tuple[Text, ...]:
    from profiler_ext.exporters.terminal.console import Text

    graph = "" if each.graph is None else f"{each.graph}, {each.nodes} nodes"
    kernels = "" if each.call_sites is None else f"{len(each.kernels)} in {each.call_sites} calls"
    plain = (
        each.key[:_KEY_WIDTH],
        graph,
        each.source.rpartition("/")[2] if each.source else "",
        kernels,
        _age(time.time() - each.used_s),
        size_text(each.size_bytes),
    )
    return (
        *(Text(printable(text)) for text in plain),
        Text(each.state, style=_STATE_STYLES[each.state]),
    )


def _age(age_s: float) -> str:
    for unit, size_s in _UNITS:
        if age_s >= size_s:
            return f"{age_s / size_s:.0f} {unit} ago"
    return "just now"


def size_text(size_bytes: int) -> str:
    """Return a size in the unit that suits it: ``31 KB``."""
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("KB", 1e3)):
        if size_bytes >= size:
            return f"{size_bytes / size:.3g} {unit}"
    return f"{size_bytes} B"
