"""A node that a pass made knows what it replaced."""

import torch.fx

from profiler_ext.capture.traces.replacements import Watch, watching_replacements
from tests.capture.fx_graphs import Graph, aten


def replaced(watch: Watch) -> dict[str, list[str]]:
    return {name: [row.name for row in rows] for name, rows in watch.replaced().items()}


def put_in_place(
    gm: torch.fx.GraphModule, watch: Watch, old: torch.fx.Node, new: torch.fx.Node
) -> None:
    with watching_replacements(gm, watch.note):
        old.replace_all_uses_with(new)
    gm.graph.erase_node(old)
    gm.graph.eliminate_dead_code()


def test_a_fused_node_replaced_its_root_and_the_nodes_gone_with_it() -> None:
    graph = Graph()
    x = graph.given("x", 4, 4)
    mm = graph.call(aten.mm.default, [x, x], name="mm", seq_nr=1)
    add = graph.call(aten.add.Tensor, [mm, x], name="add", seq_nr=2)
    relu = graph.call(aten.relu.default, [add], name="relu")
    gm = graph.module(relu)
    watch = Watch(gm)
    with gm.graph.inserting_before(add):
        addmm = gm.graph.call_function(aten.addmm.default, (x, x, x))
    put_in_place(gm, watch, add, addmm)
    assert replaced(watch) == {"addmm_default": ["mm", "add"]}
    [_, added] = watch.replaced()["addmm_default"]
    assert added.lineage.seq_nr == 2


def test_a_node_that_stays_for_another_reader_was_not_replaced() -> None:
    graph = Graph()
    x = graph.given("x", 4, 4)
    mm = graph.call(aten.mm.default, [x, x], name="mm")
    add = graph.call(aten.add.Tensor, [mm, x], name="add")
    gm = graph.module(add, mm)
    watch = Watch(gm)
    with gm.graph.inserting_before(add):
        addmm = gm.graph.call_function(aten.addmm.default, (x, x, x))
    put_in_place(gm, watch, add, addmm)
    assert replaced(watch) == {"addmm_default": ["add"]}


def test_a_new_node_that_feeds_the_replacement_replaced_the_same() -> None:
    graph = Graph()
    x = graph.given("x", 4, 4)
    softmax = graph.call(aten.sin.default, [x], name="softmax")
    gm = graph.module(softmax)
    watch = Watch(gm)
    with gm.graph.inserting_before(softmax):
        first = gm.graph.call_function(aten.exp.default, (x,))
        second = gm.graph.call_function(aten.neg.default, (first,))
    put_in_place(gm, watch, softmax, second)
    assert replaced(watch) == {"exp_default": ["softmax"], "neg_default": ["softmax"]}


def test_a_replacement_stays_in_its_half_of_the_joint_graph() -> None:
    graph = Graph()
    x = graph.given("x", 4, 4)
    sin = graph.call(aten.sin.default, [x], name="sin", partitioner_tag="is_forward")
    cos = graph.call(aten.cos.default, [sin], name="cos", partitioner_tag="is_backward")
    gm = graph.module(cos)
    watch = Watch(gm)
    with gm.graph.inserting_before(cos):
        new = gm.graph.call_function(aten.neg.default, (x,))
    new.meta["partitioner_tag"] = "is_backward"
    put_in_place(gm, watch, cos, new)
    assert replaced(watch) == {"neg_default": ["cos"]}


def test_a_node_without_a_tag_replaced_tagged_and_untagged_ones() -> None:
    """Compiled autograd adds a product to a gradient that was there; the sum has no tag."""
    graph = Graph()
    x = graph.given("x", 4, 4)
    mm = graph.call(aten.mm.default, [x, x], name="mm", partitioner_tag="is_backward")
    add = graph.call(aten.add.Tensor, [mm, x], name="add")
    gm = graph.module(add)
    watch = Watch(gm)
    with gm.graph.inserting_before(add):
        addmm = gm.graph.call_function(aten.addmm.default, (x, x, x))
    put_in_place(gm, watch, add, addmm)
    assert replaced(watch) == {"addmm_default": ["mm", "add"]}


def test_without_a_pass_nothing_was_replaced() -> None:
    graph = Graph()
    assert Watch(graph.module(graph.call(aten.sin.default, [graph.given("x", 4)]))).replaced() == {}


def test_of_all_that_was_replaced_the_very_same_call_comes_last() -> None:
    graph = Graph()
    x = graph.given("x", 4, 4)
    scale = graph.call(aten.mul.Tensor, [x, 1.5], name="scale")
    softmax = graph.call(aten.exp.default, [scale], name="softmax")
    gm = graph.module(softmax)
    watch = Watch(gm)
    with gm.graph.inserting_before(softmax):
        exp = gm.graph.call_function(aten.exp.default, (x,))
        mul = gm.graph.call_function(aten.mul.Tensor, (exp, 1.5))
    put_in_place(gm, watch, softmax, mul)
    assert replaced(watch) == {
        exp.name: ["scale", "softmax"],
        mul.name: ["softmax", "scale"],
    }


def test_of_all_that_was_replaced_the_op_that_torch_names_comes_last() -> None:
    """A product is padded, and the views around its value go with it."""
    graph = Graph()
    x = graph.given("x", 4, 4)
    mm = graph.call(aten.mm.default, [x, x], name="mm", seq_nr=2, original_aten=aten.mm.default)
    turned = graph.call(aten.t.default, [mm], name="t", seq_nr=1, original_aten=aten.t.default)
    gm = graph.module(turned)
    watch = Watch(gm)
    with gm.graph.inserting_before(turned):
        padded = gm.graph.call_function(aten.constant_pad_nd.default, (x, [0, 4]))
        padded.meta["original_aten"] = aten.mm.default
    put_in_place(gm, watch, turned, padded)
    assert replaced(watch) == {"constant_pad_nd_default": ["t", "mm"]}
    assert watch.replaced()["constant_pad_nd_default"][-1].lineage.seq_nr == 2


def test_of_replacements_that_feed_each_other_each_has_what_is_its_own() -> None:
    """A residual stream sums a product into the sum before it, block by block."""
    graph = Graph()
    x = graph.given("x", 4, 4)
    mm_1 = graph.call(aten.mm.default, [x, x], name="mm_1")
    add_1 = graph.call(aten.add.Tensor, [x, mm_1], name="add_1")
    mm_2 = graph.call(aten.mm.default, [add_1, x], name="mm_2")
    add_2 = graph.call(aten.add.Tensor, [add_1, mm_2], name="add_2")
    gm = graph.module(add_2)
    watch = Watch(gm)
    for add in (add_2, add_1):
        with gm.graph.inserting_before(add):
            addmm = gm.graph.call_function(aten.addmm.default, (add.args[0], x, x))
        put_in_place(gm, watch, add, addmm)
    assert replaced(watch) == {
        "addmm_default": ["mm_2", "add_2"],
        "addmm_default_1": ["mm_1", "add_1"],
    }


def test_what_writes_into_memory_took_the_place_of_the_scatter_that_was_given_the_same() -> None:
    """The memory is older than the pass and takes the place of both scatters."""
    graph = Graph()
    x, y = graph.given("x", 4), graph.given("y", 4)
    zeros = graph.call(aten.zeros.default, [[8]], name="zeros")
    scatters = [zeros]
    for at, (name, value) in enumerate((("first", x), ("other", y))):
        args = [scatters[-1], value, 0, 4 * at, 4 * at + 4]
        scatters.append(graph.call(aten.slice_scatter.default, args, name=name))
    gm = graph.module(scatters[-1])
    watch = Watch(gm)
    for at, (scatter, value) in enumerate(zip(scatters[1:], (x, y), strict=True)):
        with gm.graph.inserting_before(scatter):
            view = gm.graph.call_function(aten.slice.Tensor, (zeros, 0, 4 * at, 4 * at + 4))
            gm.graph.call_function(aten.copy_.default, (view, value))
    with watching_replacements(gm, watch.note):
        for scatter in scatters[1:]:
            scatter.replace_all_uses_with(zeros)
    for scatter in scatters[:0:-1]:
        gm.graph.erase_node(scatter)
    found = {name: rows for name, rows in replaced(watch).items() if name.startswith("copy_")}
    assert found == {"copy__default": ["first"], "copy__default_1": ["other"]}
