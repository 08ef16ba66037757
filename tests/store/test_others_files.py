"""Pruning touches the store's own files only, whatever lies in its folder or is linked there."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from profiler_ext.cli import main
from profiler_ext.store import Store, to_bytes
from profiler_ext.store.encoding import kernels_to_bytes
from profiler_ext.store.folder import has_header
from tests.store.records import DAY_NS, record

RECORD = to_bytes(record())
KERNELS = kernels_to_bytes(((1, ("cublas",)),), "H100")
COUNTS = b'{"format":1,"device":"H100","counts":[[1,2]]}'
"""What an earlier version learnt of library calls."""


def old(path: Path, data: bytes) -> Path:
    """Write a file that was last used long ago."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    used_ns = time.time_ns() - 90 * DAY_NS
    os.utime(path, ns=(used_ns, used_ns))
    return path


def a_package_of_a_project(store: Path, _: Path) -> list[Path]:
    names = ("model.py", "__init__.py", ".env", ".git/HEAD", "data/train.csv")
    return [old(store / name, b"not ours") for name in names]


def our_names_without_our_header(store: Path, _: Path) -> list[Path]:
    names = (
        *("ab/abkey.none.pxpr", "ab/.abkey.none.pxpr.abcdefgh"),
        *("ab/abkey.H100.counts.json", "ab/.abkey.H100.kernels.json.abcdefgh"),
        *("ab/abkey.H200.kernels.json", "ab/abkey.L40.kernels.json"),
        *("ab/abkey.L40.notes.kernels.json", "ab/abkey.L40.0a.1b.kernels.json"),
    )
    contents = (
        b"PXP",
        b"theirs",
        b'{"format": "mine"}',
        b"{}",
        b"[]",
        COUNTS + b"}",
        KERNELS,
        KERNELS,
    )
    return [old(store / name, data) for name, data in zip(names, contents, strict=True)]


def our_header_under_other_names(store: Path, _: Path) -> list[Path]:
    names = (
        *("abkey.none.pxpr", "ab/abkey.none.pxpr.bak", "ab/.abkey.none.pxpr", "ab/backup.pxpr"),
        *("zz/abkey.none.pxpr", "ab/cd/abkey.none.pxpr"),
    )
    return [old(store / name, RECORD) for name in names]


def a_linked_file(store: Path, outside: Path) -> list[Path]:
    target, link = old(outside / "abkey.none.pxpr", RECORD), store / "ab" / "abkey.none.pxpr"
    link.parent.mkdir(parents=True)
    link.symlink_to(target)
    return [target, link]


def a_linked_folder(store: Path, outside: Path) -> list[Path]:
    target = old(outside / "ab" / "abkey.none.pxpr", RECORD)
    store.mkdir(parents=True)
    (store / "ab").symlink_to(target.parent)
    return [target]


def a_linked_store(store: Path, outside: Path) -> list[Path]:
    target = old(outside / "ab" / "abkey.none.pxpr", RECORD)
    store.parent.mkdir(parents=True)
    store.symlink_to(outside)
    return [target]


def a_pipe_and_a_folder(store: Path, _: Path) -> list[Path]:
    inner = old(store / "ab" / "abdir.none.pxpr" / "abkey.none.pxpr", RECORD)
    os.mkfifo(store / "ab" / "abpipe.none.pxpr")
    return [store / "ab" / "abpipe.none.pxpr", inner]


OTHERS = (
    a_package_of_a_project,
    our_names_without_our_header,
    our_header_under_other_names,
    a_linked_file,
    a_linked_folder,
    a_linked_store,
    a_pipe_and_a_folder,
)


@pytest.mark.parametrize("others", OTHERS)
@pytest.mark.parametrize("words", [["--all"], ["--older-than", "1"], ["--max-bytes", "0"]])
def test_pruning_leaves_what_is_not_the_store_s(
    others: Callable[[Path, Path], list[Path]], words: list[str], tmp_path: Path
) -> None:
    cache = tmp_path / "cache"
    kept = others(cache / "profiler_ext", tmp_path / "outside")
    is_link = (cache / "profiler_ext").is_symlink()
    own = [] if is_link else own_files(cache / "profiler_ext")
    assert main(["cache", "prune", *words, "--dir", str(cache)]) == (2 if is_link else 0)
    assert [path for path in kept if not os.path.lexists(path)] == []
    assert [path for path in own if path.exists()] == []


@pytest.mark.parametrize("others", OTHERS)
def test_the_limit_on_bytes_leaves_what_is_not_the_store_s(
    others: Callable[[Path, Path], list[Path]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "cache" / "profiler_ext"
    kept = others(folder, tmp_path / "outside")
    own = [] if folder.is_symlink() else own_files(folder)
    monkeypatch.setenv("PROFILER_EXT_STORE_BYTES", str(len(RECORD)))
    Store(folder).put("fnew", "d1", RECORD)
    assert [path for path in kept if not os.path.lexists(path)] == []
    assert [path for path in own if path.exists()] == []


def own_files(store: Path) -> list[Path]:
    """Write a record, what was learnt, and a leftover of each; all are the store's."""
    names = ("none.pxpr", "H100.counts.json", "H100.kernels.json", "H100.0a1b.kernels.json")
    named = zip(names, (RECORD, COUNTS, KERNELS, KERNELS), strict=True)
    written = [old(store / "fo" / f"foown.{name}", data) for name, data in named]
    left = [old(p.with_name(f".{p.name}.abcd0123"), p.read_bytes()[:40]) for p in written]
    return [*written, *left]


def test_a_link_that_takes_a_folder_s_place_is_not_followed(tmp_path: Path) -> None:
    target = old(tmp_path / "outside" / "abkey.none.pxpr", RECORD)
    store = Store(tmp_path / "store")
    own = old(store.folder / "ab" / "abkey.none.pxpr", RECORD)
    found = store.files()
    os.utime(target, ns=(found[0].used_ns, found[0].used_ns))
    own.unlink()
    own.parent.rmdir()
    own.parent.symlink_to(target.parent)
    assert len(found) == 1
    assert has_header(found[0])  # by its path it would seem to be ours
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Store, "files", lambda _: found)
        assert store.prune(max_bytes=0) == ()
    assert target.exists()


def test_a_pipe_in_a_record_s_place_is_not_waited_for(tmp_path: Path) -> None:
    store = Store(tmp_path)
    (tmp_path / "fk").mkdir()
    os.mkfifo(tmp_path / "fk" / "fkey.d1.pxpr")
    assert store.holds("fkey", "d1") is False
