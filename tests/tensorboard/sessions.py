"""The sessions that the tests show, made of one that was recorded on an H200."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from profiler_ext import load
from profiler_ext.records.provenance import FxNode
from profiler_ext.sessions.session import Session
from tests.fx_nodes import changed

ROOT = Path(__file__).parents[2]
RECORDED = ROOT / "tests" / "fixtures" / "h200" / "mlp.session.pt.trace.json.gz"
# Also a file's name, so without a slash.
EVIL = "<img src=x onerror=document.title='hacked'>"


def mlp() -> Session:
    """Return the session as if its files were where they are: in the checkout."""
    recording = load(RECORDED).recording
    settings = replace(recording.settings, user_roots=(str(ROOT / "examples"), str(ROOT)))
    return Session(replace(recording, settings=settings))


def evil() -> Session:
    """Return the session with a module that is called like markup."""
    recording = mlp().recording
    graphs = tuple(
        replace(graph, nodes=tuple(map(_with_evil_module, graph.nodes)))
        for graph in recording.graphs
    )
    return Session(replace(recording, graphs=graphs))


def _with_evil_module(node: FxNode) -> FxNode:
    modules = (replace(each, path=each.path.replace("down", EVIL)) for each in node.lineage.modules)
    return changed(node, modules=tuple(modules))
