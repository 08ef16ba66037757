"""Which modules a call of a part is on, by the parameters that it is passed."""

import gc

from torch import nn

from profiler_ext.capture.called_modules import model_modules, part_modules
from profiler_ext.capture.held_modules import HeldModules, note_active
from profiler_ext.records.lineage import ModuleFrame


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(2, 2, bias=False)
        self.act = nn.ReLU()


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Layer() for _ in range(3))
        self.head = nn.Linear(2, 2, bias=False)


LAYER = ModuleFrame("layers.0", "Layer")
RECORDED = (LAYER, ModuleFrame("layers.0.up", "Linear"), ModuleFrame("layers.0.act", "ReLU"))


def found(
    net: nn.Module, passed: dict[str, nn.Parameter], recorded=RECORDED
) -> dict[str, str | None]:
    part = part_modules(recorded, passed, HeldModules())
    return {path: None if frame is None else frame.path for path, frame in part.modules}


def test_a_parameter_tells_its_module_those_around_it_and_what_these_hold() -> None:
    net = Net()
    assert found(net, {"layers.0.up.weight": net.blocks[2].up.weight}) == {
        "layers.0": "blocks.2",
        "layers.0.up": "blocks.2.up",
        "layers.0.act": "blocks.2.act",
    }


def test_a_module_of_another_class_is_not_known() -> None:
    net = Net()
    net.up = net.head
    assert found(
        net, {"layers.0.up.weight": net.blocks[0].up.weight}, [ModuleFrame("layers.0", "Block")]
    ) == {"layers.0": None}


def test_parameters_that_contradict_each_other_tell_nothing_of_what_is_around_them() -> None:
    net = Net()
    passed = {
        "layers.0.up.weight": net.blocks[0].up.weight,
        "layers.0.down.weight": net.blocks[1].up.weight,
    }
    assert found(net, passed)["layers.0"] is None


def test_a_parameter_that_two_modules_hold_tells_neither() -> None:
    net = Net()
    net.head.weight = net.blocks[0].up.weight
    assert set(found(net, {"layers.0.up.weight": net.head.weight}).values()) == {None}


def test_a_function_on_two_models_has_the_modules_of_what_its_variables_hold() -> None:
    recorded = (ModuleFrame("L['s'].up", "Linear"), ModuleFrame("G['t'].up", "Linear"))
    models = {"L['s']": ModuleFrame("student", "Net"), "G['t']": None}
    assert model_modules(recorded, models).modules == (
        ("G['t'].up", None),
        ("L['s'].up", ModuleFrame("student.up", "Linear")),
    )


def test_what_the_model_alone_tells_is_none_of_its_layers() -> None:
    net = Net()
    layers = [ModuleFrame("blocks.0", "Layer"), ModuleFrame("blocks.0.act", "ReLU")]
    recorded = [ModuleFrame("", "Net"), *layers]
    assert found(net, {"head.weight": net.head.weight}, recorded) == {
        "": "",
        "blocks.0": None,
        "blocks.0.act": None,
    }


def test_a_module_that_several_layers_hold_is_named_under_the_layer_of_the_call() -> None:
    net, recorded = Net(), [*RECORDED, ModuleFrame("layers.0.act", "ReLU")]
    for block in net.blocks:
        block.act = net.blocks[0].act
    passed = {"layers.0.up.weight": net.blocks[2].up.weight}
    assert found(net, passed, recorded)["layers.0.act"] == "blocks.2.act"
    for block in net.blocks:
        block.up = net.blocks[0].up
    shared = found(net, {"layers.0.up.weight": net.blocks[0].up.weight}, RECORDED)
    assert shared == {"layers.0": None, "layers.0.up": None, "layers.0.act": None}


def test_modules_below_a_held_one_are_found_through_it() -> None:
    outer = nn.ModuleList(nn.Sequential(Net(), nn.Linear(2, 2)) for _ in range(2))
    recorded = [
        ModuleFrame("0", "Sequential"),
        ModuleFrame("0.0", "Net"),
        ModuleFrame("0.0.head", "Linear"),
    ]
    assert found(outer, {"0.1.weight": outer[1][1].weight}, recorded) == {
        "0": "1",
        "0.0": "1.0",
        "0.0.head": "1.0.head",
    }


def test_modules_are_found_although_their_heap_is_frozen() -> None:
    net = Net()
    gc.freeze()
    try:
        assert found(net, {"layers.0.up.weight": net.blocks[1].up.weight})["layers.0"] is None
        note_active(net)
        assert found(net, {"layers.0.up.weight": net.blocks[1].up.weight}) == {
            "layers.0": "blocks.1",
            "layers.0.up": "blocks.1.up",
            "layers.0.act": "blocks.1.act",
        }
    finally:
        gc.unfreeze()
