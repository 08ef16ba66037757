"""``profiler-ext cache``: what is stored is listed with its state, and pruned as asked."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from profiler_ext.cli import cache, main
from profiler_ext.store import Store
from tests.store.records import keep


@pytest.fixture
def cache_dir(tmp_path: Path) -> Path:
    store = Store(tmp_path / "profiler_ext")
    keep(store, "fgood")
    keep(store, "fold", unused_days=40, data=b"PXPR\x00\x01")
    keep(store, "fnew", unused_days=3, data=b"PXPR\x00\x63")
    keep(store, "fbad", unused_days=3, data=b"")
    return tmp_path


def listed(cache_dir: Path, capsys: pytest.CaptureFixture[str]) -> list[dict[str, object]]:
    assert main(["cache", "list", "--format", "json", "--dir", str(cache_dir)]) == 0
    rows: list[dict[str, object]] = json.loads(capsys.readouterr().out)["records"]
    return rows


def test_each_record_is_listed_with_its_state(
    cache_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = {str(row["key"]): row for row in listed(cache_dir, capsys)}
    assert {key: row["state"] for key, row in rows.items()} == {
        "fgood": "ok",
        "fold": "older",
        "fnew": "newer",
        "fbad": "damaged",
    }
    shown = ("graph", "source", "nodes", "kernels", "call_sites", "torch_version")
    assert [rows["fgood"][name] for name in shown] == [
        "forward",
        "<script>/model.py:3",
        1,
        ["triton_poi"],
        1,
        "2.13.0",
    ]
    assert [rows["fbad"][name] for name in shown] == [None, None, None, [], None, None]


def test_a_person_reads_a_table(cache_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cache", "list", "--dir", str(cache_dir)]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    words = "fgood forward, 1 nodes model.py:3 1 in 1 calls just now"
    assert [" ".join(line[:-3]) for line in lines if line[0] == "fgood"] == [words]
    assert lines[-1][:2] == ["4", "records,"]


def test_pruning_removes_what_is_asked_for(
    cache_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["cache", "prune", "--older-than", "30", "--dir", str(cache_dir)]) == 0
    assert capsys.readouterr().out.startswith("removed 1 file (6 B) of ")
    assert {row["key"] for row in listed(cache_dir, capsys)} == {"fgood", "fnew", "fbad"}
    assert main(["cache", "prune", "--all", "--dir", str(cache_dir)]) == 0
    capsys.readouterr()
    assert [row["key"] for row in listed(cache_dir, capsys)] == ["fbad"]  # without our header


@pytest.mark.parametrize("words", [[], ["--max-bytes", "-1"], ["--older-than", "-2"]])
def test_pruning_asks_what_to_remove(
    cache_dir: Path, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    assert main(["cache", "prune", *words, "--dir", str(cache_dir)]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert len(Store(cache_dir / "profiler_ext").files()) == 4


@pytest.mark.parametrize("name", ["alice", r"CORP\alice", 'a/b:c*d?e"f<g>h|i', None])
def test_the_cache_is_looked_for_where_torch_has_it(
    name: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def user() -> str:
        if name is None:
            raise OSError("no such user")
        return name

    monkeypatch.setattr("getpass.getuser", user)
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
    looked_for = cache._cache_dir()
    from torch._inductor.runtime.cache_dir_utils import default_cache_dir

    assert looked_for == Path(default_cache_dir())
