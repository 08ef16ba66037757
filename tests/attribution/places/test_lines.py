from __future__ import annotations

import pytest

from profiler_ext.attribution.places import SourceRoots
from profiler_ext.records.lineage import Frame
from profiler_ext.records.recording import Settings

SETTINGS = Settings(
    user_roots=("/home/me/project",),
    library_roots=("/env/lib/site-packages", "/usr/lib/python3.12"),
)
USER = Frame("/home/me/project/train.py", 10, "main")
LIBRARY = Frame("/env/lib/site-packages/transformers/models/llama.py", 200, "forward")
TORCH = Frame("/env/lib/site-packages/torch/nn/functional.py", 30, "linear")
OPTIM = Frame("/env/lib/site-packages/torch/optim/adamw.py", 40, "step")
OURS = Frame("/env/lib/site-packages/profiler_ext/capture/hooks/installing.py", 50, "run")


def test_the_models_line_is_the_innermost_outside_torch_triton_and_this_package():
    roots = SourceRoots(SETTINGS)
    assert roots.model_frame((USER, LIBRARY, TORCH, OURS)) == LIBRARY
    assert roots.model_frame((LIBRARY, USER, TORCH)) == USER
    assert roots.model_frame((OURS, Frame("<eval_with_key>.1", 1, "forward"))) is None
    assert roots.model_frame(()) is None


def test_what_was_compiled_inside_torch_itself_stands_on_torchs_innermost_line():
    roots = SourceRoots(SETTINGS)
    assert roots.model_frame((OPTIM, TORCH, OURS)) == TORCH
    assert roots.model_frame((Frame("<frozen runpy>", 1, "run"), OPTIM)) == OPTIM


def test_a_torch_that_is_run_from_its_sources_is_torch():
    roots = SourceRoots(Settings(("/home/me",), library_roots=("/home/me/pytorch/torch",)))
    torch = Frame("/home/me/pytorch/torch/nn/functional.py", 30, "linear")
    script = Frame("/home/me/pytorch/script.py", 3, "main")
    assert roots.model_frame((script, torch)) == script
    assert roots.user_frame((script, torch)) == script
    assert roots.model_frame((torch,)) == torch


def test_the_users_line_is_the_innermost_under_the_users_roots():
    roots = SourceRoots(SETTINGS)
    assert roots.user_frame((USER, LIBRARY, TORCH)) == USER
    assert roots.user_frame((LIBRARY, TORCH)) is None


@pytest.mark.parametrize(
    "file",
    [
        "/home/me/project/torch/model.py",
        "/home/me/project/profiler_ext/examples/gpt.py",
        "/home/me/project/my_torch.py",
        "/env/lib/site-packages/torchvision/resnet.py",
        "/env/lib/site-packages/torch_geometric/conv.py",
        "/usr/lib/python3.12/functools.py",
    ],
)
def test_whole_folders_decide_and_not_parts_of_names(file):
    frame = Frame(file, 1, "f")
    assert SourceRoots(SETTINGS).model_frame((USER, frame)) == frame


@pytest.mark.parametrize(
    "file",
    [
        "/other/env/site-packages/torch/nn/linear.py",
        "/usr/lib/python3/dist-packages/triton/language.py",
        "<eval_with_key>.7",
    ],
)
def test_packages_are_known_without_their_root(file):
    assert SourceRoots(Settings()).model_frame((USER, Frame(file, 1, "f"))) == USER


def test_an_environment_inside_the_users_folder_is_not_the_users():
    inside = Frame("/home/me/project/.venv/lib/site-packages/einops/ops.py", 3, "f")
    roots = SourceRoots(SETTINGS)
    assert roots.user_frame((USER, inside)) == USER
    assert roots.model_frame((USER, inside)) == inside


def test_a_folder_with_a_longer_name_is_not_under_the_root():
    assert SourceRoots(SETTINGS).user_frame((Frame("/home/me/project2/a.py", 1, "f"),)) is None
