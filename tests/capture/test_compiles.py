"""What torch tells in pieces is put together while a graph is compiled."""

from profiler_ext.capture.graphs.compiles import Compiles


def test_each_kernel_that_a_combo_was_cut_into_has_its_own_nodes_in_the_order_of_the_calls():
    compiles = Compiles()
    compiles.keep_combo(["sin", "sum", "cos"], [["sin", "cos"], ["sum"]])
    assert compiles.take_combo(["mul"]) == ["mul"]
    assert compiles.take_combo(["sin", "sum", "cos"]) == ["sin", "cos"]
    assert compiles.take_combo(["sin", "sum", "cos"]) == ["sum"]
    assert compiles.take_combo(["sin", "sum", "cos"]) == ["sin", "sum", "cos"]


def test_a_combo_that_was_only_tried_out_gives_way_to_the_one_that_is_written():
    compiles = Compiles()
    compiles.keep_combo(["sin", "sum"], [["sin"], ["sum"]])
    compiles.keep_combo(["sin", "sum", "cos"], [["sin", "cos"], ["sum"]])
    assert compiles.take_combo(["sin", "sum", "cos"]) == ["sin", "cos"]
