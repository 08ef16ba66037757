"""The comments of the generated code contradict sites that stand at another launch."""

from __future__ import annotations

import pytest
import torch
import torch.fx

from profiler_ext.capture.graphs.call_sites import PendingSite
from profiler_ext.capture.graphs.sealing import PlacedSite, contradicted
from profiler_ext.recall.wrapper_calls import WrapperCall
from profiler_ext.records.vocabulary import SiteKind

aten = torch.ops.aten


def _site(kernel, *ops, kind=SiteKind.TRITON, is_commented=True, **place):
    graph = torch.fx.Graph()
    nodes = [graph.call_function(op) for op in ops]
    for node in nodes:
        node.meta["original_aten"] = node.target
    site = PendingSite(kind, kernel, None, tuple(nodes), is_commented=is_commented)
    return PlacedSite(site, "", **place)


def _call(callee, *ops, generated=True):
    return WrapperCall(callee, None, generated, ops=frozenset(ops) if ops else None)


SIN, COS = _site("a", aten.sin.default), _site("a", aten.cos.default)
CALLS = (_call("a", "aten.sin", "aten.mul"), _call("a", "aten.cos"))


@pytest.mark.parametrize(
    ("sites", "wrong"),
    [([SIN, COS], set()), ([COS, SIN], {0, 1}), ([COS, COS], {0}), ([SIN], set())],
)
def test_a_site_at_a_launch_whose_comment_lacks_its_ops_is_contradicted(sites, wrong):
    assert contradicted(sites, {"call": CALLS}) == wrong


def test_a_launch_without_a_comment_contradicts_nothing():
    assert contradicted([SIN], {"call": [_call("a")]}) == set()


def test_the_comment_of_a_foreach_or_combo_kernel_names_too_little_to_contradict():
    combined = _site("a", aten.cos.default, is_commented=False)
    assert contradicted([combined], {"call": CALLS[:1]}) == set()


def test_where_library_calls_cannot_be_counted_the_generated_kernels_still_are():
    item = _site("aten::item", aten.sum.default, kind=SiteKind.EXTERN)
    assert contradicted([item, COS, SIN], {"call": CALLS}) == {1, 2}


def test_each_call_of_a_nested_graph_is_compared_with_its_function():
    inner = [
        _site("b", op, function="repeated_0", prefix=prefix)
        for prefix, op in (("first/", aten.sin.default), ("second/", aten.cos.default))
    ]
    calls = {"call": CALLS, "repeated_0": [_call("b", "aten.sin")]}
    assert contradicted([SIN, *inner, COS], calls) == {2}
