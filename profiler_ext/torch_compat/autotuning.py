"""What Inductor's autotuning chooses among for the ops of one graph, with the time of each.

Source: ``torch/_inductor/select_algorithm.py``, ``AlgorithmSelectorCache``: ``__call__`` times the
choices and makes an op of the fastest; or it makes a ``MultiTemplateBuffer``
(``torch/_inductor/ir.py``), whose choices are timed and chosen in the scheduler, alone and, with
``benchmark_epilogue_fusion``, fused. Times are in milliseconds, infinite where a choice failed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from profiler_ext.records.provenance import Choice
from profiler_ext.records.vocabulary import ChoiceKind
from profiler_ext.torch_compat.fusions import extern_operations, operations_of
from profiler_ext.torch_compat.names import kernel_names

# Templates are numbered in the order in which they are made, ``triton_mm_12``
_NUMBER = re.compile(r"_\d+$")
_NS_PER_MS = 1e6


@dataclass(slots=True)
class Selection:
    """The choices of one op by torch's name, the fastest first, and which of them was chosen."""

    timed: dict[str, Choice] = field(default_factory=dict)
    chosen: str | None = None
    is_measured: bool = False  # in this compile; else the times are from torch's cache

    def add(self, timings: Mapping[Any, float]) -> None:
        """Add the times of choices, as torch has them."""
        for caller, ms in sorted(timings.items(), key=lambda item: item[1]):
            self.timed.setdefault(_name(caller), _choice(caller, ms))


def _name(caller: Any) -> str:
    return str(kernel_names.CHOICE_NAME.of(caller))


def _choice(caller: Any, ms: float) -> Choice:
    name, kind = _name(caller), _kind(caller)
    return Choice(
        name if kind is ChoiceKind.LIBRARY else _NUMBER.sub("", name),
        kind,
        str(kernel_names.CHOICE_CONFIG.of(caller)),
        round(ms * _NS_PER_MS) if math.isfinite(ms) else None,
    )


def _kind(caller: Any) -> ChoiceKind:
    if kernel_names.LIBRARY_CHOICE.is_type_of(caller):
        return ChoiceKind.LIBRARY
    is_graph = kernel_names.GRAPH_CHOICE.is_type_of(caller)
    return ChoiceKind.GRAPH if is_graph else ChoiceKind.TEMPLATE


@dataclass(slots=True)
class Selections:
    """What autotuning timed and chose for the ops of one graph."""

    _by_operation: dict[str, Selection] = field(default_factory=dict)
    _open: list[Selection] = field(default_factory=list)

    def of(self, operation: str) -> Selection | None:
        """Return the selection of an op, if its choices were timed."""
        return self._by_operation.get(operation)

    @contextmanager
    def opened(self) -> Iterator[Selection]:
        """Collect what is timed meanwhile."""
        selection = Selection()
        self._open.append(selection)
        try:
            yield selection
        finally:
            self._open.pop()

    def add_times(self, timings: Mapping[Any, float] | None) -> None:
        """Add times of choices to the selection that is open."""
        if self._open and timings:
            self._open[-1].add(timings)

    def note_measured(self) -> None:
        """Note that the choices of the open selection are measured now."""
        if self._open:
            self._open[-1].is_measured = True

    def keep_made(self, selection: Selection, made: Any) -> None:
        """Keep a selection with what torch made of it: the op, and from 2.12 on its choice."""
        if not selection.timed:
            return
        op, caller = made if isinstance(made, tuple) else (made, None)
        selection.chosen = next(iter(selection.timed)) if caller is None else _name(caller)
        with suppress(NotImplementedError):  # a view of it has no name of an op
            for name in operations_of(str(kernel_names.MADE_OPERATION.of(op)())):
                self._by_operation[name] = selection

    def keep_deferred(
        self, selection: Selection, buffer: Any, timings: Mapping[Any, float]
    ) -> None:
        """Keep the first times of a choice that the scheduler makes: later ones are of fusions."""
        for name in extern_operations(buffer):
            if name in self._by_operation:
                continue
            if not selection.timed:  # other threads timed it (``pipeline_max_autotune_gemm``)
                selection.add(timings)
                selection.is_measured = True
            self._by_operation[name] = selection

    def note_chosen(self, buffer: Any, caller: Any) -> None:
        """Note the template that the scheduler chose; it may choose again for a larger fusion."""
        for name in extern_operations(buffer):
            if (selection := self._by_operation.get(name)) is not None:
                selection.chosen = _name(caller)
