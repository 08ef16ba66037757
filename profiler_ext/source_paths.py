"""Source paths as they are stored: relative to named roots, so that no home folder leaks.

A notebook's cell has no file: IPython calls its code ``<ipython-input-3-0f1e2d3c4b5a>``, Jupyter's
kernel ``/tmp/ipykernel_PID/HASH.py``, and :mod:`linecache` has the text. In another process the
same cell has another name, so it is stored by its text.
"""

from __future__ import annotations

import functools
import hashlib
import linecache
import os
import re
import site
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import lru_cache
from pathlib import Path
from typing import Any

_BY_TEXT = "cell-"
_NUMBERED = re.compile(r"<ipython-input-(\d+)-[0-9a-f]+>")
_SHOWN = re.compile(r"In\[(\d+)\]")
Place = tuple[str, str]  # where a process stands: its working folder, and the folder of its script
_seen_from: ContextVar[Place | None] = ContextVar("_seen_from", default=None)


def cell_number(file: str) -> int | None:
    """Return a cell's execution count, as its notebook shows it: 3 of ``In[3]``."""
    # Source: ``IPython/core/compilerop.py``, ``code_name`` and
    # ``CachingCompiler.format_code_name``; ``ipykernel/compiler.py``, ``get_file_name``.
    number_match = _NUMBERED.fullmatch(file) or _SHOWN.fullmatch(_shown(file))
    return None if number_match is None else int(number_match[1])


def cell_lines(file: str) -> tuple[str, ...]:
    """Return the lines of a cell as they ran; none where they are not known any more."""
    return tuple(line.rstrip("\n") for line in linecache.getlines(file))


def name_by_text(file: str) -> str | None:
    """Return what names a cell in every process in which its text runs; ``None`` of no cell."""
    lines = () if cell_number(file) is None else cell_lines(file)
    return _digest(lines) if lines else None


def cell_file(name: str) -> str | None:
    """Return the file name of a cell with this text; of several, the one that ran last."""
    if not name.startswith(_BY_TEXT):
        return None
    cells = (each for each in reversed([*linecache.cache]) if cell_number(each) is not None)
    return next((each for each in cells if name_by_text(each) == name), None)


@lru_cache(maxsize=1024)
def _digest(lines: tuple[str, ...]) -> str:
    text = "\n".join(lines).encode("utf-8", "backslashreplace")
    return _BY_TEXT + hashlib.sha256(text).hexdigest()[:12]


def _shown(file: str) -> str:
    """Return IPython's label of a cell's file, if the cell runs in this process."""
    get_ipython: Any = getattr(sys.modules.get("IPython"), "get_ipython", None)
    compiler = getattr(get_ipython() if callable(get_ipython) else None, "compile", None)
    format_name = getattr(compiler, "format_code_name", None)  # IPython 7 has none
    shown = format_name(file) if callable(format_name) else None
    return shown[1] if shown else ""


@functools.cache
def _roots(working: str, script: str) -> tuple[tuple[str, str], ...]:
    candidates = [
        ("<site-packages>", sysconfig.get_path("purelib")),
        *(("<site-packages>", folder) for folder in site.getsitepackages()),
        ("<user-site>", site.getusersitepackages()),
        ("<stdlib>", sysconfig.get_path("stdlib")),
        ("<script>", script),
        ("<working>", working),
        ("<home>", _home()),
    ]
    return tuple((token, folder.rstrip(os.sep)) for token, folder in candidates if len(folder) > 1)


def _home() -> str:
    """Return the user's home folder, ``"/"`` where there is none."""
    try:
        return str(Path.home())
    except RuntimeError:
        return os.sep


def working_folder() -> str:
    """Return the working folder, ``"/"`` where it was removed, or its disk is gone."""
    try:
        return str(Path.cwd())
    except OSError:
        return "/"


def script_folder() -> str:
    """Return the folder of the running script, or the working folder."""
    main = getattr(sys.modules.get("__main__"), "__file__", None)
    return folder_of(main) if main else working_folder()


@functools.cache
def folder_of(script: str) -> str:
    """Return the folder of a script, links resolved, also of one that is a link to itself."""
    return str(Path(os.path.realpath(script)).parent)


def place() -> Place:
    """Return the working folder and the script's."""
    return working_folder(), script_folder()


@contextmanager
def seen_from(place: Place) -> Iterator[None]:
    """Resolve tokens of paths by the folders of an earlier place of this process."""
    token = _seen_from.set(place)
    try:
        yield
    finally:
        _seen_from.reset(token)


def _current_roots() -> tuple[tuple[str, str], ...]:
    return _roots(*(_seen_from.get() or place()))


def absolute(path: str) -> str:
    """Return a path from the root; ``<string>`` and the like stay as they are."""
    return path if path.startswith("<") else str(Path(working_folder()) / path)


def shorten(path: str) -> str:
    """Replace the longest root that holds a path by its token: ``<site-packages>/torch/a.py``."""
    if (cell := name_by_text(path)) is not None:
        return cell
    holding = [(t, r) for t, r in _current_roots() if path.startswith(r + os.sep)]
    if not holding:
        return path
    token, root = max(holding, key=lambda pair: len(pair[1]))
    return token + path[len(root) :]


def expand(path: str, source_root: str | None = None) -> str:
    """Replace the token at a path's start by this process's folder."""
    # source_root: the profiled script's folder; by default this process's own
    if (cell := cell_file(path)) is not None:
        return cell
    roots = _current_roots() if source_root is None else _roots(source_root, source_root)
    for token, root in roots:
        if path.startswith(token + os.sep):
            return root + path[len(token) :]
    return path


def line_is_unchanged(
    path: str, line: int, code: str | None, source_root: str | None = None
) -> bool:
    """Tell whether a recorded text is still the line's text in the file."""
    # code: the recorded text, stripped; without one the line counts as changed
    # source_root: what the tokens of the compiling process stand for; by default this process's
    file = expand(path, source_root)
    is_here = cell_number(file) is not None or Path(file).is_file()
    if code is None or not is_here:
        return False
    linecache.checkcache(file)
    return linecache.getline(file, line).strip() == code


def library_roots() -> tuple[str, ...]:
    """Return the folders of library code."""
    # A torch that is run from its sources is in none of them; its own folder is added.
    own = {"<site-packages>", "<user-site>", "<stdlib>"}
    roots = tuple(dict.fromkeys(root for token, root in _current_roots() if token in own))
    torchs = torch_folders()
    return (*roots, *(f for f in torchs if not any(f.startswith(r + os.sep) for r in roots)))


def torch_folders() -> tuple[str, ...]:
    """Return where torch and triton lie, where they are imported."""
    return tuple(filter(None, map(_package_folder, ("torch", "triton"))))


def _package_folder(name: str) -> str | None:
    folders = getattr(sys.modules.get(name), "__path__", None)
    return next(iter(folders), None) if folders else None


def reading_roots(folders_given: Iterable[str | Path] = ()) -> tuple[Path, ...]:
    """Return the folders from which source text may be shown, links resolved."""
    # A file from somebody else can name any path of this machine, and what is shown may be passed
    # on: so the user says from where, never the file.
    roots = dict[Path, None]()
    for folder in (*folders_given, ".", *library_roots()):
        with suppress(OSError, RuntimeError):  # it was removed, or is a link to itself
            roots[Path(folder).resolve()] = None
    return tuple(roots)


def user_roots() -> tuple[str, ...]:
    """Return the folders of the user's code: the script's and the working folder."""
    folders = [script_folder()]
    with suppress(OSError):  # it was removed
        folders.append(str(Path.cwd()))
    return tuple(dict.fromkeys(folders))
