"""Module paths are those of ``model.named_modules()``, without Dynamo's scope."""

import torch
from torch import nn

from profiler_ext.capture.called_modules import CalledModules
from profiler_ext.capture.held_modules import HeldModules
from profiler_ext.capture.traces.metadata import lineage_of
from profiler_ext.capture.traces.module_paths import module_frames, root_modules, user_class
from profiler_ext.isolation.guard import Guard
from profiler_ext.records.lineage import ModuleFrame
from profiler_ext.records.provenance import GraphInstance


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


def test_a_module_of_which_it_is_not_known_who_holds_it_has_its_path_without_the_variable() -> None:
    stack = (("L['self']", "GPT"), ("L['other'].heads[0]", "Head"))
    assert module_frames(stack, ("L['self']",)) == (
        ModuleFrame("", "GPT"),
        ModuleFrame("heads.0", "Head"),
    )


def test_an_attribute_that_is_no_identifier_has_the_path_of_any_other() -> None:
    stack = (
        ("G['model']", "Sequential"),
        ("getattr(G['model'], '0')", "Sequential"),
        ("getattr(getattr(G['model'], '0'), '2')", "Linear"),
    )
    assert module_frames(stack, ("G['model']",)) == (
        ModuleFrame("", "Sequential"),
        ModuleFrame("0", "Sequential"),
        ModuleFrame("0.2", "Linear"),
    )
    outer = {"model": nn.Linear(1, 1)}
    assert root_modules({"getattr(G['model'], '0')"}, {}, outer) == {"G['model']": outer["model"]}


def test_an_attribute_that_is_read_from_the_modules_own_has_the_path_of_any_other() -> None:
    held = "L['self'].__dict__['_modules']['_checkpoint_wrapped_module']"
    stack = ((held, "Block"), (f"{held}.mlp._modules['up']", "Linear"))
    own = ModuleFrame("", "CheckpointWrapper")
    assert module_frames(stack, ("L['self']",), own) == (
        ModuleFrame("", "Block"),
        ModuleFrame("mlp.up", "Linear"),
    )


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


def test_what_torch_puts_around_the_model_has_no_part_in_the_path() -> None:
    stack = (
        ("L['net']", "DistributedDataParallel"),
        ("L['net'].module", "GPT"),
        ("L['net'].module.blocks[1]", "OptimizedModule"),
        ("L['net'].module.blocks[1]._orig_mod", "Block"),
        ("L['net'].module.blocks[1]._orig_mod.module", "Linear"),
    )
    assert module_frames(stack, ("L['net']",)) == (
        ModuleFrame("", "GPT"),
        ModuleFrame("blocks.1", "Block"),
        ModuleFrame("blocks.1.module", "Linear"),
    )


def test_a_wrapper_that_fsdp_made_a_class_of_its_own_has_no_part_either() -> None:
    stack = (
        ("L['self']", "FSDPTransformer"),
        ("L['self'].layers['4']", "FSDPOptimizedModule"),
        ("L['self'].layers['4']._orig_mod", "ReplicateCheckpointWrapper"),
        ("L['self'].layers['4']._orig_mod._checkpoint_wrapped_module", "Block"),
        ("L['self'].layers['4']._orig_mod._checkpoint_wrapped_module.mlp", "FSDPMLP"),
    )
    assert module_frames(stack, ("L['self']",)) == (
        ModuleFrame("", "FSDPTransformer"),
        ModuleFrame("layers.4", "Block"),
        ModuleFrame("layers.4.mlp", "FSDPMLP"),
    )


def test_a_wrapper_whose_own_forward_was_compiled_has_no_part_either() -> None:
    own = ModuleFrame("", "DistributedDataParallel")
    stack = (("L['self'].module", "GPT"), ("L['self'].module.up", "Linear"))
    expected = (ModuleFrame("", "GPT"), ModuleFrame("up", "Linear"))
    assert module_frames(stack, ("L['self']",), own) == expected
    assert module_frames((), (), own) == ()


def test_roots_are_the_variables_that_hold_a_module_themselves() -> None:
    local = {"self": nn.Linear(1, 1), "trainer": object()}
    paths = {"L['self'].up", "L['trainer'].model", "G['net']", "G['gone'].x"}
    assert root_modules(paths, local, {"net": nn.Linear(1, 1)}).keys() == {
        "G['net']",
        "L['self']",
    }


class NoGraphs:
    def graph_of(self, artifact: object) -> None: ...

    def call_target(self, graph: int) -> None: ...

    def graphs(self) -> tuple[GraphInstance, ...]:
        return ()


class Silent:
    is_recording = False


def test_a_called_module_is_named_from_the_users_model_through_torchs_wrappers() -> None:
    model = nn.Sequential(nn.ModuleList([nn.Linear(1, 1), nn.Linear(1, 1)]))
    layers = list(model[0])
    model[0][1] = torch.compile(layers[1], backend="eager")
    around = nn.DataParallel(model)
    called = CalledModules(NoGraphs(), Guard(strict=True), Silent())
    assert [called._numbers.of(layer) for layer in layers] == [0, 1]
    assert called.paths(HeldModules()) == (
        (0, ModuleFrame("0.0", "Linear")),
        (1, ModuleFrame("0.1", "Linear")),
    )
    assert around.module is model


def test_a_block_that_was_compiled_and_then_sharded_is_named_as_the_user_holds_it() -> None:
    model = nn.Sequential(nn.Linear(1, 1), nn.Linear(1, 1))
    block = model[1]
    model[1] = torch.compile(block, backend="eager")
    model[1].__class__ = type("FSDPOptimizedModule", (type(model[1]),), {})
    assert HeldModules().frames_of([block, model[1], None]) == (
        ModuleFrame("1", "Linear"),
        ModuleFrame("1", "Linear"),
        None,
    )


def test_a_block_that_the_user_holds_next_to_its_wrapper_keeps_its_own_name() -> None:
    model = nn.ModuleDict({"block": nn.Linear(1, 1)})
    model["compiled"] = torch.compile(model["block"], backend="eager")
    assert HeldModules().frames_of([model["block"], model["compiled"]]) == (
        ModuleFrame("block", "Linear"),
        ModuleFrame("compiled", "Linear"),
    )


def test_a_class_that_fsdp_made_of_the_users_is_called_as_the_users() -> None:
    class FSDPNet(nn.Module):
        pass

    sharded = nn.Linear(1, 1)
    sharded.__class__ = type("FSDPLinear", (nn.Linear,), {})
    assert [user_class(each) for each in (sharded, FSDPNet())] == ["Linear", "FSDPNet"]


def test_a_class_that_fsdp_made_of_the_users_is_the_users_in_what_dynamo_says() -> None:
    class Doubling(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * 2

    model = nn.Sequential(Doubling())
    model[0].__class__ = type("FSDPDoubling", (Doubling,), {})
    reported: list[str] = []

    def noted(graph: torch.fx.GraphModule, _: object) -> torch.fx.GraphModule:
        frames = [frame for node in graph.graph.nodes for frame in lineage_of(node.meta).modules]
        reported.extend(frame.class_name for frame in frames)
        return graph

    torch.compile(model, backend=noted)(torch.ones(2))
    assert {*reported} == {"Sequential", "Doubling"}
