"""Source is shown whole where every recorded line still stands; else only what was recorded."""

from __future__ import annotations

from dataclasses import replace

from profiler_ext.exporters.generated_code import kernel_sources
from profiler_ext.exporters.sources import (
    SourceFile,
    is_users_own,
    read_texts,
    recorded_lines,
    source_files,
    sources_here,
)
from profiler_ext.records import Settings
from tests.analyses import GPU_PLACES, gpu_step
from tests.gpu_model import MODEL

TRAIN = "/home/ann/gpt/train.py"
RECORDED = {
    12: "h = self.up(x)",
    13: "h = F.gelu(h)",
    14: "return self.down(h.to(x.dtype))",
}
TEXT = "\n" * 11 + "".join(f"    {line}\n" for line in RECORDED.values())


def test_recorded_lines_are_those_with_time_and_the_users_own_that_led_there():
    assert recorded_lines(gpu_step()) == {TRAIN: {40: "loss = model(x, y)"}, MODEL: RECORDED}


def test_a_file_in_which_the_lines_still_stand_is_whole():
    whole, train = source_files(gpu_step(), {MODEL: TEXT})
    assert whole == SourceFile(MODEL, dict(enumerate(TEXT.removesuffix("\n").split("\n"), 1)))
    assert train == SourceFile(TRAIN, {40: "loss = model(x, y)"}, "the file is not on this machine")


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
    assert [is_users_own(path, settings) for path in paths] == [True, False, False, True]


def test_only_python_files_are_read(tmp_path):
    (tmp_path / "model.py").write_text("x = 'é'\n", encoding="utf-8")
    (tmp_path / "old.py").write_bytes(b"# coding: latin-1\nx = '\xe9'\n")
    (tmp_path / "bad.py").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "id_rsa").write_text("secret")
    (tmp_path / "folder.py").mkdir()
    names = ("model.py", "old.py", "bad.py", "id_rsa", "folder.py", "gone.py")
    assert read_texts(names, Settings(user_roots=("/nowhere", str(tmp_path)))) == {
        "model.py": "x = 'é'\n",
        "old.py": "# coding: latin-1\nx = 'é'\n",
    }


def test_sources_are_read_where_they_were_recorded(tmp_path):
    model = tmp_path / "model.py"
    model.write_text(TEXT)
    places = tuple(replace(p, file=str(model), stack=()) for p in GPU_PLACES if p.file)
    assert sources_here(replace(gpu_step(), places=places)) == {str(model): TEXT}


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
