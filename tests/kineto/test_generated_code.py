"""A session keeps generated code once a content; damaged or too large it is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from profiler_ext.errors import TraceError
from profiler_ext.exporters.sources import module_texts, recorded_modules
from profiler_ext.kineto.recording import read_recording, with_valid_utf8, write_recording
from profiler_ext.records import recording
from profiler_ext.records.gaps import GapReason
from profiler_ext.records.provenance import Gap
from profiler_ext.records.recording import MAX_MODULE_BYTES, GeneratedModule, generated_module
from tests.analyses import gpu_step

TEXT = "triton_poi_0 = async_compile.triton('triton_poi_0', '''\ndef f(): \u00e4\n''')\n"
LARGE = "".join(f"tmp{n} = tl.load(in_ptr{n * 7919 % 100_003})\n" for n in range(60_000))
STEP = gpu_step()
FORWARD, BACKWARD = (graph.output_module or "" for graph in STEP.recording.graphs)


def kept(*modules: GeneratedModule):
    return replace(STEP.recording, generated=modules)


def test_the_text_of_modules_is_read_back_whatever_its_length(tmp_path: Path) -> None:
    modules = (generated_module(TEXT, [FORWARD]), generated_module(LARGE, [BACKWARD, "/b.py"]))
    assert len(modules[1].packed) > 1
    write_recording(tmp_path / "r.json.gz", kept(*modules))
    read = read_recording(tmp_path / "r.json.gz")
    assert read.generated == modules
    assert recorded_modules(read) == {FORWARD: TEXT, BACKWARD: LARGE, "/b.py": LARGE}


def test_a_session_of_before_has_no_code(tmp_path: Path) -> None:
    write_recording(tmp_path / "r.json", STEP.recording)
    whole = json.loads((tmp_path / "r.json").read_bytes())
    assert whole["profilerExt"].pop("generated") == []
    (tmp_path / "r.json").write_text(json.dumps(whole))
    assert read_recording(tmp_path / "r.json").generated == ()


def test_what_the_session_keeps_wins_over_a_file_that_is_here(tmp_path: Path) -> None:
    here = [tmp_path / "forward.py", tmp_path / "backward.py"]
    for path in here:
        path.write_text("here = 1\n")
    graphs = tuple(
        replace(graph, output_module=str(path))
        for graph, path in zip(STEP.recording.graphs, here, strict=True)
    )
    recorded = replace(kept(generated_module(TEXT, [str(here[0])])), graphs=graphs)
    texts = module_texts(replace(STEP, recording=recorded), [tmp_path])
    assert texts == {str(here[0]): TEXT, str(here[1]): "here = 1\n"}


def test_where_no_source_was_to_be_kept_none_is_read_from_this_machine(tmp_path: Path) -> None:
    here = tmp_path / "forward.py"
    here.write_text("here = 1\n")
    graph = replace(STEP.recording.graphs[0], output_module=str(here))
    off = Gap(GapReason.SOURCE_OFF, "source=False")
    found = []
    for gaps in ((), (off,)):
        recorded = replace(STEP.recording, graphs=(graph,), gaps=gaps)
        found.append(module_texts(replace(STEP, recording=recorded), [tmp_path]))
    assert found == [{str(here): "here = 1\n"}, {}]


def test_a_path_that_is_not_utf_8_takes_the_code_along() -> None:
    clean = with_valid_utf8(kept(generated_module(TEXT, ["/\udcff.py"])))
    assert recorded_modules(clean) == {"/\\udcff.py": TEXT}


def test_a_python_without_xz_reads_the_session_and_has_no_code(tmp_path: Path, monkeypatch) -> None:
    write_recording(tmp_path / "r.json", kept(generated_module(TEXT, [FORWARD])))
    monkeypatch.setattr(recording, "lzma", None)
    read = read_recording(tmp_path / "r.json")
    assert (len(read.generated), recorded_modules(read)) == (1, {})
    with pytest.raises(ImportError, match="built without lzma"):
        generated_module(TEXT, [FORWARD])


SOUND = generated_module(TEXT, ["/a.py"])
BOMB = generated_module("x" * (MAX_MODULE_BYTES + 1), ["/a.py"])


@pytest.mark.parametrize(
    ("module", "found"),
    [
        (replace(SOUND, digest="0" * 64), "it is not what its digest names"),
        (replace(SOUND, size_bytes=3), "it is not what its digest names"),
        (replace(SOUND, packed=(b"what is no xz at all",)), "it cannot be unpacked"),
        (replace(SOUND, packed=()), "it is not what its digest names"),
        (replace(BOMB, size_bytes=3), "it is not what its digest names"),
        (BOMB, "8000001 bytes, expected fewer"),
        (replace(SOUND, size_bytes=-1), "-1 bytes, expected fewer"),
    ],
)
def test_damaged_or_too_large_code_is_refused(tmp_path: Path, module, found: str) -> None:
    write_recording(tmp_path / "r.json", kept(SOUND, module))
    with pytest.raises(TraceError, match=f"generated module 1: .*{found}"):
        read_recording(tmp_path / "r.json")
