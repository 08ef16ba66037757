"""Provenance as bytes: what is written comes back, what is damaged is refused in a sentence."""

import dataclasses
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from profiler_ext.errors import NewerRecordError, OutputError, StoreError
from profiler_ext.records.gaps import GapReason
from profiler_ext.records.lineage import Frame, ModuleFrame
from profiler_ext.records.provenance import CallSite, Gap, Provenance, TensorSpec
from profiler_ext.records.vocabulary import SiteKind
from profiler_ext.store import EntryState, Store, encoding, from_bytes, to_bytes, with_digest
from profiler_ext.store.encoding import kernels_from_bytes
from profiler_ext.version import VERSION
from tests.fx_nodes import fx_node

NODE = fx_node(
    "mul",
    "aten.mul.Tensor",
    original_aten="aten.mul.Tensor",
    seq_nr=7,
    stack=(Frame("<script>/model.py", 3, "forward", "y = x * 3  # ü"),),
    modules=(ModuleFrame("layers.0", "Layer"),),
    source_fns=("mul",),
    partitioner_tag="is_forward",
    autograd_backward=False,
    annotation=(("stage", "encoder"),),
    inputs=("primals_1",),
    outputs=(TensorSpec("float32", (8, "s0"), ("s0", 1), "cuda:0"),),
)
SITE = CallSite(0, "0", SiteKind.TRITON, "triton_poi_fused_mul_0", None, ("mul",), (3,))
WHOLE = with_digest(
    Provenance(
        digest="",
        torch_version="2.13.0",
        is_backward=False,
        is_inference=False,
        joint="j",
        dynamo_digest="d1",
        nodes=(NODE,),
        call_sites=(SITE,),
        gaps=(Gap(GapReason.CAPTURE_FAILED, "why"),),
    )
)


def test_what_is_written_comes_back_equal() -> None:
    assert from_bytes(to_bytes(WHOLE)) == WHOLE


def test_a_record_that_was_made_before_a_field_was_there_is_read() -> None:
    plain = msgspec.json.decode(zlib.decompress(to_bytes(WHOLE)[6:]))
    for node in plain["nodes"]:
        del node["copied_call"], node["mechanism"]
    older = to_bytes(WHOLE)[:6] + zlib.compress(msgspec.json.encode(plain))
    assert from_bytes(older) == WHOLE


def test_equal_content_has_an_equal_digest_and_other_content_another() -> None:
    assert with_digest(dataclasses.replace(WHOLE, digest="other")) == WHOLE
    assert with_digest(dataclasses.replace(WHOLE, joint="k")).digest != WHOLE.digest


def test_bytes_of_something_else_are_refused() -> None:
    with pytest.raises(StoreError, match=r"found b'PK\\x03\\x04', expected a provenance"):
        from_bytes(b"PK\x03\x04 a zip file")


def test_a_newer_format_is_refused() -> None:
    newer = to_bytes(WHOLE)[:4] + (encoding.FORMAT + 1).to_bytes(2, "big") + to_bytes(WHOLE)[6:]
    with pytest.raises(StoreError, match="found provenance format 6, expected 5: a newer"):
        from_bytes(newer)


def _of(version: str | None, change: Callable[[Any], object] = dict) -> bytes:
    """Return the record as another version wrote it, with something changed."""
    plain = msgspec.json.decode(zlib.decompress(to_bytes(WHOLE)[6:]))
    assert plain.pop("written_by") == VERSION
    change(plain)
    message = plain if version is None else plain | {"written_by": version}
    return to_bytes(WHOLE)[:6] + zlib.compress(msgspec.json.encode(message))


def _with_new_word(plain: Any) -> None:
    plain["nodes"][0]["mechanism"] = "by_telepathy"


def _with_new_type(plain: Any) -> None:
    plain["joint"] = ["j", "k"]


@pytest.mark.parametrize("version", [None, VERSION, "0.0.9", "0.9", "1.0.0.dev1"])
def test_a_record_of_another_version_is_read_where_all_of_it_is_known(version: str | None) -> None:
    assert from_bytes(_of(version)) == WHOLE


@pytest.mark.parametrize("change", [_with_new_word, _with_new_type])
def test_what_a_newer_version_wrote_is_refused_with_its_version(
    change: Callable[[Any], None],
) -> None:
    data = _of("0.4.0", change)
    message = (
        r"^found a provenance that was written by a newer profiler-ext "
        rf"\(0\.4\.0; this one is {VERSION}: .*\); update profiler-ext to read it$"
    )
    with pytest.raises(NewerRecordError, match=message):
        from_bytes(data)
    assert encoding.state_of(data) is EntryState.NEWER


@pytest.mark.parametrize("version", [None, VERSION, "of today"])
def test_an_unknown_word_is_reported_where_no_newer_version_is(version: str | None) -> None:
    data = _of(version, _with_new_word)
    message = (
        r"^found a provenance that has a word that this .*by_telepathy.*update profiler-ext to read"
    )
    with pytest.raises(NewerRecordError, match=message):
        from_bytes(data)
    assert encoding.state_of(data) is EntryState.NEWER


@pytest.mark.parametrize("version", [None, VERSION])
def test_what_no_newer_version_wrote_and_does_not_fit_is_damaged(version: str | None) -> None:
    data = _of(version, _with_new_type)
    with pytest.raises(StoreError, match="found a damaged provenance"):
        from_bytes(data)
    assert encoding.state_of(data) is EntryState.DAMAGED


def test_kernels_of_a_newer_version_are_reported_to_be_newer() -> None:
    newer = msgspec.json.encode({"format": 3, "kernels": {"0": "k"}})
    with pytest.raises(NewerRecordError, match="found format 3 of kernels, expected 2: a newer"):
        kernels_from_bytes(newer)


def test_format_1_which_may_hold_relative_paths_is_refused_as_older() -> None:
    older = to_bytes(WHOLE)[:4] + b"\x00\x01" + to_bytes(WHOLE)[6:]
    with pytest.raises(StoreError, match="found provenance format 1, expected 5: an older"):
        from_bytes(older)


def test_format_2_is_read_unless_code_goes_on_after_a_graph_break_whose_lines_may_be_off() -> None:
    frame = Frame("<script>/model.py", 9, "torch_dynamo_resume_in_forward_at_4", "y = x * 3")
    resumed = with_digest(
        dataclasses.replace(WHOLE, nodes=(fx_node("mul", "aten.mul.Tensor", stack=(frame,)),))
    )
    before = [_in_format(2, each) for each in (WHOLE, resumed)]
    assert from_bytes(before[0]) == WHOLE
    with pytest.raises(StoreError, match="found provenance format 2, expected 5: an older"):
        from_bytes(before[1])
    assert [encoding.state_of(each) for each in before] == [EntryState.OK, EntryState.OLDER]
    assert [encoding.is_current(each) for each in before] == [True, False]
    assert from_bytes(to_bytes(resumed)) == resumed


def test_formats_2_and_3_are_read_unless_they_have_a_region() -> None:
    node = fx_node("invoke_subgraph_1/mul", "aten.mul.Tensor")
    region = with_digest(dataclasses.replace(WHOLE, nodes=(node,)))
    for number in (2, 3):
        before = [_in_format(number, each) for each in (WHOLE, region)]
        assert from_bytes(before[0]) == WHOLE
        with pytest.raises(
            StoreError, match=f"found provenance format {number}, expected 5: an older"
        ):
            from_bytes(before[1])
        assert [encoding.state_of(each) for each in before] == [EntryState.OK, EntryState.OLDER]
        assert [encoding.is_current(each) for each in before] == [True, False]
    assert from_bytes(to_bytes(region)) == region


def _in_format(number: int, provenance: Provenance) -> bytes:
    data = to_bytes(provenance)
    return data[:4] + number.to_bytes(2, "big") + data[6:]


@pytest.mark.parametrize("length", [0, 3, 4, 6, 7, 40, -1])
def test_truncated_bytes_are_refused_wherever_they_end(length: int) -> None:
    with pytest.raises(StoreError):
        from_bytes(to_bytes(WHOLE)[:length])


def test_a_flipped_byte_is_refused() -> None:
    damaged = bytearray(to_bytes(WHOLE))
    damaged[len(damaged) // 2] ^= 0xFF
    with pytest.raises(StoreError, match="damaged"):
        from_bytes(bytes(damaged))


def test_json_of_another_shape_is_refused() -> None:
    other = encoding.MAGIC + b"\x00\x04" + zlib.compress(msgspec.json.encode({"digest": 3}))
    with pytest.raises(StoreError, match="damaged"):
        from_bytes(other)


def test_a_bomb_is_refused_before_it_is_inflated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoding, "INFLATED_LIMIT_BYTES", 1000)
    bomb = encoding.MAGIC + b"\x00\x04" + zlib.compress(b" " * 1_000_000)
    with pytest.raises(StoreError, match="over 1000 bytes"):
        from_bytes(bomb)


def keep(folder: Path, key: str, *records: Provenance) -> Store:
    kept = Store(folder)
    for record in records:
        kept.put(key, record.dynamo_digest, to_bytes(record))
    return kept


def test_two_dynamo_graphs_under_one_key_are_kept_apart(tmp_path: Path) -> None:
    other = with_digest(dataclasses.replace(WHOLE, dynamo_digest="d2"))
    kept = keep(tmp_path / "profiler_ext", "fkey", WHOLE, other)
    assert [kept.read(path) for path in kept.find("fkey")] == [WHOLE, other]
    assert [kept.holds("fkey", digest) for digest in ("d1", "d2", "d3", None)] == [
        True,
        True,
        False,
        False,
    ]
    assert kept.find("fke") == []


def test_a_graph_without_a_dynamo_digest_is_kept_too(tmp_path: Path) -> None:
    alone = with_digest(dataclasses.replace(WHOLE, dynamo_digest=None))
    kept = keep(tmp_path, "fkey", alone)
    assert kept.holds("fkey", None)
    assert [path.read_bytes() for path in kept.find("fkey")] == [to_bytes(alone)]


def test_a_key_cannot_leave_the_folder(tmp_path: Path) -> None:
    kept = keep(tmp_path / "profiler_ext", "../../up", WHOLE)
    assert [path.name for path in tmp_path.iterdir()] == ["profiler_ext"]
    assert [kept.read(path) for path in kept.find("../../up")] == [WHOLE]


def test_nothing_but_whole_files_is_left_in_the_folder(tmp_path: Path) -> None:
    keep(tmp_path, "fkey", WHOLE, WHOLE)
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["fkey.d1.pxpr"]


def test_a_folder_that_cannot_be_written_is_an_error_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "profiler_ext").write_text("a file")
    with pytest.raises(OutputError):
        keep(tmp_path / "profiler_ext", "fkey", WHOLE)


def test_format_4_is_read_whose_keys_had_other_names() -> None:
    record = with_digest(
        dataclasses.replace(
            WHOLE,
            entry_calls=(("mul", "aten.mul.Tensor"),),
            is_inferred=True,
            parameter_inputs=((0, 1, "up.weight"),),
        )
    )
    plain = msgspec.json.decode(zlib.decompress(to_bytes(record)[6:]))
    for name, before in {
        "entry_calls": "entered",
        "is_inferred": "is_told",
        "parameter_inputs": "held_inputs",
    }.items():
        plain[before] = plain.pop(name)
    older = to_bytes(record)[:4] + b"\x00\x04" + zlib.compress(msgspec.json.encode(plain))
    assert from_bytes(older) == record
    assert (encoding.state_of(older), encoding.is_current(older)) == (EntryState.OK, True)
