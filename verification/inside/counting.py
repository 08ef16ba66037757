"""The counts of what the lines and instructions of kernels are of."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from profiler_ext.inside import line_table
from profiler_ext.inside.line_table import LineTable
from profiler_ext.records.kernel_lines import KernelSource, LinePart
from profiler_ext.records.provenance import GraphInstance, is_view_op

# What a consumer computes with, without a line of its own: a constant, an index.
_FOLDED = (
    "aten.full",
    "prims.iota",
    "aten.scalar_tensor",
    "getitem",
    "aten.empty",
    "prims.inductor",
)


@dataclass
class Count:
    """What was seen of the kernels so far."""

    kernels: Counter[str] = field(default_factory=Counter)  # by kind
    lines: Counter[str] = field(default_factory=Counter)  # by part
    evidence: Counter[str] = field(default_factory=Counter)
    instructions: Counter[str] = field(default_factory=Counter)  # by part
    tables: Counter[str] = field(default_factory=Counter)  # by gap
    unlike: Counter[str] = field(
        default_factory=Counter
    )  # nodes that capture has not, or alone has
    gaps: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    def add(self, source: KernelSource) -> None:
        """Count the lines of a kernel that are not empty."""
        self.kernels[kind_of(source.kernel)] += 1
        for number, (text, line) in enumerate(
            zip(source.text.split("\n"), source.lines, strict=True), start=1
        ):
            if text.strip():
                self.lines[line.part.value] += 1
                self.evidence[f"{line.part.value}: {line.evidence.value}"] += 1
            if line.part is LinePart.GAP:
                where = f"{source.kernel}:{number}"
                self.gaps.append(f"{where} {line.evidence.value} {text.strip()} {line.detail}")

    def compare(self, source: KernelSource, graphs: Iterable[GraphInstance]) -> None:
        """Compare the nodes of a kernel's lines with those of its call site."""
        for graph in graphs:
            if graph.output_module != source.module:
                continue
            targets = {node.name: node.target for node in graph.nodes}
            named = {name for line in source.lines for name in line.nodes}
            sites = [
                set(site.nodes)
                for site in graph.call_sites
                if (site.kernel, site.writes) == (source.kernel, source.writes)
            ]
            if sites:  # several, of a nested graph that is called several times
                nodes = max(sites, key=lambda nodes: len(nodes & named))
                alone = {name for name in nodes - named if not _is_free(targets.get(name, ""))}
                self.unlike["call sites"] += 1
                self.unlike["lines of other nodes"] += bool(named - nodes)
                self.unlike["nodes without a line"] += bool(alone)
                return
        self.unlike["no call site"] += 1

    def add_table(self, source: KernelSource, table: LineTable) -> None:
        """Count the instructions of a kernel by what each is of."""
        self.tables[table.gap or "equal code"] += 1
        for instruction in table.instructions:
            line = line_table.part_of(instruction, source, table)
            part = "padding" if instruction.is_padding else line.part.value
            self.instructions[part] += 1
            if line.part is LinePart.GAP:
                self.gaps.append(f"{source.kernel}+{instruction.offset:#x} {line.evidence.value}")

    def as_json(self) -> dict[str, Any]:
        """Return all of it."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}

    def summary(self) -> str:
        """Return the figures in a few lines."""
        rows = (
            f"{sum(self.kernels.values())} kernels {dict(self.kernels)}",
            f"{sum(self.lines.values())} lines {dict(self.lines)}",
            f"evidence {dict(self.evidence)}",
            f"nodes {dict(self.unlike)}",
            f"tables {dict(self.tables)}: {dict(self.instructions)}",
            f"{len(self.gaps)} gaps, {len(self.failures)} failures",
        )
        return "\n".join(rows)


def kind_of(kernel: str) -> str:
    """Return the kind in an Inductor kernel's name: ``poi``, ``red``, ``per``, ``tem``, ``for``."""
    found = re.match(r"triton_([a-z]{3})_", kernel)
    return found.group(1) if found else "program"


def _is_free(target: str) -> bool:
    return is_view_op(target) or target.startswith(_FOLDED)
