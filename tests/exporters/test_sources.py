"""Source is shown whole where every recorded line still stands; else only what was recorded."""

from __future__ import annotations

import json
import os
import tokenize
from dataclasses import replace
from pathlib import Path

import pytest

from profiler_ext.exporters.sources import (
    SourceFile,
    is_user_file,
    kernel_sources,
    local_sources,
    read_texts,
    recorded_lines,
    source_files,
)
from profiler_ext.records.recording import Settings
from profiler_ext.sessions.session import Session
from profiler_ext.source_paths import reading_roots
from tests.analyses import GPU_PLACES, gpu_step
from tests.gpu_model import MODEL

TRAIN = "/home/ann/gpt/train.py"
NOT_HERE = "the file is not here, or under no --root"
RECORDED = {
    12: "h = self.up(x)",
    13: "h = F.gelu(h)",
    14: "return self.down(h.to(x.dtype))",
}
TEXT = "\n" * 11 + "".join(f"    {line}\n" for line in RECORDED.values())


def test_recorded_lines_are_those_with_time_and_the_users_own_that_attributed_there():
    assert recorded_lines(gpu_step()) == {TRAIN: {40: "loss = model(x, y)"}, MODEL: RECORDED}


def test_a_file_in_which_the_lines_still_stand_is_whole():
    whole, train = source_files(gpu_step(), {MODEL: TEXT})
    assert whole == SourceFile(MODEL, dict(enumerate(TEXT.removesuffix("\n").split("\n"), 1)))
    assert train == SourceFile(TRAIN, {40: "loss = model(x, y)"}, NOT_HERE)


def test_a_file_that_changed_shows_what_was_recorded():
    changed = TEXT.replace("F.gelu(h)", "F.relu(h)")
    found, _ = source_files(gpu_step(), {MODEL: changed})
    reason = "the file has changed since: line 13 is not what was recorded"
    assert found == SourceFile(MODEL, RECORDED, reason)


def test_a_file_that_got_shorter_has_changed():
    found, _ = source_files(gpu_step(), {MODEL: "\n" * 5})
    assert found.missing == "the file has changed since: line 12 is not what was recorded"


def test_a_line_whose_text_was_not_recorded_proves_no_file():
    places = tuple(replace(place, code=None, stack=()) for place in GPU_PLACES)
    (found,) = source_files(replace(gpu_step(), places=places), {MODEL: "\n" * 20 + "secret = 1\n"})
    reason = "the text of line 12 was not recorded, so the file cannot be checked"
    assert found == SourceFile(MODEL, {12: "", 13: "", 14: ""}, reason)


def test_the_users_own_files_lie_under_their_roots():
    settings = Settings(user_roots=("/home/ann/",), library_roots=("/home/ann/venv/lib",))
    paths = ("/home/ann/a.py", "/home/ann/venv/lib/b.py", "/home/anna/c.py", "examples/d.py")
    assert [is_user_file(path, settings) for path in paths] == [True, False, False, True]


def test_only_python_files_are_read(tmp_path):
    (tmp_path / "model.py").write_text("x = 'é'\n", encoding="utf-8")
    (tmp_path / "old.py").write_bytes(b"# coding: latin-1\nx = '\xe9'\n")
    (tmp_path / "bad.py").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "id_rsa").write_text("secret")
    (tmp_path / "folder.py").mkdir()
    names = ("model.py", "old.py", "bad.py", "id_rsa", "folder.py", "gone.py")
    assert read_texts(names, Settings(), ["/nowhere", tmp_path]) == {
        "model.py": "x = 'é'\n",
        "old.py": "# coding: latin-1\nx = 'é'\n",
    }


def test_sources_are_read_where_they_were_recorded(tmp_path):
    model = tmp_path / "model.py"
    model.write_text(TEXT)
    places = tuple(replace(p, file=str(model), stack=()) for p in GPU_PLACES if p.file)
    analysis = replace(gpu_step(), places=places)
    assert local_sources([analysis], [tmp_path]) == {str(model): TEXT}
    assert local_sources([analysis]) == {}


def test_kernels_are_found_in_a_generated_module():
    module = (
        "triton_poi_fused_0 = async_compile.triton('triton_poi_fused_0', '''\n"
        "@triton.jit\ndef k(): pass\n''', device_str='cuda')\n"
        "cpp_fused_1 = async_compile.cpp_pybind(['float*'], r'''\n#include <x>\n''')\n"
        "other = something.triton('other', '''\nno\n''')\n"
        "async_compile.wait(globals())\n"
    )
    assert kernel_sources(module) == {
        "triton_poi_fused_0": "@triton.jit\ndef k(): pass",
        "cpp_fused_1": "#include <x>",
    }


def test_what_is_no_python_holds_no_kernel():
    assert kernel_sources("template <typename T> {") == {}
    assert kernel_sources("a = '\0'") == {}


SECRET = "secret = 1\n"


@pytest.fixture
def reader(tmp_path, monkeypatch):
    """A user in a project of theirs; beside it lies what a trace has no right to."""
    (tmp_path / "project" / "inner").mkdir(parents=True)
    (tmp_path / "project" / "model.py").write_text("model = 1\n")
    (tmp_path / "beside").mkdir()
    (tmp_path / "beside" / "secret.py").write_text(SECRET)
    monkeypatch.chdir(tmp_path / "project")
    return tmp_path


@pytest.mark.parametrize("roots", [(), ("/",), ("{reader}",), ("{reader}/beside", "//", "/..")])
@pytest.mark.parametrize(
    "path",
    [
        *("{reader}/beside/secret.py", "../beside/secret.py", "inner/../../beside/secret.py"),
        *("{reader}/project/../beside/secret.py", "{reader}/project/linked.py", "linked.py"),
        *("{reader}/project/folder/secret.py", "folder/secret.py", "inner/../folder/secret.py"),
        *("//{reader}/beside/secret.py", "beside/secret.py", "{reader}/project/inner/up.py"),
    ],
)
def test_no_root_that_a_trace_names_and_no_link_leads_out_of_the_reader_s_own(path, roots, reader):
    (reader / "project" / "linked.py").symlink_to(reader / "beside" / "secret.py")
    (reader / "project" / "folder").symlink_to(reader / "beside")
    (reader / "project" / "inner" / "up.py").symlink_to("../../beside/secret.py")
    path = path.replace("{reader}", str(reader))
    settings = Settings(user_roots=tuple(r.replace("{reader}", str(reader)) for r in roots))
    assert read_texts([path], settings) == {}
    assert read_texts([path], settings, [reader]) == {path: SECRET}  # it is there


def test_source_is_read_under_the_working_folder_the_library_and_what_the_user_names(reader):
    own, other = str(reader / "project" / "model.py"), str(reader / "beside" / "secret.py")
    paths = [own, "model.py", other, tokenize.__file__]
    assert set(read_texts(paths, Settings())) == {own, "model.py", tokenize.__file__}
    assert set(read_texts(paths, Settings(), [reader / "beside"])) == set(paths)


def test_a_link_that_stays_under_a_root_is_followed(reader):
    (reader / "project" / "linked.py").symlink_to("model.py")
    assert read_texts(["linked.py"], Settings()) == {"linked.py": "model = 1\n"}


def test_what_was_recorded_under_another_user_s_root_is_looked_for_under_the_reader_s(reader):
    settings = Settings(user_roots=("/home/ann/gpt",))
    paths = ["/home/ann/gpt/model.py", "/home/bob/model.py", "/home/ann/gpt/../model.py"]
    assert read_texts(paths, settings) == {"/home/ann/gpt/model.py": "model = 1\n"}


def test_what_is_no_text_file_is_not_read_and_not_waited_for(reader):
    os.mkfifo("pipe.py")
    Path("device.py").symlink_to("/dev/zero")
    Path("loop.py").symlink_to("loop.py")
    Path("secret.py").symlink_to(".env")
    Path(".env").write_text("TOKEN=1\n")
    Path("null.py").write_bytes(b"a = 1\0\n")
    Path("codec.py").write_bytes(b"# coding: rot13\n")
    Path("huge.py").touch()
    os.truncate("huge.py", 1 << 40)
    names = ("pipe.py", "device.py", "loop.py", "secret.py", "null.py", "codec.py", "huge.py")
    assert read_texts((*names, "a\0b.py", "x" * 5000 + ".py"), Settings(), ["/"]) == {}


def test_a_working_folder_that_was_removed_is_no_root(reader):
    gone = reader / "project" / "gone"
    gone.mkdir()
    os.chdir(gone)
    gone.rmdir()
    assert read_texts([str(reader / "beside" / "secret.py")], Settings()) == {}
    assert Path("/") not in reading_roots()


def test_the_process_that_recorded_shows_the_script_s_own_files(reader):
    line = {"file": "secret.py", "stack": (), "line": 1, "code": "secret = 1"}
    places = tuple(replace(place, **line) for place in GPU_PLACES)
    analysis = replace(gpu_step(), places=places)
    for roots, missing in ((), NOT_HERE), ([reader / "beside"], ""):
        session = Session(analysis.recording, roots=roots)
        session.analysis = analysis
        text = json.loads(session.annotate(format="json"))
        assert [file["missing"] or "" for file in text["files"]] == [missing]
