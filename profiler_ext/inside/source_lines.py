"""The observation of Inductor while it writes kernels: which FX node each line is of.

Each loop notes the node that was lowered as it was made, and puts it on a stack while its function
runs. What is traced or written meanwhile is of that node: the steps of a loop's body, and from them
the lines. :mod:`profiler_ext.inside.confirmation` checks each by the node's own op.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary, ref

import torch.fx

from profiler_ext.capture.graphs import call_sites, fx_nodes
from profiler_ext.inside import line_forms
from profiler_ext.inside.confirmation import Confirmation
from profiler_ext.isolation.guard import Guard, Observation, Observed
from profiler_ext.isolation.hook_protocols import Results
from profiler_ext.records.kernel_lines import (
    KernelLine,
    KernelLineEvidence,
    KernelSource,
    LinePart,
)
from profiler_ext.torch_compat import inductor, kernel_code, patches, points, schedules

_Nodes = dict[torch.fx.Node, None]  # in order
_Names = dict[torch.fx.Node, list[str]]  # for each call of its graph
_TEXT = re.compile(r"async_compile\.triton\(.*?'''(.*)'''", re.DOTALL)
_VALUE = re.compile(r"tmp\d+(?= = )")
_FRAME = KernelLine(LinePart.FRAME, KernelLineEvidence.FORM)
_UNSEEN = KernelLine(LinePart.GAP, KernelLineEvidence.NOT_SEEN)


@dataclass(slots=True)
class _Written:
    """What was written of one kernel."""

    lines: dict[str, _Nodes] = field(default_factory=dict)  # by text, without indentation
    values: dict[str, _Nodes] = field(default_factory=dict)  # by the variable that holds it

    def nodes(self, text: str) -> tuple[torch.fx.Node, ...]:
        """Return the nodes of a line, with those that share its value."""
        # A load is written with a mark, which its eviction policy replaces in the end.
        found: _Nodes = dict(self.lines.get(text, ()))
        if value := _VALUE.match(text):
            found.update(self.values.get(value.group(), ()))
        return tuple(found)


@dataclass(frozen=True, slots=True)
class _Line:
    """A line of a kernel with live FX nodes, until its graph is complete."""

    part: LinePart
    evidence: KernelLineEvidence
    nodes: tuple[torch.fx.Node, ...]
    detail: str = ""


@dataclass(frozen=True, slots=True)
class _Pending:
    """A kernel whose graph is still being generated."""

    graphs: tuple[Any, ...]
    kernel: str
    writes: tuple[str, ...]
    text: str
    lines: tuple[_Line | KernelLine, ...]


class SourceLines:
    """The kernels that Inductor generates in this process, line by line."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        self._running: list[torch.fx.Node] = []  # loops whose function runs, innermost last
        self._inlined: list[torch.fx.Node] = []  # nodes of a template's graph that are lowered
        self._steps: WeakKeyDictionary[torch.fx.Node, torch.fx.Node] = WeakKeyDictionary()
        self._written: WeakKeyDictionary[Any, _Written] = WeakKeyDictionary()
        self._latest: Callable[[], Any] = lambda: None  # the kernel that was written last
        self._combined: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()
        self._texts: dict[str, str] = {}  # of the graph being generated, by kernel
        self._extern: list[Any] = []  # library calls and kernels of the program, being written
        self._pending: list[_Pending] = []
        self._sources: list[KernelSource] = []

    @property
    def sources(self) -> tuple[KernelSource, ...]:
        """What was generated so far, in order."""
        return tuple(self._sources)

    @contextmanager
    def observed(self) -> Iterator[None]:
        """Observe every compile, in a process whose caches are its own.

        Raises:
            TorchCapabilityError: This torch lacks a place that is observed.
        """
        with patches.installed(self._observations(), self._guard):
            yield

    def _observations(self) -> list[patches.Hook]:
        return [
            (points.LOOPS_MADE, self._loops_made),
            (points.INNER_STEP, self._inner_step),
            (points.NODE_MADE, Results(self._step_made)),
            (points.LINE_WRITTEN, self._line_written),
            (points.VALUE_NAMED, Results(self._value_named)),
            (points.COMBO_KERNELS, self._combo_kernels),
            (points.KERNEL_CODE, self._kernel_code),
            (points.KERNEL_TEXT, self._kernel_text),
            (points.EXTERN_CALL, self._extern_call),
            (points.USER_KERNEL, self._user_kernel),
            (points.ARTIFACT_INIT, self._artifact),
        ]

    def _loops_made(self, call: Observed) -> Observation:
        yield
        node = self._inlined[-1] if self._inlined else kernel_code.lowered_node()
        if node is not None:
            kernel_code.mark_loops(call["self"], node, self._running)

    def _inner_step(self, call: Observed) -> Observation:
        if not kernel_code.is_lowering_inner_graph(call["self"]):
            yield
            return
        self._inlined.append(call["n"])
        try:
            yield
        finally:
            self._inlined.pop()

    def _step_made(self, step: torch.fx.Node) -> None:
        if kernel_code.is_body_graph(step.graph) and (node := self._asking()) is not None:
            self._steps[step] = node

    def _asking(self) -> torch.fx.Node | None:
        """The node that asks for what is traced or written now."""
        if self._running:
            return self._running[-1]
        step = kernel_code.body_step()
        return None if step is None else self._steps.get(step)

    def _writer(self) -> tuple[_Written, torch.fx.Node] | None:
        kernel = kernel_code.current_kernel()
        if kernel is None or not (self._running or kernel_code.body_step() is not None):
            return None
        node = self._asking() or kernel_code.node_of_loops(kernel)
        if node is None:
            return None
        self._latest = ref(kernel)
        return self._written.setdefault(kernel, _Written()), node

    def _line_written(self, call: Observed) -> Observation:
        yield
        text = kernel_code.line_text(call["line"])
        if text and (writer := self._writer()) is not None:
            written, node = writer
            for line in filter(None, map(str.strip, text.split("\n"))):
                written.lines.setdefault(line, {})[node] = None

    def _value_named(self, value: Any) -> None:
        if (writer := self._writer()) is not None:
            written, node = writer
            written.values.setdefault(kernel_code.value_name(value), {})[node] = None

    def _kernel_text(self, call: Observed) -> Observation:
        yield
        if text := _TEXT.search(call["kernel_body"]):
            self._texts[call["kernel_name"]] = text.group(1).strip("\n")

    def _combo_kernels(self, call: Observed) -> Observation:
        yield
        for _, kernel, nodes in call.result:
            self._combined[kernel] = nodes

    def _kernel_code(self, call: Observed) -> Observation:
        yield
        kernel, name = call["kernel"], str(call.result)
        # A schedule of several kernels names all nodes at each.
        schedule = self._combined.get(kernel, call["node_schedule"])
        scheduled = list(schedules.scheduled_nodes(schedule))
        writes = tuple(sorted({buffer for one in scheduled for buffer in one.writes}))
        text, graph = self._texts[name], inductor.current_graph()
        lines = self._template(kernel, text, schedule)
        if lines is None:
            lines = self._generated(kernel, text, name)
        self._pending.append(
            _Pending(tuple(kernel_code.graphs_around(graph)), name, writes, text, lines)
        )

    def _generated(self, kernel: Any, text: str, name: str) -> tuple[_Line | KernelLine, ...]:
        """Return the lines of a kernel that consists of loops, or of a combo of such."""
        parts = kernel_code.parts_of(kernel)
        checks = [Confirmation(part) for part in parts]
        texts = text.split("\n")
        begin, part, found = line_forms.body_begin(texts, name), -1, list[_Line | KernelLine]()
        for at, line in enumerate(texts):
            if at < begin:
                found.append(self._line(line, parts[0], checks[0], _FRAME))
                continue
            part += len(parts) > 1 and line_forms.begins_branch(line)
            own = min(max(part, 0), len(parts) - 1)
            found.append(self._line(line, parts[own], checks[own], None))
        return tuple(found)

    def _line(
        self, line: str, kernel: Any, check: Confirmation, otherwise: KernelLine | None
    ) -> _Line | KernelLine:
        part = line_forms.part_of_form(line)
        if part is not None:
            return KernelLine(part, KernelLineEvidence.FORM)
        written = self._written.get(kernel) or _Written()
        text = line.strip()
        nodes = written.nodes(text) or written.nodes(line_forms.without_numbers(text))
        if not nodes and otherwise is None and line_forms.is_accumulating(text):
            return KernelLine(LinePart.REDUCTION, KernelLineEvidence.FORM)
        if not nodes:
            return otherwise or _UNSEEN
        why = check.contradiction(text, nodes)
        if why is not None:
            return _Line(LinePart.GAP, KernelLineEvidence.CONTRADICTED, nodes, why)
        return _Line(LinePart.NODE, check.evidence(text, nodes), nodes)

    def _template(
        self, kernel: Any, text: str, schedule: Any
    ) -> tuple[_Line | KernelLine, ...] | None:
        """Return the lines of a kernel that is made of a template, ``None`` of any other."""
        if not kernel_code.is_template(kernel):
            return None
        computed = schedules.template_nodes(schedule)
        own = _Line(LinePart.TEMPLATE, KernelLineEvidence.OWN, computed) if computed else _UNSEEN
        written, check = self._written.get(kernel) or _Written(), Confirmation(kernel)
        found, is_inside = list[_Line | KernelLine](), False
        for line in text.split("\n"):
            if written.nodes(line.strip()):
                found.append(self._line(line, kernel, check, None))
            else:
                found.append(own if is_inside and line.strip() else _FRAME)
            is_inside = is_inside or line.startswith("def ")
        return tuple(found)

    def _extern_call(self, call: Observed) -> Observation:
        self._extern.append(inductor.kernel_of(call["scheduler_node"]))
        try:
            yield
        finally:
            self._extern.pop()

    def _user_kernel(self, call: Observed) -> Observation:
        yield
        name = str(call.result[0])
        if not self._extern or name not in self._texts:
            return
        site = call_sites.extern_site(self._extern[-1], name)
        own = _Line(LinePart.PROGRAM, KernelLineEvidence.OWN, site.nodes) if site.nodes else _UNSEEN
        fused = self._latest() if call.arguments.get("epilogue_fusion") is not None else None
        written = self._written.get(fused) if fused is not None else None
        text, is_inside, lines = self._texts[name], False, list[_Line | KernelLine]()
        for line in text.split("\n"):
            if written is not None and written.nodes(line.strip()):
                lines.append(self._line(line, fused, Confirmation(fused), None))
            else:
                lines.append(own if is_inside and line.strip() else _FRAME)
            is_inside = is_inside or line.startswith("def ")
        graphs = tuple(kernel_code.graphs_around(inductor.current_graph()))
        self._pending.append(_Pending(graphs, name, site.writes, text, tuple(lines)))

    def _artifact(self, call: Observed) -> Observation:
        yield
        graph, gm = call["graph"], call["gm"]
        names: _Names = {node: [node.name] for node in gm.graph.nodes}
        for name, nested in fx_nodes.nested_nodes(gm).items():
            names.setdefault(nested.node, []).append(name)
        module = inductor.output_module(call["self"])
        for pending in self._pending:
            if any(each is graph for each in pending.graphs):
                self._sources.extend(_complete(pending, module, names))
        self._pending.clear()
        self._texts.clear()


def _complete(pending: _Pending, module: str | None, names: _Names) -> Iterator[KernelSource]:
    """Yield a kernel's source, for each call of a nested graph with the names that its nodes have.

    One graph may be called several times: a compile region that repeats.
    """
    own = [node for line in pending.lines if isinstance(line, _Line) for node in line.nodes]
    for call in range(max([len(names.get(node, ())) for node in own], default=1) or 1):
        lines = tuple(
            line if isinstance(line, KernelLine) else _named(line, names, call)
            for line in pending.lines
        )
        yield KernelSource(module, pending.kernel, pending.writes, pending.text, lines)


def _named(line: _Line, names: _Names, call: int) -> KernelLine:
    unknown = [node.name for node in line.nodes if node not in names]
    if unknown:
        detail = f"{', '.join(unknown)} is of no graph that is known"
        return KernelLine(LinePart.GAP, KernelLineEvidence.NOT_SEEN, (), detail)
    called = (names[node] for node in line.nodes)
    own = tuple(each[min(call, len(each) - 1)] for each in called)
    return KernelLine(line.part, line.evidence, own, line.detail)
