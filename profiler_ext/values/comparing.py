"""A mode of torch's dispatcher that compares what the ops of a step give, bit by bit.

What is compiled runs eagerly in that step, so that each op is seen. The program computes what it
computes without: only reductions of its tensors are added, on the streams that made these.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import fields
from typing import Any, NamedTuple

import torch

from profiler_ext.isolation.guard import Guard
from profiler_ext.records.values import OpValues, ProgramLine, StepValues
from profiler_ext.torch_compat.accelerator import is_capturing
from profiler_ext.torch_compat.names import running_names
from profiler_ext.values.fingerprints import (
    MIN_ELEMENTS,
    WEIGHTS,
    Fingerprint,
    fingerprint,
    read_fingerprint,
    rows_known_before,
    rows_of,
)
from profiler_ext.values.gradients import Gradients
from profiler_ext.values.program_lines import ProgramLines
from profiler_ext.values.reads import Reads, memory_of, name_of, tensors_of

VALUES = "values"
MAX_TENSORS = 30_000  # that are compared, of a step
_READ_AT_ONCE = 4_096
_MAX_ROWS, _MAX_KEPT_ROWS = 1 << 18, 1 << 27  # of a tensor, of all: 8 bytes each
_COUNTED = tuple(
    each.name for each in fields(OpValues) if each.name.endswith(("calls", "elements"))
)


class _Key(NamedTuple):
    line: ProgramLine
    op: str
    is_backward: bool


class _Compared(NamedTuple):
    """What an op gave."""

    key: _Key
    like: tuple[Any, ...]  # only tensors that are alike in this are compared
    elements: int
    rows: int
    number: int  # of the op


class Comparison:
    """Compares the values of one step, from :meth:`begin` to :meth:`end`."""

    def __init__(self, step: int, guard: Guard) -> None:
        self._step, self._guard = step, guard
        self._lines = ProgramLines()
        self._gradients = Gradients(self._lines, self._run_alone)
        self._compared: list[_Compared] = []
        self._fingerprints: list[torch.Tensor] = []
        self._rows: dict[tuple[Any, ...], list[tuple[int, torch.Tensor]]] = {}
        self._kept_rows = 0
        self._reads = Reads()
        self._returns_new: dict[Any, bool] = {}
        self._learning: dict[int, ProgramLine] = {}  # by the memory of a result with a gradient
        self._read_without_gradient: set[ProgramLine] = set()
        self._left_out = 0
        self._is_own = threading.local()
        self._mode = _mode_calling(self._dispatched)
        self._begun = ExitStack()

    def begin(self) -> None:
        """Compare from here on, in this thread and in the backwards that it begins."""
        self._begun.push(torch.compiler.set_stance("force_eager"))
        self._begun.enter_context(self._mode)

    def end(self) -> StepValues:
        """Compare no more; wait for the devices, and return what was found."""
        self.leave()
        needed = self._reads.needed()  # what the step left alive may go from here on
        with torch.no_grad():
            prints = _read(self._fingerprints)
            gradients = self._gradients.read(_read(self._gradients.numbers))
            before = self._rows_before()
        WEIGHTS.forget()
        found = [
            read_fingerprint(*each)
            for each in zip(prints, (of.rows for of in self._compared), strict=True)
        ]
        sums = _by_line(self._compared, found, needed, before)
        ops = tuple(self._values(key, own) for key, own in sums.items())
        return StepValues(self._step, ops, gradients, self._left_out + self._gradients.left_out)

    def _values(self, key: _Key, own: Counter[str]) -> OpValues:
        is_read = key.line in self._read_without_gradient
        counts: dict[str, Any] = {each: own[each] for each in _COUNTED}
        return OpValues(*key, **counts, is_read_without_gradient=is_read)

    def leave(self) -> None:
        """Restore what :meth:`begin` changed."""
        self._begun.close()
        self._gradients.end()

    def _run_alone(self, function: Callable[..., object], *args: Any) -> None:
        """Run code of ours within the program's: its ops are none of the program's."""
        self._is_own.now = True
        try:
            with torch.no_grad():
                self._guard.run(VALUES, function, *args)
        finally:
            self._is_own.now = False

    def _dispatched(self, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        try:
            result = op(*args, **kwargs)
        except torch.OutOfMemoryError:
            if not self._fingerprints:
                raise
            self._rows.clear()
            WEIGHTS.forget()
            if torch.accelerator.is_available():
                torch.accelerator.empty_cache()
            result = op(*args, **kwargs)
        if not getattr(self._is_own, "now", False):
            self._run_alone(self._see, op, args, kwargs, result, torch.is_grad_enabled())
        return result

    def _see(
        self, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any, learns: bool
    ) -> None:
        origin = self._lines.origin(name_of(op))
        line, given = origin.line, list(tensors_of((args, tuple(kwargs.values()))))
        if line is None and origin.is_backward:
            line = self._gradients.line_of_running()
        self._note_reads(None if origin.is_backward else line, given, result, learns=learns)
        number = self._reads.note(op, args, kwargs, result)
        if line is not None and not origin.is_recomputed and self._is_new(op) and given:
            self._compare(_Key(line, name_of(op), origin.is_backward), number, given, result)

    def _compare(self, key: _Key, number: int, given: list[torch.Tensor], result: Any) -> None:
        known = set(map(memory_of, given))  # ``_unsafe_view`` returns a view, and does not say so
        devices = {each.device for each in given}  # to copy a result to the host is not to repeat
        for each in tensors_of((result,)):
            if each.numel() < MIN_ELEMENTS or memory_of(each) in known:
                continue
            if len(self._compared) >= MAX_TENSORS or is_capturing():
                self._left_out += 1
                continue
            found, rows = fingerprint(each)
            self._fingerprints.append(found)
            self._keep_rows(key, each, rows)
            like = (key.op, each.dtype, tuple(each.shape), each.device, *devices)
            self._compared.append(_Compared(key, like, each.numel(), rows_of(each), number))

    def _keep_rows(self, key: _Key, tensor: torch.Tensor, rows: torch.Tensor | None) -> None:
        """Keep the digests of rows of a forward, to be compared with those of other calls."""
        if rows is None or key.is_backward or len(rows) > _MAX_ROWS:
            return
        self._kept_rows += len(rows)
        if self._kept_rows <= _MAX_KEPT_ROWS:
            like = (key, tensor.dtype, tensor.shape[-1], rows.device)
            self._rows.setdefault(like, []).append((len(self._compared), rows))

    def _rows_before(self) -> dict[int, int]:
        """Return how many rows of what was compared an earlier call has, too."""
        several = [each for each in self._rows.values() if len(each) > 1]
        self._rows.clear()
        counts = _read([rows_known_before([rows for _, rows in each]) for each in several])
        calls = [at for each in several for at, _ in each]
        return dict(zip(calls, (each for own in counts for each in own), strict=True))

    def _note_reads(
        self, line: ProgramLine | None, given: list[torch.Tensor], result: Any, *, learns: bool
    ) -> None:
        """Keep which lines' results are read where no gradient is recorded."""
        known = list(map(memory_of, given))
        if line is not None and not learns:
            read = (self._learning.get(each) for each in known)
            self._read_without_gradient |= {each for each in read if each is not None}
        for each in set(map(memory_of, tensors_of((result,)))).difference(known):
            self._learning.pop(each, None)  # what was there is freed
            if line is not None and learns:
                self._learning[each] = line

    def _is_new(self, op: Any) -> bool:
        """Tell whether an op returns only tensors of its own: no views, and nothing in place."""
        if (known := self._returns_new.get(op)) is None:
            schema = getattr(op, "_schema", None)
            returns = () if schema is None else schema.returns
            known = bool(returns) and all(each.alias_info is None for each in returns)
            self._returns_new[op] = known
        return known


def _mode_calling(dispatched: Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]) -> Any:
    def instead(_: object, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return dispatched(op, args, kwargs or {})

    members = {"__torch_dispatch__": instead, "supports_higher_order_operators": True}
    return type("ComparesValues", (running_names.DISPATCH_MODE.get(),), members)()


def _read(tensors: list[torch.Tensor]) -> list[list[int]]:
    """Return the numbers of small tensors, whose devices are waited for."""
    numbers: list[list[int]] = []
    for begin in range(0, len(tensors), _READ_AT_ONCE):
        part = tensors[begin : begin + _READ_AT_ONCE]
        sizes = [len(each) for each in part]
        for device in {each.device for each in part}:
            if device.type != "cpu":
                torch.accelerator.synchronize(device)
        flat = iter(torch.cat([each.cpu() for each in _on_one_device(part)]).tolist())
        numbers += [[next(flat) for _ in range(size)] for size in sizes]
    return numbers


def _on_one_device(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    """Return the tensors in one, if one device has them all: one copy is read."""
    is_one = len({each.device for each in tensors}) == 1
    return [torch.cat(tensors)] if is_one else tensors


def _by_line(
    compared: list[_Compared],
    prints: list[Fingerprint],
    needed: list[float],
    before: dict[int, int],
) -> dict[_Key, Counter[str]]:
    """Add up what the ops of each line gave, in all their calls."""
    seen: set[tuple[Any, ...]] = set()
    sums: dict[_Key, Counter[str]] = {}
    for at, (each, found) in enumerate(zip(compared, prints, strict=True)):
        own = sums.setdefault(each.key, Counter(dict.fromkeys(_COUNTED, 0)))
        value = (*each.like, found.digest)
        is_known = value in seen and not found.is_constant
        seen.add(value)
        row = each.elements // each.rows if each.rows else 0
        own.update(
            calls=1,
            elements=each.elements,
            repeated_elements=is_known * each.elements,
            equal_row_elements=row * found.equal_rows,
            rows_computed_before_elements=row * before.get(at, 0),
            unread_elements=int((1 - needed[each.number]) * each.elements),
        )
    return sums
