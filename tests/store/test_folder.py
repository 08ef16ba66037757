"""The store as files: shared by processes, bounded, pruned by last use, damage told by name."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from profiler_ext.errors import StoreError
from profiler_ext.store import EntryState, Store, encoding, from_bytes, state_of, to_bytes
from tests.store.records import DAY_NS, keep, record

ROOT = Path(__file__).parents[2]
WRITERS = 8
WRITE = """
import sys
from pathlib import Path
from profiler_ext.store import Store, to_bytes
from tests.store.records import padded, record

store, me = Store(Path(sys.argv[1])), sys.argv[2]
data = to_bytes(padded(record(), 2000))
print("ready", flush=True)
sys.stdin.readline()
for number in range(1_000_000):
    for key in (f"shared{number % 5}", f"own{me}x{number}"):
        store.put(key, "d1", data)
        print(key, flush=True)
"""


def test_eight_writers_that_are_killed_lose_nothing_that_they_reported(tmp_path: Path) -> None:
    moment = random.Random(0)
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITE, str(tmp_path), str(number)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(WRITERS)
    ]
    assert [writer.stdout.readline() for writer in writers] == ["ready\n"] * WRITERS
    for writer in writers:
        writer.stdin.write("go\n")
        writer.stdin.flush()
    first = [writer.stdout.readline().strip() for writer in writers]
    for writer in writers:
        time.sleep(moment.uniform(0, 0.1))
        writer.send_signal(signal.SIGKILL)
    rest = [line for writer in writers for line in writer.communicate()[0].splitlines(True)]
    reported = {*first, *(line.strip() for line in rest if line.endswith("\n"))}

    store = Store(tmp_path)
    kept = [file for file in store.files() if file.is_record]
    assert reported <= {file.key for file in kept}
    contents = {file.path.read_bytes() for file in kept}  # equal bytes are judged once
    assert {state_of(each) for each in contents} == {EntryState.OK}
    assert {writer.returncode for writer in writers} == {-signal.SIGKILL}
    assert {file.key[:4] for file in kept} >= {"shar", "own0", "own7"}


def test_a_leftover_of_a_killed_writer_is_no_record_and_goes_when_it_is_old(tmp_path: Path) -> None:
    store = Store(tmp_path)
    path = keep(store, "fkey")
    leftover = path.with_name(f".{path.name}.x1y2z3a4")
    leftover.write_bytes(to_bytes(record())[:50])
    assert store.find("fkey") == [path]
    assert store.prune() == ()
    used_ns = time.time_ns() - DAY_NS
    os.utime(leftover, ns=(used_ns, used_ns))
    assert [file.path for file in store.prune()] == [leftover]
    assert [file.path for file in store.files()] == [path]


def test_what_was_used_longest_ago_goes_first(tmp_path: Path) -> None:
    store = Store(tmp_path)
    old, older, new = (keep(store, k, unused_days=d) for k, d in (("a", 3), ("b", 9), ("c", 0)))
    size_bytes = new.stat().st_size
    assert [f.path for f in store.prune(max_bytes=2 * size_bytes)] == [older]
    store.read(old)  # it is of use again
    assert [f.path for f in store.prune(older_than_s=2 * 86_400)] == []
    assert [f.path for f in store.prune(max_bytes=size_bytes)] == [new]
    assert [f.path for f in store.prune(max_bytes=0)] == [old]
    assert store.files() == ()


def test_the_limit_of_the_environment_bounds_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    size_bytes = len(to_bytes(record()))
    monkeypatch.setenv("PROFILER_EXT_STORE_BYTES", str(4 * size_bytes))
    for number in range(12):
        keep(Store(tmp_path), f"f{number}", unused_days=12 - number)
    assert [file.key for file in Store(tmp_path).files()] == ["f8", "f9", "f10", "f11"]
    one_process = Store(tmp_path)
    for number in range(12, 40):
        keep(one_process, f"f{number}", unused_days=40 - number)
    assert sum(file.size_bytes for file in one_process.files()) <= 5 * size_bytes


def test_a_limit_of_nothing_keeps_nothing_and_one_that_is_no_number_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROFILER_EXT_STORE_BYTES", "0")
    Store(tmp_path).put("fkey", None, to_bytes(record()))
    assert Store(tmp_path).files() == ()
    monkeypatch.setenv("PROFILER_EXT_STORE_BYTES", "1 GB")
    with pytest.raises(StoreError, match="PROFILER_EXT_STORE_BYTES is '1 GB', expected a number"):
        Store(tmp_path).put("fkey", None, to_bytes(record()))


@pytest.mark.parametrize(
    ("data", "state", "is_held", "sentence"),
    [
        (b"", EntryState.DAMAGED, False, "fkey.d1.pxpr: found b''"),
        (to_bytes(record())[:-9], EntryState.DAMAGED, False, "fkey.d1.pxpr: found a truncated"),
        (b"PXPR\x00\x01", EntryState.OLDER, False, "fkey.d1.pxpr: .*format 1, .* an older"),
        (b"PXPR\x00\x09more", EntryState.NEWER, True, "fkey.d1.pxpr: .*format 9, .* a newer"),
        (to_bytes(record()), EntryState.OK, True, None),
    ],
)
def test_an_entry_is_read_or_named_with_what_is_wrong(
    tmp_path: Path, data: bytes, state: EntryState, is_held: bool, sentence: str | None
) -> None:
    store = Store(tmp_path)
    path = keep(store, "fkey")
    path.write_bytes(data)
    assert (state_of(data), store.holds("fkey", "d1")) == (state, is_held)
    if sentence is None:
        assert store.read(path) == record()
    else:
        with pytest.raises(StoreError, match=sentence):
            store.read(path)


def test_the_format_is_the_fourth(tmp_path: Path) -> None:
    assert (encoding.FORMAT, to_bytes(record())[4:6]) == (5, b"\x00\x05")
    assert from_bytes(to_bytes(record())) == record()
