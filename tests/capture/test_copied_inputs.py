"""What each recording of a CUDA graph copies is kept, and a partial recording unsettles it."""

from __future__ import annotations

import types
from typing import ClassVar

import pytest
import torch

from profiler_ext.capture.graphs.compiles import Compiles
from profiler_ext.capture.graphs.registry import Registry
from profiler_ext.isolation.guard import Guard
from profiler_ext.torch_compat import inputs

COPIES, NONE, OTHERS = (("ids",),), ((),), (("mask",),)
PARTS = (("ids",), ())


class Artifact:
    """Of an artifact the registry asks who it is, no more."""

    _fx_graph_cache_key = None
    cache_key = source_code = inductor_post_grad_graph_str = ""
    fx_kwargs: ClassVar = {}


@pytest.mark.usefixtures("fresh_torch")
@pytest.mark.parametrize(
    ("noted", "kept"),
    [
        ([COPIES], (COPIES, ())),
        ([COPIES, COPIES], (COPIES, ())),
        ([COPIES, NONE, OTHERS, NONE], (COPIES, (NONE, OTHERS))),
        ([PARTS, NONE], ((), ())),
        ([PARTS, NONE, PARTS], ((), ())),
    ],
)
def test_each_way_in_which_a_graph_was_recorded_is_kept(noted, kept):
    registry, artifact = Registry(Compiles(), Guard(strict=True)), Artifact()
    registry.register(artifact, is_backward=False, is_replayed=True, started_ns=0)
    for copied in noted:
        registry.keep_copies(artifact, copied)
    (graph,) = registry.graphs
    assert (graph.copied_inputs, graph.other_copied_inputs) == kept


def test_a_size_is_not_copied():
    named = [types.SimpleNamespace(name=name) for name in ("s0", "ids", "weight")]
    recorded = types.SimpleNamespace(
        wrapped_function=types.SimpleNamespace(placeholders=named),
        reconstructed_inputs=[4, torch.ones(4), torch.ones(4)],
        non_static_input_idx=[0, 1],
    )
    assert inputs.copied_inputs(recorded) == ("ids",)
