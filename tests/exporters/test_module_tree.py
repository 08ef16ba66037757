"""Modules are a tree whose times add up; numbered layers are one, and what stands out is named."""

from __future__ import annotations

from profiler_ext.exporters.views.modules import (
    ModuleNode,
    Outlier,
    folded_paths,
    inclusive_times,
    module_tree,
    outliers,
)

OWN = {
    "embed": 5,
    **{f"layers.{number}.mlp": 100 for number in range(5)},
    **{f"layers.{number}": 10 for number in range(5)},
    "layers.3.mlp": 300,
}
CLASSES = {
    "embed": "Embedding",
    **{f"layers.{number}": "Block" for number in range(5)},
    **{f"layers.{number}.mlp": "MLP" for number in range(5)},
}


def test_a_tree_has_numbered_layers_as_one_and_names_what_stands_out():
    mlp = ModuleNode("layers.*.mlp", "MLP", 5, 700, 700, ())
    layer = ModuleNode("layers.*", "Block", 5, 50, 750, (mlp,), (Outlier("layers.3", 310, 110),))
    layers = ModuleNode("layers", None, 1, 0, 750, (layer,))
    embed = ModuleNode("embed", "Embedding", 1, 5, 5, ())
    assert module_tree(OWN, CLASSES) == ModuleNode("", None, 1, 0, 755, (layers, embed))
    assert (layer.name, module_tree({}, {}).inclusive_ns) == ("*", 0)


def test_every_module_has_the_time_of_all_below_it():
    assert inclusive_times({"a.b": 3, "a": 4, "": 1}) == {"": 8, "a": 7, "a.b": 3}


def test_numbered_modules_of_several_classes_and_a_single_one_are_not_folded():
    classes = {"seq.0": "Linear", "seq.1": "ReLU", "seq.2": "Linear", "one.0": "Block"}
    paths = {"": 0, "seq": 0, "one": 0, **dict.fromkeys(classes, 0)}
    assert folded_paths(paths, classes) == {path: path for path in paths}


def test_layers_are_judged_within_their_own_parent():
    paths = [f"{side}.{number}" for side in ("encoder", "decoder") for number in range(4)]
    times = {path: 100 if path.startswith("encoder") else 300 for path in paths}
    assert outliers(times, folded_paths(times, {})) == {}
    times["decoder.2"] = 200
    assert list(outliers(times, folded_paths(times, {}))) == ["decoder.2"]


def test_only_layers_with_the_same_modules_in_them_are_judged_together():
    """As in a ConvNeXt: stages of three and of nine blocks, downsampling layers between them."""
    blocks = {1: 3, 3: 3, 5: 9, 7: 3}
    own = {f"stages.{s}.{b}.conv": 100 for s, count in blocks.items() for b in range(count)}
    own |= {f"stages.{s}.0": 40 for s in (0, 2, 4, 6)}
    own["stages.5.4.conv"] = 500
    times = inclusive_times(own)
    found = outliers(times, folded_paths(times, {}))
    assert list(found) == ["stages.5.4"] and found["stages.5.4"].median_ns == 100


def test_three_layers_are_too_few_to_say_that_one_stands_out():
    times = {"layers.0": 1, "layers.1": 1, "layers.2": 9}
    assert outliers(times, folded_paths(times, {})) == {}


def test_a_path_of_a_hundred_thousand_names_is_a_tree_of_bounded_depth():
    node, depth = module_tree({"a." * 30_000 + "b": 7}, {}), 0
    while node.below:
        (node,), depth = node.below, depth + 1
    assert (depth, node.own_ns) == (65, 7)
