"""Module paths are those of ``model.named_modules()``, without Dynamo's scope."""

from torch import nn

from profiler_ext.capture.module_paths import module_frames, root_modules
from profiler_ext.records import ModuleFrame


def test_the_path_starts_at_the_model_that_the_user_holds() -> None:
    stack = (
        ("L['self']", "GPT"),
        ("L['self'].blocks[1]", "Block"),
        ("L['self'].blocks[1].mlp", "MLP"),
    )
    assert module_frames(stack, ("L['self']",)) == (
        ModuleFrame("", "GPT"),
        ModuleFrame("blocks.1", "Block"),
        ModuleFrame("blocks.1.mlp", "MLP"),
    )


def test_a_model_in_a_global_variable_is_a_root_too() -> None:
    stack = (("G['model'].layers['3']", "Layer"),)
    assert module_frames(stack, ("G['model']",)) == (ModuleFrame("layers.3", "Layer"),)


def test_a_name_that_merely_begins_like_the_root_is_not_under_it() -> None:
    stack = (("L['model2'].up", "Linear"),)
    assert module_frames(stack, ("L['model']",)) == (ModuleFrame("", "Linear"),)
    assert module_frames((("L['m'].upper", "Linear"),), ("L['m'].up",)) == (
        ModuleFrame("", "Linear"),
    )


def test_without_modules_the_module_whose_method_was_compiled_stands() -> None:
    own = ModuleFrame("", "MLP")
    assert module_frames((), (), own) == (own,)
    assert module_frames((), ()) == ()


def test_roots_are_the_variables_that_hold_a_module_themselves() -> None:
    local = {"self": nn.Linear(1, 1), "trainer": object()}
    paths = {"L['self'].up", "L['trainer'].model", "G['net']", "G['gone'].x"}
    assert root_modules(paths, local, {"net": nn.Linear(1, 1)}) == ("G['net']", "L['self']")
