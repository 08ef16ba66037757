"""How a test reads a recorded trace with the raw call sites that a probe saw beside it.

The probe's origins are over-wide and it kept no edges, so they say nothing about exact nodes;
its call sites are exact in kind, kernel and order, which is what these recordings are for.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import re
from itertools import groupby
from pathlib import Path
from typing import Any

from profiler_ext.kineto.reader import read_trace
from profiler_ext.records.evidence import LineEvidence
from profiler_ext.records.lineage import Frame, ModuleFrame
from profiler_ext.records.provenance import CallSite, FxNode, GraphInstance, Provenance
from profiler_ext.records.recording import Recording, Settings
from profiler_ext.records.vocabulary import CacheState, SiteKind
from tests.fx_nodes import changed, fx_node

# The cache key by Inductor's graph id and direction, as the markers of each trace carry it.
KEYS: dict[str, dict[tuple[int, bool], str | None]] = {
    "default": {
        (0, False): "fg5i4txvzk6imccbb2sx4sr2l2suibo2vfj2tqobb3bjwok3tf3v",
        (0, True): "ffvt7vzxf4vnp5xdatgpfp2nvdldbi2mslrvowrulv4f6neiwbdt",
    },
    "cg": {
        (0, False): "fwoaqhlnvbptwhkavpvxp5pb3g2xrouzy5kph4h46jym6c3xz6ao",
        (0, True): "fatwatxarqeznabefejcazkt32enq4dtjs65a7rinyizbgtevdin",
    },
    "llama": {
        (1, False): "fefgm5mvmjgjy5eznol6sdhpkiephkkjno3k42zfpdeltbm7nmyr",
        (1, True): "favmvrgnudicldpdxanv375x7d36qqxtkxtx6prcmubyjorpkke7",
    },
    "ckpt": {(3, False): None, (3, True): None},
}

FIXTURES = Path(__file__).parent.parent / "fixtures" / "h200"

_FILE_LINE = re.compile(r'\s*File "(.+)", line (\d+), in (\S+)')
_MODULE = re.compile(r"\(\"L\['\w+'\]\.?(.*?)\", <class '([^']+)'>\)")
_OVERLOAD = re.compile(r"torch\.ops\.(\w+)\.(\w+)\.\w+")


def recording(name: str) -> Recording:
    """Return the recording of this name, one of ``KEYS``."""
    raw = json.loads(gzip.decompress((FIXTURES / f"{name}.callsites.json.gz").read_bytes()))
    graphs = [
        _graph(index, KEYS[name][graph, is_backward], is_backward, list(entries))
        for index, ((graph, is_backward), entries) in enumerate(
            groupby(raw, key=lambda entry: (entry["graph"], entry["bw"]))
        )
    ]
    settings = Settings(user_roots=("/src",), library_roots=("/site-packages",))
    trace = read_trace(FIXTURES / f"{name}.pt.trace.json.gz")
    return Recording(trace, tuple(graphs), settings)


def _graph(
    index: int, key: str | None, is_backward: bool, entries: list[dict[str, Any]]
) -> GraphInstance:
    nodes = {name: _node(name, meta) for entry in entries for name, meta in entry["o"].items()}
    sites = tuple(_site(ordinal, entry) for ordinal, entry in enumerate(entries))
    digest = hashlib.sha256(repr((nodes, sites)).encode()).hexdigest()
    provenance = Provenance(
        digest=digest,
        torch_version="2.11.0+cu130",
        is_backward=is_backward,
        is_inference=False,
        joint="joint",
        dynamo_digest=None,
        nodes=tuple(nodes.values()),
        call_sites=sites,
    )
    return GraphInstance(
        index=index,
        key=key,
        compile_id="0/0",
        is_backward=is_backward,
        cache_state=CacheState.MISS,
        cache_detail=None,
        compile_ns=0,
        output_module=None,
        provenance=provenance,
        nodes=tuple(changed(n, evidence=LineEvidence.COMPILED) for n in provenance.nodes),
    )


def _site(ordinal: int, entry: dict[str, Any]) -> CallSite:
    kernel = entry["kernel"]
    nodes = tuple(entry["o"])
    return CallSite(
        ordinal=ordinal,
        path=str(ordinal),
        kind=SiteKind.EXTERN if entry["ext"] else SiteKind.TRITON,
        kernel=kernel,
        op=_profiler_name(kernel) if entry["ext"] else None,
        nodes=nodes,
        weights=tuple(1 for _ in nodes),
    )


def _profiler_name(kernel: str) -> str | None:
    if kernel.startswith("torch.ops.higher_order."):
        return None
    found = _OVERLOAD.fullmatch(kernel)
    return f"{found[1]}::{found[2]}" if found else kernel.replace("extern_kernels.", "aten::")


def _node(name: str, meta: dict[str, Any]) -> FxNode:
    return fx_node(
        name,
        meta.get("original_aten", "unknown"),
        original_aten=meta.get("original_aten"),
        seq_nr=int(meta["seq_nr"]) if "seq_nr" in meta else None,
        stack=_stack(meta.get("stack_trace", [])),
        modules=tuple(
            ModuleFrame(path, kind)
            for path, kind in _MODULE.findall(meta.get("nn_module_stack", ""))
        ),
        partitioner_tag=meta.get("partitioner_tag"),
    )


def _modules(text: str) -> tuple[ModuleFrame, ...]:
    return tuple(ModuleFrame(path, kind) for path, kind in _MODULE.findall(text))


def _stack(lines: list[str]) -> tuple[Frame, ...]:
    found = [_FILE_LINE.match(line) for line in lines]
    return tuple(Frame(one[1], int(one[2]), one[3]) for one in found if one)
