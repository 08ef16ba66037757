from __future__ import annotations

import torch.fx

from profiler_ext.capture.graphs.call_sites import PendingCall, PendingSite
from profiler_ext.capture.graphs.sealing import placed_sites
from profiler_ext.records.vocabulary import SiteKind
from profiler_ext.torch_compat.inductor import NestedGraph


def _site(kernel):
    return PendingSite(SiteKind.TRITON, kernel, None, ())


def _node(name):
    return torch.fx.Graph().create_node("call_function", len, name=name)


def _placed(entries, nested):
    placed = placed_sites("whole", {**nested, "whole": entries}.__getitem__)
    return [(p.path, p.prefix, p.site.kernel, p.function) for p in placed]


def test_sites_without_nested_graphs_are_numbered_in_order():
    assert _placed([_site("a"), _site("b")], {}) == [
        ("0", "", "a", "call"),
        ("1", "", "b", "call"),
    ]


def test_a_nested_graph_s_sites_stand_at_each_of_its_calls():
    graph = NestedGraph("repeated", "graph", "repeated_0")
    calls = [PendingCall(_node("first"), (graph,)), PendingCall(_node("second"), (graph,))]
    assert _placed([_site("a"), *calls], {"graph": [_site("b"), _site("c")]}) == [
        ("0", "", "a", "call"),
        ("1/0", "first/", "b", "repeated_0"),
        ("1/1", "first/", "c", "repeated_0"),
        ("2/0", "second/", "b", "repeated_0"),
        ("2/1", "second/", "c", "repeated_0"),
    ]


def test_branches_are_distinguished_by_their_names():
    branches = (NestedGraph("true", "t", "true_0"), NestedGraph("false", "f", "false_0"))
    nested = {"t": [_site("a")], "f": [_site("b")]}
    assert _placed([PendingCall(_node("cond"), branches)], nested) == [
        ("0/0", "cond/true/", "a", "true_0"),
        ("0/0", "cond/false/", "b", "false_0"),
    ]


def test_graphs_nest_in_nested_graphs():
    inner, outer = NestedGraph("i", "inner", "i_0"), NestedGraph("o", "outer", "o_0")
    nested = {"outer": [PendingCall(_node("call"), (inner,))], "inner": [_site("a")]}
    assert _placed([PendingCall(_node("region"), (outer,))], nested) == [
        ("0/0/0", "region/call/", "a", "i_0"),
    ]


def test_the_sites_of_a_matmul_that_autotuning_took_apart_compute_the_matmul():
    graph = NestedGraph("split_8", "graph", "split_8", replaces_caller=True)
    matmul = _node("mm")
    entries = {"whole": [_site("a"), PendingCall(matmul, (graph,))], "graph": [_site("b")]}
    found = placed_sites("whole", entries.__getitem__)
    split = found[1]
    assert (split.path, split.prefix, split.function) == ("1/0", "", "split_8")
    assert split.site.nodes == (matmul,)
    assert split.site.sealed(1, split.path, split.prefix).nodes == ("mm",)


def test_they_stand_in_the_region_that_the_matmul_stands_in():
    split = NestedGraph("split_8", "inner", "split_8", replaces_caller=True)
    region = NestedGraph("region", "graph", "region_0")
    matmul = _node("mm")
    entries = {
        "whole": [PendingCall(_node("first"), (region,))],
        "graph": [PendingCall(matmul, (split,))],
        "inner": [_site("b")],
    }
    (found,) = placed_sites("whole", entries.__getitem__)
    assert [name for name, _ in found.site.qualified(found.prefix)] == ["first/mm"]
