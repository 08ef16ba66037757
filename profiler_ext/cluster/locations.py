"""Owns places that fsspec opens: the URL of a file there, and what is said where one fails."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

from profiler_ext.errors import MissingExtraError, ProfilerExtError, UsageError
from profiler_ext.kineto.source import shown

_HADOOP = (
    "hdfs:// is read by pyarrow and Hadoop's own libhdfs: set JAVA_HOME and HADOOP_HOME, and "
    "CLASSPATH to what `hadoop classpath --glob` prints, also for each worker; or give a "
    "webhdfs://host:9870/ URL, which needs neither"
)
_HAVE_FOLDERS = ("hdfs", "webhdfs", "sftp", "ssh", "smb")
_MAX_ERROR_CHARS = 300
"""Of what a file system says so many characters at most are shown."""


def is_remote(place: str) -> bool:
    """Tell whether fsspec has to open a place."""
    return "://" in place or "::" in place


def open_filesystem(place: str) -> tuple[Any, str]:
    """Return the file system of a place, and its path there.

    Args:
        place: a path, or a URL.

    Raises:
        MissingExtraError: A package for such URLs is not installed.
        UsageError: There is no such file system.
    """
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
    """Yield a file of a remote place; where folders are made, one that is written to is made.

    Args:
        url: the file.
        mode: ``rb`` or ``wb``.

    Raises:
        MissingExtraError: A package for such URLs is not installed where this runs.
    """
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
    """Return the URL of a file, with the host and the chain of the place it was found by.

    What a file system itself makes of a path has neither.

    Args:
        system: the file system.
        place: where it was looked for.
        root: the path of that there.
        path: the file's path there.

    Returns:
        Of this machine's own files the path.
    """
    if not is_remote(place) or place.startswith(("file://", "local://")):
        return path
    before, result, rest = place.rstrip("/").rpartition(root.rstrip("/"))
    return before + path if result and not rest else str(system.unstrip_protocol(path))


def error_line(error: BaseException) -> str:
    """Return what a file system says of an error, as one short line."""
    lines = str(error).strip().splitlines() or [""]
    text = shown(lines[0].strip(), _MAX_ERROR_CHARS)
    return text if isinstance(error, ProfilerExtError) else f"{type(error).__name__}: {text}"


def missing_package_error(url: str, error: ImportError) -> MissingExtraError:
    """Return that a package is not installed, with the command that installs it.

    Args:
        url: what needs it.
        error: what fsspec raised.
    """
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
