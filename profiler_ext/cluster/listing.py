"""Finds and opens the files of a job's ranks by fsspec, in a folder or at a URL."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import PurePosixPath
from typing import IO, Any

from profiler_ext.cluster.records import FileGap, RankFile, RankGap
from profiler_ext.errors import MissingExtraError, ProfilerExtError, UsageError
from profiler_ext.exporters.formats import FILE_NAME
from profiler_ext.kineto.source import shown

_HADOOP = (
    "hdfs:// is read by pyarrow and Hadoop's own libhdfs: set JAVA_HOME and HADOOP_HOME, and "
    "CLASSPATH to what `hadoop classpath --glob` prints, also for each worker; or give a "
    "webhdfs://host:9870/ URL, which needs neither"
)
_HAVE_FOLDERS = ("hdfs", "webhdfs", "sftp", "ssh", "smb")
_MAX_ERROR_CHARS = 300  # of a file system's message
_TRACE = re.compile(r".+\.pt\.trace\.json(\.gz)?")
_JSON = re.compile(r".+\.json(\.gz)?")
_RANK_FOLDER = re.compile(r"rank_(\d{1,9})")
_MAX_DEPTH = 4
_GLOB = re.compile(r"[*?\[]")
_Listing = dict[str, Mapping[str, Any]]  # path to what the file system says of it


def is_remote(place: str) -> bool:
    """Return whether fsspec has to open a place."""
    return "://" in place or "::" in place


def open_filesystem(place: str) -> tuple[Any, str]:
    """Return the file system of a place, and its path there."""
    import fsspec

    try:
        system, root = fsspec.core.url_to_fs(place)
    except ImportError as error:
        raise missing_package_error(place, error) from error
    except Exception as error:  # each file system has errors of its own
        what_to_do = _HADOOP if _scheme(place) == "hdfs" else "give a path, or a URL of fsspec"
        raise UsageError(f"cannot open {place}: {error_line(error)}; {what_to_do}") from error
    return system, str(root)


@contextmanager
def open_file(url: str, mode: str) -> Iterator[IO[bytes]]:
    """Yield a file of a remote place; makes its folders where the file system has any."""
    import fsspec

    try:
        file = fsspec.open(url, mode)
    except ImportError as error:
        raise missing_package_error(url, error) from error
    if mode == "wb" and _scheme(url) in _HAVE_FOLDERS:
        file.fs.makedirs(file.path.rpartition("/")[0], exist_ok=True)
    with file as stream:
        yield stream


def url_of(system: Any, place: str, root: str, path: str) -> str:
    """Return a file's URL, with the host and the chain of the place."""
    if not is_remote(place) or place.startswith(("file://", "local://")):
        return path
    # The file system's own URL has neither.
    before, result, rest = place.rstrip("/").rpartition(root.rstrip("/"))
    return before + path if result and not rest else str(system.unstrip_protocol(path))


def error_line(error: BaseException) -> str:
    """Return an error as one short line."""
    lines = str(error).strip().splitlines() or [""]
    text = shown(lines[0].strip(), _MAX_ERROR_CHARS)
    return text if isinstance(error, ProfilerExtError) else f"{type(error).__name__}: {text}"


def missing_package_error(url: str, error: ImportError) -> MissingExtraError:
    """Return the error of a missing package, with the command that installs it."""
    cause = error.__cause__
    module = (cause.name if isinstance(cause, ImportError) else None) or error.name
    if module is None:
        return MissingExtraError(f"cannot open {url}: {error_line(error)}")
    package = module.partition(".")[0]
    return MissingExtraError(
        f"{_scheme(url)}:// needs {package}, which is not installed; run: pip install {package} "
        "(on each worker too)"
    )


def _scheme(url: str) -> str:
    return url.rpartition("::")[2].partition("://")[0]


def rank_files(place: str) -> tuple[list[RankFile], list[RankGap]]:
    """Return the files of a job's ranks, sorted by rank, and the empty ranks' folders.

    The place is a folder, a file or a pattern; a path, or a URL that fsspec takes.
    """
    system, root = open_filesystem(place)
    entries = _list_files(system, root, place)
    files = {path: info for path, info in entries.items() if info.get("type") == "file"}
    sessions = _sessions(files)
    folders = (path for path, info in entries.items() if info.get("type") == "directory")
    empty = _empty_rank_folders(folders, sessions)
    if not sessions:
        raise UsageError(
            f"{place} holds no session of a rank; give the folder in which each rank has its "
            f"own with a {FILE_NAME}, or its own .pt.trace.json.gz file"
        )
    reason = f"a folder without {FILE_NAME}"
    matches = [
        RankFile(url_of(system, place, root, path), int(files[path].get("size") or 0), _rank(path))
        for path in sessions
    ]
    gaps = [
        RankGap(FileGap.MISSING, rank, "", url_of(system, place, root, path), reason)
        for path, rank in empty
    ]
    return sorted(matches, key=lambda f: (float("inf") if f.rank is None else f.rank, f.url)), gaps


def _list_files(system: Any, root: str, place: str) -> _Listing:
    try:
        if _GLOB.search(root):
            named = system.glob(root, detail=True)
            resolved = {p: system.info(p) if i.get("islink") else i for p, i in named.items()}
            inside = [_list_entry(system, path, info) for path, info in resolved.items()]
            return {path: info for each in inside for path, info in each.items()}
        return _list_entry(system, root, system.info(root))
    except FileNotFoundError:
        raise UsageError(f"there is no {place}; check the path") from None
    except Exception as error:  # each file system has errors of its own
        raise UsageError(
            f"cannot list {place}: {error_line(error)}; "
            "check the URL, and that this machine may read it"
        ) from error


def _list_entry(system: Any, path: str, info: Mapping[str, Any]) -> _Listing:
    if info.get("type") == "file":
        return {path: info}
    return {path: info} | _resolve_links(system, _walk(system, path))


def _walk(system: Any, path: str) -> _Listing:
    entries: _Listing = system.find(path, maxdepth=_MAX_DEPTH, withdirs=True, detail=True)
    return entries


def _resolve_links(system: Any, entries: _Listing, into_ranks: bool = True) -> _Listing:
    """Follow links to files and to ranks' folders, but no links to folders within those."""
    # Only a local file system has links. A file is listed once; a rank's link that leads nowhere,
    # or to a folder around it, is a rank without a session.
    links = {path for path, info in entries.items() if info.get("islink")}
    real_paths = {os.path.realpath(path) for path in entries.keys() - links} if links else set()
    around = real_paths | {
        str(parent) for path in real_paths for parent in PurePosixPath(path).parents
    }
    resolved = dict(entries)
    for path in links:
        is_rank = _RANK_FOLDER.fullmatch(PurePosixPath(path).name) is not None
        target = _target(system, path)
        if target["type"] == "directory" and is_rank and into_ranks:
            resolved[path] = target
            is_new = os.path.realpath(path) not in around
            inside = _resolve_links(system, _walk(system, path), into_ranks=False) if is_new else {}
            resolved |= {
                each: i for each, i in inside.items() if os.path.realpath(each) not in real_paths
            }
        elif target["type"] == "file" and os.path.realpath(path) not in real_paths:
            resolved[path] = target
    return resolved


def _target(system: Any, link: str) -> Mapping[str, Any]:
    try:
        target: Mapping[str, Any] = system.info(link)
    except OSError:
        return {"type": "directory"}
    return target


def _sessions(files: _Listing) -> list[str]:
    """Return the sessions; next to one that ``run`` wrote, no other file is one.

    Where no name marks a session, each JSON file may be one.
    """
    names = {path: PurePosixPath(path).name for path in files}
    written = {_folder(path) for path, name in names.items() if name == FILE_NAME}
    entries = [
        path
        for path, name in names.items()
        if name == FILE_NAME or (_TRACE.fullmatch(name) and _folder(path) not in written)
    ]
    return entries or [path for path, name in names.items() if _JSON.fullmatch(name)]


def _empty_rank_folders(folders: Iterable[str], sessions: Iterable[str]) -> list[tuple[str, int]]:
    """Return the ranks' folders without a session."""
    above = {str(parent) for path in sessions for parent in PurePosixPath(path).parents}
    ranks = ((path, _RANK_FOLDER.fullmatch(PurePosixPath(path).name)) for path in folders)
    return [(path, int(matches[1])) for path, matches in ranks if matches and path not in above]


def _folder(path: str) -> str:
    return str(PurePosixPath(path).parent)


def _rank(path: str) -> int | None:
    matches = (_RANK_FOLDER.fullmatch(part) for part in reversed(PurePosixPath(path).parts))
    return next((int(each[1]) for each in matches if each), None)
