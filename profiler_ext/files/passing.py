"""Owns where a file is put that nobody asked for: the temporary folder, or what stands in for it.

A program may have no temporary folder that takes anything: its ``TMPDIR`` was removed, is full or
may not be written, or it set :data:`tempfile.tempdir` to one that is not there.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from profiler_ext.errors import OutputError


def candidate_folders(*others: Path) -> Iterator[Path]:
    """Give the folders in which something can be put, the best first.

    Args:
        *others: where, if not in the temporary folder; for one that is not there yet stands the
            nearest folder around it.

    Yields:
        The temporary folder, the others, the working folder.
    """
    with suppress(OSError):
        yield Path(tempfile.gettempdir())
    with suppress(OSError):
        yield from map(_nearest, others)
    with suppress(OSError):
        yield Path.cwd()


def _nearest(folder: Path) -> Path:
    absolute_path = folder.absolute()
    return next(each for each in (absolute_path, *absolute_path.parents) if each.is_dir())


@contextmanager
def temporary_folder(cost: str, *others: Path, room_bytes: int = 0) -> Iterator[Path]:
    """Make an empty folder, which is gone after the block.

    Args:
        cost: what it costs where none can be made, for the error.
        *others: where, if not in the temporary folder.
        room_bytes: so much it may come to hold; where no disk has that free, it is on the one
            that has most.

    Yields:
        The folder; its name is of UTF-8, as torch needs it.

    Raises:
        OutputError: None can be made anywhere.
    """
    made = _create(cost, _with_room(candidate_folders(*others), room_bytes))
    try:
        with made as folder:
            yield Path(folder)
    finally:
        with suppress(OSError):  # to list it takes a file that can be opened, and this takes none
            Path(made.name).rmdir()


def _with_room(best_first: Iterable[Path], room_bytes: int) -> list[Path]:
    """Put folders on disks without room last; one that cannot be asked is as good as any."""
    free_bytes = {place: min(_free_bytes(place), room_bytes) for place in best_first}
    return sorted(free_bytes, key=lambda place: -free_bytes[place])


def _free_bytes(place: Path) -> int:
    try:
        return shutil.disk_usage(place).free
    except OSError:
        return sys.maxsize


def _create(cost: str, candidate_folders: Iterable[Path]) -> TemporaryDirectory[str]:
    refused: list[str] = []
    for place in candidate_folders:
        try:
            return _create_in(place)
        except (OSError, UnicodeEncodeError) as error:
            refused.append(f"{place}: {_reason(error)}")
    reasons = "; ".join(dict.fromkeys(refused)) or "there is no folder"
    raise OutputError(
        f"no temporary folder can be made ({reasons}), so {cost}; set TMPDIR to a folder that can be "
        "written"
    )


def _create_in(place: Path) -> TemporaryDirectory[str]:
    str(place).encode()
    return TemporaryDirectory(prefix="profiler_ext-", dir=str(place), ignore_cleanup_errors=True)


def _reason(error: OSError | UnicodeEncodeError) -> str:
    if isinstance(error, UnicodeEncodeError):
        return "its name is not UTF-8"
    return error.strerror or str(error)
