"""One comparison: torch's own metadata read as it stands, beside the product's tables.

For the nodes of small models, of which is written down what is right (``naive_models``): how many
have a line, and how many of those a wrong one. Read naively are the nodes of the post-grad graphs
which Inductor gets: their ``stack_trace``; the first forward node with a backward node's
``seq_nr``; and ``autograd_backward``, or where torch has none the graph, for the phase. Of a
cached graph there is the text that torch printed of it: its nodes and the lines above them.
Run: ``python -m benchmarks.naive_reading [--out FILE.json]``, on the CPU, with any torch.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import torch

import profiler_ext
from benchmarks import naive_models
from benchmarks.naive_cases import Case, Rule
from benchmarks.naive_models import CASES
from profiler_ext.attribution.places import SourceRoots
from profiler_ext.capture.graphs.fx_nodes import nested_nodes
from profiler_ext.capture.traces.stack_traces import parse_stack
from profiler_ext.isolation.guard import Guard, Observation, Observed
from profiler_ext.recall.generated_code import PrintedNode, read_graph
from profiler_ext.records.recording import Settings
from profiler_ext.source_paths import expand
from profiler_ext.torch_compat import behaviour, inductor, points, process
from profiler_ext.torch_compat.ops import call_of, call_text
from profiler_ext.torch_compat.patches import Patch

_MODELS = str(Path(naive_models.__file__))
_TEXT = (Path(_MODELS)).read_text().splitlines()


@dataclass(frozen=True, slots=True)
class Naive:
    """What torch says of one node.

    Attributes:
        call: its op and constants.
        line: the line of its own stack.
        linked: the line of the first forward node with its ``seq_nr``.
        phase: what the tag says.
    """

    call: str
    line: int | None
    linked: int | None
    phase: str


@dataclass(slots=True)
class Counts:
    """What was found of the nodes of a case.

    Attributes:
        nodes: those that a rule is about.
        has_line: how many of them are to be led to a line.
        stack: led to a line by their own stack.
        stack_wrong: to a wrong one.
        backward: those of backward graphs.
        linked: led to a line by their number.
        linked_wrong: to a wrong one.
        tag_wrong: of another phase by their tag.
        ours: led to a line by us.
        ours_wrong: to a wrong one.
        phase_wrong: of another phase by us.
    """

    nodes: int = 0
    has_line: int = 0
    stack: int = 0
    stack_wrong: int = 0
    backward: int = 0
    linked: int = 0
    linked_wrong: int = 0
    tag_wrong: int = 0
    ours: int = 0
    ours_wrong: int = 0
    phase_wrong: int = 0


class Watch:
    """Reads the nodes of each graph when its artifact is made."""

    def __init__(self) -> None:
        self.graphs: dict[str, dict[str, Naive]] = {}
        self._numbers: dict[int, int | None] = {}
        self._roots = SourceRoots(Settings())
        Patch(points.ARTIFACT_INIT, self._made, Guard(strict=True)).install()
        Patch(points.ARTIFACT_READY, self._ready, Guard(strict=True)).install()

    def _made(self, call: Observed) -> Observation:
        yield
        artifact, gm = call["self"], call["gm"]
        is_backward = bool(artifact.fx_kwargs.get("is_backward"))
        nodes = {node.name: node for node in gm.graph.nodes if node.op == "call_function"}
        nodes |= {name: inner.node for name, inner in nested_nodes(gm).items()}
        is_copied = process.in_compiled_autograd()
        if not (is_backward or is_copied):
            self._numbers = {}
            for node in nodes.values():
                self._numbers.setdefault(node.meta.get("seq_nr", -1), self._line(node))
        module = inductor.output_module(artifact)
        assert module is not None
        read = (self._read(node, is_backward or is_copied) for node in nodes.values())
        self.graphs[module] = dict(zip(nodes, read, strict=True))

    def _ready(self, call: Observed) -> Observation:
        yield
        artifact = call["self"]
        module = inductor.output_module(artifact)
        printed = read_graph(inductor.printed_graph(artifact) or "")
        if module is not None and module not in self.graphs and printed is not None:
            phase = "backward" if artifact.fx_kwargs.get("is_backward") else "forward"
            self.graphs[module] = {
                name: Naive(node.call, _printed_line(node), None, phase)
                for name, node in printed.nodes.items()
            }

    def _line(self, node: torch.fx.Node) -> int | None:
        frame = self._roots.model_frame(_stack(node))
        return frame.line if frame is not None and frame.file == _MODELS else None

    def _read(self, node: torch.fx.Node, is_backward: bool) -> Naive:
        tag = node.meta.get("autograd_backward") if behaviour.TAGS_BACKWARD_NODES else is_backward
        linked = self._numbers.get(node.meta.get("seq_nr", -2)) if is_backward else None
        phase = "backward" if tag else "forward"
        return Naive(call_text(call_of(node)), self._line(node), linked, phase)


def _printed_line(node: PrintedNode) -> int | None:
    frame = node.frame
    return frame.line if frame is not None and expand(frame.file) == _MODELS else None


def _stack(node: torch.fx.Node) -> tuple[Any, ...]:
    frames = parse_stack(node.meta.get("stack_trace"))
    return tuple(dataclasses.replace(frame, file=expand(frame.file)) for frame in frames)


def measure(case: Case, watch: Watch) -> Counts:
    """Run a case and compare."""
    torch._dynamo.reset()
    if case.cached is not None:
        case.cached()
        torch._dynamo.reset()
    watch.graphs.clear()
    case.step()
    with profiler_ext.profile() as prof:
        case.step()
        prof.step()
    counts, seen = Counts(), set()
    for module, is_backward, row in _rows(prof.session):
        naive = watch.graphs.get(module, {}).get(row.node)
        if naive is None or (module, row.node) in seen:
            continue
        seen.add((module, row.node))
        rule = next((r for r in case.rules if _fits(r, naive.call, is_backward)), None)
        if rule is not None:
            _count(counts, rule, naive, row, is_backward)
    return counts


def _fits(rule: Rule, call: str, is_backward: bool) -> bool:
    return rule.backward in (None, is_backward) and re.search(rule.call, call) is not None


def _rows(session: Any) -> Iterator[tuple[str, bool, Any]]:
    """Yield the table's rows of compiled graphs: module, whether backward, row."""
    graphs, graph = session.recording.graphs, session.analysis.launches.graph
    table = session.attribution()
    for row in table[table.node.notna()].itertuples(index=False):
        if graph.mask is False or not graph.mask[row.launch]:
            found = graphs[int(graph[row.launch])]
            is_copied = str(found.compile_id).startswith("!")
            yield found.output_module, found.is_backward or is_copied, row


def _count(counts: Counts, rule: Rule, naive: Naive, row: Any, is_backward: bool) -> None:
    right = {number for number, text in enumerate(_TEXT, 1) if _is_one_of(text, rule.lines)}
    own = None if pd.isna(row.line) else int(row.line)
    counts.nodes += 1
    counts.backward += is_backward
    counts.tag_wrong += naive.phase != rule.phase and rule.phase != "other"
    counts.phase_wrong += row.phase != rule.phase and rule.phase != "other"
    if not right:
        return
    counts.has_line += 1
    counts.stack += naive.line is not None
    counts.stack_wrong += naive.line is not None and naive.line not in right
    counts.linked += naive.linked is not None
    counts.linked_wrong += naive.linked is not None and naive.linked not in right
    counts.ours += own is not None
    counts.ours_wrong += own is not None and own not in right


def _is_one_of(line: str, texts: tuple[str, ...]) -> bool:
    code = line.strip()
    return any(code == text or code.startswith(text) for text in texts)


def table_text(found: Mapping[str, tuple[Case, Counts]]) -> str:
    """Return the comparison as a table."""
    head = f"torch {torch.__version__}\n{'item':5}{'case':27}{'nodes':>6}"
    head += f"{'own stack':>16}{'by seq_nr':>16}{'tag':>7}{'ours':>16}{'phase':>7}\n"
    lines = [head]
    for name, (case, c) in found.items():
        stack, linked = f"{c.stack}, {c.stack_wrong} wrong", f"{c.linked}, {c.linked_wrong} wrong"
        ours = f"{c.ours}, {c.ours_wrong} wrong"
        row = f"{case.item:<5}{name:27}{c.has_line:6}{stack:>16}{linked:>16}{c.tag_wrong:>7}"
        lines.append(f"{row}{ours:>16}{c.phase_wrong:>7}\n")
    return "".join(lines)


def main() -> None:
    """Print the table; phases are counted as wrong ones."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="write the counts as JSON too")
    out = parser.parse_args().out
    with tempfile.TemporaryDirectory() as cache:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = cache
        profiler_ext.enable(cpu_events=True)
        watch = Watch()
        found = {case.name: (case, measure(case, watch)) for case in CASES}
        print(table_text(found), end="")
    if out is not None:
        rows = {name: dataclasses.asdict(counts) for name, (_, counts) in found.items()}
        out.write_text(json.dumps({"torch": str(torch.__version__), "cases": rows}, indent=1))


if __name__ == "__main__":
    main()
