"""A program with several models has a name for each; with one, paths begin at the model itself."""

import sys

import pytest
from torch import nn

from profiler_ext.capture.held_modules import HeldModules, Models
from profiler_ext.records.lineage import ModuleFrame, PartModules
from profiler_ext.records.recording import Settings


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(1, 1)


def named(*modules: nn.Module) -> Settings:
    held = HeldModules(Models())
    frames = held.frames_of(modules)
    called = tuple((at, frame) for at, frame in enumerate(frames) if frame is not None)
    return held.named(Settings(called_modules=called), None)[0]


def paths(settings: Settings) -> list[str]:
    return [frame.path for _, frame in settings.called_modules]


def test_one_model_has_no_name() -> None:
    net = Net()
    settings = named(net, net.up)
    assert (paths(settings), settings.models) == (["", "up"], ())


def test_models_of_several_classes_are_called_by_their_class() -> None:
    net, criterion = Net(), nn.CrossEntropyLoss()
    settings = named(net.up, criterion, net)
    assert paths(settings) == ["Net.up", "CrossEntropyLoss", "Net"]
    assert settings.models == ("Net", "CrossEntropyLoss")


def test_models_of_one_class_have_the_variable_of_the_script_or_a_number(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    teacher, student, critic = Net(), Net(), nn.Linear(1, 1)
    monkeypatch.setattr(sys.modules["__main__"], "teacher", nn.DataParallel(teacher), raising=False)
    assert paths(named(teacher.up, student.up, critic)) == ["Net teacher.up", "Net 2.up", "Linear"]


def test_the_modules_of_a_part_are_named_too() -> None:
    net, other = Net(), nn.Linear(1, 1)
    held = HeldModules(Models())
    (up, own, _) = held.frames_of([net.up, net, other])
    part = PartModules((("a.up", up), ("a.gone", None)), own)
    settings, _ = held.named(Settings(called_parts=((3, part),)), None)
    assert settings.called_parts == (
        (
            3,
            PartModules(
                (("a.up", ModuleFrame("Net.up", "Linear")), ("a.gone", None)),
                ModuleFrame("Net", "Net"),
            ),
        ),
    )
