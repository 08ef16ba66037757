"""Owns which files of a folder or URL are sessions of a job's ranks."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath
from typing import Any

from profiler_ext.cluster.locations import opened, url_of, words
from profiler_ext.cluster.records import FileGap, RankFile, RankGap
from profiler_ext.errors import UsageError
from profiler_ext.exporters.formats import FILE_NAME

_TRACE = re.compile(r".+\.pt\.trace\.json(\.gz)?")
_JSON = re.compile(r".+\.json(\.gz)?")
_RANK_FOLDER = re.compile(r"rank_(\d{1,9})")
_DEEPEST = 4
_GLOB = re.compile(r"[*?\[]")

_Found = dict[str, Mapping[str, Any]]
"""What a file system says of each path."""


def rank_files(place: str) -> tuple[list[RankFile], list[RankGap]]:
    """Return the files of a job's ranks, in order of rank as far as their names tell it.

    Args:
        place: a folder, a file or a pattern; a path, or a URL that fsspec takes.

    Returns:
        The files; and folders of ranks that hold no session.

    Raises:
        MissingExtraError: A package for such URLs is not installed.
        UsageError: There is no such place, or no session in it.
    """
    system, root = opened(place)
    found = _found(system, root, place)
    files = {path: info for path, info in found.items() if info.get("type") == "file"}
    sessions = _sessions(files)
    folders = (path for path, info in found.items() if info.get("type") == "directory")
    empty = _empty(folders, sessions)
    if not sessions:
        raise UsageError(
            f"{place} holds no session of a rank; give the folder in which each rank has its "
            f"own with a {FILE_NAME}, or its own .pt.trace.json.gz file"
        )
    found_there = f"a folder without {FILE_NAME}"
    told = [
        RankFile(url_of(system, place, root, path), int(files[path].get("size") or 0), _rank(path))
        for path in sessions
    ]
    gaps = [
        RankGap(FileGap.MISSING, rank, "", url_of(system, place, root, path), found_there)
        for path, rank in empty
    ]
    return sorted(told, key=_in_order), gaps


def _found(system: Any, root: str, place: str) -> _Found:
    try:
        if _GLOB.search(root):
            named = system.glob(root, detail=True)
            led = {p: system.info(p) if i.get("islink") else i for p, i in named.items()}
            inside = [_inside(system, path, info) for path, info in led.items()]
            return {path: info for each in inside for path, info in each.items()}
        return _inside(system, root, system.info(root))
    except FileNotFoundError:
        raise UsageError(f"there is no {place}; check the path") from None
    except Exception as error:  # each file system has errors of its own
        raise UsageError(
            f"cannot list {place}: {words(error)}; check the URL, and that this machine may read it"
        ) from error


def _inside(system: Any, path: str, info: Mapping[str, Any]) -> _Found:
    if info.get("type") == "file":
        return {path: info}
    return {path: info} | _followed(system, _below(system, path))


def _below(system: Any, path: str) -> _Found:
    found: _Found = system.find(path, maxdepth=_DEEPEST, withdirs=True, detail=True)
    return found


def _followed(system: Any, found: _Found, into_ranks: bool = True) -> _Found:
    """Follow links, as ``report`` does: of files, and of ranks' folders but none within those.

    Only a file system of this machine has links. What they lead to that was found anyway is not
    found twice; a rank's that leads nowhere, or to a folder around it, is one without a session.

    Args:
        system: the file system.
        found: what was found in a folder.
        into_ranks: whether links of ranks' folders are followed.
    """
    links = {path for path, info in found.items() if info.get("islink")}
    real = {os.path.realpath(path) for path in found.keys() - links} if links else set()
    around = real | {str(parent) for path in real for parent in PurePosixPath(path).parents}
    led = dict(found)
    for path in links:
        is_rank = _RANK_FOLDER.fullmatch(PurePosixPath(path).name) is not None
        there = _target(system, path)
        if there["type"] == "directory" and is_rank and into_ranks:
            led[path] = there
            is_new = os.path.realpath(path) not in around
            inside = _followed(system, _below(system, path), into_ranks=False) if is_new else {}
            led |= {each: i for each, i in inside.items() if os.path.realpath(each) not in real}
        elif there["type"] == "file" and os.path.realpath(path) not in real:
            led[path] = there
    return led


def _target(system: Any, link: str) -> Mapping[str, Any]:
    try:
        target: Mapping[str, Any] = system.info(link)
    except OSError:
        return {"type": "directory"}
    return target


def _sessions(files: _Found) -> list[str]:
    """Return those that are sessions; beside one that ``run`` wrote no other file is.

    Where no file is called as such, each file of JSON may be one: which is, reading it tells.
    """
    names = {path: PurePosixPath(path).name for path in files}
    written = {_folder(path) for path, name in names.items() if name == FILE_NAME}
    found = [
        path
        for path, name in names.items()
        if name == FILE_NAME or (_TRACE.fullmatch(name) and _folder(path) not in written)
    ]
    return found or [path for path, name in names.items() if _JSON.fullmatch(name)]


def _empty(folders: Iterable[str], sessions: Iterable[str]) -> list[tuple[str, int]]:
    """Return the folders of ranks that hold no session, with their ranks."""
    above = {str(parent) for path in sessions for parent in PurePosixPath(path).parents}
    ranks = ((path, _RANK_FOLDER.fullmatch(PurePosixPath(path).name)) for path in folders)
    return [(path, int(told[1])) for path, told in ranks if told and path not in above]


def _folder(path: str) -> str:
    return str(PurePosixPath(path).parent)


def _rank(path: str) -> int | None:
    told = (_RANK_FOLDER.fullmatch(part) for part in reversed(PurePosixPath(path).parts))
    return next((int(each[1]) for each in told if each), None)


def _in_order(file: RankFile) -> tuple[float, str]:
    return (float("inf") if file.rank is None else file.rank), file.url
